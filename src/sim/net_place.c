/* net_place.c - addresses of the simulated network: 10.0.0.(index + 1) is a host, 127.0.0.0/8
 * and ::1 are the host itself, and there is nothing else. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "sim/net.h"

static const uint8_t ipv4_prefix[12] = {[10] = 0xff, [11] = 0xff};
static const uint8_t ipv6_any[16];
static const uint8_t ipv6_loopback[16] = {[15] = 1};

bool place_is_ipv4(const struct net_place *place)
{
    return memcmp(place->ip, ipv4_prefix, sizeof ipv4_prefix) == 0;
}

bool place_is_any(const struct net_place *place)
{
    static const uint8_t ipv4_any[4];

    if (place_is_ipv4(place)) return memcmp(place->ip + 12, ipv4_any, sizeof ipv4_any) == 0;
    return memcmp(place->ip, ipv6_any, sizeof ipv6_any) == 0;
}

bool place_is_loopback(const struct net_place *place)
{
    if (place_is_ipv4(place)) return place->ip[12] == 127;
    return memcmp(place->ip, ipv6_loopback, sizeof ipv6_loopback) == 0;
}

void place_of_host(const struct sim_host *host, struct net_place *ret_place)
{
    memcpy(ret_place->ip, ipv4_prefix, sizeof ipv4_prefix);
    ret_place->ip[12] = 10;
    ret_place->ip[13] = 0;
    ret_place->ip[14] = 0;
    ret_place->ip[15] = (uint8_t)(sim_host_index(host) + 1);
    ret_place->port = 0;
}

struct sim_host *place_host(struct sim *sim, struct sim_host *from, const struct net_place *place)
{
    if (place_is_any(place) || place_is_loopback(place)) return from;
    if (!place_is_ipv4(place) || place->ip[12] != 10 || place->ip[13] != 0 || place->ip[14] != 0 ||
        place->ip[15] == 0)
        return NULL;
    return sim_host_at(sim, place->ip[15] - 1U);
}

int place_from(int domain, const struct sockaddr *address, socklen_t bytes,
               struct net_place *ret_place)
{
    struct sockaddr_in6 in6;
    struct sockaddr_in in;

    if (bytes < sizeof address->sa_family) return -EINVAL;
    if (address->sa_family != domain) return -EAFNOSUPPORT;
    if (domain == AF_INET) {
        if (bytes < sizeof in) return -EINVAL;
        memcpy(&in, address, sizeof in);
        memcpy(ret_place->ip, ipv4_prefix, sizeof ipv4_prefix);
        memcpy(ret_place->ip + 12, &in.sin_addr, 4);
        ret_place->port = ntohs(in.sin_port);
        return 0;
    }
    if (bytes < sizeof in6) return -EINVAL;
    memcpy(&in6, address, sizeof in6);
    memcpy(ret_place->ip, &in6.sin6_addr, sizeof ret_place->ip);
    ret_place->port = ntohs(in6.sin6_port);
    return 0;
}

/* As the kernel answers: cut off at the room there is, with the whole length. */
static void give(const void *from, socklen_t from_bytes, struct sockaddr *address, socklen_t *bytes)
{
    memcpy(address, from, *bytes < from_bytes ? *bytes : from_bytes);
    *bytes = from_bytes;
}

void place_to(int domain, const struct net_place *place, struct sockaddr *address, socklen_t *bytes)
{
    if (domain == AF_INET) {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(place->port)};

        memcpy(&in.sin_addr, place->ip + 12, 4);
        give(&in, sizeof in, address, bytes);
    } else {
        struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(place->port)};

        memcpy(&in6.sin6_addr, place->ip, sizeof place->ip);
        give(&in6, sizeof in6, address, bytes);
    }
}

int name_from(const struct sockaddr *address, socklen_t bytes, struct net_name *ret_name)
{
    const struct sockaddr_un *un = (const struct sockaddr_un *)(const void *)address;
    size_t at = offsetof(struct sockaddr_un, sun_path);
    size_t length;

    if (bytes <= at || bytes > sizeof *un || address->sa_family != AF_UNIX) return -EINVAL;
    length = bytes - at;
    if (un->sun_path[0] != '\0') length = strnlen(un->sun_path, length);
    memset(ret_name, 0, sizeof *ret_name);
    memcpy(ret_name->bytes, un->sun_path, length);
    ret_name->length = (unsigned)length;
    return 0;
}

void name_to(const struct net_name *name, struct sockaddr *address, socklen_t *bytes)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    bool is_path = name->length > 0 && name->bytes[0] != '\0';
    size_t length = offsetof(struct sockaddr_un, sun_path) + name->length;

    memcpy(un.sun_path, name->bytes, name->length);
    if (is_path && name->length < sizeof un.sun_path) length++; /* with its terminator */
    give(&un, (socklen_t)length, address, bytes);
}
