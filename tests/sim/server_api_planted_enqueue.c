/* server_api_planted_enqueue.c - api_enqueue.c once more, with bugs: server/planted.h. */
#define WEIR_SERVER_WITH_BUGS 1
#define job_enqueue planted_job_enqueue
#define job_enqueue_many planted_job_enqueue_many
#define job_enqueue_queue planted_job_enqueue_queue

/* NOLINTNEXTLINE(bugprone-suspicious-include): the very same lines, with bugs in them */
#include "server/api_enqueue.c"
