/* load_connection.c - one connection of the load program: requests out when they are due,
 * answers in as they come. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "chance.h"
#include "lines.h"
#include "load.h"

enum { BATCH_BYTES = 8192, SETTLE_MS = 5000, CAPACITY_ASKERS = 24, ASK_MS = 5000, LEVEL_MS = 1000 };

struct link {
    struct load *load;
    weir_conn *conn;
    weir_event *settled; /* done, and nothing is outstanding */
    uint64_t chance;     /* of the task that sends */
    /* The books, under the lock of the load. */
    uint64_t next, outstanding;
    bool gone, done;
    int64_t due_ns[OUTSTANDING_MAX]; /* of request n at n % OUTSTANDING_MAX; 0: none */
};

static const char *const words[] = {"old",  "mill",  "weir",  "river", "lock", "sluice", "bridge",
                                    "deep", "green", "quiet", "water", "gate", "tide",   "stone"};

/* ---- Out ---- */

static void lock(struct link *link)
{
    (void)pthread_mutex_lock(&link->load->lock);
}

static void unlock(struct link *link)
{
    (void)pthread_mutex_unlock(&link->load->lock);
}

static void note_settled(struct link *link)
{
    if (link->gone || (link->done && link->outstanding == 0)) weir_event_set(link->settled);
}

/* Print a request that is due into the batch; false: it cannot be sent. */
static bool put_request(struct link *link, int64_t due_ns, char *batch, size_t *length)
{
    int64_t *slot = &link->due_ns[link->next % OUTSTANDING_MAX];
    uint64_t chance = chance_next(&link->chance);

    if (link->gone || *slot != 0) return false;
    *slot = due_ns;
    *length += (size_t)sprintf(batch + *length, "SEARCH %llu %s %s %llu\n",
                               (unsigned long long)link->next, words[chance % 14],
                               words[chance / 14 % 14], (unsigned long long)(chance >> 40));
    link->next++;
    link->outstanding++;
    link->load->open_requests++;
    link->load->sent++;
    return true;
}

/* Everything that is due by now, in one piece. */
static int send_due(struct link *link, int64_t *next_ns, double rate)
{
    char batch[BATCH_BYTES];
    size_t length = 0;
    int64_t now_ns = weir_now_ns();
    int r = 0;

    lock(link);
    while (*next_ns <= now_ns && length + LINE_BYTES_MAX < sizeof batch) {
        load_due(link->load, *next_ns);
        if (!put_request(link, *next_ns, batch, &length)) load_unsent(link->load, *next_ns);
        *next_ns += chance_gap_ns(&link->chance, rate);
    }
    unlock(link);
    if (length == 0) return 0;
    WEIR_DEADLINE(60000) r = weir_conn_send_all(link->conn, batch, length, NULL);
    return r == WEIR_ECANCELED ? r : 0; /* who receives finds out that the connection is gone */
}

static int send_requests(struct link *link)
{
    struct load *load = link->load;
    const struct phase *phase = NULL, *now;
    int64_t next_ns = 0;
    int r = 0;

    while (r == 0 && (now = load_phase(load))) {
        double rate = now->rate / load->connections;
        int64_t wait_ns;
        if (phase != now) { /* what was due in the last phase is not due in this one */
            phase = now;
            next_ns = weir_now_ns() + chance_gap_ns(&link->chance, rate);
        }
        wait_ns = next_ns - weir_now_ns();
        if (wait_ns > 0) /* and look now and then whether there is another phase */
            r = weir_sleep(wait_ns > INTERVAL_MS * 100000LL ? INTERVAL_MS / 10
                                                            : wait_ns / 1000000 + 1);
        if (r == 0 && phase == load_phase(load)) r = send_due(link, &next_ns, rate);
    }
    lock(link);
    link->done = true;
    note_settled(link);
    unlock(link);
    return r;
}

/* ---- In ---- */

/* "ok 17 ...", "partial 17 ...", "error 17 overload ..." */
static enum search_code read_answer(const char *line, uint64_t *ret_number)
{
    const char *id = strchr(line, ' ');
    char *end = NULL;

    if (!id) return SEARCH_CODES;
    *ret_number = strtoull(id + 1, &end, 10);
    if (end == id + 1) return SEARCH_CODES;
    if (strncmp(line, "ok ", 3) == 0) return SEARCH_OK;
    if (strncmp(line, "partial ", 8) == 0) return SEARCH_PARTIAL;
    if (strncmp(line, "error ", 6) != 0 || *end != ' ') return SEARCH_CODES;
    for (int code = SEARCH_PARTIAL + 1; code < SEARCH_CODES; code++) {
        size_t length = strlen(search_code_name((enum search_code)code));
        if (strncmp(end + 1, search_code_name((enum search_code)code), length) == 0 &&
            end[1 + length] == ' ')
            return (enum search_code)code;
    }
    return SEARCH_CODES;
}

static void take_answer(struct link *link, const char *line)
{
    uint64_t number = 0;
    enum search_code code = read_answer(line, &number);
    int64_t *slot = &link->due_ns[number % OUTSTANDING_MAX];

    lock(link);
    if (code == SEARCH_CODES || number >= link->next || *slot == 0) {
        link->load->unknown++;
        unlock(link);
        return;
    }
    load_answer(link->load, code, *slot);
    *slot = 0;
    link->outstanding--;
    link->load->open_requests--;
    link->load->answered++;
    note_settled(link);
    unlock(link);
}

static int receive_answers(void *arg) /* a task, beside the one that sends */
{
    struct link *link = *(struct link **)arg;
    struct line_reader reader;
    char nothing[1] = "", *line = nothing;
    int r = 0;

    line_reader_init(&reader, link->conn);
    while (r == 0) {
        WEIR_NO_DEADLINE("who sends ends it") r = line_next(&reader, &line);
        if (r == 0) take_answer(link, line);
    }
    if (r != WEIR_ECANCELED) {
        lock(link);
        link->gone = true;
        link->load->lost += link->outstanding;
        link->load->open_requests -= link->outstanding;
        link->outstanding = 0;
        note_settled(link);
        unlock(link);
    }
    return 0;
}

/* ---- Both ---- */

static int run_link(weir_scope *scope, struct link *link)
{
    int r = weir_event_open(scope, "settled", &link->settled);

    if (r == 0) r = weir_spawn(scope, receive_answers, &link, sizeof link);
    if (r == 0) r = send_requests(link);
    if (r == 0) {
        WEIR_DEADLINE(SETTLE_MS) r = weir_event_wait(link->settled);
        if (r == WEIR_ETIMEDOUT) r = 0; /* what has no answer by now is counted as such */
    }
    weir_scope_cancel(scope, 0, "no more requests");
    return r;
}

int load_connection(void *arg)
{
    struct load_connection *self = arg;
    struct link *link = calloc(1, sizeof *link);
    int r = WEIR_ECANCELED, result;

    if (!link) return -ENOMEM;
    link->load = self->load;
    link->chance = 88172645463325252u + (uint64_t)self->index * 7919;
    WEIR_DEADLINE(ASK_MS) r = weir_connect(self->load->service, &link->conn);
    if (r == 0) {
        WEIR_SCOPE(scope, &result, .name = "connection", .on_failure = WEIR_FAIL_FAST,
                   .max_tasks = 1, .overflow = WEIR_REJECT)
            r = run_link(scope, link);
        weir_conn_close(link->conn);
        if (r == 0) r = result;
    }
    free(link);
    return r;
}

/* ---- The capacity ---- */

struct asker {
    struct load *load;
    int index;
    atomic_ulong *answered;
    int64_t from_ns, to_ns;
};

static int ask_again_and_again(void *arg)
{
    struct asker *asker = arg;
    struct line_reader reader;
    weir_conn *conn;
    char nothing[1] = "", *line = nothing;
    int r = WEIR_ECANCELED;

    WEIR_DEADLINE(ASK_MS) r = weir_connect(asker->load->service, &conn);
    if (r < 0) return r;
    line_reader_init(&reader, conn);
    while (r == 0 && weir_now_ns() < asker->to_ns) {
        WEIR_DEADLINE(ASK_MS) {
            r = line_say(conn, "SEARCH %d %s %s\n", asker->index, words[asker->index % 14],
                         "capacity");
            if (r == 0) r = line_next(&reader, &line);
        }
        if (r == 0 && *line != 'e' && weir_now_ns() >= asker->from_ns) ++*asker->answered;
    }
    weir_conn_close(conn);
    return r;
}

int load_measure_capacity(struct load *load, double *ret_rate)
{
    atomic_ulong answered = 0;
    int64_t from_ns = weir_now_ns() + LEVEL_MS * 1000000LL; /* the first second is for warming up */
    int64_t to_ns = from_ns + load->capacity_seconds * 1000000000LL;
    int result;

    WEIR_SCOPE(scope, &result, .name = "capacity", .on_failure = WEIR_FAIL_FAST,
               .max_tasks = CAPACITY_ASKERS, .overflow = WEIR_REJECT) {
        for (int i = 0; i < CAPACITY_ASKERS && result == 0; i++) {
            struct asker asker = {load, i, &answered, from_ns, to_ns};
            result = weir_spawn(scope, ask_again_and_again, &asker, sizeof asker);
        }
    }
    *ret_rate = (double)answered / load->capacity_seconds;
    return result;
}
