/* supervised.c - workers that crash now and then, and are started again.
 *
 *     supervised [--workers N] [--steps N] [--crash N] [--restarts N]
 *
 * Each worker has some steps to do, and crashes in each with the given probability. Its scope
 * starts it again, after a pause that doubles, with a fresh copy of its argument. More restarts in
 * a second than --restarts are no bad luck but a fault: the scope gives up, cancels the others and
 * reports. Exit status: 0 all steps were done, 1 given up, 2 wrong usage.
 */
#include <errno.h>
#include <weir/weir.h>

#include "options.h"

enum { WORKERS_MAX = 64, WINDOW_MS = 1000, BACKOFF_MS = 20, BACKOFF_MS_MAX = 160 };

/* What survives a crash is not the worker's, but its owner's. */
struct progress {
    int steps_done;
    int starts;
};

struct program {
    int workers, steps, crash_percent, restarts;
    struct progress progress[WORKERS_MAX];
};

struct worker {
    struct program *program;
    int number;
    uint32_t chance;
};

/* A small generator of its own, so that each run of the program is the same. */
static int dice(uint32_t *chance)
{
    *chance = *chance * 1664525u + 1013904223u;
    return (int)((*chance >> 16) % 100);
}

static int work(void *arg)
{
    struct worker *worker = arg;
    struct program *program = worker->program;
    struct progress *progress = &program->progress[worker->number];

    worker->chance = (uint32_t)(worker->number * 7919 + progress->starts * 104729 + 1);
    if (progress->starts++ > 0) {
        printf("worker %d: start %d, goes on after step %d\n", worker->number, progress->starts,
               progress->steps_done);
    }
    while (progress->steps_done < program->steps) {
        int r = weir_sleep(5);
        if (r < 0) return r;
        if (dice(&worker->chance) < program->crash_percent) {
            printf("worker %d: crashes in step %d\n", worker->number, progress->steps_done + 1);
            return -EIO;
        }
        progress->steps_done++;
    }
    return 0;
}

static int run(void *arg)
{
    struct program *program = arg;
    weir_restart restart = {.max_restarts = program->restarts,
                            .window_ms = WINDOW_MS,
                            .backoff_ms = BACKOFF_MS,
                            .backoff_ms_max = BACKOFF_MS_MAX};
    int done = 0, starts = 0, result;

    WEIR_SCOPE(scope, &result, .name = "workers", .on_failure = WEIR_SUPERVISE, .restart = restart,
               .max_tasks = WORKERS_MAX, .overflow = WEIR_REJECT, .deadline_ms = 60000) {
        for (int i = 0; i < program->workers; i++) {
            struct worker worker = {.program = program, .number = i};
            int r = weir_spawn(scope, work, &worker, sizeof worker);
            if (r < 0) weir_scope_cancel(scope, r, "a worker could not be spawned");
        }
        if (weir_scope_join(scope) < 0) { /* the scope is still open: ask it what happened */
            weir_failure failure;
            if (weir_scope_failures(scope, &failure, 1) > 0)
                printf("given up: task '%s' failed with %s after %d restarts of its own\n",
                       failure.task, weir_error_name(failure.error), failure.restarts);
        }
    }
    for (int i = 0; i < program->workers; i++) {
        done += program->progress[i].steps_done;
        starts += program->progress[i].starts;
    }
    printf("%d of %d steps done by %d workers in %d starts; allowed: %d restarts in %d ms\n", done,
           program->workers * program->steps, program->workers, starts, program->restarts,
           WINDOW_MS);
    return result;
}

int main(int argc, char **argv)
{
    static struct program program;
    weir_config config = {.name = "supervised", .log_level = WEIR_LOG_OFF};
    const struct option_number options[] = {
        {"--workers", &program.workers, 4, 1, WORKERS_MAX, "workers"},
        {"--steps", &program.steps, 50, 1, 100000, "steps that each has to do"},
        {"--crash", &program.crash_percent, 3, 0, 100, "per cent of the steps that crash"},
        {"--restarts", &program.restarts, 50, 1, 1000, "restarts allowed within a second"},
        {0},
    };
    int first = options_read(argc, argv, "supervised [OPTION]...", options);
    int r;

    if (first < argc)
        return fprintf(stderr, "supervised: unexpected argument '%s'\n", argv[first]), 2;
    r = weir_run(&config, run, &program);
    if (r < 0) fprintf(stderr, "supervised: %s\n", weir_strerror(r));
    return r < 0;
}
