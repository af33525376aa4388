#include "common/base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool buf_fail(struct bp_buf *buf)
{
    buf->failed = true;
    buf->allocated = buf->len;
    return false;
}

bool bp_buf_grow(struct bp_buf *buf, size_t n)
{
    enum { LEAST = 256 };
    if (buf->failed)
        return false;
    if (n > SIZE_MAX / 4 || buf->allocated > SIZE_MAX / 4)
        return buf_fail(buf);
    size_t allocated = 2 * buf->allocated > LEAST ? 2 * buf->allocated : LEAST;
    if (allocated < buf->len + n)
        allocated = buf->len + n;
    char *data = realloc(buf->data, allocated);
    if (!data)
        return buf_fail(buf);
    buf->data = data;
    buf->allocated = allocated;
    return true;
}

void bp_buf_add(struct bp_buf *buf, const void *bytes, size_t n)
{
    if (n && bp_buf_reserve(buf, n)) {
        memcpy(buf->data + buf->len, bytes, n);
        buf->len += n;
    }
}

void bp_buf_addstr(struct bp_buf *buf, const char *text)
{
    bp_buf_add(buf, text, strlen(text));
}

void bp_buf_addch(struct bp_buf *buf, char c)
{
    bp_buf_add(buf, &c, 1);
}

void bp_buf_addu(struct bp_buf *buf, bp_u128 value)
{
    if (bp_buf_reserve(buf, BP_U128_TEXT))
        buf->len += bp_u128_format(value, buf->data + buf->len);
}

void bp_buf_addf(struct bp_buf *buf, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0)
        buf_fail(buf);
    else if (bp_buf_reserve(buf, (size_t)n + 1)) {
        vsnprintf(buf->data + buf->len, (size_t)n + 1, format, again);
        buf->len += (size_t)n;
    }
    va_end(again);
}

const char *bp_buf_string(struct bp_buf *buf)
{
    if (!bp_buf_reserve(buf, 1))
        return "";
    buf->data[buf->len] = '\0';
    return buf->data;
}

char *bp_buf_detach(struct bp_buf *buf, size_t *ret_len)
{
    char *data = buf->data;
    if (buf->failed) {
        bp_buf_release(buf);
        return NULL;
    }
    *ret_len = buf->len;
    *buf = (struct bp_buf){0};
    return data;
}

void bp_buf_clear(struct bp_buf *buf)
{
    buf->len = 0;
    buf->failed = false;
}

void bp_buf_release(struct bp_buf *buf)
{
    free(buf->data);
    *buf = (struct bp_buf){0};
}
