/* retry_budget.h - a retry budget as a guard asks it: with the time that the guard has read, and
 * also when it was closed meanwhile.
 */
#ifndef WEIR_FLOW_RETRY_BUDGET_H
#define WEIR_FLOW_RETRY_BUDGET_H

#include <weir/retry.h>

/* A call is made. */
void budget_deposit(const weir_retry_budget *handle, int64_t now_ns);
/* A token for one more attempt: 0, WEIR_EOVERLOAD, or WEIR_ECLOSED. */
int budget_withdraw(const weir_retry_budget *handle, int64_t now_ns);
/* What it was taken for is not begun after all. */
void budget_give_back(const weir_retry_budget *handle);

#endif
