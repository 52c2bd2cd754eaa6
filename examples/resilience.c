/* resilience.c - failing well: prices from a service that is slow, sometimes broken, then away.
 *
 *     resilience
 *
 * A guard puts a timeout, a limit, a breaker, a retry within a shared budget and a fallback around
 * an ordinary function. The service is played by this program: it answers, then fails now and then,
 * then not at all, then again. What fails for good is a dead letter, and is done again at the end.
 * Exit status: 0 every call is accounted for, 1 a failure.
 */
#include <errno.h>
#include <stdio.h>
#include <weir/weir.h>

/* ---- The service ---- */

enum weather { FINE, SHAKY, AWAY };

static struct service {
    enum weather weather;
    int asked;
} service;

struct price {
    int product;
    int cents;
    bool is_old;
};

/* What is guarded: an ordinary function, which may suspend. */
static int fetch_price(void *arg)
{
    struct price *price = arg;
    int r;

    service.asked++;
    if (service.weather == AWAY) return -ECONNREFUSED;
    r = weir_sleep(service.asked % 5 == 0 ? 200 : 1); /* now and then it takes too long */
    if (r < 0) return r;
    if (service.weather == SHAKY && service.asked % 3 == 0) return -ECONNRESET;
    price->cents = 100 * price->product;
    return 0;
}

/* ---- Its policies ---- */

static void say_change(const weir_breaker_change *change, void *keep_arg)
{
    static const char *const states[] = {"closed", "open", "half open"};
    (void)keep_arg;
    printf("breaker '%s': %s -> %s\n", change->breaker, states[change->from], states[change->to]);
}

static int open_breaker(weir_scope *scope, weir_breaker **ret_breaker)
{
    return weir_breaker_open(scope,
                             &(weir_breaker_spec){
                                 .name = "prices",
                                 .window_calls = 20,    /* of the last 20 calls, */
                                 .calls_min = 10,       /* if there were 10, */
                                 .failure_percent = 50, /* half have failed: it opens, */
                                 .open_ms = 50,         /* and lets nobody in for so long; */
                                 .probes_max = 2,       /* then two at a time, which must go well */
                                 .on_change = say_change,
                             },
                             ret_breaker);
}

static void say_lost(const weir_letter *letter, const void *item, void *keep_arg)
{
    (void)item, (void)keep_arg;
    printf("letter %llu of '%s' is lost\n", (unsigned long long)letter->id, letter->source);
}

static int open_sink(weir_scope *scope, weir_dead_letters **ret_sink)
{
    return weir_dead_letters_open(scope,
                                  &(weir_dead_letters_spec){
                                      .name = "orders",
                                      .capacity = 100,
                                      .item_bytes_max = sizeof(struct price),
                                      .overflow = WEIR_DROP_OLDEST,
                                      .on_lost = say_lost,
                                  },
                                  ret_sink);
}

/* Everything that more than one guard shares. */
struct shared {
    weir_breaker *breaker;
    weir_limit *limit;
    weir_retry_budget *budget;
    weir_dead_letters *sink;
};

static int open_shared(weir_scope *scope, struct shared *shared)
{
    int r = open_breaker(scope, &shared->breaker);
    if (r < 0) return r;
    r = weir_limit_open(scope,
                        &(weir_limit_spec){.name = "prices",
                                           .kind = WEIR_LIMIT_FIXED,
                                           .concurrency = 8,
                                           .overflow = WEIR_WAIT,
                                           .waiters_max = 32},
                        &shared->limit);
    if (r < 0) return r;
    r = weir_retry_budget_open(
        scope, &(weir_retry_budget_spec){.name = "prices", .ratio_percent = 20, .per_second = 10},
        &shared->budget);
    return r < 0 ? r : open_sink(scope, &shared->sink);
}

static weir_retry_spec retry_of(const struct shared *shared)
{
    return (weir_retry_spec){
        .attempts = 3,
        .backoff_ms = 5,      /* at random from 0 to 5 ms, then to 10, */
        .backoff_ms_max = 20, /* and never to more than this */
        .errors = {-ECONNRESET, -ECONNREFUSED, WEIR_ETIMEDOUT},
        .keep_budget = shared->budget,
        .on_exhausted = WEIR_EXHAUSTED_DEAD_LETTER,
        .keep_dead_letters = shared->sink,
    };
}

/* ---- Two guards around the same function ---- */

static int old_price(void *arg, int error, void *keep_arg)
{
    struct price *price = arg;
    (void)error, (void)keep_arg;
    price->cents = 99;
    price->is_old = true;
    return 0;
}

/* For pages: an old price is better than none. */
static int open_page_guard(weir_scope *scope, const struct shared *shared, weir_guard **ret_guard)
{
    return weir_guard_open(scope,
                           &(weir_guard_spec){
                               .name = "page",
                               .timeout_ms = 200, /* of all of it: 3 attempts, waits between them */
                               .attempt_timeout_ms = 50,
                               .idempotent = true, /* asking twice does no harm */
                               .keep_limit = shared->limit,
                               .keep_breaker = shared->breaker,
                               .retry = retry_of(shared),
                               .fallback = old_price,
                           },
                           ret_guard);
}

/* For orders: the true price, or an error, and a letter. */
static int open_order_guard(weir_scope *scope, const struct shared *shared, weir_guard **ret_guard)
{
    return weir_guard_open(scope,
                           &(weir_guard_spec){
                               .name = "order",
                               .timeout_ms = 500,
                               .attempt_timeout_ms = 100,
                               .idempotent = true,
                               .keep_limit = shared->limit,
                               .retry = retry_of(shared),
                           },
                           ret_guard);
}

/* ---- Using them ---- */

struct tally {
    int exact, old, failed;
};

static int show_pages(weir_guard *guard, int count, struct tally *tally)
{
    for (int i = 1; i <= count; i++) {
        struct price price = {.product = i};
        int r = weir_guard_call(guard, fetch_price, &price, sizeof price, NULL);
        if (r == WEIR_ECANCELED) return r;
        if (r == 0) tally->exact++;
        if (r == WEIR_PARTIAL) tally->old++; /* price.is_old */
        if (r < 0) tally->failed++;
    }
    return 0;
}

static int place_order(weir_guard *guard, int product)
{
    struct price price = {.product = product};
    weir_guard_outcome outcome;
    int r = weir_guard_call(guard, fetch_price, &price, sizeof price, &outcome);

    printf("order of %d: %s after %d attempts%s\n", product, r < 0 ? weir_error_name(r) : "ok",
           outcome.attempts, outcome.is_dead_letter ? ", kept as a letter" : "");
    return r;
}

/* Whatever has failed for good is done again, when somebody says so. */
static int replay(weir_dead_letters *sink, weir_guard *guard)
{
    weir_letter letter;
    struct price price;
    int done = 0;

    while (weir_dead_letters_take(sink, 0, &letter, &price, sizeof price) > 0) {
        printf("letter of '%s': product %d, %u attempts, last %s\n", letter.source, price.product,
               letter.attempt_count, weir_error_name(letter.error));
        if (weir_guard_call(guard, fetch_price, &price, sizeof price, NULL) == 0) done++;
    }
    return done;
}

/* ---- The story ---- */

static int tell(weir_scope *scope)
{
    struct tally fine = {0}, shaky = {0}, away = {0}, again = {0};
    weir_guard *page = NULL, *order = NULL;
    struct shared shared;
    int r = open_shared(scope, &shared), done;

    if (r == 0) r = open_page_guard(scope, &shared, &page);
    if (r == 0) r = open_order_guard(scope, &shared, &order);
    if (r < 0) return r;

    service.weather = FINE;
    r = show_pages(page, 20, &fine);
    service.weather = SHAKY;
    if (r == 0) r = show_pages(page, 20, &shaky);
    service.weather = AWAY;
    service.asked = 0;
    if (r == 0) r = show_pages(page, 40, &away);
    if (r < 0) return r;
    (void)place_order(order, 7);
    printf("while it was away it was asked %d times\n", service.asked);
    service.weather = FINE;
    r = weir_sleep(60); /* open_ms is over: the next calls are probes */
    if (r == 0) r = show_pages(page, 20, &again);
    if (r < 0) return r;
    done = replay(shared.sink, order);
    printf("fine %d+%d, shaky %d+%d, away %d+%d, again %d+%d (exact + old); %d done again\n",
           fine.exact, fine.old, shaky.exact, shaky.old, away.exact, away.old, again.exact,
           again.old, done);
    return fine.failed + shaky.failed + away.failed + again.failed == 0 && done > 0 ? 0 : -EIO;
}

static int run(void *arg)
{
    int r = 0;

    (void)arg;
    WEIR_SCOPE(scope, &r, .name = "resilience", .on_failure = WEIR_FAIL_FAST, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        r = tell(scope);
    }
    return r;
}

int main(void)
{
    int r = weir_run(&(weir_config){.name = "resilience", .workers = 1}, run, NULL);

    if (r < 0) fprintf(stderr, "resilience: %s\n", *weir_why() ? weir_why() : weir_strerror(r));
    return r < 0 ? 1 : 0;
}
