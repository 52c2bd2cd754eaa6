/* choice.h - a row for each kind of choice: its words, and what it is.
 *
 * Invariants: every kind of rt/kernel.h and of sim/sim.h has a row; choice.c does not compile
 * otherwise.
 */
#ifndef WEIR_SIM_CHOICE_H
#define WEIR_SIM_CHOICE_H

#include "sim/sim.h"

struct choice_row {
    const char *name; /* "task" */
    enum choice_class class;
    /* The question, around n: "which of 3 ready tasks runs next". */
    const char *before;
    const char *after;
    /* n is 2: what answers 0 and 1 are, instead of question and ordinal. Else both NULL. */
    const char *no;
    const char *yes;
};

/* The row of a kind; never NULL: an unknown kind has one, too. */
const struct choice_row *choice_row(unsigned kind);

#endif
