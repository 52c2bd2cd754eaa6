/* net_names.c - names in a simulated run: of the hosts, "localhost", and numbers. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "sim/net.h"

enum { ANSWERS_MAX = 2 };

struct answer {
    struct addrinfo info; /* first */
    struct sockaddr_storage address;
};

struct question {
    const struct addrinfo *hints; /* or NULL */
    struct net_place places[ANSWERS_MAX];
    int domains[ANSWERS_MAX];
    unsigned count;
};

static int wanted_family(const struct question *question)
{
    return question->hints != NULL ? question->hints->ai_family : AF_UNSPEC;
}

static void add(struct question *question, int domain, const void *ip)
{
    static const struct net_place any4 = {.ip = {[10] = 0xff, [11] = 0xff}};
    struct net_place *place = &question->places[question->count];

    if (wanted_family(question) != AF_UNSPEC && wanted_family(question) != domain) return;
    *place = any4;
    if (domain == AF_INET) {
        memcpy(place->ip + 12, ip, 4);
    } else {
        memcpy(place->ip, ip, sizeof place->ip);
    }
    question->domains[question->count++] = domain;
}

static void add_own(struct question *question, bool passive)
{
    const struct in_addr ipv4 = {htonl(passive ? INADDR_ANY : INADDR_LOOPBACK)};

    add(question, AF_INET, &ipv4);
    add(question, AF_INET6, passive ? &in6addr_any : &in6addr_loopback);
}

/* Where the name leads; false: nowhere. */
static bool look_up(struct sim *sim, struct question *question, const char *name)
{
    int flags = question->hints != NULL ? question->hints->ai_flags : 0;
    const struct sim_host *host;
    struct net_place place;
    struct in6_addr ipv6;
    struct in_addr ipv4;

    if (name == NULL) {
        add_own(question, flags & AI_PASSIVE);
    } else if (inet_pton(AF_INET, name, &ipv4) == 1) {
        add(question, AF_INET, &ipv4);
    } else if (inet_pton(AF_INET6, name, &ipv6) == 1) {
        add(question, AF_INET6, &ipv6);
    } else if (flags & AI_NUMERICHOST) {
        return false;
    } else if (strcmp(name, "localhost") == 0) {
        add_own(question, false);
    } else {
        host = sim_host_named(sim, name);
        if (host == NULL) return false;
        place_of_host(host, &place);
        add(question, AF_INET, place.ip + 12);
    }
    return question->count > 0;
}

static bool parse_port(const char *service, uint16_t *ret_port)
{
    unsigned long port;
    char *end;

    *ret_port = 0;
    if (service == NULL) return true;
    if (*service < '0' || *service > '9') return false; /* there is no file of services */
    port = strtoul(service, &end, 10);
    if (*end != '\0' || port > UINT16_MAX) return false;
    *ret_port = (uint16_t)port;
    return true;
}

static int names_getaddrinfo(const struct kernel *kernel, const char *host, const char *service,
                             const struct addrinfo *hints, struct addrinfo **ret_list)
{
    struct sim *sim = sim_now_running();
    struct question question = {.hints = hints};
    struct answer *answers;
    uint16_t port;

    (void)kernel;
    if (host == NULL && service == NULL) return -EAI_NONAME;
    if (!parse_port(service, &port)) return -EAI_SERVICE;
    if (!look_up(sim, &question, host)) return -EAI_NONAME;
    answers = sim_alloc(sim, question.count * sizeof answers[0]);
    if (answers == NULL) return -EAI_MEMORY;
    for (unsigned i = 0; i < question.count; i++) {
        struct addrinfo *info = &answers[i].info;
        socklen_t bytes = sizeof answers[i].address;

        question.places[i].port = port;
        place_to(question.domains[i], &question.places[i], (struct sockaddr *)&answers[i].address,
                 &bytes);
        info->ai_family = question.domains[i];
        info->ai_socktype = hints != NULL ? hints->ai_socktype : 0;
        info->ai_protocol = hints != NULL ? hints->ai_protocol : 0;
        info->ai_addr = (struct sockaddr *)&answers[i].address;
        info->ai_addrlen = bytes;
        if (i + 1 < question.count) info->ai_next = &answers[i + 1].info;
    }
    *ret_list = &answers[0].info;
    return 0;
}

static void names_freeaddrinfo(const struct kernel *kernel, struct addrinfo *list)
{
    (void)kernel;
    sim_free(sim_now_running(), list); /* one piece of memory, and its first member */
}

void names_fill_table(struct kernel *table)
{
    table->getaddrinfo = names_getaddrinfo;
    table->freeaddrinfo = names_freeaddrinfo;
}
