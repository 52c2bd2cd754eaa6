/* server_get.c - small GET requests, by wrk. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "load/server.h"

/* Its output, which is short. */
static void run_wrk(size_t connections, size_t ms, char *ret_output, size_t output_bytes_max)
{
    char count[32], time[32], url[64];
    size_t got = 0;
    ssize_t n = 1;
    int fds[2], status = 0;
    pid_t wrk;

    snprintf(count, sizeof count, "-c%zu", connections);
    snprintf(time, sizeof time, "-d%zus", (ms + 999) / 1000);
    snprintf(url, sizeof url, "http://127.0.0.1:%u/livez", load.port);
    if (pipe(fds) < 0) stop_errno("pipe");
    wrk = fork();
    if (wrk < 0) stop_errno("fork");
    if (wrk == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(fds[1], 1);
        close(fds[0]);
        execlp("wrk", "wrk", "-t1", count, time, "--latency", url, (char *)NULL);
        _exit(STATUS_NOT_HERE);
    }
    close(fds[1]);
    while (got < output_bytes_max - 1 && n > 0) {
        n = read(fds[0], ret_output + got, output_bytes_max - 1 - got);
        if (n > 0) got += (size_t)n;
    }
    ret_output[got] = '\0';
    close(fds[0]);
    (void)waitpid(wrk, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == STATUS_NOT_HERE)
        stop(STATUS_NOT_HERE, "there is no 'wrk' on PATH (Debian: wrk)");
    if (status != 0) stop(1, "wrk has failed: %s", ret_output);
    if (strstr(ret_output, "Socket errors") || strstr(ret_output, "Non-2xx"))
        stop(1, "not every request was answered: %s", ret_output);
}

/* The number after a word of wrk's output, in microseconds if it has a unit of time. */
static double number_after(const char *output, const char *word)
{
    const char *found = strstr(output, word);
    double number = 0;
    char unit[8] = "";

    if (!found || sscanf(found + strlen(word), "%lf%7[a-z]", &number, unit) < 1)
        stop(1, "wrk says nothing about '%s': %s", word, output);
    if (strcmp(unit, "ms") == 0) return number * 1e3;
    if (strcmp(unit, "s") == 0) return number * 1e6;
    return number;
}

static double requests_of(const char *output)
{
    const char *found = strstr(output, " requests in ");

    while (found && found > output && found[-1] != ' ' && found[-1] != '\n') found--;
    if (!found || strtod(found, NULL) <= 0) stop(1, "wrk has made no requests: %s", output);
    return strtod(found, NULL);
}

/* Before it there are other numbers with a per cent sign. */
static const char *distribution_of(const char *output)
{
    const char *found = strstr(output, "Latency Distribution");

    return found ? found : "";
}

void measure_get(size_t connections)
{
    char output[4096];
    int64_t cpu_ns;

    client_pin(); /* wrk inherits it */
    run_wrk(connections, load.bench.n / 4, output, sizeof output);
    cpu_ns = server_cpu_ns();
    run_wrk(connections, load.bench.n, output, sizeof output);
    cpu_ns = server_cpu_ns() - cpu_ns;
    print_figure("rate", "requests_per_s", number_after(output, "Requests/sec:"));
    print_figure("cpu", "us_per_request", (double)cpu_ns / 1000 / requests_of(output));
    print_figure("p50", "us", number_after(distribution_of(output), "50%"));
    print_figure("p99", "us", number_after(distribution_of(output), "99%"));
}
