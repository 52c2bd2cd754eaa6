/* problem.h - what goes wrong with a request, as problem+json (RFC 9457) with stable codes.
 *
 *     {"type": "urn:weir:problem:queue-full", "title": "The queue is full", "status": 429,
 *      "code": "queue-full", "detail": "queue 'mail': depth_max of 1000 reached", "retry_after": 1}
 *
 * One table (problem.c) has code, status, title and whether Retry-After is told. Codes never change
 * their meaning: programs compare them.
 * Threads: any. No state.
 */
#ifndef WEIR_SERVER_PROBLEM_H
#define WEIR_SERVER_PROBLEM_H

enum problem_code {
    PROBLEM_NONE,
    PROBLEM_BAD_REQUEST,     /* 400 bad-request: it is no HTTP that we take */
    PROBLEM_BAD_JSON,        /* 400 bad-json: with "offset" */
    PROBLEM_BAD_QUERY,       /* 400 bad-query */
    PROBLEM_BAD_FILTER,      /* 400 bad-filter: with "offset" */
    PROBLEM_INVALID,         /* 422 invalid: what is said contradicts itself or a limit */
    PROBLEM_UNAUTHORIZED,    /* 401 unauthorized */
    PROBLEM_FORBIDDEN,       /* 403 forbidden: the token does not allow it */
    PROBLEM_WRONG_HOST,      /* 421 wrong-host */
    PROBLEM_NOT_FOUND,       /* 404 not-found: no such path */
    PROBLEM_NO_SUCH,         /* 404 no-such: the path is right, the job, queue, ... is not there */
    PROBLEM_WRONG_METHOD,    /* 405 wrong-method: with Allow */
    PROBLEM_NOT_ACCEPTABLE,  /* 406 not-acceptable */
    PROBLEM_CONFLICT,        /* 409 conflict: it is in another state */
    PROBLEM_STALE_LEASE,     /* 409 stale-lease: the token is not, or no longer, the lease's */
    PROBLEM_COUNT_DIFFERS,   /* 409 count-differs: with "actual_count" */
    PROBLEM_KEY_REUSED,      /* 409 key-reused: another request had this Idempotency-Key */
    PROBLEM_TOO_LARGE,       /* 413 too-large */
    PROBLEM_URI_TOO_LONG,    /* 414 uri-too-long */
    PROBLEM_WRONG_TYPE,      /* 415 wrong-type: of the body */
    PROBLEM_EXPECTATION,     /* 417 expectation: an Expect other than 100-continue */
    PROBLEM_HEAD_TOO_LARGE,  /* 431 head-too-large */
    PROBLEM_TIMEOUT,         /* 408 timeout: the request came too slowly */
    PROBLEM_QUEUE_FULL,      /* 429 queue-full: with Retry-After */
    PROBLEM_RATE_LIMITED,    /* 429 rate-limited: with Retry-After */
    PROBLEM_OVERLOADED,      /* 503 overloaded: shed, with Retry-After */
    PROBLEM_DRAINING,        /* 503 draining: the server or the queue takes nothing new */
    PROBLEM_NO_ROOM,         /* 507 no-room: memory or disk bound of the store */
    PROBLEM_STORE_STOPPED,   /* 503 store-stopped: a write or a sync has failed */
    PROBLEM_OUTCOME_UNKNOWN, /* 504 outcome-unknown: a write was cut off, or its store failed */
    PROBLEM_NOT_SUPPORTED,   /* 501 not-supported */
    PROBLEM_VERSION,         /* 505 http-version */
    PROBLEM_INTERNAL,        /* 500 internal */
    PROBLEMS,
};

struct problem_kind {
    const char *code;
    const char *title;
    unsigned status;
    int retry_after_s; /* 0: not told */
};

const struct problem_kind *problem_kind_of(enum problem_code code);
/* Of an error of the library; PROBLEM_INTERNAL for what is not known. */
enum problem_code problem_of_error(int error);
/* Of a status with which the parser refuses a message. */
enum problem_code problem_of_status(unsigned status);

#endif
