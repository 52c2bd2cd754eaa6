/* problem.c - the table of problems, and which of them an error of the library is. */
#include "server/problem.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <weir/error.h>

enum { RETRY_SOON_S = 1, RETRY_LATER_S = 5 };

static const struct problem_kind kinds[PROBLEMS] = {
    [PROBLEM_BAD_REQUEST] = {"bad-request", "The request is not valid HTTP", 400},
    [PROBLEM_BAD_JSON] = {"bad-json", "The body is not the JSON that is expected", 400},
    [PROBLEM_BAD_QUERY] = {"bad-query", "The query is not valid", 400},
    [PROBLEM_BAD_FILTER] = {"bad-filter", "The filter is not valid", 400},
    [PROBLEM_INVALID] = {"invalid", "What is asked for is not possible", 422},
    [PROBLEM_UNAUTHORIZED] = {"unauthorized", "A valid token is needed", 401},
    [PROBLEM_FORBIDDEN] = {"forbidden", "The token does not allow this", 403},
    [PROBLEM_WRONG_HOST] = {"wrong-host", "The request is for another host", 421},
    [PROBLEM_NOT_FOUND] = {"not-found", "There is no such path", 404},
    [PROBLEM_NO_SUCH] = {"no-such", "It does not exist", 404},
    [PROBLEM_WRONG_METHOD] = {"wrong-method", "The path does not have this method", 405},
    [PROBLEM_NOT_ACCEPTABLE] = {"not-acceptable", "No form of the answer is acceptable", 406},
    [PROBLEM_CONFLICT] = {"conflict", "It is in another state", 409},
    [PROBLEM_STALE_LEASE] = {"stale-lease", "The lease is not valid any more", 409},
    [PROBLEM_COUNT_DIFFERS] = {"count-differs", "There are more or fewer than expected", 409},
    [PROBLEM_KEY_REUSED] = {"key-reused", "The idempotency key was used for another request", 409},
    [PROBLEM_TOO_LARGE] = {"too-large", "The body is too large", 413},
    [PROBLEM_URI_TOO_LONG] = {"uri-too-long", "The target is too long", 414},
    [PROBLEM_WRONG_TYPE] = {"wrong-type", "The type of the body is not supported", 415},
    [PROBLEM_EXPECTATION] = {"expectation", "The expectation cannot be met", 417},
    [PROBLEM_HEAD_TOO_LARGE] = {"head-too-large", "The header fields are too large", 431},
    [PROBLEM_TIMEOUT] = {"timeout", "The request came too slowly", 408},
    [PROBLEM_QUEUE_FULL] = {"queue-full", "The queue is full", 429, RETRY_SOON_S},
    [PROBLEM_RATE_LIMITED] = {"rate-limited", "Too many requests", 429, RETRY_SOON_S},
    [PROBLEM_OVERLOADED] = {"overloaded", "The server is overloaded", 503, RETRY_SOON_S},
    [PROBLEM_DRAINING] = {"draining", "Nothing new is taken", 503, RETRY_LATER_S},
    [PROBLEM_NO_ROOM] = {"no-room", "There is no room for new work", 507, RETRY_LATER_S},
    [PROBLEM_STORE_STOPPED] = {"store-stopped", "The store has stopped", 503, RETRY_LATER_S},
    [PROBLEM_OUTCOME_UNKNOWN] = {"outcome-unknown", "It is not known whether it was done", 504},
    [PROBLEM_NOT_SUPPORTED] = {"not-supported", "That is not supported", 501},
    [PROBLEM_VERSION] = {"http-version", "The version of HTTP is not supported", 505},
    [PROBLEM_INTERNAL] = {"internal", "Something is wrong with the server", 500},
};

const struct problem_kind *problem_kind_of(enum problem_code code)
{
    assert(code > PROBLEM_NONE && code < PROBLEMS);
    assert(kinds[code].code);
    return &kinds[code];
}

static const struct {
    int error;
    enum problem_code code;
} errors[] = {
    {-ENOENT, PROBLEM_NO_SUCH},
    {WEIR_EREFUSED, PROBLEM_INVALID},
    {-EINVAL, PROBLEM_INVALID},
    {-EBUSY, PROBLEM_CONFLICT},
    {-EEXIST, PROBLEM_CONFLICT},
    {WEIR_EINUSE, PROBLEM_CONFLICT},
    {-ESTALE, PROBLEM_STALE_LEASE},
    {-EMSGSIZE, PROBLEM_TOO_LARGE},
    {WEIR_EOVERLOAD, PROBLEM_QUEUE_FULL},
    {WEIR_EBREAKER, PROBLEM_OVERLOADED},
    {WEIR_ESTOPPING, PROBLEM_DRAINING},
    {WEIR_ECANCELED, PROBLEM_DRAINING},
    {WEIR_ECLOSED, PROBLEM_DRAINING},
    {-ENOSPC, PROBLEM_NO_ROOM},
    {-EDQUOT, PROBLEM_NO_ROOM},
    {-ENOMEM, PROBLEM_NO_ROOM},
    {-EIO, PROBLEM_STORE_STOPPED},
    {-EROFS, PROBLEM_STORE_STOPPED},
    {-EBADMSG, PROBLEM_STORE_STOPPED},
    {WEIR_ETIMEDOUT, PROBLEM_OUTCOME_UNKNOWN},
    {WEIR_ECRASHED, PROBLEM_OUTCOME_UNKNOWN},
    {-EACCES, PROBLEM_FORBIDDEN},
    {-EPERM, PROBLEM_FORBIDDEN},
    {-EOPNOTSUPP, PROBLEM_NOT_SUPPORTED},
    {-ENOSYS, PROBLEM_NOT_SUPPORTED},
};

enum problem_code problem_of_error(int error)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i].error == error) return errors[i].code;
    }
    return PROBLEM_INTERNAL;
}

enum problem_code problem_of_status(unsigned status)
{
    switch (status) {
    case 413: return PROBLEM_TOO_LARGE;
    case 414: return PROBLEM_URI_TOO_LONG;
    case 417: return PROBLEM_EXPECTATION;
    case 431: return PROBLEM_HEAD_TOO_LARGE;
    case 501: return PROBLEM_NOT_SUPPORTED;
    case 505: return PROBLEM_VERSION;
    default: return PROBLEM_BAD_REQUEST;
    }
}
