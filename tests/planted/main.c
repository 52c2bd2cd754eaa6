/* main.c - run every planted race and its mended twin, and count what was reported.
 *
 * usage: weir-planted               all of them; closes with `N passed, N failed`
 *        weir-planted NAME          one as it was planted, in this process
 *        weir-planted NAME mended   its twin
 *
 * In strict mode every planted race must be found. In ordered mode those between two
 * workers must be; how many of the others are is printed, for the record. No twin may
 * be reported in either.
 */
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "planted/planted.h"
#include "rt/sanitize.h"

enum { REPORTED = 66, SECONDS_MAX = 60, EXIT_USAGE = 2 };

bool mended;
static struct planted *first;

void planted_register(struct planted *keep_planted)
{
    struct planted **at = &first;
    while (*at && strcmp((*at)->name, keep_planted->name) < 0) at = &(*at)->next;
    keep_planted->next = *at;
    *at = keep_planted;
}

void planted_give_up(const char *file, int line, const char *call, int error)
{
    fprintf(stderr, "%s:%d: %s gave %s (%s)\n", file, line, call, weir_error_name(error),
            weir_why());
    _exit(1);
}

void planted_meet(struct meeting *meeting, int side)
{
    atom_store(&meeting->here[side], true);
    while (!atom_load(&meeting->here[1 - side])) (void)sched_yield();
}

const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "halt_on_error=1:exitcode=66";
}

static int run(const struct planted *planted)
{
    int r = weir_run(&(weir_config){.workers = (int)planted->where}, planted->fn, NULL);
    if (r < 0) fprintf(stderr, "%s: %s\n", planted->name, weir_strerror(r));
    return r < 0 ? 1 : 0;
}

/* In a process of its own, with what it prints going to `log`. */
static int run_forked(const struct planted *planted, bool twin, FILE *log)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        (void)alarm(SECONDS_MAX); /* a planted race may also hang */
        if (dup2(fileno(log), STDERR_FILENO) < 0) _exit(1);
        mended = twin;
        exit(run(planted));
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void show(FILE *log)
{
    char line[512];
    rewind(log);
    while (fgets(line, sizeof line, log)) printf("    %s", line);
}

/* In ordered mode a race is only seen if the two workers really run at the same time,
 * which a loaded machine may not let happen in one run. */
enum { TRIES = 10 };

/* One race or one twin; true if it went as it should. */
static bool check(const struct planted *planted, bool twin, bool must_be_found, bool *ret_found)
{
    FILE *log = tmpfile();
    int status;
    bool ok;

    if (!log) planted_give_up(__FILE__, __LINE__, "tmpfile", -1);
    status = run_forked(planted, twin, log);
    for (int i = 1; i < TRIES && must_be_found && !twin && status == 0; i++) {
        status = run_forked(planted, twin, log);
    }
    *ret_found = status == REPORTED;
    ok = status == REPORTED ? !twin : status == 0 && !must_be_found;
    if (!ok) {
        printf("FAILED %s%s: %s (status %d)\n", planted->name, twin ? ", mended" : "",
               twin && *ret_found ? "a false report"
               : status == 0      ? "the race was not found"
                                  : "did not run to its end",
               status);
        show(log);
    }
    (void)fclose(log);
    return ok;
}

struct tally {
    int planted[TWO_WORKERS + 1];
    int found[TWO_WORKERS + 1];
    int passed;
    int failed;
};

static void run_both(const struct planted *planted, struct tally *tally)
{
    bool must_be_found = WEIR_TSAN_STRICT || planted->where == TWO_WORKERS;
    bool found = false, twin_found = false;
    bool ok = check(planted, false, must_be_found, &found);
    bool twin_ok = check(planted, true, false, &twin_found);

    tally->planted[planted->where]++;
    tally->found[planted->where] += found;
    tally->passed += ok + twin_ok;
    tally->failed += !ok + !twin_ok;
}

static const struct planted *find(const char *name)
{
    for (const struct planted *planted = first; planted; planted = planted->next) {
        if (strcmp(planted->name, name) == 0) return planted;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct tally tally = {0};

    if (argc > 1) {
        const struct planted *planted = find(argv[1]);
        if (!planted || argc > 3 || (argc == 3 && strcmp(argv[2], "mended") != 0)) {
            fprintf(stderr, "usage: weir-planted [NAME [mended]]; the names:\n");
            for (planted = first; planted; planted = planted->next) puts(planted->name);
            return EXIT_USAGE;
        }
        mended = argc == 3;
        return run(planted);
    }
    (void)setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    for (const struct planted *planted = first; planted; planted = planted->next) {
        run_both(planted, &tally);
    }
    printf("%s mode: found %d of %d races between tasks of one worker, %d of %d between workers\n",
           WEIR_TSAN_STRICT ? "strict" : "ordered", tally.found[ONE_WORKER],
           tally.planted[ONE_WORKER], tally.found[TWO_WORKERS], tally.planted[TWO_WORKERS]);
    printf("%d passed, %d failed\n", tally.passed, tally.failed);
    return tally.failed > 0 || tally.passed == 0;
}
