/* mail.c - a many-writers, one-reader stack per worker, and a local queue. */
#include "rt/mail.h"

#include <stddef.h>

#include "base/planted.h"
#include "rt/runtime.h"

void mail_post(struct worker *target, struct mail *mail)
{
    struct mail *head = atom_load(&target->inbox);
    bool slept = PLANTED(WAKE_DECIDED_BEFORE_POST) && atom_load(&target->rest) == WORKER_SLEEPING;
    do {
        mail->next = head;
    } while (!atom_cas(&target->inbox, &head, mail));
    /* The exchange above is sequentially consistent, and so is the sleeper's store of
     * `rest` before it looks at the inbox: one of the two sees the other. */
    if (slept || !PLANTED(WAKE_DECIDED_BEFORE_POST)) worker_wake(target);
}

void mail_post_local(struct worker *self, struct mail *mail)
{
    mail->next = NULL;
    if (self->local_tail) {
        self->local_tail->next = mail;
    } else {
        self->local_head = mail;
    }
    self->local_tail = mail;
}

void mail_deliver_local(struct worker *self)
{
    struct task *running = atom_load(&self->current);
    struct mail *mail;

    if (self->delivering || !self->local_head) return;
    self->delivering = true;
    /* What is delivered is nobody's doing: it must not suspend the task that runs, nor
     * hand on that task's locals. */
    worker_set_current(self, NULL);
    while ((mail = self->local_head)) {
        self->local_head = mail->next;
        if (!self->local_head) self->local_tail = NULL;
        mail->deliver(self, mail);
    }
    worker_set_current(self, running);
    self->delivering = false;
}

bool mail_deliver_inbox(struct worker *self)
{
    struct mail *mail;
    struct mail *oldest_first = NULL;

    if (!atom_load(&self->inbox)) return false;
    mail = atom_exchange(&self->inbox, NULL);
    while (mail) {
        struct mail *next = mail->next;
        mail->next = oldest_first;
        oldest_first = mail;
        mail = next;
    }
    while (oldest_first) {
        struct mail *next = oldest_first->next; /* delivery may free it or post it again */
        oldest_first->deliver(self, oldest_first);
        oldest_first = next;
    }
    mail_deliver_local(self);
    return true;
}
