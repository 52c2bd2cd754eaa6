/* io_meeting.c - a wake-up and a cancel in one turn.
 *
 * Two tasks of one worker wait; both are woken by one poll, and the first of them
 * cancels the other before that has run. */
#include "base/atomic.h"
#include "unit/io/io_test.h"

struct meeting {
    weir_conn *first, *second; /* read by the two tasks */
    weir_scope *scope;
    bool steal; /* the first takes away what woke the second */
    ATOM(int) result;
};

static int second_reader(void *arg)
{
    struct meeting *meeting = *(struct meeting **)arg;
    char byte;
    ssize_t n = weir_conn_read(meeting->second, &byte, 1);

    atom_store(&meeting->result, (int)n);
    CHECK_INT(weir_conn_read(meeting->second, &byte, 1), ==, WEIR_ECANCELED);
    return 0;
}

static int first_reader(void *arg)
{
    struct meeting *meeting = *(struct meeting **)arg;
    char byte;

    CHECK_INT(weir_conn_read(meeting->first, &byte, 1), ==, 1);
    CHECK_INT(atom_load(&meeting->result), ==, 99);
    if (meeting->steal) CHECK_INT(recv(weir_conn_fd(meeting->second), &byte, 1, 0), ==, 1);
    weir_scope_cancel(meeting->scope, 0, "in the same turn");
    return 0;
}

static int meet(bool steal)
{
    struct meeting meeting = {.steal = steal, .result = 99};
    struct meeting *at = &meeting;
    weir_conn *first, *second;
    int r, inner;

    CHECK_OK(weir_socketpair(&meeting.first, &first));
    CHECK_OK(weir_socketpair(&meeting.second, &second));
    IO_SCOPE(outer, &r)
    {
        IO_SCOPE(scope, &inner)
        {
            meeting.scope = scope;
            CHECK_OK(weir_spawn(outer, first_reader, &at, sizeof at));
            CHECK_OK(weir_spawn(scope, second_reader, &at, sizeof at));
            CHECK_OK(weir_yield());
            CHECK_INT(weir_conn_write(first, "x", 1), ==, 1);
            CHECK_INT(weir_conn_write(second, "x", 1), ==, 1);
        }
    }
    CHECK_OK(inner);
    CHECK_OK(r);
    weir_conn_close(meeting.first);
    weir_conn_close(meeting.second);
    weir_conn_close(first);
    weir_conn_close(second);
    return atom_load(&meeting.result);
}

IO_TEST(what_was_read_is_returned_although_a_cancel_came_at_the_same_time)
{
    CHECK_INT(meet(false), ==, 1);
    return 0;
}

IO_TEST(a_cancel_is_not_lost_behind_a_wake_up_that_meant_nothing)
{
    CHECK_INT(meet(true), ==, WEIR_ECANCELED);
    return 0;
}
