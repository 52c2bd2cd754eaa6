/* stuck.c - a program that hangs, to find out why: docs/debugging.md does, step by step.
 *
 *     stuck [--busy N] [--mended]
 *
 * A clerk sends an order to the kitchen and waits for the meal. The kitchen reads the order to its
 * end, which never comes: the clerk has not said that there is no more (weir_conn_shutdown), so
 * each waits for the other, and the program for both. A bell rings once a second all the while.
 * TERM and INT end it, USR1 asks for the dump. Exit status: 0 told to end, 1 failed, 2 wrong usage.
 */
#include <sys/socket.h>
#include <weir/weir.h>

#include "options.h"

enum { ORDER_BYTES_MAX = 100, RING_MS = 1000, DRAIN_MS = 100 };

struct program {
    int busy_ms, mended;
    weir_conn *counter; /* the clerk's side, and ... */
    weir_conn *hatch;   /* ... the kitchen's */
};

static int read_to_end(weir_conn *conn, char *text, size_t bytes)
{
    size_t used = 0;
    int64_t n;

    do {
        n = weir_conn_read(conn, text + used, bytes - used);
        if (n > 0) used += (size_t)n;
    } while (n > 0 && used < bytes);
    return n < 0 ? (int)n : (int)used;
}

static int kitchen(void *arg)
{
    struct program *program = *(struct program **)arg;
    char order[ORDER_BYTES_MAX];
    int r = 0;

    WEIR_NO_DEADLINE("orders come when they come") {
        r = read_to_end(program->hatch, order, sizeof order);
        if (r > 0) r = weir_conn_send_all(program->hatch, order, (size_t)r, NULL);
    }
    return r;
}

static int wait_for_meal(weir_conn *conn)
{
    char meal[ORDER_BYTES_MAX];
    int64_t n = weir_conn_read(conn, meal, sizeof meal);
    if (n > 0) printf("a meal: %.*s\n", (int)n, meal);
    return n < 0 ? (int)n : 0;
}

static int clerk(void *arg)
{
    struct program *program = *(struct program **)arg;
    int r = 0;

    WEIR_NO_DEADLINE("a good meal takes its time") {
        r = weir_conn_send_all(program->counter, "fish", 4, NULL);
        if (r == 0 && program->mended) r = weir_conn_shutdown(program->counter, SHUT_WR);
        if (r == 0) r = wait_for_meal(program->counter);
    }
    return r;
}

static int bell(void *arg)
{
    int r = 0;
    (void)arg;
    for (int rings = 1; r == 0; rings++) {
        printf("ding %d\n", rings);
        r = weir_sleep(RING_MS);
    }
    return r;
}

static int audit(void *arg) /* does not suspend: its worker has time for nothing else */
{
    struct program *program = *(struct program **)arg;
    int64_t until_ns = weir_now_ns() + (int64_t)program->busy_ms * 1000000;
    while (weir_now_ns() < until_ns) {}
    return 0;
}

static int open_restaurant(struct program *program)
{
    int result;

    WEIR_SCOPE(scope, &result, .name = "restaurant", .on_failure = WEIR_FAIL_FAST, .max_tasks = 10,
               .overflow = WEIR_REJECT) {
        int r = weir_spawn(scope, kitchen, &program, sizeof program);
        if (r == 0) r = weir_spawn(scope, clerk, &program, sizeof program);
        if (r == 0) r = weir_spawn(scope, bell, NULL, 0);
        if (r == 0 && program->busy_ms > 0) r = weir_spawn(scope, audit, &program, sizeof program);
        if (r < 0) weir_scope_cancel(scope, r, "a task could not be spawned");
    }
    return result == WEIR_ECANCELED ? 0 : result;
}

static int run(void *arg)
{
    struct program *program = arg;
    int r = weir_socketpair(&program->counter, &program->hatch);

    if (r < 0) return r;
    r = open_restaurant(program);
    weir_conn_close(program->counter);
    weir_conn_close(program->hatch);
    return r;
}

int main(int argc, char **argv)
{
    static struct program program;
    weir_config config = {.workers = 2, .signals = WEIR_SIGNAL_DRAIN | WEIR_SIGNAL_DUMP};
    const struct option_number options[] = {
        {"--busy", &program.busy_ms, 0, 1, 600000, "milliseconds that an audit computes"},
        {"--mended", &program.mended, 0, 0, 0, "the clerk says that there is no more"},
        {0},
    };
    int first = options_read(argc, argv, "stuck [OPTION]...", options);
    int r;

    if (first < argc) return fprintf(stderr, "stuck: unexpected argument '%s'\n", argv[first]), 2;
    config.drain_ms = DRAIN_MS;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    r = weir_run(&config, run, &program);
    if (r < 0 && r != WEIR_ECANCELED) fprintf(stderr, "stuck: %s\n", weir_strerror(r));
    return r < 0 && r != WEIR_ECANCELED;
}
