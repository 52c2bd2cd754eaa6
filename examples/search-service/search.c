/* search.c - one search on its way. */
#include "search.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
    const char *name, *sentence;
    bool accepted;
} codes[SEARCH_CODES] = {
    [SEARCH_OK] = {"ok", "", true},
    [SEARCH_PARTIAL] = {"partial", "enrich", true},
    [SEARCH_BAD_REQUEST] = {"bad-request", "SEARCH id words...", false},
    [SEARCH_TOO_LONG] = {"too-long", "a line has at most 512 bytes", false},
    [SEARCH_OVERLOAD] = {"overload", "the queue is full", false},
    [SEARCH_SHED] = {"shed", "the queue is too slow", false},
    [SEARCH_UNAVAILABLE] = {"unavailable", "the upstream fails and is left alone", true},
    [SEARCH_UPSTREAM] = {"upstream", "the upstream has failed", true},
    [SEARCH_TIMEOUT] = {"timeout", "not done in time", true},
    [SEARCH_STOPPING] = {"stopping", "the service is stopping", false},
    [SEARCH_INTERNAL] = {"internal", "see the service's log", true},
};

const char *search_code_name(enum search_code code)
{
    return codes[code].name;
}

bool search_was_accepted(enum search_code code)
{
    return codes[code].accepted;
}

/* ASCII, whatever the locale: the protocol has no other. 0: it is no part of a word. */
static char word_char(char c)
{
    if (c >= 'A' && c <= 'Z') return (char)(c + ('a' - 'A'));
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : '\0';
}

bool search_read(const char *line, struct search *ret_search)
{
    size_t length;

    memset(ret_search, 0, sizeof *ret_search);
    ret_search->id[0] = '-';
    if (strncmp(line, "SEARCH ", 7) != 0) return false;
    line += 7;
    length = strcspn(line, " ");
    if (length == 0 || length >= sizeof ret_search->id) return false;
    for (size_t i = 0; i < length; i++)
        if (line[i] <= ' ' || line[i] > '~') return false;
    memcpy(ret_search->id, line, length);
    line += length;
    line += strspn(line, " ");
    if (*line == '\0' || strlen(line) >= sizeof ret_search->words) return false;
    memcpy(ret_search->words, line, strlen(line) + 1);
    return true;
}

int search_normalize(struct search *search)
{
    size_t used = 0;
    int words = 0;

    for (const char *at = search->words; *at && words < SEARCH_WORDS_MAX;) {
        size_t begin = used;
        for (; word_char(*at); at++) search->words[used++] = word_char(*at);
        if (used > begin) words++;
        while (*at && !word_char(*at)) at++;
        if (used > begin && *at && words < SEARCH_WORDS_MAX) search->words[used++] = ' ';
    }
    while (used > 0 && search->words[used - 1] == ' ') used--;
    search->words[used] = '\0';
    return words > 0 ? 0 : -EBADMSG;
}

int64_t search_thread_time_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

/* How well a document fits, in many small steps. */
static uint32_t score_of(const struct search *search, int document, uint32_t round)
{
    uint32_t hash = 2166136261u ^ round;

    for (const char *at = search->words; *at; at++)
        hash = (hash ^ (unsigned char)*at ^ (uint32_t)document) * 16777619u;
    return hash;
}

static int better(const void *a, const void *b)
{
    const struct search_hit *one = a, *other = b;

    return (one->score < other->score) - (one->score > other->score);
}

void search_rank(struct search *search, int cost_us, int64_t (*time_us)(void), bool (*told)(void))
{
    int64_t end_us = time_us() + cost_us;
    uint32_t round = 0;

    do {
        for (int i = 0; i < search->hit_count; i++) {
            uint32_t score = score_of(search, search->hits[i].document, round);
            if (round == 0) search->hits[i].score = (int)(score % 1000);
        }
        round++;
    } while (round % 32 != 0 || (time_us() < end_us && !(told && told())));
    qsort(search->hits, (size_t)search->hit_count, sizeof search->hits[0], better);
}

void search_title_all(struct search *search)
{
    for (int i = 0; i < search->hit_count && i < SEARCH_SHOWN; i++)
        (void)snprintf(search->hits[i].title, sizeof search->hits[i].title, "Document_%d",
                       search->hits[i].document);
}

static size_t answer_hits(const struct search *search, char *line, size_t bytes)
{
    size_t used = 0;

    for (int i = 0; i < search->hit_count && i < SEARCH_SHOWN; i++)
        used += (size_t)snprintf(line + used, bytes - used, " d%d=%d:%s", search->hits[i].document,
                                 search->hits[i].score, search->hits[i].title);
    return used;
}

size_t search_answer(const struct search *search, enum search_code code, char *line, size_t bytes)
{
    size_t used;

    if (code != SEARCH_OK && code != SEARCH_PARTIAL)
        return (size_t)snprintf(line, bytes, "error %s %s %s\n", search->id, codes[code].name,
                                codes[code].sentence);
    used = (size_t)snprintf(line, bytes, "%s %s%s%s", codes[code].name, search->id,
                            code == SEARCH_PARTIAL ? " " : "", codes[code].sentence);
    used += answer_hits(search, line + used, bytes - used);
    return used + (size_t)snprintf(line + used, bytes - used, "\n");
}
