/* locals_test.c - the library's thread locals are exchanged all together. */
#include "sim/locals.h"

#include <string.h>
#include <weir/error.h>

#include "flow/pool.h"
#include "harness/test.h"
#include "watch/trace.h"

/* Never looked into. */
static void *mark(uintptr_t number)
{
    return (void *)(number << 12);
}

static void set_all(uintptr_t number)
{
    worker_current = mark(number);
    task_current = NULL; /* weir_why reads it */
    (void)pool_thread_swap(mark(number + 1));
    trace_thread(mark(number + 2));
}

static void check_all(uintptr_t number)
{
    struct pool_job *job = pool_thread_swap(NULL);
    struct trace_node *node = trace_thread_swap(NULL);

    CHECK(worker_current == mark(number));
    CHECK(job == mark(number ? number + 1 : 0));
    CHECK(node == mark(number ? number + 2 : 0));
    (void)pool_thread_swap(job);
    (void)trace_thread_swap(node);
}

TEST(simulated_threads_have_their_own_thread_locals)
{
    struct sim_locals one = {0}, other = {0};
    struct task *task;

    set_all(10);
    CHECK_INT(refuse("the first"), ==, WEIR_EREFUSED);
    sim_locals_swap(&one); /* a thread that has just begun */
    check_all(0);
    CHECK_STR(weir_why(), "");
    set_all(20);
    sim_locals_swap(&other); /* another one */
    check_all(0);
    CHECK_INT(refuse("the third"), ==, WEIR_EREFUSED);
    sim_locals_swap(&other);
    check_all(20);
    CHECK_STR(weir_why(), "");
    sim_locals_swap(&one);
    check_all(10);
    CHECK_STR(weir_why(), "the first");
    CHECK_STR(other.rt.why, "the third");

    task_current = mark(30);
    sim_locals_swap(&other);
    task = task_current;
    CHECK(task == NULL);
    CHECK(other.rt.task == mark(30));
    CHECK_STR(weir_why(), "the third");
    worker_current = NULL;
    (void)pool_thread_swap(NULL);
    trace_thread(NULL);
}
