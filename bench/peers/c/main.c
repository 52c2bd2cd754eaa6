/* main.c - plain C's side of `bench runtime`: the loop with no runtime around it. */
#include "sequential.h"

static const struct bench_workload workloads[] = {
    {"sequential", SEQUENTIAL_STEPS_DEFAULT, sequential_measure},
    {0},
};

int main(int argc, char **argv)
{
    struct bench bench = {.program = "bench-c", .peer = "c"};
    const struct bench_workload *workload = bench_parse(argc, argv, workloads, &bench);

    if (!workload) return 2;
    workload->run(&bench);
    return 0;
}
