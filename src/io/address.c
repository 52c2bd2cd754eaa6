/* address.c - addresses from text and to text.
 *
 *     address  = ("tcp:" | "udp:") host ":" port  |  "unix:" path  |  "unix:@" name
 *     host     = IPv4 in four decimal numbers  |  "[" IPv6 [ "%" zone ] "]"
 *     port     = 0 to 65535, zone = index of an interface; decimal, no leading zeros
 *
 * Strict: what is not of this form is refused, so that a typing error is found here
 * and not by a connection to somewhere else.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "io/io.h"

enum {
    HOST_TEXT_MAX = 64, /* longer than any numeric host */
    UNIX_PATH_MAX_BYTES = sizeof(((struct sockaddr_un *)0)->sun_path) - 1,
};
#define UNIX_PATH_AT offsetof(struct sockaddr_un, sun_path)

static const struct transport_name {
    const char *prefix;
    enum weir_transport transport;
} transport_names[] = {
    {"tcp:", WEIR_TCP},
    {"udp:", WEIR_UDP},
    {"unix:", WEIR_UNIX},
};

/* A decimal number of at most `max`, digits only; false if it is none. */
static bool parse_number(const char *text, size_t length, uint64_t max, uint64_t *ret_number)
{
    uint64_t number = 0;

    if (length == 0 || length > 10 || (length > 1 && text[0] == '0')) return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        number = number * 10 + (uint64_t)(text[i] - '0');
    }
    if (number > max) return false;
    *ret_number = number;
    return true;
}

static bool set_ipv4(const char *host, uint16_t port, weir_address *address)
{
    struct sockaddr_in *in = (struct sockaddr_in *)(void *)&address->storage;

    if (inet_pton(AF_INET, host, &in->sin_addr) != 1) return false;
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    address->bytes = sizeof *in;
    return true;
}

static bool set_ipv6(const char *host, uint16_t port, weir_address *address)
{
    struct sockaddr_in6 *in = (struct sockaddr_in6 *)(void *)&address->storage;
    const char *percent = strchr(host, '%');
    size_t length = percent ? (size_t)(percent - host) : strlen(host);
    char numbers[INET6_ADDRSTRLEN];
    uint64_t zone = 0;

    if (length >= sizeof numbers) return false;
    memcpy(numbers, host, length);
    numbers[length] = '\0';
    if (percent && !parse_number(percent + 1, strlen(percent + 1), UINT32_MAX, &zone)) return false;
    if (inet_pton(AF_INET6, numbers, &in->sin6_addr) != 1) return false;
    in->sin6_family = AF_INET6;
    in->sin6_port = htons(port);
    in->sin6_scope_id = (uint32_t)zone;
    address->bytes = sizeof *in;
    return true;
}

bool address_from_numbers(const char *host, uint16_t port, weir_address *ret_address)
{
    weir_address address = {0};

    if (!set_ipv4(host, port, &address) && !set_ipv6(host, port, &address)) return false;
    *ret_address = address;
    return true;
}

/* "host:port" */
static int parse_internet(const char *text, const char *rest, weir_address *address)
{
    const char *colon = strrchr(rest, ':');
    bool bracketed = rest[0] == '[';
    char host[HOST_TEXT_MAX];
    uint64_t port;
    size_t length;
    bool good;

    if (!colon) return refuse("address '%.*s': the port is missing", WEIR_ADDRESS_TEXT_MAX, text);
    length = (size_t)(colon - rest);
    if (bracketed) {
        if (length < 2 || rest[length - 1] != ']') {
            return refuse("address '%.*s': the bracket is not closed right before the port",
                          WEIR_ADDRESS_TEXT_MAX, text);
        }
        rest++;
        length -= 2;
    } else if (memchr(rest, ':', length)) {
        return refuse("address '%.*s': an IPv6 host goes into brackets", WEIR_ADDRESS_TEXT_MAX,
                      text);
    }
    if (!parse_number(colon + 1, strlen(colon + 1), UINT16_MAX, &port)) {
        return refuse("address '%.*s': the port is not a number from 0 to 65535",
                      WEIR_ADDRESS_TEXT_MAX, text);
    }
    if (length == 0)
        return refuse("address '%.*s': the host is missing", WEIR_ADDRESS_TEXT_MAX, text);
    good = length < sizeof host;
    if (good) {
        memcpy(host, rest, length);
        host[length] = '\0';
        good = bracketed ? set_ipv6(host, (uint16_t)port, address)
                         : set_ipv4(host, (uint16_t)port, address);
    }
    if (good) return 0;
    return refuse("address '%.*s': the host is not numeric (names are for weir_resolve)",
                  WEIR_ADDRESS_TEXT_MAX, text);
}

static int parse_unix(const char *text, const char *path, weir_address *address)
{
    struct sockaddr_un *un = (struct sockaddr_un *)(void *)&address->storage;
    bool abstract = path[0] == '@';
    size_t length = strlen(path);

    if (length <= (abstract ? 1 : 0)) {
        return refuse("address '%.*s': the %s is missing", WEIR_ADDRESS_TEXT_MAX, text,
                      abstract ? "name" : "path");
    }
    if (length > UNIX_PATH_MAX_BYTES) {
        return refuse("address '%.*s…': the path has %zu bytes, at most %d", 32, text, length,
                      (int)UNIX_PATH_MAX_BYTES);
    }
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, path, length);
    if (abstract) un->sun_path[0] = '\0';
    /* An abstract name is as long as said; a path has its terminator with it. */
    address->bytes = (socklen_t)(UNIX_PATH_AT + length + (abstract ? 0 : 1));
    return 0;
}

int weir_address_parse(const char *text, weir_address *ret_address)
{
    weir_address address = {0};
    const char *rest = NULL;
    int r;

    if (!text) return refuse("address: the text is NULL");
    for (size_t i = 0; i < sizeof transport_names / sizeof transport_names[0]; i++) {
        size_t length = strlen(transport_names[i].prefix);
        if (strncmp(text, transport_names[i].prefix, length) != 0) continue;
        address.transport = transport_names[i].transport;
        rest = text + length;
    }
    if (!rest) {
        return refuse("address '%.*s': must begin with tcp:, udp: or unix:", WEIR_ADDRESS_TEXT_MAX,
                      text);
    }
    r = address.transport == WEIR_UNIX ? parse_unix(text, rest, &address)
                                       : parse_internet(text, rest, &address);
    if (r < 0) return r;
    *ret_address = address;
    return 0;
}

/* ---- To text ---- */

/* "unix:/path", "unix:@name", or "unix:" for a socket that has no name. A name may
 * hold any byte; control characters, which could not be told from the line they
 * are printed in, are shown as '?'. */
static void format_unix(const weir_address *address, char *text, size_t bytes)
{
    const struct sockaddr_un *un = (const struct sockaddr_un *)(const void *)&address->storage;
    size_t length = address->bytes > UNIX_PATH_AT ? address->bytes - UNIX_PATH_AT : 0;
    bool abstract = length > 0 && un->sun_path[0] == '\0';
    char name[sizeof un->sun_path + 1];

    if (length > sizeof un->sun_path) length = sizeof un->sun_path;
    if (!abstract) length = strnlen(un->sun_path, length);
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)un->sun_path[i];
        name[i] = byte < 0x20 || byte == 0x7f ? '?' : (char)byte;
    }
    if (abstract) name[0] = '@';
    name[length] = '\0';
    (void)snprintf(text, bytes, "unix:%s", name);
}

static void format_ipv4(const weir_address *address, const char *prefix, char *text, size_t bytes)
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)&address->storage;
    char host[INET_ADDRSTRLEN] = "";

    (void)inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
    (void)snprintf(text, bytes, "%s%s:%u", prefix, host, (unsigned)ntohs(in->sin_port));
}

static void format_ipv6(const weir_address *address, const char *prefix, char *text, size_t bytes)
{
    const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)(const void *)&address->storage;
    char host[INET6_ADDRSTRLEN] = "";
    char zone[16] = "";

    (void)inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
    if (in->sin6_scope_id) (void)snprintf(zone, sizeof zone, "%%%u", in->sin6_scope_id);
    (void)snprintf(text, bytes, "%s[%s%s]:%u", prefix, host, zone, (unsigned)ntohs(in->sin6_port));
}

size_t weir_address_format(const weir_address *address, char *text, size_t text_bytes)
{
    const char *prefix = address->transport == WEIR_UDP ? "udp:" : "tcp:";

    if (text_bytes == 0) return 0;
    switch (address->storage.ss_family) {
    case AF_UNIX: format_unix(address, text, text_bytes); break;
    case AF_INET: format_ipv4(address, prefix, text, text_bytes); break;
    case AF_INET6: format_ipv6(address, prefix, text, text_bytes); break;
    default: (void)snprintf(text, text_bytes, "none"); break;
    }
    return strlen(text);
}

/* ---- From the kernel ---- */

int address_from_kernel(const struct sockaddr_storage *storage, socklen_t bytes,
                        enum weir_transport transport, weir_address *ret_address)
{
    sa_family_t family = bytes >= sizeof storage->ss_family ? storage->ss_family : AF_UNSPEC;

    if (family == AF_UNIX) {
        transport = WEIR_UNIX;
    } else if (family != AF_INET && family != AF_INET6) {
        return -EAFNOSUPPORT;
    }
    memset(ret_address, 0, sizeof *ret_address);
    ret_address->transport = transport;
    ret_address->bytes = bytes < sizeof *storage ? bytes : (socklen_t)sizeof *storage;
    memcpy(&ret_address->storage, storage, ret_address->bytes);
    return 0;
}

int address_of_socket(const struct kernel *kernel, int fd, bool peer, enum weir_transport transport,
                      weir_address *ret_address)
{
    struct sockaddr_storage storage = {0};
    socklen_t bytes = sizeof storage;
    struct sockaddr *name = (struct sockaddr *)&storage;
    int r = peer ? kernel->getpeername(kernel, fd, name, &bytes)
                 : kernel->getsockname(kernel, fd, name, &bytes);

    if (r < 0) return r;
    return address_from_kernel(&storage, bytes, transport, ret_address);
}
