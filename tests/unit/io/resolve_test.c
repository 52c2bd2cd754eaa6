/* resolve_test.c - names, numbers, and what a failing look-up becomes. */
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "rt/runtime.h"
#include "unit/io/io_test.h"

IO_TEST(numeric_hosts_are_not_looked_up)
{
    weir_address addresses[2];
    char text[WEIR_ADDRESS_TEXT_MAX];

    CHECK_INT(weir_resolve("127.0.0.1", 80, WEIR_TCP, addresses, 2), ==, 1);
    weir_address_format(&addresses[0], text, sizeof text);
    CHECK_STR(text, "tcp:127.0.0.1:80");
    CHECK_INT(weir_resolve("::1", 53, WEIR_UDP, addresses, 1), ==, 1);
    weir_address_format(&addresses[0], text, sizeof text);
    CHECK_STR(text, "udp:[::1]:53");
    CHECK_INT(worker_self()->runtime->names.thread_count, ==, 0);
    return 0;
}

IO_TEST(localhost_is_this_host)
{
    weir_address addresses[4];
    int count = weir_resolve("localhost", 4242, WEIR_TCP, addresses, 4);

    CHECK_INT(count, >=, 1);
    for (int i = 0; i < count; i++) {
        char text[WEIR_ADDRESS_TEXT_MAX];
        weir_address_format(&addresses[i], text, sizeof text);
        CHECK(strcmp(text, "tcp:127.0.0.1:4242") == 0 || strcmp(text, "tcp:[::1]:4242") == 0);
    }
    return 0;
}

IO_TEST(a_name_that_cannot_be_is_an_error_with_a_sentence)
{
    weir_address address;
    char host[300];
    int r = weir_resolve("name.invalid", 80, WEIR_TCP, &address, 1);

    CHECK(r == WEIR_ENONAME || r == WEIR_ENAMESERVER);
    CHECK_CONTAINS(weir_why(), "name.invalid");
    CHECK_INT(weir_resolve(NULL, 80, WEIR_TCP, &address, 1), ==, WEIR_EREFUSED);
    CHECK_INT(weir_resolve("", 80, WEIR_TCP, &address, 1), ==, WEIR_EREFUSED);
    CHECK_INT(weir_resolve("x", 80, WEIR_UNIX, &address, 1), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "transport");
    CHECK_INT(weir_resolve("x", 80, WEIR_TCP, &address, 0), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "count_max");
    memset(host, 'x', sizeof host);
    host[254] = '\0';
    CHECK_INT(weir_resolve(host, 80, WEIR_TCP, &address, 1), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "253");
    return 0;
}

static const struct answer {
    int code; /* as getaddrinfo gives it */
    int error;
} answers[] = {
    {EAI_NONAME, WEIR_ENONAME},    {EAI_NODATA, WEIR_ENONAME},   {EAI_ADDRFAMILY, WEIR_ENONAME},
    {EAI_AGAIN, WEIR_ENAMESERVER}, {EAI_FAIL, WEIR_ENAMESERVER}, {EAI_SERVICE, WEIR_ENAMESERVER},
    {EAI_MEMORY, -ENOMEM},
};

static int failing_lookups(void *arg)
{
    weir_address address;

    (void)arg;
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        test_note("%s", gai_strerror(answers[i].code));
        test_fault("getaddrinfo", -answers[i].code, 1);
        CHECK_INT(weir_resolve("localhost", 1, WEIR_TCP, &address, 1), ==, answers[i].error);
    }
    test_fault("getaddrinfo", -EMFILE, 1);
    CHECK_INT(weir_resolve("localhost", 1, WEIR_TCP, &address, 1), ==, -EMFILE);
    test_fault("getaddrinfo", -EINTR, 3);
    CHECK_INT(weir_resolve("localhost", 1, WEIR_TCP, &address, 1), ==, 1);
    return 0;
}

TEST(failing_lookups_become_our_errors)
{
    test_kernel_install();
    CHECK_OK(io_test_run(failing_lookups));
}
