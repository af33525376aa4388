#include "daemon/service/answer.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char standing_body[] =
    "{\"type\":\"urn:blueprint:error:out_of_memory\",\"title\":\"Out of memory\",\"status\":503,"
    "\"detail\":\"no memory for the answer\",\"code\":\"out_of_memory\",\"errors\":[]}";

/* Never freed: its count starts at one that nobody gives back. */
static struct bp_answer standing = {
    .references = 1,
    .status = 503,
    .code = BP_E_out_of_memory,
    .media_type = BP_MEDIA_PROBLEM,
    .body = standing_body,
    .n = sizeof standing_body - 1,
    .body_is_static = true,
    .close = true,
    .retry_after = 1,
};

static atomic_uint_fast64_t bytes_alive;

uint64_t bp_answer_bytes(void)
{
    return atomic_load_explicit(&bytes_alive, memory_order_relaxed);
}

bool bp_answer_is_standing(const struct bp_answer *answer)
{
    return answer == &standing;
}

struct bp_answer *bp_answer_new(int status, const char *media_type, struct bp_buf *body)
{
    struct bp_answer *answer = body->failed ? NULL : malloc(sizeof *answer);
    if (!answer) {
        bp_buf_release(body);
        return bp_answer_ref(&standing);
    }
    size_t n = 0;
    char *bytes = bp_buf_detach(body, &n);
    *answer = (struct bp_answer){.references = 1, .status = status, .media_type = media_type, .body = bytes, .n = n};
    atomic_fetch_add_explicit(&bytes_alive, n, memory_order_relaxed);
    return answer;
}

struct bp_answer *bp_answer_static(int status, const char *media_type, const void *body, size_t n)
{
    struct bp_buf none = {0};
    struct bp_answer *answer = bp_answer_new(status, media_type, &none);
    if (!bp_answer_is_standing(answer)) {
        answer->body = (char *)(uintptr_t)body;
        answer->n = n;
        answer->body_is_static = true;
    }
    return answer;
}

struct bp_answer *bp_answer_file(int status, const char *media_type, int file, uint64_t n)
{
    int own = fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return bp_answer_ref(&standing);
    struct bp_answer *answer = bp_answer_static(status, media_type, NULL, n);
    if (bp_answer_is_standing(answer)) {
        close(own);
        return answer;
    }
    answer->has_file = true;
    answer->file = own;
    return answer;
}

struct bp_answer *bp_answer_not_modified(struct bp_answer *answer)
{
    if (!answer->not_modified) {
        /* It says how long the body would be (RFC 9110 section 8.6), and none is sent. */
        struct bp_answer *made = bp_answer_static(304, NULL, answer->body, answer->n);
        if (bp_answer_is_standing(made))
            return made;
        memcpy(made->etag, answer->etag, sizeof made->etag);
        made->immutable = answer->immutable;
        answer->not_modified = made;
    }
    return bp_answer_ref(answer->not_modified);
}

struct bp_answer *bp_answer_ref(struct bp_answer *answer)
{
    atomic_fetch_add_explicit(&answer->references, 1, memory_order_relaxed);
    return answer;
}

void bp_answer_unref(struct bp_answer *answer)
{
    if (!answer || atomic_fetch_sub_explicit(&answer->references, 1, memory_order_acq_rel) != 1)
        return;
    if (answer->prepared)
        answer->prepared_free(answer->prepared);
    if (!answer->body_is_static) {
        atomic_fetch_sub_explicit(&bytes_alive, answer->n, memory_order_relaxed);
        free(answer->body);
    }
    if (answer->has_file)
        close(answer->file);
    bp_answer_unref(answer->not_modified);
    free(answer->link);
    free(answer);
}
