/* address_test.c - addresses are read strictly and written back as they were. */
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "io/io.h"
#include "unit/io/io_test.h"

static const struct good_address {
    const char *text;
    enum weir_transport transport;
    int family;
} good[] = {
    {"tcp:127.0.0.1:8080", WEIR_TCP, AF_INET},
    {"tcp:0.0.0.0:0", WEIR_TCP, AF_INET},
    {"tcp:255.255.255.255:65535", WEIR_TCP, AF_INET},
    {"udp:127.0.0.1:53", WEIR_UDP, AF_INET},
    {"tcp:[::1]:0", WEIR_TCP, AF_INET6},
    {"tcp:[::]:80", WEIR_TCP, AF_INET6},
    {"udp:[2001:db8::7]:9", WEIR_UDP, AF_INET6},
    {"tcp:[fe80::1%2]:80", WEIR_TCP, AF_INET6},
    {"tcp:[::ffff:1.2.3.4]:80", WEIR_TCP, AF_INET6},
    {"unix:/run/x.sock", WEIR_UNIX, AF_UNIX},
    {"unix:relative", WEIR_UNIX, AF_UNIX},
    {"unix:@abstract", WEIR_UNIX, AF_UNIX},
};

TEST(addresses_survive_parsing_and_formatting)
{
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char text[WEIR_ADDRESS_TEXT_MAX];
        weir_address address;

        test_note("%s", good[i].text);
        CHECK_OK(weir_address_parse(good[i].text, &address));
        CHECK_INT(address.transport, ==, good[i].transport);
        CHECK_INT(address.storage.ss_family, ==, good[i].family);
        CHECK_INT(weir_address_format(&address, text, sizeof text), ==, strlen(good[i].text));
        CHECK_STR(text, good[i].text);
    }
}

static const struct bad_address {
    const char *text;
    const char *why;
} bad[] = {
    {"", "must begin with"},
    {"127.0.0.1:80", "must begin with"},
    {"http:127.0.0.1:80", "must begin with"},
    {"TCP:127.0.0.1:80", "must begin with"},
    {"tcp:", "port is missing"},
    {"tcp:127.0.0.1", "port is missing"},
    {"tcp::80", "host is missing"},
    {"tcp:127.0.0.1:", "not a number"},
    {"tcp:127.0.0.1:65536", "not a number"},
    {"tcp:127.0.0.1:-1", "not a number"},
    {"tcp:127.0.0.1:+1", "not a number"},
    {"tcp:127.0.0.1:080", "not a number"},
    {"tcp:127.0.0.1: 80", "not a number"},
    {"tcp:127.0.0.1:80 ", "not a number"},
    {"tcp:127.0.0.1:99999999999999999999", "not a number"},
    {"tcp:127.0.0.01:80", "not numeric"},
    {"tcp:127.1:80", "not numeric"},
    {"tcp:256.0.0.1:80", "not numeric"},
    {"tcp:localhost:80", "weir_resolve"},
    {"tcp:::1:80", "brackets"},
    {"tcp:[::1:80", "bracket is not closed"},
    {"tcp:[::1]80", "bracket is not closed"},
    {"tcp:[]:80", "host is missing"},
    {"tcp:[127.0.0.1]:80", "not numeric"},
    {"tcp:[::1%eth0]:80", "not numeric"},
    {"tcp:[::1%]:80", "not numeric"},
    {"tcp:[1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb:cccc:dddd:eeee:ffff:0]:80",
     "not numeric"},
    {"unix:", "path is missing"},
    {"unix:@", "name is missing"},
    {"unix:/0123456789012345678901234567890123456789012345678901234567890123456789012345678901234"
     "56789012345678901234567890",
     "at most 107"},
};

TEST(malformed_addresses_are_refused_with_the_reason)
{
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        weir_address address = {.bytes = 7};

        test_note("%s", bad[i].text);
        CHECK_INT(weir_address_parse(bad[i].text, &address), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), bad[i].why);
        CHECK_INT(address.bytes, ==, 7);
    }
    weir_address address;
    CHECK_INT(weir_address_parse(NULL, &address), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "NULL");
}

TEST(the_longest_unix_path_fits)
{
    char text[5 + 107 + 1];
    char back[WEIR_ADDRESS_TEXT_MAX];
    weir_address address;

    memset(text, 'p', sizeof text);
    memcpy(text, "unix:", 5);
    text[sizeof text - 1] = '\0';
    CHECK_OK(weir_address_parse(text, &address));
    CHECK_INT(address.bytes, ==, sizeof(struct sockaddr_un));
    CHECK_INT(weir_address_format(&address, back, sizeof back), ==, strlen(text));
    CHECK_STR(back, text);
    /* The other kind may fill the name to the last byte. */
    text[5] = '@';
    CHECK_OK(weir_address_parse(text, &address));
    CHECK_INT(weir_address_format(&address, back, sizeof back), ==, strlen(text));
    CHECK_STR(back, text);
}

TEST(formatting_cuts_to_fit_and_hides_control_characters)
{
    struct sockaddr_storage storage = {.ss_family = AF_UNIX};
    struct sockaddr_un *un = (struct sockaddr_un *)(void *)&storage;
    char text[WEIR_ADDRESS_TEXT_MAX];
    weir_address address;

    CHECK_OK(weir_address_parse("tcp:127.0.0.1:80", &address));
    CHECK_INT(weir_address_format(&address, text, 8), ==, 7);
    CHECK_STR(text, "tcp:127");
    text[0] = 'x';
    CHECK_INT(weir_address_format(&address, text, 0), ==, 0);
    CHECK_INT(text[0], ==, 'x');
    memcpy(un->sun_path, "\0a\n\0b", 5);
    CHECK_OK(address_from_kernel(&storage, offsetof(struct sockaddr_un, sun_path) + 5, WEIR_TCP,
                                 &address));
    CHECK_INT(address.transport, ==, WEIR_UNIX);
    CHECK_INT(weir_address_format(&address, text, sizeof text), ==, 10);
    CHECK_STR(text, "unix:@a??b");
    CHECK_OK(address_from_kernel(&storage, sizeof storage.ss_family, WEIR_TCP, &address));
    CHECK_INT(weir_address_format(&address, text, sizeof text), ==, 5);
    CHECK_STR(text, "unix:");
    memset(&address, 0, sizeof address);
    weir_address_format(&address, text, sizeof text);
    CHECK_STR(text, "none");
    storage.ss_family = AF_PACKET;
    CHECK_INT(address_from_kernel(&storage, sizeof storage, WEIR_TCP, &address), ==, -EAFNOSUPPORT);
    CHECK_INT(address_from_kernel(&storage, 0, WEIR_TCP, &address), ==, -EAFNOSUPPORT);
}
