/* planted.c - see planted.h. */
#include "base/planted.h"

#if WEIR_SIM_WORKERS

enum planted planted_now;

const char *planted_words(enum planted bug)
{
#define PLANTED_WORDS(name_, words_) [PLANTED_##name_] = (words_),
    static const char *const words[] = {
        PLANTED_IN_RT(PLANTED_WORDS) PLANTED_IN_FLOW(PLANTED_WORDS) PLANTED_IN_POLICY(PLANTED_WORDS)
            PLANTED_IN_LOG(PLANTED_WORDS) PLANTED_IN_STORE(PLANTED_WORDS)};
#undef PLANTED_WORDS
    return bug < PLANTED_COUNT ? words[bug] : "";
}

#else

typedef int planted_is_empty; /* a file has something in it */

#endif
