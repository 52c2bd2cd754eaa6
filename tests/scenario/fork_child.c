/* fork_child.c - fork in a process that runs weir: the child is told, the parent goes on. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/rt/support.h"

/* What exists in the parent when it forks, for the child to try. */
struct world {
    weir_scope *scope;
    weir_task task;
    weir_postbox *box;
    weir_conn *conn;
    weir_listener *listener;
    int child_workers; /* asked before there are threads to fork beside */
};

static const weir_local_key key = {"fork"};

static int nothing(void *arg)
{
    (void)arg;
    return 0;
}

static void on_fire(weir_timer *timer, void *arg)
{
    (void)timer, (void)arg;
}

/* The call is refused, and says why. */
#define CHECK_FORKED(call, name)                                                       \
    do {                                                                               \
        CHECK_INT((call), ==, WEIR_ENOTASK);                                           \
        CHECK_CONTAINS(weir_why(), name);                                              \
        CHECK_CONTAINS(weir_why(), "this process was forked from one that runs weir"); \
    } while (0)

static void try_runtime_calls(struct world *world)
{
    weir_scope *scope;
    weir_timer *timer;
    weir_postbox *box;
    int value = 1;

    CHECK_FORKED(weir_yield(), "weir_yield");
    CHECK_FORKED(weir_checkpoint(), "weir_checkpoint");
    CHECK_FORKED(weir_sleep(1), "weir_sleep");
    CHECK_FORKED(weir_spawn(world->scope, nothing, NULL, 0), "weir_spawn");
    CHECK_FORKED(weir_task_spawn(world->scope, &(weir_task_spec){.fn = nothing}, NULL),
                 "weir_task_spawn");
    CHECK_FORKED(weir_task_join(world->task, NULL), "weir_task_join");
    CHECK_FORKED(weir_task_cancel(world->task, "from the child"), "weir_task_cancel");
    CHECK_FORKED(weir_scope_open(&(weir_scope_spec){.name = "child",
                                                    .on_failure = WEIR_COLLECT,
                                                    .max_tasks = 1,
                                                    .overflow = WEIR_REJECT},
                                 &scope),
                 "weir_scope_open");
    CHECK_FORKED(weir_scope_join(world->scope), "weir_scope_join");
    CHECK_FORKED(weir_scope_close(world->scope), "weir_scope_close");
    CHECK_FORKED(weir_stop(0), "weir_stop");
    CHECK_FORKED(weir_local_set(&key, &value, sizeof value), "weir_local_set");
    CHECK_FORKED(
        weir_timer_open(world->scope, &(weir_timer_spec){.name = "t", .on_fire = on_fire}, &timer),
        "weir_timer_open");
    CHECK_FORKED(
        weir_postbox_open(world->scope,
                          &(weir_postbox_spec){.name = "b", .capacity = 1, .overflow = WEIR_REJECT},
                          &box),
        "weir_postbox_open");
    CHECK_FORKED(weir_post(world->box, nothing, NULL, 0), "weir_post");
    CHECK(weir_task_self().ref == NULL);
    CHECK_STR(weir_task_name(), "");
    CHECK(weir_local_get(&key) == NULL);
    CHECK_INT(weir_worker_index(), ==, -1);
    CHECK_INT(weir_worker_count(), ==, 0);
    CHECK_INT(weir_deadline_ns(), ==, INT64_MAX);
}

static void try_io_calls(struct world *world)
{
    weir_address addresses[1];
    weir_listener *listener;
    weir_listing *listing;
    weir_conn *a, *b;
    weir_file *file;
    weir_udp *udp;
    char byte = 0;

    CHECK_FORKED((int)weir_conn_read(world->conn, &byte, 1), "weir_conn_read");
    CHECK_FORKED((int)weir_conn_write(world->conn, &byte, 1), "weir_conn_write");
    CHECK_FORKED(weir_conn_send_all(world->conn, &byte, 1, NULL), "weir_conn_send_all");
    CHECK_FORKED(weir_accept(world->listener, &a), "weir_accept");
    CHECK_FORKED(weir_connect("tcp:127.0.0.1:1", &a), "weir_connect");
    CHECK_FORKED(weir_listen(&(weir_listen_spec){.address = "tcp:127.0.0.1:0"}, &listener),
                 "weir_listen");
    CHECK_FORKED(weir_pipe(&a, &b), "weir_pipe");
    CHECK_FORKED(weir_socketpair(&a, &b), "weir_socketpair");
    CHECK_FORKED(weir_udp_open("udp:127.0.0.1:0", &udp), "weir_udp_open");
    CHECK_FORKED(weir_resolve("localhost", 1, WEIR_TCP, addresses, 1), "weir_resolve");
    CHECK_FORKED(weir_file_open("/dev/null", O_RDONLY, 0, &file), "weir_file_open");
    CHECK_FORKED(weir_path_mkdir("/nowhere/at/all", 0700), "weir_path_mkdir");
    CHECK_FORKED(weir_path_list("/", 1000, &listing), "weir_path_list");
}

/* ---- What the emulator can do ---- */

static void *wait_for_ever(void *arg)
{
    for (;;) (void)pause();
    return arg;
}

static void *end_at_once(void *arg)
{
    return arg;
}

static void start_a_thread(void *arg)
{
    pthread_t thread;

    (void)arg;
    CHECK_INT(pthread_create(&thread, NULL, end_at_once, NULL), ==, 0);
    CHECK_INT(pthread_join(thread, NULL), ==, 0);
}

static void fork_beside_a_thread(void *arg)
{
    pthread_t thread;
    char output[512];

    CHECK_INT(pthread_create(&thread, NULL, wait_for_ever, NULL), ==, 0);
    if (test_child(start_a_thread, arg, output, sizeof output) != 0) _exit(1);
}

/* Plain threads, without the library: qemu-user 7.2 ends with an assertion of its own, because it
   remembers the threads of the parent that were started after the one that forked. */
static bool forked_children_may_start_threads(void)
{
    char output[512];

    return test_child(fork_beside_a_thread, NULL, output, sizeof output) == 0;
}

/* ThreadSanitizer allows a forked process no thread. */
static int child_workers(void)
{
    if (WEIR_TSAN) return 1;
    return test_emulated() && !forked_children_may_start_threads() ? 1 : 2;
}

/* ---- The child ---- */

struct ran {
    int workers;
    ATOM(int) count;
};

static int run_in_child(void *arg)
{
    struct ran *ran = arg;

    CHECK_OK(weir_yield());
    CHECK_INT(weir_worker_count(), ==, ran->workers);
    (void)atom_add(&ran->count, 1);
    return 7;
}

static void live_in_child(void *arg)
{
    struct world *world = arg;
    struct ran ran = {.workers = world->child_workers};

    try_runtime_calls(world);
    try_io_calls(world);
    /* A runtime of its own, signals included, and again told apart afterwards. */
    CHECK_INT(weir_run(&(weir_config){.workers = ran.workers, .signals = WEIR_SIGNAL_DRAIN},
                       run_in_child, &ran),
              ==, 7);
    CHECK_INT(atom_load(&ran.count), ==, 1);
    CHECK_FORKED(weir_yield(), "weir_yield");
    printf("told\n");
}

/* ---- In a task ---- */

static int wait_to_be_told(void *arg)
{
    int r = 0;

    (void)arg;
    WEIR_NO_DEADLINE("the parent lets go of it") r = weir_sleep(WEIR_FOREVER);
    return r;
}

static void open_world(struct world *world)
{
    weir_conn *other;

    *world = (struct world){.scope = open_scope("world", WEIR_FAIL_FAST)};
    world->task =
        spawn_at(world->scope, weir_worker_count() - 1, "sleeper", wait_to_be_told, NULL, 0);
    CHECK_OK(weir_postbox_open(
        world->scope, &(weir_postbox_spec){.name = "b", .capacity = 9, .overflow = WEIR_REJECT},
        &world->box));
    CHECK_OK(weir_socketpair(&world->conn, &other));
    weir_conn_close(other);
    CHECK_OK(weir_listen(&(weir_listen_spec){.address = "tcp:127.0.0.1:0"}, &world->listener));
    CHECK_OK(weir_yield());
}

/* The parent is as it was: everything still works, and nothing ran twice. */
static int close_world(struct world *world)
{
    weir_task task;
    int result;

    CHECK_OK(weir_post(world->box, nothing, NULL, 0));
    task = spawn_task(world->scope, "after", return_argument, &(int){5}, sizeof(int));
    CHECK_OK(weir_task_join(task, &result));
    CHECK_INT(result, ==, 5);
    /* What was posted ends by itself, on a worker that may be slow. */
    while (weir_scope_task_count(world->scope) > 1) CHECK_OK(weir_sleep(1));
    CHECK_INT(weir_scope_task_count(world->scope), ==, 1);
    CHECK_OK(weir_task_cancel(world->task, "the test is over"));
    CHECK_OK(weir_task_join(world->task, &result));
    CHECK_INT(result, ==, WEIR_ECANCELED);
    weir_postbox_unref(world->box);
    weir_conn_close(world->conn);
    weir_listener_close(world->listener);
    return weir_scope_close(world->scope);
}

static int fork_in_task(void *arg)
{
    struct world world;
    char output[2048];

    open_world(&world);
    world.child_workers = *(int *)arg;
    if (test_child(live_in_child, &world, output, sizeof output) != 0) TEST_FAIL("%s", output);
    CHECK_CONTAINS(output, "told");
    return close_world(&world);
}

TEST(forked_child_is_told_by_every_call_and_may_run_its_own_runtime)
{
    int in_child = child_workers();

    for (int workers = 1; workers <= 2; workers++) {
        CHECK_OK(weir_run(&(weir_config){.workers = workers, .signals = WEIR_SIGNAL_DRAIN},
                          fork_in_task, &in_child));
    }
}

/* ---- In a thread that is not a worker ---- */

struct forker {
    struct world *world;
    char output[2048];
    int status;
    ATOM(int) done;
};

static void *fork_in_thread(void *arg)
{
    struct forker *forker = arg;

    forker->status =
        test_child(live_in_child, forker->world, forker->output, sizeof forker->output);
    atom_store_release(&forker->done, 1);
    return NULL;
}

static int run_forker(void *arg)
{
    struct world world;
    struct forker forker = {.world = &world};
    pthread_t thread;

    open_world(&world);
    world.child_workers = *(int *)arg;
    CHECK_INT(pthread_create(&thread, NULL, fork_in_thread, &forker), ==, 0);
    while (!atom_load_acquire(&forker.done)) CHECK_OK(weir_sleep(1));
    CHECK_INT(pthread_join(thread, NULL), ==, 0);
    if (forker.status != 0) TEST_FAIL("%s", forker.output);
    CHECK_CONTAINS(forker.output, "told");
    return close_world(&world);
}

TEST(child_forked_by_a_foreign_thread_is_told_too)
{
    int in_child = child_workers();

    CHECK_OK(run_on(test_workers(), run_forker, &in_child));
}

/* ---- Leaving the child the wrong way, and by signal ---- */

static int fork_and_return(void *arg)
{
    (void)arg;
    return fork() == 0 ? 0 : WEIR_EREFUSED;
}

/* In a process of its own: the child must not go on with its copies of the tasks. */
static void parent_of_one_that_returns(void *arg)
{
    int status;

    (void)arg;
    CHECK_INT(run_on(2, fork_and_return, NULL), ==, WEIR_EREFUSED);
    CHECK(wait(&status) > 0);
    CHECK(WIFSIGNALED(status));
    CHECK_INT(WTERMSIG(status), ==, SIGABRT);
    printf("parent is fine\n");
}

TEST(task_that_returns_in_a_forked_child_aborts_with_a_sentence)
{
    char output[2048];

    CHECK_INT(test_child(parent_of_one_that_returns, NULL, output, sizeof output), ==, 0);
    CHECK_CONTAINS(output, "task 'main' returned in a forked process");
    CHECK_CONTAINS(output, "parent is fine");
}

static int fork_and_kill(void *arg)
{
    int ready[2], status;
    char byte = 1;
    pid_t pid;

    (void)arg;
    CHECK_INT(pipe(ready), ==, 0);
    pid = fork();
    if (pid == 0) {
        if (write(ready[1], &byte, 1) != 1) _exit(1);
        for (;;) (void)pause();
    }
    CHECK_INT(read(ready[0], &byte, 1), ==, 1);
    CHECK_INT(close(ready[0]), ==, 0);
    CHECK_INT(close(ready[1]), ==, 0);
    CHECK_INT(kill(pid, SIGTERM), ==, 0);
    CHECK_INT(waitpid(pid, &status, 0), ==, pid);
    /* By the default action: the handlers stayed in the parent with the runtime. */
    CHECK(WIFSIGNALED(status));
    CHECK_INT(WTERMSIG(status), ==, SIGTERM);
    return weir_sleep(1);
}

TEST(drain_handlers_are_not_inherited_by_a_forked_child)
{
    CHECK_OK(weir_run(
        &(weir_config){.workers = test_workers(), .signals = WEIR_SIGNAL_DRAIN | WEIR_SIGNAL_DUMP},
        fork_and_kill, NULL));
}

/* Every kind of block is left in the child as well, where it is none any more. */
static pid_t fork_inside_blocks(void)
{
    int r;

    WEIR_SCOPE(scope, &r, .name = "forked", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        WEIR_DEADLINE(60000) {
            WEIR_SHIELD(60000) {
                WEIR_NO_DEADLINE("it forks") { return fork(); }
            }
        }
    }
    return -1;
}

static int leave_blocks(void *arg)
{
    pid_t pid = fork_inside_blocks();
    int status;

    (void)arg;
    if (pid == 0) _exit(weir_task_self().ref == NULL ? 23 : 1);
    CHECK_INT(pid, >, 0);
    CHECK_INT(waitpid(pid, &status, 0), ==, pid);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), ==, 23);
    CHECK_INT(weir_deadline_ns(), ==, INT64_MAX); /* the parent has left them */
    return weir_sleep(1);
}

TEST(blocks_can_be_left_in_a_forked_child)
{
    CHECK_OK(run_on(1, leave_blocks, NULL));
    CHECK_OK(run_on(2, leave_blocks, NULL));
}

/* ---- Exec ---- */

enum { LISTING_BYTES = 4096 };

static void list_descriptors(char text[LISTING_BYTES])
{
    const char *const argv[] = {"/bin/ls", "/proc/self/fd", NULL};

    CHECK_INT(test_exec(argv, text, LISTING_BYTES), ==, 0);
}

static void call_when_idle(weir_conn *conn, int status, void *arg)
{
    (void)conn, (void)status, (void)arg;
}

/* One of every kind of descriptor that the library makes. */
static int exec_with_everything_open(void *arg)
{
    const char *before = arg;
    char after[LISTING_BYTES];
    weir_listener *listener, *shared;
    weir_conn *client, *server, *reader, *writer, *a, *b;
    char address[WEIR_ADDRESS_TEXT_MAX];
    weir_address bound;
    weir_udp *udp;
    weir_file *file;
    weir_scope *scope;

    WEIR_DEADLINE(60000) {
        scope = open_scope("exec", WEIR_FAIL_FAST);
        CHECK_OK(weir_listen(&(weir_listen_spec){.address = "tcp:127.0.0.1:0"}, &listener));
        CHECK_OK(weir_listen(&(weir_listen_spec){.address = "tcp:127.0.0.1:0", .per_worker = true},
                             &shared));
        CHECK_OK(weir_listener_address(listener, &bound));
        weir_address_format(&bound, address, sizeof address);
        CHECK_OK(weir_connect(address, &client));
        CHECK_OK(weir_accept(listener, &server));
        CHECK_OK(weir_pipe(&reader, &writer));
        CHECK_OK(weir_socketpair(&a, &b));
        CHECK_OK(weir_udp_open("udp:127.0.0.1:0", &udp));
        CHECK_OK(weir_file_open("/dev/null", O_RDWR, 0, &file));
        CHECK_OK(weir_conn_idle(scope, a,
                                &(weir_idle_spec){.on_ready = call_when_idle, .idle_ms = 60000}));
        list_descriptors(after);
        CHECK_STR(after, before);
        CHECK_OK(weir_file_close(file));
        weir_udp_close(udp);
        weir_scope_cancel(scope, 0, "seen");
        CHECK_OK(weir_scope_close(scope));
        weir_conn_close(a);
        weir_conn_close(b);
        weir_conn_close(reader);
        weir_conn_close(writer);
        weir_conn_close(client);
        weir_conn_close(server);
        weir_listener_close(listener);
        weir_listener_close(shared);
    }
    return 0;
}

TEST(executed_program_inherits_no_descriptor)
{
    char before[LISTING_BYTES], after[LISTING_BYTES];
    weir_runtime *runtime;

    list_descriptors(before);
    CHECK_OK(run_on(test_workers(), exec_with_everything_open, before));
    CHECK_OK(weir_runtime_open(NULL, &runtime));
    CHECK_INT(weir_turn(runtime), ==, 0); /* its timer descriptor is made here */
    list_descriptors(after);
    CHECK_STR(after, before);
    CHECK_OK(weir_runtime_close(runtime));
}
