/* step2_count.c - the tutorial's second program: tasks in a scope, their results, a failure.
 *
 *     step2_count TEXT...
 *
 * Counts the words of each text, all at once. A text without a word is a failure, which cancels
 * the others. Exit status: 0 all were counted, 1 a failure.
 */
#include <errno.h>
#include <stdio.h>
#include <weir/weir.h>

#include "words.h"

struct job {
    const char *text;
    int *words; /* where the result goes: in the frame of the one who opened the scope */
};

static int count(void *arg) /* a task; arg is its own copy of the job */
{
    struct job *job = arg;
    int r = weir_checkpoint(); /* has anybody cancelled us? */
    if (r < 0) return r;
    *job->words = count_words(job->text);
    return *job->words > 0 ? 0 : -EINVAL;
}

static int count_all(void *arg)
{
    const char *const *texts = arg;
    int words[16] = {0}, total = 0, result;

    WEIR_SCOPE(scope, &result, .name = "counting", .on_failure = WEIR_FAIL_FAST, .max_tasks = 16,
               .overflow = WEIR_REJECT, .deadline_ms = 1000) {
        for (int i = 0; texts[i]; i++) {
            struct job job = {.text = texts[i], .words = &words[i]};
            int r = weir_spawn(scope, count, &job, sizeof job);
            if (r < 0) weir_scope_cancel(scope, r, "a task could not be spawned");
        }
    } /* closed: all tasks have ended, and `result` is the first failure */
    if (result < 0) {
        fprintf(stderr, "step2_count: %s\n", weir_strerror(result));
        return result;
    }
    for (int i = 0; i < 16; i++) total += words[i];
    printf("%d words\n", total);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *example[] = {"every boundary", "names its owner, its lifetime,", "and more",
                                    NULL};

    if (argc > 17) return fprintf(stderr, "step2_count: at most 16 texts\n"), 2;
    return weir_run(NULL, count_all, argc > 1 ? (void *)(argv + 1) : example) < 0;
}
