/* signal_table.h - who has which signal of the process.
 *
 * A signal is free, reserved by the runtime that takes signals (rt/signals.c), or has
 * watchers (io/signal.c), never both: two handlers of ours would each restore what it
 * found, in whatever order they end. A watched signal has one handler, which counts it
 * and tells every runtime that has a watch; watchers compare counts.
 *
 * Invariants: a handler is installed exactly while a signal has watchers; what was there
 * before comes back with the last one, unless somebody else has replaced ours.
 * Threads: any. The counts may be read at any time.
 */
#ifndef WEIR_RT_SIGNAL_TABLE_H
#define WEIR_RT_SIGNAL_TABLE_H

#include <stdint.h>
#include <sys/types.h>
#include <weir/signal.h>

enum { SIGNALS_MAX = 64, SIGNAL_NAME_BYTES = 16 };

/* For the runtime's own use, `what` names it ("WEIR_SIGNAL_DRAIN"). 0; WEIR_EREFUSED: it
 * is watched or reserved, in the name of `who`. */
int signal_reserve(int signal, const char *keep_what, const char *who);
/* The same for a signal that the program has chosen for member `what` of its configuration:
 * it must be one that can be caught, is no fault and is free, also of a handler of the
 * program's. */
int signal_reserve_free(int signal, const char *keep_what, const char *who);
/* Give it back, if `what` has it. */
void signal_release(int signal, const char *what);

/* One watcher more, and one less. WEIR_EREFUSED: see weir_signal_open. `who` is the
 * watch's name; `ret_count` is how often it had come before. */
int signal_watch(int signal, enum weir_signal_previous previous, const char *who,
                 uint64_t *ret_count);
void signal_unwatch(int signal);

/* How often a watched signal has come since the process began; who sent the last one. */
uint64_t signal_count(int signal);
pid_t signal_sender(int signal);

/* "SIGHUP", or "signal 40". */
void signal_name(int signal, char name[SIGNAL_NAME_BYTES]);

/* In a forked child: what was there before the watchers comes back. */
void signal_table_forget_in_child(void);

#endif
