/* store_log.h - a program that keeps a few values on a log, on a host that is killed now and then.
 *
 * Each writer has a key and writes its versions 1, 2, 3, ...; it notes the version before it is
 * appended and after it was acknowledged. What is needed of the log is the newest version of each
 * key, so the log is compacted all the time. After each start of the host: the newest version of a
 * key that replay found is not older than the last one that was acknowledged, and not newer than
 * the last one that was appended; every record is as it was appended. */
#ifndef WEIR_TESTS_SIM_STORE_LOG_H
#define WEIR_TESTS_SIM_STORE_LOG_H

#include <weir/sim.h>
#include <weir/weir.h>

void store_log_begin(void *arg); /* of a weir_sim_spec */
int store_log_program(void *arg);

#endif
