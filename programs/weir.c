/* weir.c - the program weir: the server and its command line; src/cli has the parts. */
#include "cli/main.h"

int main(int argc, char **argv)
{
    return cli_main(argc, argv);
}
