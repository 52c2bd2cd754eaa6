/* belonging.c - what lives on one worker and ends with its scope. */
#include <assert.h>

#include "rt/runtime.h"
#include "rt/scope.h"

void belonging_mail(struct belonging *belonging, uint8_t bits)
{
    if (atom_or(&belonging->mail_bits, bits) != 0) return;
    /* Through the inbox even on its own worker: what is delivered may call user code,
     * which must not run on the stack of the task that cancels. */
    mail_post(belonging->worker, &belonging->mail);
}

static void deliver_belonging_mail(struct worker *worker, struct mail *mail)
{
    struct belonging *belonging = container_of(mail, struct belonging, mail);
    uint8_t bits = atom_exchange(&belonging->mail_bits, 0);

    /* Each call may free it, so there is at most one; but for a dismissal, which does not. */
    if (bits & (BELONGING_FORGOTTEN | BELONGING_RELEASE)) {
        belonging->kind->release(worker, belonging);
        return;
    }
    if (bits & BELONGING_DISMISSED) belonging->kind->dismissed(worker, belonging);
    if (bits & BELONGING_SIGNALLED) {
        belonging->kind->signalled(worker, belonging,
                                   atom_load(&belonging->scope->children_signals));
    }
}

bool belonging_is_passive(const struct belonging *belonging)
{
    (void)belonging;
    return true;
}

int scope_own(weir_scope *scope, struct worker *worker, struct belonging *belonging,
              const struct belonging_kind *kind)
{
    int r = 0;

    assert(kind->boundary); /* or it would not be on the map */
    belonging->scope = scope;
    belonging->worker = worker;
    belonging->kind = kind;
    belonging->mail.deliver = deliver_belonging_mail;
    belonging->attendants = 0;
    atom_store(&belonging->mail_bits, 0);
    scope_lock(scope);
    if (atom_load(&scope->children_signals) & SIGNAL_CANCELLED) {
        r = WEIR_ECANCELED;
    } else {
        list_add_tail(&scope->belongings, &belonging->node);
    }
    scope_unlock(scope);
    return r;
}

bool scope_forget(struct belonging *belonging)
{
    weir_scope *scope = belonging->scope;

    if (!scope) return true; /* the second time, by the delivery of late mail */
    scope_lock(scope);
    list_remove(&belonging->node);
    belonging->scope = NULL;
    if (list_empty(&scope->belongings)) scope_settle(scope);
    scope_unlock(scope);
    /* Out of the list nobody posts it any more; what is under way comes back. */
    if (atom_exchange(&belonging->mail_bits, BELONGING_FORGOTTEN) != 0) return false;
    atom_store(&belonging->mail_bits, 0);
    return true;
}

void scope_attend(struct belonging *belonging)
{
    weir_scope *scope = belonging->scope;

    scope_lock(scope);
    belonging->attendants++;
    scope->attendants++;
    scope_settle(scope);
    scope_unlock(scope);
}

void scope_attend_end(struct belonging *belonging)
{
    weir_scope *scope = belonging->scope;

    scope_lock(scope);
    assert(belonging->attendants > 0);
    belonging->attendants--;
    scope->attendants--;
    scope_unlock(scope);
}
