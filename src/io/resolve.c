/* resolve.c - names to addresses, on the bounded executor for names. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "io/io.h"
#include "rt/blocking.h"
#include "rt/mem.h"

enum {
    HOST_BYTES_MAX = 253,   /* of a name; RFC 1035, without the dot at the end */
    RESOLVE_COUNT_MAX = 64, /* addresses of one name that are ever given */
};

struct resolve_call {
    struct blocking_call call;
    int code; /* 0, -errno, or EAI_* as a positive number */
    int count;
    int count_max;
    uint16_t port;
    enum weir_transport transport;
    char host[HOST_BYTES_MAX + 2];
    weir_address addresses[];
};

static void set_port(weir_address *address, uint16_t port)
{
    if (address->storage.ss_family == AF_INET) {
        ((struct sockaddr_in *)(void *)&address->storage)->sin_port = htons(port);
    } else {
        ((struct sockaddr_in6 *)(void *)&address->storage)->sin6_port = htons(port);
    }
}

static void take_addresses(struct resolve_call *call, const struct addrinfo *list)
{
    for (const struct addrinfo *found = list; found; found = found->ai_next) {
        weir_address *address = &call->addresses[call->count];
        struct sockaddr_storage storage = {0};

        if (call->count == call->count_max) return;
        if (found->ai_addrlen > sizeof storage) continue;
        memcpy(&storage, found->ai_addr, found->ai_addrlen);
        if (storage.ss_family != AF_INET && storage.ss_family != AF_INET6) continue;
        if (address_from_kernel(&storage, found->ai_addrlen, call->transport, address) < 0)
            continue;
        set_port(address, call->port);
        call->count++;
    }
}

static void run(struct blocking_call *blocking)
{
    struct resolve_call *call = container_of(blocking, struct resolve_call, call);
    const struct kernel *kernel = blocking->kernel;
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = call->transport == WEIR_UDP ? SOCK_DGRAM : SOCK_STREAM,
    };
    struct addrinfo *list = NULL;

    do call->code = kernel->getaddrinfo(kernel, call->host, NULL, &hints, &list);
    while (call->code == -EINTR);
    if (call->code != 0) return;
    take_addresses(call, list);
    kernel->freeaddrinfo(kernel, list);
}

static void discard(struct blocking_call *blocking)
{
    mem_free(container_of(blocking, struct resolve_call, call));
}

/* EAI_* are negative numbers; the table hands them on as positive ones. */
static int error_of(int code, const char *host)
{
    if (code < 0) return code;
    switch (-code) {
    case EAI_NONAME:
    case EAI_NODATA:
    case EAI_ADDRFAMILY: return refuse_as(WEIR_ENONAME, "host '%s': there is no such name", host);
    case EAI_MEMORY: return -ENOMEM;
    default:
        return refuse_as(WEIR_ENAMESERVER, "host '%s': could not be looked up now: %s", host,
                         gai_strerror(-code));
    }
}

static int check(const char *host, enum weir_transport transport, int count_max)
{
    size_t length;

    if (!host || !*host) return refuse("weir_resolve: host is not set");
    length = strnlen(host, HOST_BYTES_MAX + 2);
    if (length > HOST_BYTES_MAX + 1 || (length > HOST_BYTES_MAX && host[length - 1] != '.')) {
        return refuse("weir_resolve: host '%.32s…' is longer than %d bytes", host, HOST_BYTES_MAX);
    }
    if (transport != WEIR_TCP && transport != WEIR_UDP) {
        return refuse("weir_resolve: host '%s': transport must be WEIR_TCP or WEIR_UDP", host);
    }
    if (count_max < 1) return refuse("weir_resolve: host '%s': count_max is %d", host, count_max);
    return 0;
}

static int finish(struct resolve_call *take_call, weir_address *addresses)
{
    int r = blocking_run(&worker_self()->runtime->names, &take_call->call, false);

    if (r < 0) return r;
    r = take_call->code == 0 ? take_call->count : error_of(take_call->code, take_call->host);
    if (r == 0) {
        r = refuse_as(WEIR_ENONAME, "host '%s': has no address of the internet", take_call->host);
    }
    if (r > 0) memcpy(addresses, take_call->addresses, (size_t)r * sizeof addresses[0]);
    discard(&take_call->call);
    return r;
}

int weir_resolve(const char *host, uint16_t port, enum weir_transport transport,
                 weir_address *addresses, int count_max)
{
    struct task *self = task_self();
    struct resolve_call *call;
    int r;

    if (!self) return refuse_no_task("weir_resolve");
    r = check(host, transport, count_max);
    if (r < 0) return r;
    r = task_enter(self, ENTER_IO);
    if (r < 0) return r;
    if (address_from_numbers(host, port, &addresses[0])) {
        addresses[0].transport = transport;
        return 1;
    }
    if (count_max > RESOLVE_COUNT_MAX) count_max = RESOLVE_COUNT_MAX;
    call = mem_alloc_zeroed(sizeof *call + (size_t)count_max * sizeof call->addresses[0]);
    if (!call) return -ENOMEM;
    call->call.name = "resolve";
    call->call.run = run;
    call->call.discard = discard;
    call->port = port;
    call->transport = transport;
    call->count_max = count_max;
    (void)snprintf(call->host, sizeof call->host, "%s", host);
    (void)snprintf(call->call.detail, sizeof call->call.detail, "%s", host);
    return finish(call, addresses);
}
