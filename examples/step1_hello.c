/* step1_hello.c - the smallest program of the tutorial: one task, one wait, one deadline.
 *
 *     step1_hello
 */
#include <stdio.h>
#include <weir/weir.h>

static int hello(void *arg) /* the first task of the program */
{
    int r = 0;

    (void)arg;
    WEIR_DEADLINE(1000) {
        r = weir_sleep(10); /* the task waits; its worker would run others meanwhile */
        if (r == 0) r = printf("hello, from task '%s'\n", weir_task_name()) < 0 ? -1 : 0;
    }
    return r; /* 0 or more is success; a negative number is a failure */
}

int main(void)
{
    return weir_run(NULL, hello, NULL) < 0;
}
