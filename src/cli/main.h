/* main.h - the program: parse, run, flush. */
#ifndef WEIR_CLI_MAIN_H
#define WEIR_CLI_MAIN_H

int cli_main(int argc, char **argv);

#endif
