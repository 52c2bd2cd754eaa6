/* crash_states.h - every state that a power cut can leave of files, in memory.
 *
 * A program is run once on a disk in memory, and what it does there is recorded: writes, syncs,
 * names, and marks of its own ("so much was acknowledged by now"). Then for each prefix of that
 * the disk is made again, the power is cut, and what is kept of what was not synced is chosen in
 * every way, or in many ways where there are too many; somebody looks at each of those disks.
 *
 *     crash_record_begin(DISK_BYTES);
 *     ... a runtime, whose files are on that disk; crash_mark(0, acknowledged) ...
 *     crash_record_end();
 *     states = crash_enumerate(&(struct crash_look){.look = recover, .arg = stand,
 *                                                   .disk_bytes = DISK_BYTES}, 40);
 */
#ifndef WEIR_TESTS_UNIT_STORE_CRASH_STATES_H
#define WEIR_TESTS_UNIT_STORE_CRASH_STATES_H

#include "rt/kernel.h"

enum { CRASH_MARKS = 2 };

struct crash_look {
    /* Looks at a disk, on which the power was cut after the last of `marks`. */
    void (*look)(void *arg, const unsigned marks[CRASH_MARKS]);
    void *arg;
    uint64_t disk_bytes;
};

void crash_record_begin(uint64_t disk_bytes);
void crash_record_end(void);
/* What holds from now on, whatever is lost later. Any thread. */
void crash_mark(unsigned which, unsigned value);

/* Returns how many states there were. What was recorded is gone. */
unsigned crash_enumerate(const struct crash_look *look, unsigned states_per_prefix);

/* While a disk is looked at: its files; and another power cut, which keeps what was synced. */
const struct kernel *crash_kernel(void);
void crash_again(void);

#endif
