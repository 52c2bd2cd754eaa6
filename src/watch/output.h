/* output.h - write to a descriptor of the program's without hanging on it.
 *
 * Bounded: a reader that does not read costs wait_ms at most, also when the
 * descriptor blocks. Raises no SIGPIPE. Any thread.
 */
#ifndef WEIR_WATCH_OUTPUT_H
#define WEIR_WATCH_OUTPUT_H

#include <stddef.h>
#include <stdint.h>

/* All bytes: 0; -EAGAIN if that took longer than wait_ms; or the kernel's error. */
int output_write(int fd, const char *data, size_t bytes, int64_t wait_ms);

#endif
