/* checks.c - whether checks are made, and how patient they are. */
#include "rt/checks.h"

/* Said by the build: meson.build. */
#ifndef WEIR_CHECKS_BUILD
#define WEIR_CHECKS_BUILD 0
#endif

ATOM(bool) checks_default = WEIR_CHECKS_BUILD;
ATOM(int64_t) checks_patience_ns = INT64_C(1000000000);
ATOM(weir_check_fn) checks_observer;

bool checks_wanted(enum weir_checks said)
{
    return said == WEIR_CHECKS_DEFAULT ? atom_load(&checks_default) : said == WEIR_CHECKS_ON;
}
