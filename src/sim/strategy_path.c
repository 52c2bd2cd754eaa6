/* strategy_path.c - a run by its departures: 0 everywhere but where the path says otherwise. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rt/mem.h"
#include "rt/runtime.h"
#include "sim/strategy_kind.h"

struct path {
    size_t count;
    size_t next;
    struct departure departures[];
};

static struct path *path_alloc(size_t count)
{
    return mem_alloc_zeroed(sizeof(struct path) + count * sizeof(struct departure));
}

int path_new(const struct departure *departures, size_t count, struct path **ret_path)
{
    struct path *path = path_alloc(count);

    if (!path) return -ENOMEM;
    if (count > 0) memcpy(path->departures, departures, count * sizeof *departures);
    path->count = count;
    *ret_path = path;
    return 0;
}

/* One "12=1", and the comma behind it; NULL: it is none. */
static const char *parse_departure(const char *at, struct departure *ret_departure)
{
    unsigned long long number, answer;
    char *end;

    if (*at < '0' || *at > '9') return NULL;
    number = strtoull(at, &end, 10);
    if (end[0] != '=' || end[1] < '0' || end[1] > '9') return NULL;
    answer = strtoull(end + 1, &end, 10);
    if (answer == 0 || answer > UINT32_MAX) return NULL;
    if (*end == ',' && end[1] != '\0')
        end++;
    else if (*end != '\0')
        return NULL;
    *ret_departure = (struct departure){.number = number, .answer = (uint32_t)answer};
    return end;
}

int path_parse(const char *list, const char *words, struct path **ret_path)
{
    size_t count = *list != '\0';
    struct path *path;
    int r;

    for (const char *c = list; *c; c++) count += *c == ',';
    path = path_alloc(count);
    if (!path) return -ENOMEM;
    for (const char *at = list; at && *at;) {
        struct departure *departure = &path->departures[path->count];

        at = parse_departure(at, departure);
        if (!at) {
            r = refuse("WEIR_SIM=%s: a path is \"path:SEED:NUMBER=ANSWER,...\"", words);
            goto fail;
        }
        if (path->count > 0 && departure->number <= departure[-1].number) {
            r = refuse("WEIR_SIM=%s: the numbers of a path go up, and %" PRIu64 " does not", words,
                       departure->number);
            goto fail;
        }
        path->count++;
    }
    *ret_path = path;
    return 0;

fail:
    path_free(path);
    return r;
}

void path_free(struct path *take_path)
{
    mem_free(take_path);
}

static void path_again(struct strategy *strategy)
{
    strategy->path->next = 0;
}

static bool path_begin(struct strategy *strategy)
{
    strategy->seed = strategy->first_seed;
    path_again(strategy);
    return true;
}

static unsigned path_answer(struct strategy *strategy, const struct question *question)
{
    struct path *path = strategy->path;

    if (path->next == path->count) return 0;
    if (path->departures[path->next].number != strategy->question) return 0;
    /* A run that was made shorter may ask something else at the same number. */
    return path->departures[path->next++].answer % question->n;
}

size_t strategy_path_words(uint64_t seed, const struct departure *path, size_t count, char *words,
                           size_t bytes)
{
    size_t length = (size_t)snprintf(words, bytes, "path:%" PRIu64 ":", seed);

    for (size_t i = 0; i < count; i++) {
        size_t left = length < bytes ? bytes - length : 0;

        length += (size_t)snprintf(left ? words + length : NULL, left, "%s%" PRIu64 "=%" PRIu32,
                                   i > 0 ? "," : "", path[i].number, path[i].answer);
    }
    return length;
}

static size_t path_words(const struct strategy *strategy, char *words, size_t bytes)
{
    return strategy_path_words(strategy->seed, strategy->path->departures, strategy->path->count,
                               words, bytes);
}

const struct strategy_kind strategy_path = {
    .name = "path",
    .begin = path_begin,
    .again = path_again,
    .answer = path_answer,
    .words = path_words,
};
