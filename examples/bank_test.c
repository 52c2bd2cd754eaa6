/* bank_test.c - the code of docs/guide/simulation.md: a race that tests do not see, and who does.
 *
 *     bank_test [--help]
 *
 * What is tested is at the top, as if it were a file of its own. A test checks that the guide shows
 * this code.
 */
#include <fcntl.h>
#include <weir/test.h>
#include <weir/weir.h>

/* ---- What is tested: a bank, and transfers that are audited ---- */

enum { ACCOUNTS = 2, MONEY = 100, TOO_LITTLE = 1 };

struct order {
    int from, to, amount;
};

typedef WEIR_TX(struct order) order_tx;
typedef WEIR_RX(struct order) order_rx;

struct bank {
    int balance[ACCOUNTS];
    int audited;
    order_tx audit; /* what is sent here is written down by the auditor */
};

/* TOO_LITTLE, or an error: no money has moved. */
static int transfer_hastily(struct bank *bank, const struct order *order)
{
    int r;

    if (bank->balance[order->from] < order->amount) return TOO_LITTLE;
    r = weir_send(bank->audit, order);
    if (r < 0) return r;
    bank->balance[order->from] -= order->amount;
    bank->balance[order->to] += order->amount;
    return 0;
}

static int transfer(struct bank *bank, const struct order *order)
{
    int r;

    if (bank->balance[order->from] < order->amount) return TOO_LITTLE;
    bank->balance[order->from] -= order->amount; /* nobody else can spend it from here on */
    r = weir_send(bank->audit, order);
    bank->balance[r == 0 ? order->to : order->from] += order->amount;
    return r;
}

static int write_down(void *arg)
{
    struct {
        struct bank *bank;
        order_rx orders;
    } *self = arg;
    struct order order;
    int r;

    while ((r = weir_recv(self->orders, &order)) == 0) self->bank->audited++;
    return r == WEIR_ECLOSED ? 0 : r;
}

/* ---- A day at the bank: customers, each a task ---- */

typedef int (*transfer_fn)(struct bank *bank, const struct order *order);

struct customer {
    struct bank *bank;
    transfer_fn transfer;
    struct order order;
};

static int visit(void *arg)
{
    struct customer *self = arg;
    int r = self->transfer(self->bank, &self->order);

    return r == TOO_LITTLE ? 0 : r;
}

static int serve(struct bank *bank, transfer_fn fn, const struct order *orders, int count)
{
    int result;

    WEIR_SCOPE(customers, &result, .name = "customers", .on_failure = WEIR_FAIL_FAST,
               .max_tasks = 4, .overflow = WEIR_WAIT, .deadline_ms = 60000)
        for (int i = 0; i < count && result == 0; i++) {
            struct customer customer = {bank, fn, orders[i]};
            result = weir_spawn(customers, visit, &customer, sizeof customer);
        }
    return result;
}

static int open_day(struct bank *bank, transfer_fn fn, const struct order *orders, int count)
{
    struct {
        struct bank *bank;
        order_rx orders;
    } auditor = {.bank = bank};
    int result;

    WEIR_SCOPE(day, &result, .name = "day", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT, .deadline_ms = 60000) {
        result = weir_chan_open(
            day,
            &(weir_chan_spec){
                .name = "audit", .capacity = 8, .overflow = WEIR_WAIT, .on_close = WEIR_DRAIN},
            &bank->audit, &auditor.orders);
        if (result == 0) result = weir_spawn(day, write_down, &auditor, sizeof auditor);
        if (result == 0) result = serve(bank, fn, orders, count);
        weir_tx_drop(bank->audit.end);
    }
    return result;
}

/* ---- Ordinary tests: they pass, with either ---- */

/* Everybody wants more than half of what there is. */
static const struct order greedy[] = {{0, 1, 60}, {0, 1, 60}, {0, 1, 70}};

static int greedy_day_hastily(void *arg)
{
    return open_day(arg, transfer_hastily, greedy, 3);
}

WEIR_TEST_WITH(money_moves_and_is_audited, .workers = 1)
{
    struct bank bank = {.balance = {MONEY, 0}};

    WEIR_CHECK_OK(weir_run(&(weir_config){.workers = 1}, greedy_day_hastily, &bank));
    WEIR_CHECK_INT(bank.balance[0], ==, 40);
    WEIR_CHECK_INT(bank.balance[1], ==, 60);
    WEIR_CHECK_INT(bank.audited, ==, 1);
}

WEIR_TEST_WITH(nobody_is_overdrawn_on_a_thousand_days, .workers = 1)
{
    for (int i = 0; i < 1000; i++) {
        struct bank bank = {.balance = {MONEY, 0}};

        WEIR_CHECK_OK(weir_run(&(weir_config){.workers = 1}, greedy_day_hastily, &bank));
        WEIR_CHECK_INT(bank.balance[0], >=, 0);
    }
}

/* ---- Simulated ---- */

static struct bank bank;

static void open_the_books(void *arg)
{
    (void)arg;
    bank = (struct bank){.balance = {MONEY, 0}};
}

static bool nobody_is_overdrawn(void *arg)
{
    (void)arg;
    return bank.balance[0] >= 0 && bank.balance[1] >= 0;
}

static void close_the_books(void *arg)
{
    (void)arg;
    WEIR_CHECK_INT(bank.balance[0] + bank.balance[1], ==, MONEY);
}

/* Hidden, since it fails: run it by its name. */
static const weir_sim_spec hasty = {
    .name = "hasty_transfers_overdraw_nobody",
    .runs_max = 100000,
    .begin = open_the_books,
    .end = close_the_books,
    .invariants = {{.name = "nobody is overdrawn", .holds = nobody_is_overdrawn}},
};

static int hasty_day(void *arg)
{
    (void)arg;
    return greedy_day_hastily(&bank);
}

WEIR_TEST_WITH(hasty_transfers_overdraw_nobody, .hidden = true)
{
    weir_test_sim(&hasty, hasty_day, NULL);
}

WEIR_SIM_TEST(transfers_overdraw_nobody, .runs_max = 100000, .begin = open_the_books,
              .end = close_the_books,
              .invariants = {{.name = "nobody is overdrawn", .holds = nobody_is_overdrawn}})
{
    return open_day(&bank, transfer, greedy, 3);
}

/* What is seen of the one must not be seen of the other. */
WEIR_TEST(simulation_finds_the_hasty_transfer_soon)
{
    weir_sim_result result;
    weir_sim_spec spec = hasty;

    spec.quiet = true;
    spec.ret_result = &result;
    WEIR_CHECK_INT(weir_sim_run(&spec, hasty_day, NULL), ==, WEIR_EFOUND);
    WEIR_CHECK_STR(result.failure, "invariant 'nobody is overdrawn' does not hold");
    WEIR_CHECK_INT(result.runs, <, 1000);
}

/* Small enough to be looked at from all sides. */
WEIR_SIM_TEST(two_transfers_overdraw_nobody_in_any_order, .strategies = WEIR_SIM_EXHAUSTIVE,
              .departures_max = 3, .runs_max = 1000000, .begin = open_the_books,
              .end = close_the_books,
              .invariants = {{.name = "nobody is overdrawn", .holds = nobody_is_overdrawn}})
{
    return open_day(&bank, transfer, greedy, 2);
}

/* ---- Faults ---- */

static bool all_who_could_were_served(void *arg)
{
    (void)arg;
    return bank.balance[1] > 0;
}

WEIR_SIM_TEST(money_is_kept_when_the_bank_is_closed_early, .runs_max = 20000, .any_result = true,
              .faults = {.cancel = 20, .faults_max = 1}, .begin = open_the_books,
              .end = close_the_books,
              .invariants = {{.name = "nobody is overdrawn", .holds = nobody_is_overdrawn}})
{
    return open_day(&bank, transfer, greedy, 3);
}

WEIR_SIM_TEST(somebody_is_served_within_a_second, .runs_max = 5000, .begin = open_the_books,
              .invariants = {{.name = "somebody is served",
                              .holds = all_who_could_were_served,
                              .within_ms = 1000}})
{
    return open_day(&bank, transfer, greedy, 3);
}

/* ---- Hosts: a vault that is asked over the network, and loses power ---- */

#define VAULT "tcp:10.0.0.2:7000" /* the first host is 10.0.0.1, the next 10.0.0.2 */

/* A name is durable when its folder was synced. */
static int sync_folder(void)
{
    weir_file *folder;
    int closed, r = weir_file_open("/", O_RDONLY | O_DIRECTORY, 0, &folder);

    if (r < 0) return r;
    r = weir_file_sync(folder, false);
    closed = weir_file_close(folder);
    return r < 0 ? r : closed;
}

/* A byte comes, what is paid in; a byte goes, all that was paid in so far. */
static int answer(weir_conn *conn, weir_file *book, bool syncs)
{
    unsigned char amount, total = 0;
    ssize_t n;
    int r = weir_conn_read_exact(conn, &amount, 1, NULL);

    if (r < 0) return r;
    n = weir_file_read(book, &total, 1, 0);
    if (n < 0) return (int)n;
    total = (unsigned char)(total + amount);
    n = weir_file_write(book, &total, 1, 0);
    if (n < 0) return (int)n;
    if (syncs) r = weir_file_sync(book, true);
    if (r == 0) r = weir_conn_send_all(conn, &total, 1, NULL);
    return r;
}

static int serve_vault(weir_file *book, bool syncs)
{
    weir_listener *listener;
    weir_conn *conn;
    int r = weir_listen(&(weir_listen_spec){.address = VAULT}, &listener);

    if (r < 0) return r;
    while ((r = weir_accept(listener, &conn)) == 0) {
        (void)answer(conn, book, syncs); /* a customer that goes away is no failure */
        weir_conn_close(conn);
    }
    weir_listener_close(listener);
    return r;
}

static int keep_vault(void *arg) /* the program of a host: each start begins here */
{
    weir_file *book;
    int closed, r = 0;

    WEIR_NO_DEADLINE("it serves as long as the host runs") {
        r = weir_file_open("/book", O_RDWR | O_CREAT, 0600, &book);
        if (r < 0) return r;
        r = sync_folder();
        if (r == 0) r = serve_vault(book, *(bool *)arg);
        closed = weir_file_close(book);
        if (r == 0) r = closed;
    }
    return r;
}

static int pay_in(unsigned char amount, unsigned char *ret_total)
{
    weir_conn *conn;
    int r = weir_connect(VAULT, &conn);

    if (r < 0) return r;
    r = weir_conn_send_all(conn, &amount, 1, NULL);
    if (r == 0) r = weir_conn_read_exact(conn, ret_total, 1, NULL);
    weir_conn_close(conn);
    return r;
}

static int pay_in_often(bool syncs)
{
    int promised = 0;
    weir_sim_host *vault;
    int r = weir_sim_host_start(
        &(weir_sim_host_spec){
            .name = "vault", .fn = keep_vault, .arg = &syncs, .arg_bytes = sizeof syncs},
        &vault);

    for (int i = 1; i <= 4 && r == 0; i++) {
        unsigned char total = 0;

        WEIR_DEADLINE(2000) r = pay_in(1, &total);
        if (r == 0) {
            WEIR_CHECK_INT(total, >, promised); /* what was answered is there for good */
            WEIR_CHECK_INT(total, <=, i);
            promised = total;
        }
        r = weir_sleep(200); /* whatever came of it: later again */
        if (i == 2) weir_sim_partition(weir_sim_host_self(), vault);
        if (i == 3) weir_sim_heal(weir_sim_host_self(), vault);
    }
    return r;
}

WEIR_SIM_TEST(vault_keeps_what_it_has_answered, .runs_max = 3000,
              .faults = {.kill = 10, .late = 4, .short_io = 4})
{
    return pay_in_often(true);
}

static int pay_into_a_hasty_vault(void *arg)
{
    (void)arg;
    return pay_in_often(false);
}

WEIR_TEST(simulation_finds_the_vault_that_does_not_sync)
{
    weir_sim_result result;

    WEIR_CHECK_INT(weir_sim_run(&(weir_sim_spec){.name = "hasty vault",
                                                 .runs_max = 3000,
                                                 .faults = {.kill = 10},
                                                 .quiet = true,
                                                 .ret_result = &result},
                                pay_into_a_hasty_vault, NULL),
                   ==, WEIR_EFOUND);
    WEIR_CHECK_CONTAINS(result.failure, "total > promised");
}
