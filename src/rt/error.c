/* error.c - names and sentences of error codes. */
#include <string.h>
#include <weir/error.h>

struct error_text {
    int error;
    const char *name;
    const char *sentence;
};

static const struct error_text own_errors[] = {
    {WEIR_ECANCELED, "WEIR_ECANCELED", "cancelled"},
    {WEIR_ETIMEDOUT, "WEIR_ETIMEDOUT", "the deadline has passed"},
    {WEIR_ECLOSED, "WEIR_ECLOSED", "closed"},
    {WEIR_EOVERLOAD, "WEIR_EOVERLOAD", "full: rejected"},
    {WEIR_ESTOPPING, "WEIR_ESTOPPING", "stopping: takes on no more work"},
    {WEIR_EREFUSED, "WEIR_EREFUSED", "refused; weir_why() says why"},
    {WEIR_ENODEADLINE, "WEIR_ENODEADLINE", "a wait without a deadline"},
    {WEIR_ENOTASK, "WEIR_ENOTASK", "called outside a task"},
    {WEIR_EINUSE, "WEIR_EINUSE", "in use by another task"},
    {WEIR_ENONAME, "WEIR_ENONAME", "no such name"},
    {WEIR_ENAMESERVER, "WEIR_ENAMESERVER", "the name could not be looked up now"},
};

static const struct error_text *find(int error)
{
    for (size_t i = 0; i < sizeof own_errors / sizeof own_errors[0]; i++) {
        if (own_errors[i].error == error) return &own_errors[i];
    }
    return NULL;
}

const char *weir_strerror(int error)
{
    const struct error_text *text = find(error);
    const char *sentence;
    if (text) return text->sentence;
    if (error >= 0) return "success";
    sentence = error > -4096 ? strerrordesc_np(-error) : NULL;
    return sentence ? sentence : "unknown error";
}

const char *weir_error_name(int error)
{
    const struct error_text *text = find(error);
    const char *name;
    if (text) return text->name;
    if (error >= 0) return "0";
    name = error > -4096 ? strerrorname_np(-error) : NULL;
    return name ? name : "unknown";
}
