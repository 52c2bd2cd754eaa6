/* mail.h - how one thread tells a worker something.
 *
 * A piece of mail is embedded in the object it is about. Any thread may post it;
 * `deliver` runs on the worker, once per posting: on its own stack what comes through
 * the inbox, on the stack of whoever calls mail_deliver_local what is local. The
 * poster makes sure that a piece is not posted again before it was delivered.
 */
#ifndef WEIR_RT_MAIL_H
#define WEIR_RT_MAIL_H

#include "base/atomic.h"

struct worker;

struct mail {
    struct mail *next;
    void (*deliver)(struct worker *worker, struct mail *mail);
};

/* From any thread, the worker itself included: delivered at its next turn, and a
 * sleeping worker is woken. */
void mail_post(struct worker *target, struct mail *mail);

/* On the worker itself: delivered by mail_deliver_local, without atomics. */
void mail_post_local(struct worker *self, struct mail *mail);

/* Deliver what was posted locally, and what that posts in turn, until there is no
 * more. Does nothing when it is already on the way (a delivery that posts). */
void mail_deliver_local(struct worker *self);

/* Deliver what other threads have posted. Returns whether there was any. */
bool mail_deliver_inbox(struct worker *self);

#endif
