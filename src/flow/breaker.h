/* breaker.h - a breaker as a guard asks it: with the time that the guard has read, and also when
 * it was closed meanwhile.
 */
#ifndef WEIR_FLOW_BREAKER_H
#define WEIR_FLOW_BREAKER_H

#include <weir/breaker.h>

#include "policy/breaker.h"

/* 0, WEIR_EBREAKER, or WEIR_ECLOSED. */
int breaker_ask(const weir_breaker *handle, int64_t now_ns, struct breaker_pass *ret_pass);

/* The call has ended after run_ns; nothing if the breaker was closed. */
void breaker_tell(const weir_breaker *handle, const struct breaker_pass *pass, int result,
                  int64_t run_ns, int64_t now_ns);

/* It has not changed its state since it let the call in. */
bool breaker_holds(const weir_breaker *handle, const struct breaker_pass *pass);

#endif
