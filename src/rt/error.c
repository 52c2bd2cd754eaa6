/* error.c - names and sentences of error codes. */
#include <errno.h>
#include <stddef.h>
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
    {WEIR_EEXIT, "WEIR_EEXIT", "the process ended, and not as it should have"},
    {WEIR_EOVERTIME, "WEIR_EOVERTIME", "the job took longer than its pool allows"},
    {WEIR_EPROTOCOL, "WEIR_EPROTOCOL", "the other side does not keep to the protocol"},
    {WEIR_ECRASHED, "WEIR_ECRASHED", "who was at it failed in the middle"},
    {WEIR_EBREAKER, "WEIR_EBREAKER", "a breaker is open: it was not tried"},
    {WEIR_EFOUND, "WEIR_EFOUND", "a simulated run failed"},
};

static const struct error_text *find(int error)
{
    for (size_t i = 0; i < sizeof own_errors / sizeof own_errors[0]; i++) {
        if (own_errors[i].error == error) return &own_errors[i];
    }
    return NULL;
}

/* The kernel's errors; NULL for a number that is none. */
#if defined(__GLIBC__)
static const char *system_name(int number)
{
    return strerrorname_np(number);
}

static const char *system_sentence(int number)
{
    return strerrordesc_np(number);
}
#else
/* clang-format off */
#define SYSTEM_ERRORS(X)                                                                          \
    X(EPERM) X(ENOENT) X(ESRCH) X(EINTR) X(EIO) X(ENXIO) X(E2BIG) X(ENOEXEC) X(EBADF) X(ECHILD)   \
    X(EAGAIN) X(ENOMEM) X(EACCES) X(EFAULT) X(ENOTBLK) X(EBUSY) X(EEXIST) X(EXDEV) X(ENODEV)      \
    X(ENOTDIR) X(EISDIR) X(EINVAL) X(ENFILE) X(EMFILE) X(ENOTTY) X(ETXTBSY) X(EFBIG) X(ENOSPC)    \
    X(ESPIPE) X(EROFS) X(EMLINK) X(EPIPE) X(EDOM) X(ERANGE) X(EDEADLK) X(ENAMETOOLONG) X(ENOLCK)  \
    X(ENOSYS) X(ENOTEMPTY) X(ELOOP) X(ENOMSG) X(EIDRM) X(ECHRNG) X(EL2NSYNC) X(EL3HLT) X(EL3RST)  \
    X(ELNRNG) X(EUNATCH) X(ENOCSI) X(EL2HLT) X(EBADE) X(EBADR) X(EXFULL) X(ENOANO) X(EBADRQC)     \
    X(EBADSLT) X(EBFONT) X(ENOSTR) X(ENODATA) X(ETIME) X(ENOSR) X(ENONET) X(ENOPKG) X(EREMOTE)    \
    X(ENOLINK) X(EADV) X(ESRMNT) X(ECOMM) X(EPROTO) X(EMULTIHOP) X(EDOTDOT) X(EBADMSG)            \
    X(EOVERFLOW) X(ENOTUNIQ) X(EBADFD) X(EREMCHG) X(ELIBACC) X(ELIBBAD) X(ELIBSCN) X(ELIBMAX)     \
    X(ELIBEXEC) X(EILSEQ) X(ERESTART) X(ESTRPIPE) X(EUSERS) X(ENOTSOCK) X(EDESTADDRREQ)           \
    X(EMSGSIZE) X(EPROTOTYPE) X(ENOPROTOOPT) X(EPROTONOSUPPORT) X(ESOCKTNOSUPPORT) X(EOPNOTSUPP)  \
    X(EPFNOSUPPORT) X(EAFNOSUPPORT) X(EADDRINUSE) X(EADDRNOTAVAIL) X(ENETDOWN) X(ENETUNREACH)     \
    X(ENETRESET) X(ECONNABORTED) X(ECONNRESET) X(ENOBUFS) X(EISCONN) X(ENOTCONN) X(ESHUTDOWN)     \
    X(ETOOMANYREFS) X(ETIMEDOUT) X(ECONNREFUSED) X(EHOSTDOWN) X(EHOSTUNREACH) X(EALREADY)         \
    X(EINPROGRESS) X(ESTALE) X(EUCLEAN) X(ENOTNAM) X(ENAVAIL) X(EISNAM) X(EREMOTEIO) X(EDQUOT)    \
    X(ENOMEDIUM) X(EMEDIUMTYPE) X(ECANCELED) X(ENOKEY) X(EKEYEXPIRED) X(EKEYREVOKED)              \
    X(EKEYREJECTED) X(EOWNERDEAD) X(ENOTRECOVERABLE) X(ERFKILL) X(EHWPOISON)
/* clang-format on */

static const char *system_name(int number)
{
    static const char *const names[] = {
#define SYSTEM_ERROR_NAME(error) [error] = #error,
        SYSTEM_ERRORS(SYSTEM_ERROR_NAME)
#undef SYSTEM_ERROR_NAME
    };

    return (size_t)number < sizeof names / sizeof names[0] ? names[number] : NULL;
}

/* musl's strerror gives constants: any thread may call it. */
static const char *system_sentence(int number)
{
    return system_name(number) ? strerror(number) : NULL;
}
#endif

const char *weir_strerror(int error)
{
    const struct error_text *text = find(error);
    const char *sentence;
    if (text) return text->sentence;
    if (error >= 0) return "success";
    sentence = error > -4096 ? system_sentence(-error) : NULL;
    return sentence ? sentence : "unknown error";
}

const char *weir_error_name(int error)
{
    const struct error_text *text = find(error);
    const char *name;
    if (text) return text->name;
    if (error >= 0) return "0";
    name = error > -4096 ? system_name(-error) : NULL;
    return name ? name : "unknown";
}
