/* switch_test.c - stacks that are left and gone on with. */
#include "rt/switch.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "harness/test.h"
#include "rt/sanitize.h"
#include "unit/rt/registers.h"
#include "watch/backtrace.h"
#include "watch/symbol.h"

enum { STACK_BYTES = 256 * 1024, ROUNDS = 1000 };

/* A stack of its own, and the test's side of it. */
struct side {
    struct switch_context context;
    struct switch_context caller;
    struct sanitize_context sanitize;
    struct sanitize_context caller_sanitize;
    char *stack;
    void (*fn)(struct side *side);
    bool ended;
    uint64_t seed;
    uint64_t result;
    double fraction;
};

static void side_leave(struct side *side)
{
    sanitize_release(side);
    sanitize_switch(&side->sanitize, &side->caller_sanitize, 0);
    switch_to(&side->context, &side->caller);
    sanitize_arrived(&side->sanitize, &side->caller_sanitize);
    sanitize_acquire(side);
}

static void side_main(void *arg)
{
    struct side *side = arg;

    sanitize_arrived(&side->sanitize, &side->caller_sanitize);
    sanitize_acquire(side);
    side->fn(side);
    side->ended = true;
    side_leave(side); /* an entry must not return */
    abort();
}

static void side_init(struct side *side, void (*fn)(struct side *side))
{
    memset(side, 0, sizeof *side);
    side->stack = aligned_alloc(16, STACK_BYTES);
    CHECK(side->stack != NULL);
    memset(side->stack, 0, STACK_BYTES);
    side->fn = fn;
    sanitize_stack_mapped(side->stack, STACK_BYTES);
    sanitize_loop_begin(&side->caller_sanitize);
    sanitize_task_begin(&side->sanitize, side->stack, STACK_BYTES);
    switch_prepare(&side->context, side->stack + STACK_BYTES, side_main, side);
}

static void side_enter(struct side *side)
{
    sanitize_release(side);
    sanitize_switch(&side->caller_sanitize, &side->sanitize, 0);
    switch_to(&side->caller, &side->context);
    sanitize_arrived(&side->caller_sanitize, &side->caller_sanitize);
    sanitize_acquire(side);
}

static void side_deinit(struct side *side)
{
    sanitize_task_end(&side->sanitize);
    sanitize_stack_unmapped(side->stack, STACK_BYTES);
    free(side->stack);
}

/* ---- Basics ---- */

static void count_rounds(struct side *side)
{
    for (int i = 0; i < ROUNDS; i++) {
        side->result++;
        side_leave(side);
    }
}

TEST(switch_goes_back_and_forth)
{
    struct side side;

    side_init(&side, count_rounds);
    for (int i = 1; i <= ROUNDS; i++) {
        side_enter(&side);
        CHECK_INT(side.result, ==, i);
        CHECK(!side.ended);
    }
    side_enter(&side);
    CHECK(side.ended);
    CHECK_INT(side.result, ==, ROUNDS);
    side_deinit(&side);
}

typedef float four_floats __attribute__((vector_size(16)));

/* An aligned store to a local faults if the entry's stack pointer is off. */
static void use_aligned_locals(struct side *side)
{
    volatile four_floats vector = {1.0f, 2.0f, 3.0f, 4.0f};

    side->result = (uintptr_t)&vector % 16;
    side_leave(side);
    side->fraction = (double)(vector[0] + vector[1] + vector[2] + vector[3]);
    side->seed = (uintptr_t)__builtin_frame_address(0) % 16;
}

TEST(switch_enters_with_an_aligned_stack)
{
    struct side side;

    side_init(&side, use_aligned_locals);
    side.result = 1;
    side.seed = 1;
    side_enter(&side);
    CHECK_INT(side.result, ==, 0);
    side_enter(&side);
    CHECK(side.ended);
    CHECK_INT((int)side.fraction, ==, 10);
    CHECK_INT(side.seed, ==, 0);
    side_deinit(&side);
}

/* ---- What is alive across a switch stays as it was ---- */

/* More values than there are registers, integers and floating point; the compiler
 * wants to keep all of them in registers across the switch. */
static __attribute__((noinline)) void mix(struct side *side)
{
    uint64_t a = side->seed, b = a * 3 + 1, c = b * 5 + 1, d = c * 7 + 1, e = d * 11 + 1;
    uint64_t f = e * 13 + 1, g = f * 17 + 1, h = g * 19 + 1, i = h * 23 + 1, j = i * 29 + 1;
    uint64_t k = j * 31 + 1, l = k * 37 + 1, m = l * 41 + 1, n = m * 43 + 1, o = n * 47 + 1;
    double p = (double)(a % 97), q = p + 1.5, r = q + 2.5, s = r + 3.5, t = s + 4.5;
    double u = t + 5.5, v = u + 6.5, w = v + 7.5;

    for (int round = 0; round < ROUNDS; round++) {
        a += b ^ c, b += c ^ d, c += d ^ e, d += e ^ f, e += f ^ g, f += g ^ h, g += h ^ i;
        h += i ^ j, i += j ^ k, j += k ^ l, k += l ^ m, l += m ^ n, m += n ^ o, n += o ^ a;
        o += a ^ b;
        p += q * 0.5, q -= r * 0.25, r += s * 0.125, s -= t * 0.5, t += u * 0.25, u -= v * 0.125;
        v += w * 0.5, w -= p * 0.25;
        p *= 0.5, q *= 0.5, r *= 0.5, s *= 0.5, t *= 0.5, u *= 0.5, v *= 0.5, w *= 0.5;
        if (side->stack) side_leave(side);
    }
    side->result = a ^ b ^ c ^ d ^ e ^ f ^ g ^ h ^ i ^ j ^ k ^ l ^ m ^ n ^ o;
    side->fraction = p + q + r + s + t + u + v + w;
}

TEST(switch_keeps_what_is_alive)
{
    struct side one;
    struct side other;
    struct side straight = {.seed = 1};
    struct side straight_other = {.seed = 0xfedcba9876543210};

    side_init(&one, mix);
    side_init(&other, mix);
    one.seed = straight.seed;
    other.seed = straight_other.seed;
    mix(&straight); /* without a stack it runs through */
    mix(&straight_other);
    while (!one.ended || !other.ended) {
        if (!one.ended) side_enter(&one);
        if (!other.ended) side_enter(&other);
    }
    CHECK(one.result == straight.result);
    CHECK(other.result == straight_other.result);
    CHECK(one.result != other.result);
    CHECK(memcmp(&one.fraction, &straight.fraction, sizeof(double)) == 0);
    CHECK(memcmp(&other.fraction, &straight_other.fraction, sizeof(double)) == 0);
    side_deinit(&one);
    side_deinit(&other);
}

static void leave_call(void *arg)
{
    side_leave(arg);
}

static void enter_call(void *arg)
{
    side_enter(arg);
}

static void keep_registers(struct side *side)
{
    for (uint64_t i = 0; i < 3; i++)
        side->result |= registers_across(leave_call, side, side->seed << i);
}

/* Registers that no compiler put there: what calls the switch keeps them too. */
TEST(switch_keeps_the_registers_of_its_caller)
{
    struct side one;
    struct side other;
    uint64_t changed = 0;

    side_init(&one, keep_registers);
    side_init(&other, keep_registers);
    one.seed = 0x0123456789abcdef;
    other.seed = 0xfedcba9876543210;
    for (uint64_t i = 0; i < 4; i++) {
        changed |= registers_across(enter_call, &one, UINT64_C(0x5555555555555555) << i);
        changed |= registers_across(enter_call, &other, UINT64_C(0x3333333333333333) << i);
    }
    CHECK(one.ended && other.ended);
    CHECK_INT(one.result, ==, 0);
    CHECK_INT(other.result, ==, 0);
    CHECK_INT(changed, ==, 0);
    side_deinit(&one);
    side_deinit(&other);
}

/* Memory of a size known only at run time makes the function use a frame pointer. */
static __attribute__((noinline)) void use_frame_pointer(struct side *side)
{
    size_t bytes = (size_t)side->seed;
    unsigned char *memory = __builtin_alloca(bytes);

    memset(memory, 0x5a, bytes);
    for (int i = 0; i < 3; i++) side_leave(side);
    for (size_t i = 0; i < bytes; i++) side->result += memory[i] == 0x5a;
}

TEST(switch_keeps_the_frame_pointer)
{
    struct side one;
    struct side other;

    side_init(&one, use_frame_pointer);
    side_init(&other, use_frame_pointer);
    one.seed = 100;
    other.seed = 5000;
    for (int i = 0; i < 4; i++) {
        side_enter(&one);
        side_enter(&other);
    }
    CHECK(one.ended && other.ended);
    CHECK_INT(one.result, ==, 100);
    CHECK_INT(other.result, ==, 5000);
    side_deinit(&one);
    side_deinit(&other);
}

/* ---- Looking at a stack that was left ---- */

static __attribute__((noinline)) void switch_test_inner(struct side *side)
{
    side_leave(side);
    side->result++;
}

static __attribute__((noinline)) void switch_test_outer(struct side *side)
{
    switch_test_inner(side);
    side->result++;
}

/* The name of the function that a frame is in, in memory of the table. */
static const char *frame_name(struct symbol_table *table, const struct backtrace *backtrace,
                              unsigned index)
{
    struct symbol symbol;

    CHECK_INT(index, <, backtrace->count);
    CHECK_INT(symbol_find(table, backtrace->frames[index], &symbol), ==, 0);
    return symbol.name ? symbol.name : "";
}

static int frame_index(struct symbol_table *table, const struct backtrace *backtrace,
                       const char *name)
{
    for (unsigned i = 0; i < backtrace->count; i++) {
        if (strcmp(frame_name(table, backtrace, i), name) == 0) return (int)i;
    }
    return -1;
}

TEST(switch_backtrace_ends_at_the_entry)
{
    struct symbol_table *table = malloc(sizeof *table);
    struct backtrace backtrace;
    struct side side;
    int inner;

    CHECK(table != NULL);
    symbol_table_init(table);
    side_init(&side, switch_test_outer);
    side_enter(&side);
    backtrace_parked(&side.context, side.stack, side.stack + STACK_BYTES, &backtrace);
    inner = frame_index(table, &backtrace, "switch_test_inner");
    CHECK_INT(inner, >=, 0);
    CHECK_STR(frame_name(table, &backtrace, (unsigned)inner + 1), "switch_test_outer");
    CHECK_STR(frame_name(table, &backtrace, (unsigned)inner + 2), "side_main");
    CHECK_STR(frame_name(table, &backtrace, (unsigned)inner + 3), "switch_entry");
    CHECK_INT(backtrace.count, ==, inner + 4);
    CHECK(!backtrace.cut);
    side_enter(&side);
    CHECK(side.ended);
    CHECK_INT(side.result, ==, 2);
    symbol_table_deinit(table);
    free(table);
    side_deinit(&side);
}

TEST(switch_backtrace_of_a_stack_that_never_ran_is_its_entry)
{
    struct symbol_table *table = malloc(sizeof *table);
    struct backtrace backtrace;
    struct side side;

    CHECK(table != NULL);
    symbol_table_init(table);
    side_init(&side, switch_test_outer);
    backtrace_parked(&side.context, side.stack, side.stack + STACK_BYTES, &backtrace);
    CHECK_INT(backtrace.count, <=, 1);
    symbol_table_deinit(table);
    free(table);
    side_deinit(&side);
}

/* Of all bytes of the stack, also those that AddressSanitizer keeps from others. */
__attribute__((no_sanitize("address", "thread"))) static uint64_t stack_sum(const struct side *side)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < STACK_BYTES; i++) sum = sum * 31 + (unsigned char)side->stack[i];
    return sum;
}

static void note_call(void *arg)
{
    ++*(int *)arg;
}

TEST(switch_call_as_if_from_touches_nothing)
{
    struct side side;
    struct side straight = {.seed = 77};
    uint64_t before;
    int calls = 0;

    TEST_SKIP_ON_VALGRIND("the test reads below a stack pointer");
    side_init(&side, mix);
    side.seed = straight.seed;
    side_enter(&side);
    before = stack_sum(&side);
    for (int i = 0; i < 10; i++) switch_call_as_if_from(&side.context, note_call, &calls);
    CHECK_INT(calls, ==, 10);
    CHECK(stack_sum(&side) == before);
    while (!side.ended) side_enter(&side);
    mix(&straight);
    CHECK(side.result == straight.result);
    side_deinit(&side);
}
