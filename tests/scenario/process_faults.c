/* process_faults.c - processes with something going wrong at every point in turn: a cancel
 * at each suspension, each allocation, each system call. Whatever it is, nothing is left:
 * no zombie, no descriptor, no memory. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "rt/runtime.h"
#include "unit/io/io_test.h"

static int talk(weir_scope *scope)
{
    weir_conn *in = NULL, *out = NULL;
    weir_process *process = NULL;
    weir_process *left_to_the_scope;
    char text[16];
    int closed;
    int r = weir_process_start(scope,
                               &(weir_process_spec){
                                   .name = "cat",
                                   .program = "/bin/cat",
                                   .grace_ms = 2000,
                                   .on_exit = WEIR_EXIT_ZERO,
                                   .in = {.kind = WEIR_STDIO_PIPE, .ret_conn = &in},
                                   .out = {.kind = WEIR_STDIO_PIPE, .ret_conn = &out},
                                   .err = {.kind = WEIR_STDIO_OUT},
                               },
                               &process);
    if (r < 0) return r;
    r = weir_conn_send_all(in, "hello", 5, NULL);
    if (r == 0) r = weir_conn_read_exact(out, text, 5, NULL);
    weir_conn_close(in);
    if (r == 0) r = weir_process_wait(process, NULL);
    if (r == 0) {
        r = weir_process_start(scope,
                               &(weir_process_spec){.name = "sleep",
                                                    .program = "sleep",
                                                    .arguments = (const char *const[]){"9", NULL},
                                                    .grace_ms = WEIR_KILL_AT_ONCE,
                                                    .on_exit = WEIR_EXIT_ANY},
                               &left_to_the_scope);
    }
    weir_conn_close(out);
    closed = weir_process_close(process);
    return r < 0 ? r : closed;
}

static int talking(void *arg)
{
    int result;

    (void)arg;
    WEIR_DEADLINE(IO_TEST_MS) {
        WEIR_SCOPE(scope, &result, .name = "talk", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4,
                   .overflow = WEIR_REJECT) {
            int r = talk(scope);
            if (r < 0) weir_scope_cancel(scope, r, "the talk has failed");
        }
        return result;
    }
    return WEIR_EREFUSED;
}

static int scenario(void *arg)
{
    int r;

    (void)arg;
    r = weir_run(&(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF}, talking,
                 NULL);
    CHECK_INT(waitpid(-1, NULL, WNOHANG), ==, -1);
    CHECK_INT(errno, ==, ECHILD);
    return r;
}

TEST_WITH(processes_survive_a_cancel_at_every_suspension, .timeout_ms = 60000)
{
    io_test_needs_processes();
    CHECK_INT(test_sweep_cancel(scenario, NULL), >=, 6);
}

TEST_WITH(processes_survive_every_allocation_that_fails, .timeout_ms = 60000)
{
    io_test_needs_processes();
    CHECK_INT(test_sweep_alloc(scenario, NULL), >=, 10);
}

TEST_WITH(processes_survive_every_system_call_that_fails, .timeout_ms = 60000)
{
    io_test_needs_processes();
    CHECK_INT(test_sweep_calls(scenario, NULL, -ENOMEM), >=, 20);
}

TEST_WITH(processes_survive_every_system_call_that_is_interrupted, .timeout_ms = 60000)
{
    io_test_needs_processes();
    CHECK_INT(test_sweep_calls(scenario, NULL, -EINTR), >=, 20);
}
