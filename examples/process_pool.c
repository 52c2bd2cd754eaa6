/* process_pool.c - pictures are blurred in helper processes, and one of them is poison.
 *
 *     process_pool [--pictures N] [--helpers N]
 *
 * The blur runs in processes of this very program, so that a picture that makes it crash costs
 * that one picture: its caller is told, a new helper takes the place of the dead one, and all
 * other pictures get done. Exit status: 0 well, 1 failed, 2 wrong usage.
 */
#include <signal.h>
#include <sys/resource.h>
#include <weir/weir.h>

#include "options.h"

enum { SIDE = 64, PIXELS = SIDE * SIDE, POISON = 3 };

/* ---- In the helper: plain C that may block, crash or leak ---- */

static int mean_around(const unsigned char *pixels, int x, int y)
{
    int sum = 0;
    int count = 0;

    for (int dy = -1; dy <= 1; dy++) {
        for (int dx = -1; dx <= 1; dx++) {
            if (x + dx < 0 || x + dx >= SIDE || y + dy < 0 || y + dy >= SIDE) continue;
            sum += pixels[(y + dy) * SIDE + x + dx];
            count++;
        }
    }
    return sum / count;
}

static void crash(void) /* as a bug in somebody's decoder would, but without a core file */
{
    const struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)signal(SIGSEGV, SIG_DFL);
    (void)raise(SIGSEGV);
}

static int blur(void *arg, const void *in, size_t in_bytes, void *out, size_t out_bytes_max,
                size_t *ret_out_bytes)
{
    const unsigned char *from = in;
    unsigned char *to = out;

    (void)arg;
    if (in_bytes != PIXELS || out_bytes_max < PIXELS) return -EINVAL;
    if (from[0] == POISON) crash();
    for (int i = 0; i < PIXELS; i++) to[i] = (unsigned char)mean_around(from, i % SIDE, i / SIDE);
    *ret_out_bytes = PIXELS;
    return 0;
}

/* ---- In the program ---- */

struct picture {
    weir_process_pool *pool;
    int number;
    int *failed; /* tasks of this example stay on one worker */
};

static int process_picture(void *arg)
{
    const struct picture *picture = arg;
    unsigned char pixels[PIXELS];
    weir_job_result result = {0};
    unsigned sum = 0;
    int r = 0;

    memset(pixels, picture->number, sizeof pixels);
    WEIR_DEADLINE(10000) {
        r = weir_process_pool_run(picture->pool, pixels, sizeof pixels, pixels, sizeof pixels,
                                  &result);
    }
    if (r == WEIR_EEXIT) { /* one failed job, never the end of the program */
        printf("picture %d: %s\n", picture->number, weir_why());
        ++*picture->failed;
        return 0;
    }
    if (r < 0) return r;
    for (int i = 0; i < PIXELS; i++) sum += pixels[i];
    printf("picture %d: blurred, sum %u\n", picture->number, sum);
    return result.value;
}

struct options {
    int pictures;
    int helpers;
};

static int blur_all(weir_process_pool *pool, int pictures, int *ret_failed)
{
    int result = 0;

    WEIR_SCOPE(scope, &result, .name = "pictures", .on_failure = WEIR_FAIL_FAST, .max_tasks = 64,
               .overflow = WEIR_WAIT, .place = WEIR_PLACE_HERE) {
        for (int i = 0; i < pictures; i++) {
            struct picture picture = {pool, i, ret_failed};
            int r = weir_spawn(scope, process_picture, &picture, sizeof picture);
            if (r < 0) weir_scope_cancel(scope, r, "no task for a picture");
            if (r < 0) break;
        }
    }
    return result;
}

static int program(void *arg)
{
    const struct options *options = arg;
    int failed = 0;
    int result = 0;

    WEIR_SCOPE(scope, &result, .name = "program", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        weir_process_pool *pool = NULL;
        int r = 0;

        WEIR_DEADLINE(30000) {
            r = weir_process_pool_open(scope,
                                       &(weir_process_pool_spec){
                                           .name = "blur",
                                           .helpers_max = options->helpers,
                                           .in_bytes_max = PIXELS,
                                           .out_bytes_max = PIXELS,
                                           .overflow = WEIR_WAIT,
                                           .job_ms = 5000,
                                           .max_restarts = 3,
                                           .window_ms = 10000,
                                           .on_close = WEIR_DRAIN,
                                       },
                                       &pool);
            if (r == 0) r = blur_all(pool, options->pictures, &failed);
        }
        if (r < 0) weir_scope_cancel(scope, r, "the pictures");
    }
    printf("%d pictures, %d failed\n", options->pictures, failed);
    return result;
}

int main(int argc, char **argv)
{
    struct options options;
    const struct option_number table[] = {
        {"--pictures", &options.pictures, 12, 1, 200, "how many"},
        {"--helpers", &options.helpers, 3, 1, 64, "processes at a time"},
        {NULL},
    };
    int r;

    weir_process_pool_helper(argc, argv, blur, NULL); /* does not return in a helper */
    (void)options_read(argc, argv, "process_pool [--pictures N] [--helpers N]", table);
    r = weir_run(&(weir_config){.log_level = WEIR_LOG_ERROR}, program, &options);
    if (r < 0) fprintf(stderr, "process_pool: %s\n", weir_strerror(r));
    return r < 0 ? 1 : 0;
}
