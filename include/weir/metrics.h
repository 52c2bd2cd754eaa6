/* metrics.h - the figures of a running program, for whoever scrapes or looks.
 *
 * Everything that belongs to a scope and has a queue counts by itself: nothing has to be
 * declared. Objects of one kind with the same name share their figures, so a channel that
 * is opened for each request is one row, not one for each request.
 *
 *     weir_channel_depth, _depth_max, _capacity, _open       now, of all with the name
 *     weir_channel_accepted_total, _received_total, _rejected_total, _dropped_total,
 *     weir_channel_timeouts_total, _latency_target_seconds   {channel}
 *     weir_channel_wait_seconds{channel}      from send to receive, of 1 item in 64, in 512
 *                                             with several workers
 *     weir_actor_depth, _depth_max, _capacity, _accepted_total, _handled_total, _rejected_total,
 *     weir_actor_undelivered_total, _crashed_total, _restarts_total, _timeouts_total,
 *     weir_actor_latency_target_seconds                      {actor}
 *     weir_actor_wait_seconds, weir_actor_run_seconds        {actor}, of 1 message in 64
 *     weir_pool_queued, _queued_max, _capacity, _running, _finished_total, _rejected_total,
 *     weir_pool_removed_total, _orphaned_total, _timeouts_total, _latency_target_seconds,
 *     weir_pool_wait_seconds, weir_pool_run_seconds          {pool,class}, of every job
 *     weir_pool_threads, weir_pool_threads_max, weir_pool_orphans   {pool}
 *     weir_stage_depth, _depth_max, _capacity, _finished_total, _failed_total, _timeouts_total,
 *     weir_stage_latency_target_seconds, weir_stage_wait_seconds, weir_stage_run_seconds
 *                                                            {stage}, of every item
 *     weir_stage_rejected_total{stage,reason}
 *     weir_pipeline_latency_seconds, _finished_total, _failed_total, _partial_total,
 *     weir_pipeline_timeouts_total, _latency_target_seconds  {pipeline}, end to end
 *     weir_limit_limit, _in_flight, _in_flight_max, _waiting, _admitted_total, _waited_total,
 *     weir_limit_rejected_total, _timeouts_total, _latency_target_seconds   {limit}
 *     weir_limit_wait_seconds{limit}, weir_rate_wait_seconds{rate}   of every call that waits
 *     weir_rate_tokens_per_second, _burst, _waiting, _admitted_total, _taken_total,
 *     weir_rate_waited_total, _rejected_total, _timeouts_total, _latency_target_seconds   {rate}
 *     weir_shed_admitted_total, _shed_total, _too_late_total, _shedding, _target_seconds   {shed}
 *     weir_worker_running, weir_worker_concurrency           {worker}
 *     weir_worker_settled_total{worker,outcome}              ok, retried, dead, snoozed, released,
 *                                                            lost, cancelled
 *     weir_job_run_seconds{queue}                            how long handlers run, of every job
 *     weir_queue_depth{queue,state}, weir_queue_depth_max, _unknown_kind, _oldest_seconds,
 *     weir_queue_latency_target_seconds                      {queue}, of jobs (jobs.h)
 *     weir_jobs_enqueued_total, _started_total, _failed_total, _lost_total, _rejected_total {queue}
 *     weir_jobs_finished_total{queue,outcome}                done, dead, cancelled, expired
 *     weir_job_wait_seconds{queue}                           until it was leased, of every job
 *     weir_store_memory_bytes, _memory_bytes_max, _disk_bytes, _live_bytes, _waiting, _stopped,
 *     weir_store_without_room, _clock_ahead_seconds, _appended_bytes_total, _commits_total,
 *     weir_store_compacted_bytes_total, _records_total       {store}
 *     weir_log_sync_seconds{store}                           of every sync
 *     weir_outbox_relayed_total, _duplicates_total, _refused_total, _failures_total, _full_total
 *                                                            {outbox}
 *     weir_executor_queued, _busy, _orphans_total, _rejected_total   {executor}
 *     weir_trace_spans_buffered, _buffered_max, _ended_total, _exported_total,
 *     weir_trace_spans_dropped_total{reason}, weir_trace_export_failures_total
 *     weir_tasks{state}, weir_tasks_started_total, weir_workers, weir_build_info
 *     weir_watchdog_hits_total, weir_watchdog_suppressed_total
 *     weir_checks_total                                              {kind} (check.h)
 *     weir_metrics_series, weir_metrics_refused_total, weir_metrics_lost_total
 *     process_cpu_seconds_total, process_resident_memory_bytes, ...
 *
 * Times are histograms with a relative error of at most 1 %; Prometheus gets them as
 * cumulative buckets, JSON as count, sum, p50, p95, p99 and max, since the runtime began.
 *
 * Bounds: at most WEIR_METRICS_SERIES_MAX names; objects beyond that work and are not
 * measured, and weir_metrics_refused_total counts them. Ids and payloads are never labels.
 * Threads: a task, a callback on a worker, or the thread that embeds the runtime.
 */
#ifndef WEIR_METRICS_H
#define WEIR_METRICS_H

#include <weir/defs.h>
#include <weir/error.h>

WEIR_BEGIN

#define WEIR_METRICS_SERIES_MAX 1024

enum weir_metrics_format {
    WEIR_METRICS_FORMAT_UNSET = 0,
    WEIR_METRICS_PROMETHEUS, /* text, version 0.0.4 */
    WEIR_METRICS_JSON,
};

/* Gets the whole text at once, terminated; what it returns, weir_metrics_read returns. It
 * may suspend. */
typedef int (*weir_metrics_fn)(const char *text, size_t bytes, void *keep_arg);

/* weir_metrics_write - the figures of the calling task's runtime to `fd`. A reader that does
 * not read holds it up for a second at most (-EAGAIN). Other errors: WEIR_EREFUSED (the
 * format), WEIR_ENOTASK, -ENOMEM, or the kernel's from writing. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_metrics_write(int fd, enum weir_metrics_format format);

/* weir_metrics_read - the same to a function, for answers over a connection. */
WEIR_API WEIR_MUST_USE int weir_metrics_read(enum weir_metrics_format format, weir_metrics_fn fn,
                                             void *keep_arg);

WEIR_END

#endif
