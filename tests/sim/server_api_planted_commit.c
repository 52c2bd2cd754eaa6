/* server_api_planted_commit.c - api_commit.c once more, with bugs: server/planted.h. */
#define WEIR_SERVER_WITH_BUGS 1
#define jobs_settle planted_jobs_settle
#define jobs_commit planted_jobs_commit

/* NOLINTNEXTLINE(bugprone-suspicious-include): the very same lines, with bugs in them */
#include "server/api_commit.c"
