/* access.c - one line for each request, whatever it was. */
#include "server/access.h"

size_t access_escape(struct bytes text, char *out, size_t out_bytes)
{
    static const char hex[] = "0123456789abcdef";
    size_t used = 0;

    for (size_t i = 0; i < text.count; i++) {
        unsigned char c = (unsigned char)text.at[i];
        bool plain = (is_visible(text.at[i]) || c == ' ') && c != '"' && c != '\\';

        if (used + (plain ? 1 : 4) >= out_bytes) break;
        if (plain) {
            out[used++] = text.at[i];
            continue;
        }
        out[used++] = '\\';
        out[used++] = 'x';
        out[used++] = hex[c >> 4];
        out[used++] = hex[c & 15];
    }
    if (out_bytes > 0) out[used] = '\0';
    return used;
}

static void put(struct access *access, struct log_field field)
{
    access->fields[access->count++] = field;
}

void access_fields(const struct exchange *x, uint64_t sent_bytes, int error, const char *who,
                   struct access *ret_access)
{
    const char *method = http_method_name(x->message->method);

    ret_access->count = 0;
    put(ret_access, LOG_TEXT("method", *method ? method : "-"));
    put(ret_access, LOG_TEXT("route", x->route ? x->route->path : "-"));
    put(ret_access, LOG_INT("status", x->status));
    put(ret_access, LOG_INT("bytes", sent_bytes));
    put(ret_access, LOG_INT("ms", (weir_now_ns() - x->came_ns) / 1000000));
    put(ret_access, LOG_TEXT("peer", x->peer ? x->peer : "-"));
    put(ret_access, LOG_INT("request", x->number));
    if (who) {
        (void)access_escape(bytes_of(who), ret_access->who, sizeof ret_access->who);
        put(ret_access, LOG_TEXT("who", ret_access->who));
    }
    if (error < 0) put(ret_access, LOG_TEXT("error", weir_error_name(error)));
}
