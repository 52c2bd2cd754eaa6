/* server_api.h - the API of the server on a host that loses power, with clients on another one.
 *
 * Producers and workers ask over a network that delays, cuts off and resets; the host with the
 * server, its store and its tokens is killed and started again. What clients asked and were told is
 * noted at once and outlives the host; the server is held to that:
 *
 * 1. A job that was told of as synced is there, and so are its end and its result.
 * 2. A key gives one job, however often it was sent.
 * 3. No two leases of a job are valid at a time. Tokens rise, and none is given twice; who comes
 *    with an old one is refused.
 * 4. A commit has happened whole or not at all.
 * 5. Nobody is served without a token that is known.
 * 6. All jobs come to an end once nothing goes wrong any more.
 */
#ifndef WEIR_TESTS_SIM_SERVER_API_H
#define WEIR_TESTS_SIM_SERVER_API_H

#include <inttypes.h>
#include <stdio.h>

#include "proto/http_parse.h"
#include "sim/policy.h"

enum {
    TOLD_JOBS_MAX = 24,
    TOLD_LEASES_MAX = 64, /* of one job */
    WIRE_BODY_BYTES = 16384,
    WIRE_BLOCK_BYTES = 4096,
    WIRE_FIELDS = 32,
    SERVER_PORT = 7000,
};

/* ---- What was asked and told (server_api_told.c) ---- */

struct told_lease {
    uint64_t token;
    unsigned told;        /* when, by the number of what was asked and told */
    unsigned given_up;    /* when it was first asked to settle it, and that not refused; 0: never */
    unsigned settle_asks; /* so many of these */
    int64_t claimed_ms, until_ms;
};

/* The job of a key. */
struct told_job {
    bool asked;
    bool kept;      /* told of, as synced */
    bool unwelcome; /* of a commit that was refused */
    uint64_t id;
    struct told_lease leases[TOLD_LEASES_MAX];
    unsigned lease_count;
    unsigned end_asks; /* acknowledgements that were not refused */
    bool ended;        /* an end was told */
    bool seen_done;    /* it has one, whoever was told of that */
    uint64_t end_token;
    unsigned end_seen; /* when it was, if nobody was told: then its token is UINT64_MAX */
    int source;        /* of a commit: the key of the job that it acknowledges; -1: none */
    uint64_t source_token;
    bool in_doubt; /* of a commit that nobody was told of */
};

struct told {
    struct told_job jobs[TOLD_JOBS_MAX];
    unsigned job_count, number;
    uint64_t tokens[TOLD_JOBS_MAX * TOLD_LEASES_MAX];
    unsigned token_count;
};
extern struct told told;

void told_begin(void);
/* The next key, or -1: there are enough. */
int told_want(void);
unsigned told_ask(void); /* a number for the request */
void told_enqueued(int key, uint64_t id, bool synced);
/* `asked`: the number of the request. */
void told_leased(int key, uint64_t id, uint64_t token, int64_t until_ms, int64_t lease_ms,
                 unsigned asked);
void told_extended(int key, uint64_t token, int64_t until_ms, unsigned asked);
/* Before it is asked to settle, and after that was told or refused. */
void told_settle_asked(int key, uint64_t token, bool ends);
void told_settled(int key, uint64_t token, bool ends, unsigned asked);
void told_refused(int key, uint64_t token, bool ends);
/* After a start: all there are have been told to told_found, one by one. */
void told_look_begin(void);
void told_found(int key, uint64_t id, bool is_done);
void told_look_end(void);
void told_result(int key, const char *result);
bool told_all_ended(void);

/* ---- A connection (server_api_wire.c) ---- */

struct wire {
    weir_conn *conn; /* NULL: the next question connects */
    struct http_parser parser;
    char block[WIRE_BLOCK_BYTES];
    struct http_field fields[WIRE_FIELDS * 2];
    char in[1024];
    size_t at, used;
    bool shut; /* the next request is the last one: its side is shut behind it */
    unsigned status;
    char body[WIRE_BODY_BYTES]; /* of the answer, with its end */
    size_t body_bytes;
};

extern const char wire_token_file[], wire_token[], wire_wrong_token[];

/* 0: `status` and `body` are the answer; negative: nobody knows what has happened. */
int wire_ask(struct wire *wire, const char *method, const char *path, const char *fields,
             const char *body);
/* A POST with another token. */
int wire_ask_as(struct wire *wire, const char *token, const char *path, const char *body);
void wire_close(struct wire *wire);
/* Of the first member with that name, from `at` on; 0: there is none. */
uint64_t wire_number(const char *at, const char *name);
bool wire_says(const struct wire *wire, const char *part);

/* ---- The program (server_api.c) ---- */

void server_api_begin(void *arg);
int server_api_program(void *arg);

#endif
