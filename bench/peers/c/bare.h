/* bare.h - rows of `bench flow` without a library; see bare.c. */
#ifndef BENCH_BARE_H
#define BENCH_BARE_H

#include "bench.h"

void bare_ping_pong(const struct bench *bench);
void bare_channel_1_1(const struct bench *bench);
void bare_channel_4_4(const struct bench *bench);
void bare_select_4_0(const struct bench *bench);
void bare_select_4_128(const struct bench *bench);
void bare_mutex(const struct bench *bench);
void bare_mutex_1000(const struct bench *bench);

#endif
