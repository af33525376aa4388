/* A growing byte buffer. Failures are sticky: write freely, ask `failed` once at the end. One thread at a time. */
#ifndef BP_BASE_BUF_H
#define BP_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/u128.h"

/* Zero-initialise. `data` holds `len` bytes and is not NUL-terminated unless bp_buf_string is asked. */
struct bp_buf {
    char *data;
    size_t len, allocated;
    bool failed; /* memory ran out: the contents are not to be used, and `allocated` is no more than `len` */
};

void bp_buf_add(struct bp_buf *buf, const void *bytes, size_t n);
void bp_buf_addstr(struct bp_buf *buf, const char *text);
void bp_buf_addch(struct bp_buf *buf, char c);
void bp_buf_addu(struct bp_buf *buf, bp_u128 value); /* decimal */
void bp_buf_addf(struct bp_buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Room for n more bytes at data + len, or false; the caller writes there and then adds to `len`. */
bool bp_buf_grow(struct bp_buf *buf, size_t n);
static inline bool bp_buf_reserve(struct bp_buf *buf, size_t n)
{
    return n <= buf->allocated - buf->len || bp_buf_grow(buf, n);
}

/* The contents as a C string, owned by the buffer; "" when it failed. */
const char *bp_buf_string(struct bp_buf *buf);

/* Hands the memory to the caller (free it) and empties the buffer; NULL when it failed or never held anything. */
char *bp_buf_detach(struct bp_buf *buf, size_t *ret_len);

void bp_buf_clear(struct bp_buf *buf);   /* empties, keeps the memory */
void bp_buf_release(struct bp_buf *buf); /* frees */

#endif
