/* hello.c - the program of the README: say hello to some servers, all at once, within a second.
 *
 *     hello ADDRESS...        (for example tcp:127.0.0.1:7777, where `./do run` listens)
 *
 * Exit status: 0 all have answered, 1 one has not, or there is none.
 */
#include <stdio.h>
#include <weir/weir.h>

static int greet(void *arg) /* a task, with its own copy of what spawn was given */
{
    const char *address = *(char **)arg;
    char text[] = "hello\n";
    weir_conn *conn;
    int r = weir_connect(address, &conn);
    if (r < 0) return r;
    r = weir_conn_send_all(conn, text, 6, NULL);
    if (r == 0) r = weir_conn_read_exact(conn, text, 6, NULL);
    if (r == 0) printf("%s says %s", address, text);
    weir_conn_close(conn);
    return r;
}

static int program(void *arg)
{
    int result;
    WEIR_SCOPE(scope, &result, .name = "greetings", .on_failure = WEIR_FAIL_FAST, .max_tasks = 100,
               .overflow = WEIR_WAIT, .deadline_ms = 1000)
        for (char **address = arg; *address && result == 0; address++)
            result = weir_spawn(scope, greet, address, sizeof *address);
    return result; /* all tasks have ended: the first failure, or the deadline, or 0 */
}

int main(int argc, char **argv)
{
    return argc < 2 || weir_run(NULL, program, argv + 1) < 0;
}
