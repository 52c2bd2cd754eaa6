/* api_out.h - jobs, queues and leases as JSON.
 *
 * Times are milliseconds since 1970, in members that end in _ms, as durations are; one that is not
 * set is left out. Ids and tokens are texts of digits: they have 64 bits.
 * Threads: any. No state.
 */
#ifndef WEIR_SERVER_API_OUT_H
#define WEIR_SERVER_API_OUT_H

#include "server/api.h"

void out_int(struct json_writer *json, const char *key, int64_t value);
void out_bool(struct json_writer *json, const char *key, bool value);
void out_text(struct json_writer *json, const char *key, const char *value);
/* Left out if it is 0, or "". */
void out_int_if(struct json_writer *json, const char *key, int64_t value);
void out_text_if(struct json_writer *json, const char *key, const char *value);

void out_job(struct json_writer *json, const weir_job_info *info);
void out_leased(struct json_writer *json, const weir_job *job);
void out_queue(struct json_writer *json, const weir_queue_figures *figures);
void out_orders(struct json_writer *json, unsigned orders);
void out_enqueued(struct json_writer *json, const weir_enqueued *enqueued);

#endif
