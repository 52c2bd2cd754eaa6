/* shutdown.c - a graceful end: what is in progress is finished, what is too slow is reported.
 *
 *     shutdown [--after N] [--drain N]
 *
 * Customers hand in jobs over a unix socket, one every 50 ms, each some steps longer than the one
 * before. After a while (or on TERM or INT) the program stops: no more jobs are taken, those in
 * progress go on, and when the drain budget is used up the rest is cancelled. A job that is cut
 * off saves how far it got, in a shield: cancellation does not reach its cleanup. Exit status: 0
 * every job has ended or was saved, 1 failed, 2 wrong usage.
 */
#include <errno.h>
#include <unistd.h>
#include <weir/weir.h>

#include "options.h"

enum { JOBS_MAX = 1000, STEP_MS = 10, SAVE_MS = 500 };

struct job {
    int steps;
    int steps_done;
    bool saved;
};

struct program {
    int after_ms, drain_ms;
    char address[WEIR_ADDRESS_TEXT_MAX];
    weir_listener *listener;
    int count;
    struct job jobs[JOBS_MAX];
};

static int do_job(void *arg)
{
    struct job *job = *(struct job **)arg;
    int r = 0;

    while (r == 0 && job->steps_done < job->steps) {
        r = weir_sleep(STEP_MS);
        if (r == 0) job->steps_done++;
    }
    if (r < 0) {
        WEIR_SHIELD(SAVE_MS) {
            job->saved = weir_sleep(1) == 0; /* as if it were written somewhere */
        }
    }
    return r;
}

static int customer(void *arg) /* hands in jobs until nobody takes them any more */
{
    struct program *program = *(struct program **)arg;
    int r = 0;

    for (int steps = 1; r == 0; steps += 5) {
        weir_conn *conn = NULL;
        WEIR_DEADLINE(1000) {
            r = weir_connect(program->address, &conn);
            if (r < 0) return 0;
            r = weir_conn_send_all(conn, &steps, sizeof steps, NULL);
        }
        weir_conn_close(conn);
        /* The business may close while this job still waits at the door. */
        if (r == -EPIPE || r == -ECONNRESET) return 0;
        if (r == 0) r = weir_sleep(50);
    }
    return r;
}

static int take_job(struct program *program, weir_scope *scope, weir_conn *take_conn)
{
    struct job *job = &program->jobs[program->count];
    int r = 0;

    WEIR_DEADLINE(1000) {
        r = weir_conn_read_exact(take_conn, &job->steps, sizeof job->steps, NULL);
    }
    weir_conn_close(take_conn);
    if (r == 0) r = weir_spawn(scope, do_job, &job, sizeof job);
    if (r == 0) program->count++;
    return r;
}

static int take_jobs(void *arg) /* until accept says that the program is stopping */
{
    struct program *program = *(struct program **)arg;
    int result;

    WEIR_SCOPE(scope, &result, .name = "jobs", .on_failure = WEIR_COLLECT, .max_tasks = JOBS_MAX,
               .overflow = WEIR_REJECT) {
        int r = 0;
        WEIR_NO_DEADLINE("waits for the next job as long as the program runs") {
            while (r == 0 && program->count < JOBS_MAX) {
                weir_conn *conn;
                r = weir_accept(program->listener, &conn);
                if (r == 0) r = take_job(program, scope, conn);
            }
        }
        printf("no more jobs are taken: %s\n", weir_strerror(r));
        weir_listener_close(program->listener);
        if (r < 0 && r != WEIR_ESTOPPING) weir_scope_cancel(scope, r, "taking jobs failed");
    }
    return result;
}

static void stop_now(weir_timer *timer, void *arg)
{
    struct program *program = arg;
    (void)timer;
    printf("stopping, %d ms to drain\n", program->drain_ms);
    (void)weir_stop(program->drain_ms);
}

static int run(void *arg)
{
    struct program *program = arg;
    weir_timer_spec timer_spec = {.name = "stop", .on_fire = stop_now, .keep_arg = program};
    weir_timer *timer;
    int finished = 0, saved = 0, result;

    result = weir_listen(&(weir_listen_spec){.address = program->address}, &program->listener);
    if (result < 0) return result;
    printf("taking jobs on %s\n", program->address);
    WEIR_SCOPE(scope, &result, .name = "business", .on_failure = WEIR_FAIL_FAST, .max_tasks = 2,
               .overflow = WEIR_REJECT) {
        int r = weir_timer_open(scope, &timer_spec, &timer);
        if (r == 0 && program->after_ms > 0) weir_timer_start(timer, program->after_ms);
        if (r == 0) r = weir_spawn(scope, take_jobs, &program, sizeof program);
        if (r == 0) r = weir_spawn(scope, customer, &program, sizeof program);
        if (r < 0) weir_scope_cancel(scope, r, "the business could not be opened");
    }
    for (int i = 0; i < program->count; i++) {
        const struct job *job = &program->jobs[i];
        if (job->steps_done == job->steps) finished++;
        if (job->saved)
            printf("job %d was cut off after %d of %d steps\n", i, job->steps_done, job->steps);
        saved += job->saved;
    }
    printf("%d jobs taken, %d finished, %d cut off and saved\n", program->count, finished, saved);
    if (finished + saved < program->count) return result < 0 ? result : -1;
    return result == WEIR_ECANCELED ? 0 : result;
}

int main(int argc, char **argv)
{
    static struct program program;
    weir_config config = {
        .name = "shutdown", .signals = WEIR_SIGNAL_DRAIN, .log_level = WEIR_LOG_WARNING};
    const struct option_number options[] = {
        {"--after", &program.after_ms, 500, 0, 600000, "milliseconds until it stops; 0: never"},
        {"--drain", &program.drain_ms, 250, 0, 600000, "milliseconds for what is in progress"},
        {0},
    };
    int first = options_read(argc, argv, "shutdown [OPTION]...", options);
    int r;

    if (first < argc)
        return fprintf(stderr, "shutdown: unexpected argument '%s'\n", argv[first]), 2;
    config.drain_ms = program.drain_ms;
    (void)snprintf(program.address, sizeof program.address, "unix:@weir-shutdown-%d",
                   (int)getpid());
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    r = weir_run(&config, run, &program);
    if (r < 0 && r != WEIR_ECANCELED) fprintf(stderr, "shutdown: %s\n", weir_strerror(r));
    return r < 0;
}
