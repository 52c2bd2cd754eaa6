/* work.c - what a request needs, taken from a list and given back to it. */
#include <assert.h>
#include <errno.h>

#include "rt/mem.h"
#include "server/service_inside.h"

void *work_resize(void *arg, void *block, size_t bytes_before, size_t bytes)
{
    (void)arg, (void)bytes_before;
    if (bytes > 0) return mem_resize(block, bytes);
    mem_free(block);
    return NULL;
}

static size_t rounded(size_t bytes)
{
    return (bytes + 15) & ~(size_t)15;
}

/* One block for all that has a size: the blocks of the parser, of the target, of texts. */
static struct work *work_new(const struct service_limits *limits)
{
    size_t fields = rounded(http_limits_fields(&limits->http) * sizeof(struct http_field));
    size_t block = rounded(http_limits_block(&limits->http));
    size_t target = rounded(limits->http.line_bytes_max);
    size_t texts = rounded(limits->http.line_bytes_max + TEXTS_BYTES);
    size_t own = rounded(sizeof(struct work));
    struct work *work = mem_alloc(own + fields + block + target + texts);
    char *at;

    if (!work) return NULL;
    at = (char *)work + own;
    memset(work, 0, offsetof(struct work, in));
    work->fields = (struct http_field *)(void *)at;
    work->parser_block = at += fields;
    work->target_block = at += block;
    work->texts_block = at + target;
    buffer_init(&work->exchange.out, limits->answer_bytes_max, work_resize, NULL);
    buffer_init(&work->exchange.body, limits->http.body_bytes_max, work_resize, NULL);
    buffer_init_fixed(&work->exchange.texts, work->texts_block, texts);
    buffer_init(&work->head, HEAD_BYTES_MAX, work_resize, NULL);
    buffer_init(&work->packed, limits->answer_bytes_max, work_resize, NULL);
    return work;
}

void work_free(struct work *take_work)
{
    sanitize_acquire(take_work);
    buffer_deinit(&take_work->exchange.out);
    buffer_deinit(&take_work->exchange.body);
    buffer_deinit(&take_work->head);
    buffer_deinit(&take_work->packed);
    mem_free(take_work);
}

struct work *work_take(struct ward *ward)
{
    const struct service_limits *limits = &ward->service->spec.limits;
    struct work *work;

    ward_lock(ward);
    work = ward->free_works;
    if (work) {
        ward->free_works = work->next;
        ward->free_work_count--;
    }
    ward_unlock(ward);
    if (work) sanitize_acquire(work); /* from whoever had it last, on this worker */
    if (!work) work = work_new(limits);
    if (!work) return NULL;
    http_parser_init(&work->parser, HTTP_KIND_REQUEST, &limits->http, work->parser_block,
                     work->fields);
    work->in_at = work->in_used = 0;
    work->unread = false;
    return work;
}

void work_give_back(struct ward *ward, struct work *take_work)
{
    bool kept;

    if (!take_work) return;
    assert(take_work->held_bytes == 0);
    sanitize_release(take_work);
    ward_lock(ward);
    kept = ward->free_work_count < WORKS_KEPT_MAX;
    if (kept) {
        take_work->next = ward->free_works;
        ward->free_works = take_work;
        ward->free_work_count++;
    }
    ward_unlock(ward);
    if (!kept) work_free(take_work);
}

/* ---- Bodies ---- */

/* A body comes as slowly as its client likes, and has no turn meanwhile: only this bounds what all
 * of them have. The first UNCOUNTED_BODY_BYTES are not counted: connections_max bounds those, and
 * who has little to say is not refused because others have much. */
bool work_hold_body(struct service *service, struct work *work)
{
    size_t room = work->exchange.body.room;
    size_t held = room > UNCOUNTED_BODY_BYTES ? room : 0, more;

    if (held <= work->held_bytes) return true;
    more = held - work->held_bytes;
    work->held_bytes = held;
    if (atom_add(&service->bodies_bytes, more) + more <= service->spec.limits.bodies_bytes_max)
        return true;
    work_drop_body(service, work);
    return false;
}

void work_drop_body(struct service *service, struct work *work)
{
    struct buffer *body = &work->exchange.body;
    size_t bytes_max = body->bytes_max;

    if (work->held_bytes == 0) return;
    buffer_deinit(body);
    buffer_init(body, bytes_max, work_resize, NULL);
    (void)atom_sub(&service->bodies_bytes, work->held_bytes);
    work->held_bytes = 0;
}
