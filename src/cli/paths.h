/* paths.h - where a server is asked for what; the server's table is server/api_routes.c. */
#ifndef WEIR_CLI_PATHS_H
#define WEIR_CLI_PATHS_H

#define PATH_JOBS "/v1/jobs"
#define PATH_JOBS_MANY "/v1/jobs/many"
#define PATH_JOBS_BULK "/v1/jobs/bulk"
#define PATH_BULK "/v1/bulk"
#define PATH_SETTLE "/v1/settle"
#define PATH_QUEUES "/v1/queues"
#define PATH_SCHEDULES "/v1/schedules"
#define PATH_TOKENS "/v1/tokens"
#define PATH_INFO "/v1/admin/info"
#define PATH_TASKS "/v1/admin/tasks"
#define PATH_MAP "/v1/admin/map"
#define PATH_BACKUP "/v1/admin/backup"

#endif
