/* signal.h - signals of the process as events that a task waits for.
 *
 *     int signals[] = {SIGHUP, SIGUSR2};
 *     r = weir_signal_open(scope, &(weir_signal_spec){
 *         .name = "reload", .signals = signals, .signals_count = 2}, &watch);
 *     while ((r = weir_signal_wait(watch, &event)) == 0) reload(event.signal);
 *
 * Owner: a scope. Lifetime: until weir_signal_close or the scope ends, whichever is
 * first. Backpressure: none can build up: for each signal a watch keeps how often it
 * has come since the last event, so an event is never lost and a flood is one event
 * with a large count. (The kernel itself merges a standard signal that is sent again
 * before it was handled; realtime signals are counted one by one, their values are not
 * kept.) Failure: a signal that cannot be watched is refused when the watch is opened.
 *
 * Nothing is blocked and no thread is started: a handler counts the signal and wakes
 * the runtime. It is there from the first watch of a signal, in whatever runtime, to
 * the close of the last; then the disposition that was there before comes back, unless
 * the program has set another one meanwhile. Any number of watches may have the same
 * signal, and each gets every one of them. A signal that every thread of the program
 * blocks does not arrive. See "Signals" in docs/semantics.md.
 *
 * Threads: open and close on any worker of the scope's runtime; one task at a time waits
 * on a watch, on any worker.
 */
#ifndef WEIR_SIGNAL_H
#define WEIR_SIGNAL_H

#include <weir/defs.h>
#include <weir/error.h>

WEIR_BEGIN

typedef struct weir_signal_watch weir_signal_watch;

/* What becomes of a handler function that a signal has already. */
enum weir_signal_previous {
    WEIR_PREVIOUS_UNSET = 0, /* refused if there is one */
    WEIR_PREVIOUS_REPLACE,   /* it is not called while the signal is watched */
    WEIR_PREVIOUS_CALL,      /* it is called as before, after the signal was counted */
};

typedef struct weir_signal_spec {
    const char *name;                   /* must be said; copied, at most 31 bytes */
    const int *signals;                 /* must be said: their numbers, each once; copied */
    int signals_count;                  /* must be said */
    enum weir_signal_previous previous; /* must be said if one of them has a handler */
} weir_signal_spec;

/* weir_signal_spec_init - set every member to "not said". */
static inline void weir_signal_spec_init(weir_signal_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

typedef struct weir_signal_event {
    int signal;
    uint64_t count; /* how often it has come since this watch was opened or last told of it */
    pid_t sender;   /* of the last one, as the kernel says it; 0: the kernel itself */
} weir_signal_event;

/* weir_signal_open(scope, &spec, &watch) - signals that come from now on are events of
 * the watch. Errors: WEIR_EREFUSED (weir_why): a member is missing, a signal cannot be
 * watched (KILL, STOP, the faults SEGV BUS FPE ILL TRAP SYS ABRT), it is taken by
 * weir_config.signals of a runtime of this process, or it has a handler and `previous`
 * is not said, or another watch has said something else; WEIR_ECANCELED (the scope is),
 * -ENOMEM, -ENFILE. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_signal_open_sized(weir_scope *scope, size_t spec_bytes,
                                                  const weir_signal_spec *spec,
                                                  weir_signal_watch **ret_watch);
#define weir_signal_open(scope, ...) \
    weir_signal_open_sized((scope), sizeof(weir_signal_spec), __VA_ARGS__)

/* weir_signal_wait - the next event. Signals that have come take turns. Takes on new
 * work: WEIR_ESTOPPING once the scope is stopping. Needs a deadline.
 * Cancel: nothing moved. Errors: WEIR_EINUSE (another task waits on it), WEIR_ECLOSED
 * (the watch's scope has ended meanwhile). */
WEIR_SUSPENDS int weir_signal_wait(weir_signal_watch *watch, weir_signal_event *ret_event);

/* weir_signal_close - the watch ends; what it has not told is forgotten. Takes NULL.
 * Never suspends. A task that waits on it is misuse and aborts with a sentence, and so
 * does any call after the close. */
WEIR_API void weir_signal_close(weir_signal_watch *watch);

WEIR_END

#endif
