/* planted_rt.c - bugs planted in the runtime are found by the programs that test it (rt_*.c). */
#include "sim/planted.h"
#include "sim/rt_programs.h"

#define TWO .config = &rt_two_workers

PLANTED_CASE(LOOKS_BEFORE_SLEEPING, rt_program_far, .runs_max = 100, TWO)
PLANTED_CASE(WAKE_DECIDED_BEFORE_POST, rt_program_far, .runs_max = 600, TWO)
PLANTED_CASE(MAIL_BITS_LOST, rt_program_cancel, .runs_max = 500, TWO)
PLANTED_CASE(JOINER_WOKEN_TWICE, rt_program_join_given_up, .runs_max = 700, TWO)
PLANTED_CASE(WOKEN_BEFORE_RESULT, rt_program_far, .runs_max = 10000, TWO)
PLANTED_CASE(STEALS_UNLOCKED, rt_program_steal, .runs_max = 200, TWO)
PLANTED_CASE(NEW_TASKS_STARVE, rt_program_turns, .runs_max = 50, .steps_max = 20000,
             .strategies = WEIR_SIM_RANDOM, TWO)
PLANTED_CASE(HOME_AFTER_SIGNALS, rt_program_cancel, .runs_max = 2500, TWO)
PLANTED_CASE(SIGNALS_AFTER_WALK, rt_program_cancel, .runs_max = 100, TWO)
PLANTED_CASE(OPENER_NOT_TOLD, rt_program_opener, .runs_max = 20, TWO)
PLANTED_CASE(BELONGINGS_NOT_AWAITED, rt_program_timer_close, .runs_max = 50, TWO)
PLANTED_CASE(SLOT_LEAKED, rt_program_slots_cancelled, .runs_max = 300, TWO)
PLANTED_CASE(ROOM_WANTED_TOO_LATE, rt_program_slots, .runs_max = 5000, TWO)
PLANTED_CASE(CREDIT_LEAKED, rt_program_credit, .runs_max = 1000, .config = &rt_few_tasks,
             .any_result = true, .faults = {.no_memory = 5, .faults_max = 3})
PLANTED_CASE(SLEEP_NOT_DISARMED, rt_program_cancel_one, .runs_max = 50, TWO)
PLANTED_CASE(DUE_TIMER_FIRES, rt_program_timers, .runs_max = 200, TWO)
PLANTED_CASE(INNER_DEADLINE_LATER, rt_program_deadlines, .runs_max = 50, TWO)
PLANTED_CASE(RESTARTS_WHILE_STOPPING, rt_program_supervise_stop, .runs_max = 50, TWO)
PLANTED_CASE(BELL_MISSED, rt_program_files, .runs_max = 5000,
             .config = &(weir_config){.workers = 2, .blocking_threads_max = 2})
PLANTED_CASE(HOLDERS_TORN, rt_program_locals, .runs_max = 6000, TWO)
