/* timer.h - something to do at a time, on the worker that armed it.
 *
 * Intrusive and in constant time; the memory is the owner's. A timer is touched
 * only on its worker. `fire` runs on the worker's own stack and must not suspend.
 */
#ifndef WEIR_RT_TIMER_H
#define WEIR_RT_TIMER_H

#include "base/wheel.h"

struct worker;

struct timer {
    struct wheel_timer wheel;
    void (*fire)(struct worker *worker, struct timer *timer);
};

void timer_init(struct timer *timer, void (*fire)(struct worker *worker, struct timer *timer));
void timer_arm(struct worker *worker, struct timer *timer, int64_t at_ns); /* also moves it */
void timer_disarm(struct worker *worker, struct timer *timer);             /* also if not armed */

/* weir_sleep until a time on the worker's clock. The calling task has called task_enter. */
int timer_sleep_until(int64_t at_ns);

/* now + ms, without overflow; INT64_MAX is never. */
int64_t time_after_ms(int64_t now_ns, int64_t ms);

#endif
