/* echo.c - libuv's side of `bench echo`: one buffer for all reads, the answer tried at once
 * (uv_try_write), which is the fast form of a write in libuv. */
#include <uv.h>

#include "bench_socket.h"

enum { BUFFER_BYTES = 4096 };

static const struct bench bench = {.program = "echo-libuv"};
static char buffer[BUFFER_BYTES];

static void check(const char *call, int error)
{
    if (error < 0) bench_fail(&bench, call, uv_strerror(error));
}

static void lend_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buffer)
{
    (void)handle;
    (void)suggested;
    *ret_buffer = uv_buf_init(buffer, sizeof buffer);
}

static void on_close(uv_handle_t *handle)
{
    free(handle);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *read)
{
    uv_buf_t answer;

    if (n == 0) return;
    if (n < 0) {
        uv_close((uv_handle_t *)stream, on_close);
        return;
    }
    answer = uv_buf_init(read->base, (unsigned)n);
    /* With one small request in flight the socket's buffer always has room. */
    if (uv_try_write(stream, &answer, 1) != n) bench_fail(&bench, "uv_try_write", "not whole");
}

static void on_connection(uv_stream_t *listener, int status)
{
    uv_tcp_t *client = malloc(sizeof *client);

    check("listen", status);
    if (!client) bench_fail(&bench, "malloc", strerror(ENOMEM));
    check("uv_tcp_init", uv_tcp_init(listener->loop, client));
    check("uv_accept", uv_accept(listener, (uv_stream_t *)client));
    check("uv_tcp_nodelay", uv_tcp_nodelay(client, 1));
    check("uv_read_start", uv_read_start((uv_stream_t *)client, lend_buffer, on_read));
}

int main(void)
{
    uv_loop_t *loop = uv_default_loop();
    struct sockaddr_in address;
    int bytes = sizeof address;
    uv_tcp_t listener;

    check("uv_tcp_init", uv_tcp_init(loop, &listener));
    check("uv_ip4_addr", uv_ip4_addr("127.0.0.1", 0, &address));
    check("uv_tcp_bind", uv_tcp_bind(&listener, (const struct sockaddr *)&address, 0));
    check("uv_listen", uv_listen((uv_stream_t *)&listener, BENCH_BACKLOG, on_connection));
    check("uv_tcp_getsockname", uv_tcp_getsockname(&listener, (struct sockaddr *)&address, &bytes));
    bench_print_port(ntohs(address.sin_port));
    return uv_run(loop, UV_RUN_DEFAULT);
}
