/* outbox_main.c - orders in SQLite, jobs in a store: a job for each order that was committed, and
 * for no other.
 *
 *     outbox [--folder PATH] [--orders N] [--crash-at STEP] [--crash-after N]
 *
 * Places orders, each in one transaction with a row of an outbox; a relay makes jobs of the rows,
 * and a worker sends a mail for each job. It ends when every order has its mail, and counts them.
 * The folder has the database and the store; by default it is a new one that is removed at the end.
 * --crash-at kills the process at a step (--help names them); started again with the same folder
 * it goes on from there. Exit status: 0 every order has one job and one mail, 1 not so, 2 wrong
 * usage.
 */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../options.h"
#include "shop.h"

enum {
    DATABASE = 0, /* the pool's only class */
    DONE_MS_MAX = 60000,
    LEASE_MS = 500,
    CALL_MS = 10000,
    JOBS_MAX = 1024,
};

struct program {
    const char *folder;
    int orders;
    struct shop *shop;
    struct crash crash;
    weir_pool *pool;
    weir_store *store;
    weir_outbox *outbox;
};

/* ---- What the pool's thread does for tasks ---- */

struct place_order {
    struct shop *shop;
    char customer[32];
};

static int place_order(void *data)
{
    struct place_order *order = data;
    return shop_place_order(order->shop, order->customer);
}

struct send_mail {
    struct shop *shop;
    uint64_t job_id;
    char text[SHOP_TEXT_BYTES];
};

static int send_mail(void *data)
{
    struct send_mail *mail = data;
    return shop_send_mail(mail->shop, mail->job_id, mail->text);
}

/* ---- The worker ---- */

static int run_job(struct program *program, const weir_job *job)
{
    struct send_mail mail = {.shop = program->shop, .job_id = job->id};
    int r = WEIR_ECANCELED;

    (void)snprintf(mail.text, sizeof mail.text, "%.*s", (int)job->payload_bytes,
                   (const char *)job->payload);
    WEIR_DEADLINE(CALL_MS) {
        r = weir_pool_run(program->pool, DATABASE, send_mail, &mail, sizeof mail);
        if (r < 0) {
            r = weir_job_fail(program->store, job->id, job->token, weir_error_name(r), "", -1);
        } else {
            r = weir_job_ack(program->store, job->id, job->token, NULL, 0);
            if (r >= 0) crash_at(&program->crash, CRASH_ACKED);
        }
    }
    /* Too slow: the lease has run out, and somebody else has the job, or will have. */
    return r == -ESTALE ? 0 : r;
}

static int work(void *arg)
{
    struct program *program = *(struct program **)arg;
    weir_job job;
    int r = 0;

    while (r >= 0) {
        WEIR_NO_DEADLINE("a worker waits for its next job as long as the program runs") {
            r = weir_job_lease(
                program->store,
                &(weir_lease_spec){
                    .queue = "mail", .worker = "mailer", .count = 1, .lease_ms = LEASE_MS},
                &job);
        }
        if (r <= 0) continue;
        crash_at(&program->crash, CRASH_LEASED);
        r = run_job(program, &job);
        weir_job_free(&job);
    }
    return r == WEIR_ESTOPPING ? 0 : r;
}

/* ---- The program ---- */

static int open_all(struct program *program, weir_scope *scope)
{
    char path[512];
    int r = weir_pool_open(
        scope,
        &(weir_pool_spec){.name = "database",
                          .threads_max = 1, /* it is SQLite's only user: nothing has to be locked */
                          .overflow = WEIR_WAIT,
                          .on_close = WEIR_DRAIN,
                          .classes =
                              &(weir_pool_class){.name = "all", .weight = 1, .queue_max = 64},
                          .class_count = 1},
        &program->pool);

    if (r < 0) return r;
    (void)snprintf(path, sizeof path, "%s/store", program->folder);
    r = weir_store_open(scope,
                        &(weir_store_spec){.name = "shop",
                                           .path = path,
                                           .create = true,
                                           .durability = WEIR_SYNCED,
                                           .memory_bytes_max = 16 << 20,
                                           .segment_bytes = WEIR_STORE_SEGMENT_BYTES_MIN,
                                           .queue_depth_max = 100000,
                                           .queue_overflow = WEIR_REJECT},
                        &program->store);
    if (r < 0) return r;
    return weir_outbox_open(scope,
                            &(weir_outbox_spec){.name = "orders",
                                                .store = program->store,
                                                .peek = shop_peek,
                                                .done = shop_done,
                                                .on_refused = shop_refused,
                                                .keep_arg = program->shop,
                                                .pool = program->pool,
                                                .pool_class = DATABASE,
                                                .batch_max = SHOP_BATCH_MAX,
                                                .poll_ms = 1000,
                                                .retry_ms_max = 10000,
                                                .window_ms = 24 * 3600 * 1000},
                            &program->outbox);
}

/* Each order is committed, with its row, before the relay can see either. */
static int place_orders(struct program *program)
{
    int r = 0;

    for (int i = 0; i < program->orders && r >= 0; i++) {
        struct place_order order = {.shop = program->shop};
        (void)snprintf(order.customer, sizeof order.customer, "customer-%d", i + 1);
        r = weir_pool_run(program->pool, DATABASE, place_order, &order, sizeof order);
        if (r >= 0) weir_outbox_ring(program->outbox);
    }
    return r;
}

/* All jobs of these states, at most JOBS_MAX: how many. */
static int list_jobs(struct program *program, uint32_t states, uint64_t *ret_ids)
{
    uint32_t cursor = 0, scanned;
    int count = 0, r;

    do {
        r = weir_job_list(program->store, &(weir_job_filter){.states = states}, &cursor, 1000,
                          ret_ids + count, (size_t)(JOBS_MAX - count), &scanned);
        if (r < 0) return r;
        count += r;
    } while (cursor != 0 && count < JOBS_MAX);
    return count;
}

enum {
    STATES_ALL = (WEIR_JOB_STATE_BIT(WEIR_JOB_EXPIRED) << 1) - 2,
    STATES_ENDED = WEIR_JOB_STATE_BIT(WEIR_JOB_DONE) | WEIR_JOB_STATE_BIT(WEIR_JOB_DEAD) |
                   WEIR_JOB_STATE_BIT(WEIR_JOB_CANCELLED) | WEIR_JOB_STATE_BIT(WEIR_JOB_EXPIRED),
};

/* Until all rows are jobs, and all jobs are done. Returns how many there are. */
static int finish(struct program *program)
{
    static uint64_t ids[JOBS_MAX];
    int count, r = weir_outbox_drain(program->outbox);

    if (r < 0) return r;
    count = list_jobs(program, STATES_ALL & ~STATES_ENDED, ids);
    for (int i = 0; i < count; i++) {
        r = weir_job_wait(program->store, ids[i]);
        if (r < 0) return r;
    }
    return count < 0 ? count : list_jobs(program, WEIR_JOB_STATE_BIT(WEIR_JOB_DONE), ids);
}

static int sell(struct program *program, weir_scope *scope)
{
    int r = open_all(program, scope), result = 0;

    if (r < 0) return r;
    WEIR_SCOPE(workers, &result, .name = "workers", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        r = weir_spawn(workers, work, &program, sizeof program);
        if (r >= 0) r = place_orders(program);
        if (r >= 0) r = finish(program);
        weir_scope_stop(workers, CALL_MS);
    }
    return result < 0 ? result : r;
}

/* How many jobs are done. */
static int run(void *arg)
{
    struct program *program = arg;
    int result = 0, r = WEIR_ECANCELED;

    WEIR_SCOPE(scope, &result, .name = "shop", .on_failure = WEIR_FAIL_FAST, .max_tasks = 16,
               .overflow = WEIR_REJECT, .deadline_ms = DONE_MS_MAX) {
        r = sell(program, scope);
    }
    return result < 0 ? result : r;
}

static int report(struct shop *shop, int jobs)
{
    struct shop_counts counts = {0};

    if (shop_count(shop, &counts) < 0) return 1;
    printf("%d orders, %d rows left, %d jobs done, %d mails\n", counts.orders, counts.rows, jobs,
           counts.mails);
    return counts.wrong != 0 || counts.rows != 0 || jobs != counts.orders ||
           counts.mails != counts.orders;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status, (void)type, (void)walk;
    return remove(path);
}

int main(int argc, char **argv)
{
    static struct shop shop;
    static struct program program;
    char made[] = "/tmp/weir-outbox-XXXXXX", path[512];
    const char *step = "never";
    const struct option_number options[] = {
        {"--folder", .text = &program.folder, .about = "of the database and the store; it exists"},
        {"--orders", &program.orders, 20, 0, 1000, "orders to place"},
        {"--crash-at", .text = &step, .about = crash_step_names()},
        {"--crash-after", &program.crash.after, 1, 1, 1000, "when it comes there so many times"},
        {0},
    };
    int r = options_read(argc, argv, "outbox [OPTION]...", options);

    if (r < argc) return fprintf(stderr, "outbox: unexpected argument '%s'\n", argv[r]), 2;
    if (!crash_step_from(step, &program.crash.step))
        return fprintf(stderr, "outbox: there is no step '%s' to crash at\n", step), 2;
    if (!program.folder && !mkdtemp(made)) return perror("outbox"), 1;
    if (!program.folder) program.folder = made;
    (void)snprintf(path, sizeof path, "%s/shop.db", program.folder);
    program.shop = &shop;
    shop.crash = &program.crash;
    r = shop_open(&shop, path);
    if (r >= 0) r = weir_run(&(weir_config){.name = "outbox"}, run, &program);
    if (r < 0) {
        fprintf(stderr, "outbox: %s%s%s\n", weir_strerror(r), *weir_why() ? ": " : "", weir_why());
        r = 1;
    } else {
        r = report(&shop, r);
    }
    shop_close(&shop);
    if (program.folder == made) (void)nftw(made, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return r;
}
