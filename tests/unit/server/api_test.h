/* api_test.h - the API on a store of the test's own, and a client that asks it over TCP.
 *
 *     API_TEST(a_job_is_enqueued)
 *     {
 *         CHECK_INT(api_ask(stand, "POST", "/v1/jobs", "{...}"), ==, 201);
 *         CHECK_CONTAINS(api_body(stand), "\"duplicate\":false");
 *     }
 */
#ifndef WEIR_TESTS_UNIT_SERVER_API_TEST_H
#define WEIR_TESTS_UNIT_SERVER_API_TEST_H

#include "server/api.h"
#include "unit/server/server_test.h"
#include "unit/store/store_test.h"

struct api_stand {
    struct store_stand base;
    struct api api;
    struct server server;
    struct server_client *client; /* NULL: the next question connects */
    struct server_answer *answer;
    const char *bearer;           /* a token that is sent; NULL: none */
    const char *fields;           /* more header fields, each with its end; NULL: none */
    const char *type;             /* of the next body; NULL: JSON */
    struct service_limits limits; /* of the service when it is opened again */
    int store_ends_with;          /* when it is closed; 0: nothing has stopped it */
};

#define API_JOB(queue_, kind_, more_)                       \
    "{\"queue\":\"" queue_ "\",\"kind\":\"" kind_           \
    "\",\"idempotent\":true,\"retry\":{\"attempts_max\":2," \
    "\"backoff_ms\":1,\"backoff_ms_max\":1}" more_ "}"

/* With tokens, in a file: `with_tokens`. */
void api_stand_open(struct api_stand *stand, bool with_tokens);
void api_stand_close(struct api_stand *stand);
/* The store, the tokens and the service anew, from what is on disk. */
void api_stand_reopen(struct api_stand *stand);

/* Asks, and reads the answer: its status. `body` NULL: none. */
unsigned api_ask(struct api_stand *stand, const char *method, const char *target, const char *body);
unsigned api_ask_bytes(struct api_stand *stand, const char *method, const char *target,
                       const void *body, size_t bytes);
/* The two halves of that, and a client that goes away. */
void api_send(struct api_stand *stand, const char *method, const char *target, const void *body,
              size_t bytes);
unsigned api_read(struct api_stand *stand);
void api_hang_up(struct api_stand *stand);

const char *api_body(const struct api_stand *stand);
/* The text or number of the first member of this name, wherever it is; "": there is none. */
const char *api_member(const struct api_stand *stand, const char *name, char text[128]);
int64_t api_number(const struct api_stand *stand, const char *name);
/* A job of the queue: its id. */
uint64_t api_enqueue(struct api_stand *stand, const char *queue, const char *kind,
                     const char *payload);
/* A lease of the queue: the id, or 0; its token. */
uint64_t api_lease(struct api_stand *stand, const char *queue, uint64_t *ret_token);
/* A job of the queue that is a dead letter. */
uint64_t api_dead(struct api_stand *stand, const char *queue, const char *kind,
                  const char *payload);
/* A token with these scopes, one after the other with blanks between; its text. */
const char *api_token(struct api_stand *stand, const char *name, const char *scopes,
                      char text[TOKEN_TEXT_BYTES]);

#define API_TEST_WITH(name_, tokens_)                      \
    static void api_body_##name_(struct api_stand *stand); \
    STORE_TEST(name_)                                      \
    {                                                      \
        struct api_stand *whole = api_stand_of(stand);     \
        api_stand_open(whole, (tokens_));                  \
        api_body_##name_(whole);                           \
        api_stand_close(whole);                            \
    }                                                      \
    static void api_body_##name_(struct api_stand *stand)

#define API_TEST(name_) API_TEST_WITH(name_, false)

struct api_stand *api_stand_of(struct store_stand *stand);

#endif
