/* shorten.c - the failed run with fewer faults and fewer departures.
 *
 * Chunks of departures are left out, large ones first, as long as the run fails the same
 * way. Faults go before interruptions: a run without any is the easiest to understand, and one
 * whose first fault comes late the next. What is left out moves the numbers of later
 * choices, so the path that is kept is the one that the shorter run has really taken.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rt/mem.h"
#include "sim/choice.h"
#include "sim/explore.h"
#include "sim/strategy.h"

struct shortening {
    struct explorer *explorer;
    struct explore_found *found;
    struct departure *candidate; /* as many as there were at the begin */
    unsigned attempts;
    int64_t until_ns;
    int64_t no_step_ms;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool explore_same_failure(const struct explore_end *a, const struct explore_end *b)
{
    const char *left = a->failure, *right = b->failure;

    if (a->failed != b->failed || a->hung != b->hung) return false;
    if (a->hung) return true;
    for (;;) {
        if (is_digit(*left) && is_digit(*right)) {
            while (is_digit(*left)) left++;
            while (is_digit(*right)) right++;
        }
        if (*left != *right) return false;
        if (*left == '\0') return true;
        left++;
        right++;
    }
}

/* Make the run of a path, in a child. */
static int make(struct shortening *shortening, const struct departure *path, size_t count,
                struct explore_end *ret_end)
{
    struct strategy *strategy;
    int r = strategy_new_path(shortening->found->seed, path, count, &strategy);

    if (r < 0) return r;
    shortening->attempts++;
    r = explore_attempt(shortening->explorer, strategy, false, -1, shortening->no_step_ms, ret_end);
    strategy_free(strategy);
    return r;
}

/* The path of the run that was made last, if it is not longer than `most`. */
static void keep_trace(struct shortening *shortening, size_t most)
{
    const struct trace *trace = &shortening->explorer->shared->trace;
    struct explore_found *found = shortening->found;

    if (trace->departures > most) return;
    found->departures = (size_t)trace->departures;
    memcpy(found->path, trace->path, found->departures * sizeof found->path[0]);
}

static bool out_of_budget(const struct shortening *shortening)
{
    return shortening->attempts >= SHORTEN_ATTEMPTS_MAX || explore_now_ns() >= shortening->until_ns;
}

static bool is_order(const struct departure *departure)
{
    return choice_row(departure->kind)->class == CLASS_ORDER;
}

/* Leave out `chunk` departures of the kind that `order` says, from the `from`-th of them on.
 * 1: it still fails; 0: not, or there are none so far on; -errno. */
static int leave_out(struct shortening *shortening, bool order, size_t from, size_t chunk)
{
    struct explore_found *found = shortening->found;
    struct explore_end end;
    size_t count = 0, seen = 0;
    int r;

    for (size_t i = 0; i < found->departures; i++) {
        if (is_order(&found->path[i]) == order) {
            size_t at = seen++;

            if (at >= from && at < from + chunk) continue;
        }
        shortening->candidate[count++] = found->path[i];
    }
    if (count == found->departures) return 0;
    r = make(shortening, shortening->candidate, count, &end);
    if (r < 0) return r;
    if (!explore_same_failure(&found->end, &end)) return 0;
    keep_trace(shortening, count);
    if (!end.hung) found->end = end; /* the same but for numbers: those of the run that is shown */
    return 1;
}

static size_t count_of(const struct explore_found *found, bool order)
{
    size_t count = 0;

    for (size_t i = 0; i < found->departures; i++) count += is_order(&found->path[i]) == order;
    return count;
}

/* All sizes of chunks, over all departures of a kind. */
static int leave_out_all(struct shortening *shortening, bool order)
{
    size_t chunk = count_of(shortening->found, order);

    for (; chunk > 0; chunk /= 2) {
        size_t from = 0;

        while (from < count_of(shortening->found, order)) {
            int r;

            if (out_of_budget(shortening)) return 0;
            r = leave_out(shortening, order, from, chunk);
            if (r < 0) return r;
            if (r == 0) from += chunk;
        }
    }
    return 0;
}

/* The run by its own words: when its path is too long to be kept, or does not do. */
static int make_by_words(struct shortening *shortening, struct explore_end *ret_end)
{
    struct explore_found *found = shortening->found;
    struct strategy *strategy;
    int r;

    if (found->words[0] == '\0') {
        *ret_end = (struct explore_end){.failed = false};
        return 0;
    }
    r = strategy_parse(found->words, &strategy);
    if (r < 0) return r;
    r = explore_attempt(shortening->explorer, strategy, false, -1, shortening->no_step_ms, ret_end);
    strategy_free(strategy);
    return r;
}

/* Whether it fails again: found->again, and by its path or its words alone. */
static int make_again(struct shortening *shortening)
{
    struct explore_found *found = shortening->found;
    int r;

    if (found->path_whole) {
        r = make(shortening, found->path, found->departures, &found->then);
        if (r < 0) return r;
        found->again = explore_same_failure(&found->end, &found->then);
        if (found->again) return 0;
        found->path_whole = false;
    }
    r = make_by_words(shortening, &found->then);
    if (r < 0) return r;
    found->again = explore_same_failure(&found->end, &found->then);
    return 0;
}

/* `whole`: how the run ended before it was shortened. */
static void name(struct explore_found *found, const struct explore_end *whole)
{
    size_t length = sizeof found->replay;

    if (found->path_whole || found->words[0] == '\0') {
        length = strategy_path_words(found->seed, found->path, found->departures, found->replay,
                                     sizeof found->replay);
    }
    if (length < sizeof found->replay) return;
    /* A path that does not fit: by its seed, unshortened; a search has no other name. */
    (void)snprintf(found->replay, sizeof found->replay, "%s", found->words);
    found->path_whole = false;
    found->departures = (size_t)found->departures_before;
    found->end = *whole; /* what is said is what the name makes again */
}

int explore_shorten(struct explorer *explorer)
{
    struct explore_found *found = explorer->found;
    struct shortening shortening = {
        .explorer = explorer,
        .found = found,
        .until_ns = explore_now_ns() + SHORTEN_MS_MAX * INT64_C(1000000),
        .no_step_ms = found->end.hung ? EXPLORE_NO_STEP_AGAIN_MS : EXPLORE_NO_STEP_MS,
    };
    const struct explore_end whole = found->end;
    int r = 0;

    if (found->not_again) {
        found->path_whole = false;
        goto done;
    }
    r = make_again(&shortening);
    if (r < 0 || !found->again || !found->path_whole) goto done;
    shortening.candidate = mem_alloc((found->departures + 1) * sizeof found->path[0]);
    if (!shortening.candidate) {
        r = -ENOMEM;
        goto done;
    }
    r = leave_out_all(&shortening, false);
    if (r == 0) r = leave_out_all(&shortening, true);
    /* What was needed for a fault that is gone may not be needed now. */
    if (r == 0 && found->departures > 0) r = leave_out_all(&shortening, false);

done:
    mem_free(shortening.candidate);
    name(found, &whole);
    return r;
}
