/* api_handlers.h - the handlers of all routes, for the table (api_routes.c).
 *
 * Each is called in the request's scope and deadline; 0, or negative with a problem (route.h).
 * Threads: the task of the request.
 */
#ifndef WEIR_SERVER_API_HANDLERS_H
#define WEIR_SERVER_API_HANDLERS_H

#include "server/exchange.h"

/* api_jobs.c: one job; api_enqueue.c: new ones */
int job_enqueue(struct exchange *x);
int job_enqueue_many(struct exchange *x);
int job_enqueue_queue(struct exchange *x);
int job_show(struct exchange *x);
int job_payload(struct exchange *x);
int job_result(struct exchange *x);
int job_patch(struct exchange *x);
int job_retry(struct exchange *x);
int job_cancel(struct exchange *x);
int job_discard(struct exchange *x);

/* api_list.c: many jobs */
int jobs_list(struct exchange *x);
int bulk_begin(struct exchange *x);
int bulk_list(struct exchange *x);
int bulk_show(struct exchange *x);
int bulk_drop(struct exchange *x);

/* api_lease.c: workers */
int queue_lease(struct exchange *x);
int leases_extend(struct exchange *x);
int job_extend(struct exchange *x);
int job_progress(struct exchange *x);
int job_ack(struct exchange *x);
int job_fail(struct exchange *x);
int job_release(struct exchange *x);
int jobs_settle(struct exchange *x);
int jobs_commit(struct exchange *x);
int worker_show(struct exchange *x);
int worker_order(struct exchange *x);

/* api_queues.c: queues, keys; api_schedules.c: schedules, batches */
int queues_list(struct exchange *x);
int queue_show(struct exchange *x);
int queue_set(struct exchange *x);
int queue_change(struct exchange *x);
int queue_pause(struct exchange *x);
int queue_resume(struct exchange *x);
int queue_drain(struct exchange *x);
int key_set(struct exchange *x);
int schedules_list(struct exchange *x);
int schedule_show(struct exchange *x);
int schedule_set(struct exchange *x);
int schedule_drop(struct exchange *x);
int batch_show(struct exchange *x);
int batch_seal(struct exchange *x);

/* api_tokens.c, api_admin.c */
int tokens_show(struct exchange *x);
int token_add(struct exchange *x);
int token_rotate(struct exchange *x);
int token_drop(struct exchange *x);
int admin_info(struct exchange *x);
int admin_config(struct exchange *x);
int admin_connections(struct exchange *x);
int admin_tasks(struct exchange *x);
int admin_map(struct exchange *x);
int admin_audit(struct exchange *x);

/* api_backup.c */
int admin_backup(struct exchange *x);

/* api_health.c */
int health_live(struct exchange *x);
int health_ready(struct exchange *x);
int metrics_show(struct exchange *x);
int openapi_show(struct exchange *x);

#endif
