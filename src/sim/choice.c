/* choice.c - the table of choices. */
#include "sim/choice.h"

static const struct choice_row rows[] = {
    [CHOOSE_TASK] = {"task", CLASS_ORDER, "which of ", " ready tasks runs next", NULL, NULL},
    [CHOOSE_STEAL] = {"steal", CLASS_ORDER, "which of ", " workers to look at for work", NULL,
                      NULL},
    [CHOOSE_PLACE] = {"place", CLASS_ORDER, "which of ", " sleeping workers to wake", NULL, NULL},
    [CHOOSE_CASE] = {"case", CLASS_ORDER, "which of ", " ready cases is taken", NULL, NULL},
    [CHOOSE_CANCEL] = {"cancel", CLASS_FAULT, NULL, NULL, "is not cancelled here",
                       "is cancelled here"},
    [CHOOSE_YIELD] = {"yield", CLASS_ORDER, NULL, NULL, "goes on", "lets another task go first"},
    [SIM_THREAD] = {"thread", CLASS_ORDER, "which of ", " threads goes on", NULL, NULL},
    [SIM_SWITCH] = {"switch", CLASS_ORDER, NULL, NULL, "goes on",
                    "is interrupted by another thread"},
    [SIM_NOTIFY] = {"notify", CLASS_ORDER, "which of ", " waiting threads is woken", NULL, NULL},
    [SIM_EVENT] = {"event", CLASS_ORDER, "which of ", " events comes first", NULL, NULL},
    [SIM_FAULT] = {"fault", CLASS_FAULT, NULL, NULL, "no fault", "a fault"},
    [SIM_AMOUNT] = {"amount", CLASS_AMOUNT, "how much, of ", " possibilities", NULL, NULL},
    [SIM_USER] = {"user", CLASS_AMOUNT, "the program's own choice, of ", "", NULL, NULL},
};

_Static_assert(sizeof rows / sizeof rows[0] == SIM_KINDS, "the last kind has no row");
/* A kind in the middle that was forgotten has no name: the count above cannot see it, the
 * unit test does. */

const struct choice_row *choice_row(unsigned kind)
{
    static const struct choice_row unknown = {"unknown", CLASS_ORDER, "which of ", "", NULL, NULL};

    return kind < SIM_KINDS ? &rows[kind] : &unknown;
}
