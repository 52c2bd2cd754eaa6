/* planted.h - bugs of the API that are there on purpose, in a copy that is made to find them.
 *
 *     if (SERVER_PLANTED(KEY_IGNORED)) return 0;
 *
 * In the library SERVER_PLANTED is 0 and the line is gone. tests/sim/server_api_planted_*.c compile
 * files of handlers once more, under other names, with the bugs in them; one at a time is switched
 * on by its test, which asserts that it is found. So no other build is needed: compare
 * base/planted.h, for the library.
 */
#ifndef WEIR_SERVER_PLANTED_H
#define WEIR_SERVER_PLANTED_H

#ifdef WEIR_SERVER_WITH_BUGS

enum server_planted {
    SERVER_PLANTED_NONE,
    SERVER_PLANTED_KEY_IGNORED,     /* an Idempotency-Key is not passed on */
    SERVER_PLANTED_ANSWERED_EARLY,  /* a job is told as synced before it is on disk */
    SERVER_PLANTED_REFUSAL_UNSEEN,  /* that the store refuses a settlement is not looked at */
    SERVER_PLANTED_GIVEN_BACK_TOLD, /* a lease that was given back is told all the same */
    SERVER_PLANTED_COMMIT_IN_PARTS, /* jobs of a commit are enqueued before its settlements */
};

/* The one that is on. */
extern enum server_planted server_planted_now;

#define SERVER_PLANTED(name_) (server_planted_now == SERVER_PLANTED_##name_)

#else

#define SERVER_PLANTED(name_) 0

#endif

#endif
