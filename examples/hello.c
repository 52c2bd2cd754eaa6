/* hello.c - the program of the README: say hello to some servers, all at once, within a second.
 *
 *     hello ADDRESS...        (for example tcp:127.0.0.1:7777, where `./do run` listens)
 *
 * Exit status: 0 all have answered, 1 one has not, 2 wrong usage.
 */
#include <stdio.h>
#include <weir/weir.h>

static int greet(void *arg) /* a task; arg is its own copy of what spawn was given */
{
    const char *address = *(const char **)arg;
    weir_conn *conn;
    char reply[6];
    int r = weir_connect(address, &conn);
    if (r < 0) return r;
    r = weir_conn_send_all(conn, "hello\n", 6, NULL);
    if (r == 0) r = weir_conn_read_exact(conn, reply, sizeof reply, NULL);
    if (r == 0) printf("%s says %.6s", address, reply);
    weir_conn_close(conn);
    return r;
}

static int program(void *arg)
{
    int result;
    WEIR_SCOPE(scope, &result, .name = "greetings", .on_failure = WEIR_FAIL_FAST, .max_tasks = 100,
               .overflow = WEIR_WAIT, .deadline_ms = 1000) {
        for (char **address = arg; *address; address++) {
            int r = weir_spawn(scope, greet, address, sizeof *address);
            if (r < 0) weir_scope_cancel(scope, r, "a task could not be spawned");
        }
    } /* Here all tasks have ended; result is the first failure, or the deadline. */
    if (result < 0) fprintf(stderr, "hello: %s\n", weir_strerror(result));
    return result;
}

int main(int argc, char **argv)
{
    if (argc < 2) return fprintf(stderr, "usage: hello ADDRESS...\n"), 2;
    return weir_run(NULL, program, argv + 1) < 0;
}
