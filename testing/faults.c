/* faults.c - which system calls of the library fail, and what the scheduler chooses.
 *
 * Counters are shared by all workers. They are set up before a runtime is opened,
 * or by the test while it runs; a worker that sees a change a moment later is as
 * good as one that was a moment earlier.
 */
#include <string.h>

#include "base/atomic.h"
#include "rt/kernel.h"
#include "rt/kernel_real.h"
#include "testing/harness.h"

struct fault {
    const char *name;
    ATOM(uint64_t) calls;
    ATOM(int) times; /* left to fail */
    ATOM(int) error;
};

static struct fault faults[CALL_COUNT] = {
#define FAULT_ROW(name_) [CALL_##name_] = {.name = #name_},
    FAULT_CALLS(FAULT_ROW)
#undef FAULT_ROW
};

static struct {
    ATOM(uint64_t) calls; /* of all kinds but queue_wait */
    ATOM(uint64_t) fail_at;
    ATOM(int) fail_error;
    ATOM(const char *) failed; /* the kind of call that was made to fail */
    ATOM(size_t) io_bytes_max;
    ATOM(bool) guard_masked;
    ATOM(uint64_t) suspensions;
    ATOM(uint64_t) cancel_at;
    unsigned (*choose)(void *arg, int kind, unsigned n);
    void *choose_arg;
} state;

static struct fault *fault_named(const char *call)
{
    static char list[1024];

    for (int i = 0; i < CALL_COUNT; i++)
        if (strcmp(faults[i].name, call) == 0) return &faults[i];
    for (int i = 0; i < CALL_COUNT; i++) {
        size_t length = strlen(list);

        snprintf(list + length, sizeof list - length, " %s", faults[i].name);
    }
    WEIR_TEST_FAIL("'%s' is no call that can fail; these are:%s", call, list);
}

/* Take one of `times`, however many threads try. */
static bool take_one(ATOM(int) * times)
{
    int left = atom_load(times);

    while (left > 0)
        if (atom_cas(times, &left, left - 1)) return true;
    return false;
}

int fault_take(enum fault_call call)
{
    struct fault *fault = &faults[call];
    uint64_t number;

    atom_add(&fault->calls, 1);
    /* How often a worker waits depends on the moment: no place to count. */
    if (call != CALL_queue_wait) {
        number = atom_add(&state.calls, 1) + 1;
        if (number == atom_load(&state.fail_at)) {
            atom_store(&state.failed, fault->name);
            return atom_load(&state.fail_error);
        }
    }
    return take_one(&fault->times) ? atom_load(&fault->error) : 0;
}

size_t fault_bytes_max(size_t bytes)
{
    size_t bytes_max = atom_load(&state.io_bytes_max);

    return bytes_max > 0 && bytes > bytes_max ? bytes_max : bytes;
}

bool fault_guard_masked(void)
{
    return atom_load(&state.guard_masked);
}

void weir_test_fail_call_at(uint64_t n, int error)
{
    test_kernel_install();
    if (n > 0 && error >= 0) WEIR_TEST_FAIL("%d is no error: errors are negative", error);
    atom_store(&state.failed, NULL);
    atom_store(&state.fail_error, error);
    atom_store(&state.fail_at, n > 0 ? atom_load(&state.calls) + n : 0);
}

bool weir_test_call_failed(void)
{
    return atom_load(&state.failed) != NULL;
}

const char *weir_test_call_failed_name(void)
{
    const char *name = atom_load(&state.failed);

    return name != NULL ? name : "";
}

void weir_test_fault(const char *call, int error, int times)
{
    struct fault *fault = fault_named(call);

    test_kernel_install();
    if (error == 0 || (error > 0 && fault != &faults[CALL_getaddrinfo]))
        WEIR_TEST_FAIL("%d is no error: errors are negative", error);
    atom_store(&fault->error, error);
    atom_store(&fault->times, times);
}

uint64_t weir_test_calls(const char *call)
{
    test_kernel_install();
    return atom_load(&fault_named(call)->calls);
}

void weir_test_short_io(size_t bytes_max)
{
    test_kernel_install();
    atom_store(&state.io_bytes_max, bytes_max);
    decorate_short_reads(bytes_max > 0);
}

void test_mask_features(const char *features)
{
    if (strcmp(features, "guard") != 0)
        WEIR_TEST_FAIL("no feature set '%s' to mask: there is \"guard\"", features);
    test_kernel_install();
    atom_store(&state.guard_masked, true);
    kernel_epoll_mask_pwait2(true);
}

/* ---- Choices ---- */

void test_choose(unsigned (*choose)(void *arg, int kind, unsigned n), void *arg)
{
    test_kernel_install();
    state.choose = choose;
    state.choose_arg = arg;
    decorate_choose(choose != NULL || atom_load(&state.cancel_at) > 0);
}

unsigned fault_choose(const struct kernel *kernel, int kind, unsigned n)
{
    (void)kernel;
    if (kind == CHOOSE_CANCEL && atom_load(&state.cancel_at) > 0)
        return atom_add(&state.suspensions, 1) + 1 == atom_load(&state.cancel_at);
    return state.choose != NULL ? state.choose(state.choose_arg, kind, n) : 0;
}

void fault_cancel_at(uint64_t n)
{
    test_kernel_install();
    atom_store(&state.suspensions, 0);
    atom_store(&state.cancel_at, n);
    decorate_choose(n > 0 || state.choose != NULL);
}

uint64_t fault_suspensions(void)
{
    return atom_load(&state.suspensions);
}
