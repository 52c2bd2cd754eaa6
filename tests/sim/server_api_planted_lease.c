/* server_api_planted_lease.c - api_lease.c once more, with bugs: server/planted.h. */
#define WEIR_SERVER_WITH_BUGS 1
#define queue_lease planted_queue_lease
#define leases_extend planted_leases_extend
#define job_extend planted_job_extend
#define job_progress planted_job_progress
#define job_ack planted_job_ack
#define job_fail planted_job_fail
#define job_release planted_job_release
#define worker_show planted_worker_show
#define worker_order planted_worker_order

/* NOLINTNEXTLINE(bugprone-suspicious-include): the very same lines, with bugs in them */
#include "server/api_lease.c"
