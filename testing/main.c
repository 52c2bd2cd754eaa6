/* main.c - the main of a program that is nothing but tests. Alone in its file: the linker takes it
 * from the library only if the program has none. */
#include <weir/test.h>

int main(int argc, char **argv)
{
    return weir_test_main(argc, argv);
}
