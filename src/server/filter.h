/* filter.h - which jobs, in words: "state:dead kind:mail* tag:eu age>1h payload.user.id:17".
 *
 * Terms with blanks between; all must hold. A value has no blanks, or stands in double quotes, in
 * which \" and \\ are escapes and * is no pattern.
 *
 *     state:dead,cancelled     one of these; "any", "live", "ended"
 *     queue:mail  queue:mail*  kind:send*      a name, or how it begins
 *     tag:eu                   one of its tags
 *     error:timeout            the class of its last error
 *     key:customer-7           a unique, idempotency, limit, fairness or order key
 *     batch:12  id:12
 *     age>1h  age<2d           since it was enqueued
 *     priority>=5  attempt>=2  also > < <= and : for equal
 *     payload.user.id:17       a member of its payload: a text, number, true, false or null
 *
 * What the engine can look for by itself is in `jobs`. Payloads are looked at one by one, of the
 * jobs that are left: whoever does that bounds it.
 *
 * Invariants: no memory is asked for; texts are in the filter itself, which is not copied. A
 * refusal has an offset and says what was expected.
 * Threads: one at a time. No state.
 */
#ifndef WEIR_SERVER_FILTER_H
#define WEIR_SERVER_FILTER_H

#include <weir/jobs.h>

#include "proto/json_read.h"

enum {
    FILTER_BYTES_MAX = 1024,
    FILTER_FIELDS_MAX = 4,
    FILTER_PATH_MAX = 8, /* names in payload.a.b.c */
    FILTER_WHY_BYTES = 160,
};

struct filter_field {
    struct bytes path[FILTER_PATH_MAX];
    unsigned path_count;
    struct bytes value;
};

struct filter {
    weir_job_filter jobs;                   /* without times: filter_at() sets them */
    int64_t older_than_ms, younger_than_ms; /* -1: not said */
    struct filter_field fields[FILTER_FIELDS_MAX];
    unsigned field_count;
    unsigned said; /* bits: which terms there were */
    size_t used;
    char texts[FILTER_BYTES_MAX + 64];
};

struct filter_refusal {
    size_t offset;
    char why[FILTER_WHY_BYTES];
};

/* 0, or WEIR_EREFUSED. An empty text finds all jobs. */
int filter_parse(struct bytes text, struct filter *ret_filter, struct filter_refusal *ret_refusal);
/* Ages count from here. */
void filter_at(struct filter *filter, int64_t now_ms);
/* Whether the payload has all that is asked of it. `keys` are the caller's. */
bool filter_payload_passes(const struct filter *filter, struct bytes payload,
                           const struct json_limits *limits);

#endif
