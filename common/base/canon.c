#include "common/base/canon.h"

#include <string.h>

static void breach(struct bp_writer *writer, const char *what)
{
    if (!writer->breach)
        writer->breach = what;
}

/* Before a value of at most n bytes: the comma, or the next key of the shape, and that a value may stand here. Where to
 * write the value, or NULL when memory ran out or there is no key for it. */
static char *value_begins(struct bp_writer *writer, size_t n)
{
    struct bp_buf *out = writer->out;
    const bool room = bp_buf_reserve(out, n + BP_SHAPE_KEY_TEXT);
    if (writer->depth == 0) {
        if (writer->levels[0].has_items)
            breach(writer, "a second value");
        writer->levels[0].has_items = true;
        return room ? out->data + out->len : NULL;
    }
    const unsigned top = writer->depth - 1;
    const struct bp_shape *shape = writer->levels[top].shape;
    if (shape) {
        if (writer->levels[top].next == shape->n) {
            breach(writer, "a value past the last key");
            return NULL;
        }
        const unsigned key = writer->levels[top].next++;
        if (!room)
            return NULL;
        memcpy(out->data + out->len, shape->keys[key].text, BP_SHAPE_KEY_TEXT);
        out->len += shape->keys[key].len;
    } else if (writer->levels[top].is_object) {
        if (!writer->after_key)
            breach(writer, "a value without a key");
        writer->after_key = false;
    } else {
        if (writer->levels[top].has_items && room)
            out->data[out->len++] = ',';
        writer->levels[top].has_items = true;
    }
    return room ? out->data + out->len : NULL;
}

static void value_ends(struct bp_writer *writer, const char *end)
{
    writer->out->len = (size_t)(end - writer->out->data);
}

static void level_begins(struct bp_writer *writer, bool is_object, const struct bp_shape *shape)
{
    char *at = value_begins(writer, 1);
    if (writer->depth == BP_JSON_DEPTH_MAX) {
        breach(writer, "too deep");
        return;
    }
    if (at) {
        *at = is_object ? '{' : '[';
        value_ends(writer, at + 1);
    }
    writer->levels[writer->depth].is_object = is_object;
    writer->levels[writer->depth].has_items = false;
    writer->levels[writer->depth].next = 0;
    writer->levels[writer->depth].last_key = NULL;
    writer->levels[writer->depth].shape = shape;
    writer->depth++;
}

void bp_writer_object(struct bp_writer *writer)
{
    level_begins(writer, true, NULL);
}

void bp_writer_array(struct bp_writer *writer)
{
    level_begins(writer, false, NULL);
}

void bp_writer_shaped(struct bp_writer *writer, const struct bp_shape *shape)
{
    if (shape->breach)
        breach(writer, shape->breach);
    level_begins(writer, true, shape);
}

void bp_writer_end(struct bp_writer *writer)
{
    if (writer->depth == 0 || writer->after_key) {
        breach(writer, "an end without a beginning");
        return;
    }
    writer->depth--;
    const struct bp_shape *shape = writer->levels[writer->depth].shape;
    if (shape && writer->levels[writer->depth].next != shape->n)
        breach(writer, "an end before the last key");
    bp_buf_addch(writer->out, writer->levels[writer->depth].is_object ? '}' : ']');
    if (writer->depth == 0)
        writer->levels[0].has_items = true;
}

size_t bp_utf8_decode(const unsigned char *s, size_t n, uint32_t *ret)
{
    static const struct {
        unsigned char mask, lead;
        uint32_t least;
    } forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    for (size_t len = 1; len <= 4 && len <= n; len++) {
        if ((s[0] & forms[len - 1].mask) != forms[len - 1].lead)
            continue;
        uint32_t point = s[0] & (unsigned char)~forms[len - 1].mask;
        for (size_t i = 1; i < len; i++) {
            if ((s[i] & 0xc0) != 0x80)
                return 0;
            point = point << 6 | (s[i] & 0x3fU);
        }
        if (point < forms[len - 1].least || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
            return 0;
        *ret = point;
        return len;
    }
    return 0;
}

/* The next UTF-16 code unit of a well-formed string. A supplementary character sorts by its high surrogate first,
 * which is all that can decide against a different character; equal high surrogates are decided by the code point. */
static uint32_t utf16_lead(uint32_t point)
{
    return point < 0x10000 ? point : 0xd800 + ((point - 0x10000) >> 10);
}

static int compare_utf16(const char *a, const char *b)
{
    /* Up to the first difference bytes decide, as long as what differs is ASCII. */
    size_t same = 0;
    while (a[same] && a[same] == b[same])
        same++;
    if ((((unsigned char)a[same] | (unsigned char)b[same]) & 0x80) == 0)
        return a[same] == b[same] ? 0 : a[same] < b[same] ? -1 : 1;
    size_t a_left = strlen(a), b_left = strlen(b);
    while (a_left && b_left) {
        uint32_t x = 0, y = 0;
        size_t m = bp_utf8_decode((const unsigned char *)a, a_left, &x);
        size_t n = bp_utf8_decode((const unsigned char *)b, b_left, &y);
        if (m == 0 || n == 0)
            return 0; /* ill-formed: the string writer reports it */
        if (x != y) {
            uint32_t u = utf16_lead(x), v = utf16_lead(y);
            return u != v ? (u < v ? -1 : 1) : (x < y ? -1 : 1);
        }
        a += m, a_left -= m;
        b += n, b_left -= n;
    }
    return a_left ? 1 : b_left ? -1 : 0;
}

/* True when none of 8 bytes needs more than a copy: no control, no quote, no backslash, nothing past ASCII. Each term
 * has the high bit of a byte set where that byte is the odd one (and possibly of bytes above it). */
static inline bool eight_are_plain(uint64_t x)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), highs = ones << 7;
    const uint64_t quote = x ^ (ones * '"'), backslash = x ^ (ones * '\\');
    return ((x | (x - ones * 0x20) | (quote - ones) | (backslash - ones)) & highs) == 0;
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

/* RFC 8785 section 3.2.2.2: the two-character escapes where JSON has them, \u00xx for the other controls. */
static char *put_escaped(char *to, unsigned char c)
{
    static const char shorts[] = "\b\t\n\f\r\"\\", letters[] = "btnfr\"\\";
    const char *at = c ? strchr(shorts, c) : NULL;
    *to++ = '\\';
    if (at) {
        *to++ = letters[at - shorts];
        return to;
    }
    memcpy(to, "u00", 3);
    bp_hex(&c, 1, to + 3);
    return to + 5;
}

/* Copies a text that is plain throughout, by words, the last of which overlaps the one before. False, with `to` in
 * whatever state, when it is not. */
static inline bool copy_plain(char *to, const char *text, size_t n)
{
    uint64_t word;
    uint32_t half[2];
    if (n >= sizeof word) {
        for (size_t i = 0; i < n; i += sizeof word) {
            const size_t at = n - i < sizeof word ? n - sizeof word : i;
            memcpy(&word, text + at, sizeof word);
            if (!eight_are_plain(word))
                return false;
            memcpy(to + at, &word, sizeof word);
        }
        return true;
    }
    if (n >= sizeof *half) {
        memcpy(&half[0], text, sizeof *half);
        memcpy(&half[1], text + n - sizeof *half, sizeof *half);
        memcpy(to, &half[0], sizeof *half);
        memcpy(to + n - sizeof *half, &half[1], sizeof *half);
        return eight_are_plain((uint64_t)half[0] << 32 | half[1]);
    }
    for (size_t i = 0; i < n; i++) {
        if (!is_plain((unsigned char)text[i]))
            return false;
        to[i] = text[i];
    }
    return true;
}

/* The end of the text at `to`, escaped; NULL when it is not UTF-8. */
static char *put_unplain(char *to, const char *text, size_t n)
{
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t point;
        len = bp_utf8_decode((const unsigned char *)text + i, n - i, &point);
        if (len == 0)
            return NULL;
        if (len == 1 && !is_plain((unsigned char)text[i])) {
            to = put_escaped(to, (unsigned char)text[i]);
        } else {
            memcpy(to, text + i, len);
            to += len;
        }
    }
    return to;
}

/* The end of the quoted text at `to`, which has room for QUOTED_MAX(n) bytes; NULL when `text` is not UTF-8. */
#define QUOTED_MAX(n) (6 * (n) + 3)
static inline char *put_quoted(char *to, const char *text, size_t n)
{
    *to = '"';
    char *end = copy_plain(to + 1, text, n) ? to + 1 + n : put_unplain(to + 1, text, n);
    if (end)
        *end++ = '"';
    return end;
}

void bp_shape_key(struct bp_shape *shape, const char *key)
{
    char text[QUOTED_MAX(BP_SHAPE_KEY_TEXT) + 2] = ",";
    const size_t n = strlen(key);
    char *end = n < BP_SHAPE_KEY_TEXT ? put_quoted(text + 1, key, n) : NULL;
    if (!end || end - text >= BP_SHAPE_KEY_TEXT || shape->n == BP_SHAPE_KEYS_MAX) {
        shape->breach = "a key that no shape holds";
        return;
    }
    if (shape->last_key && compare_utf16(shape->last_key, key) >= 0)
        shape->breach = "keys out of order";
    *end++ = ':';
    const char *from = shape->n ? text : text + 1;
    shape->keys[shape->n].len = (unsigned)(end - from);
    memcpy(shape->keys[shape->n++].text, from, (size_t)(end - from));
    shape->last_key = key;
}

void bp_writer_key(struct bp_writer *writer, const char *key)
{
    const unsigned top = writer->depth - 1;
    if (writer->depth == 0 || !writer->levels[top].is_object || writer->levels[top].shape || writer->after_key) {
        breach(writer, "a key outside an object");
        return;
    }
    const char *last = writer->levels[top].last_key;
    if (last && !writer->any_order && compare_utf16(last, key) >= 0)
        breach(writer, "keys out of order");
    const size_t n = strlen(key);
    if (bp_buf_reserve(writer->out, QUOTED_MAX(n) + 2)) {
        char *to = writer->out->data + writer->out->len;
        if (writer->levels[top].has_items)
            *to++ = ',';
        to = put_quoted(to, key, n);
        if (to) {
            *to++ = ':';
            value_ends(writer, to);
        } else {
            breach(writer, "a string that is not UTF-8");
        }
    }
    writer->levels[top].has_items = true;
    writer->levels[top].last_key = key;
    writer->after_key = true;
}

void bp_writer_stringn(struct bp_writer *writer, const char *text, size_t n)
{
    char *to = value_begins(writer, QUOTED_MAX(n));
    if (!to)
        return;
    to = put_quoted(to, text, n);
    if (to)
        value_ends(writer, to);
    else
        breach(writer, "a string that is not UTF-8");
}

void bp_writer_string(struct bp_writer *writer, const char *text)
{
    bp_writer_stringn(writer, text, strlen(text));
}

char *bp_writer_room(struct bp_writer *writer, size_t n)
{
    return value_begins(writer, n);
}

void bp_writer_take(struct bp_writer *writer, const char *end)
{
    value_ends(writer, end);
}

void bp_writer_raw(struct bp_writer *writer, const char *json, size_t n)
{
    char *to = value_begins(writer, n);
    if (to) {
        memcpy(to, json, n);
        value_ends(writer, to + n);
    }
}

void bp_writer_uint(struct bp_writer *writer, uint64_t value)
{
    if (value > BP_JSON_INT_MAX)
        breach(writer, "an integer past 2^53 - 1");
    char *to = value_begins(writer, BP_U128_TEXT);
    if (to)
        value_ends(writer, to + bp_u128_format(value, to));
}

void bp_writer_decimal(struct bp_writer *writer, bp_u128 value)
{
    char *to = value_begins(writer, BP_U128_TEXT + 2);
    if (!to)
        return;
    *to++ = '"';
    to += bp_u128_format(value, to);
    *to++ = '"';
    value_ends(writer, to);
}

void bp_writer_bool(struct bp_writer *writer, bool value)
{
    bp_writer_raw(writer, value ? "true" : "false", value ? 4 : 5);
}

void bp_writer_null(struct bp_writer *writer)
{
    bp_writer_raw(writer, "null", 4);
}

void bp_writer_put_string(struct bp_writer *writer, const char *key, const char *text)
{
    bp_writer_key(writer, key);
    if (text)
        bp_writer_string(writer, text);
    else
        bp_writer_null(writer);
}

void bp_writer_put_uint(struct bp_writer *writer, const char *key, uint64_t value)
{
    bp_writer_key(writer, key);
    bp_writer_uint(writer, value);
}

void bp_writer_put_bool(struct bp_writer *writer, const char *key, bool value)
{
    bp_writer_key(writer, key);
    bp_writer_bool(writer, value);
}

void bp_writer_digest(struct bp_writer *writer, const struct bp_digest *digest)
{
    char text[BP_DIGEST_TEXT];
    bp_digest_format(digest, text);
    bp_writer_stringn(writer, text, BP_DIGEST_TEXT - 1);
}

int bp_writer_finish(struct bp_writer *writer, struct bp_err *err)
{
    if (writer->out->failed)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for a JSON text");
    if (writer->breach)
        return bp_fail(err, BP_E_internal, "", "the JSON writer met %s", writer->breach);
    if (writer->depth != 0 || !writer->levels[0].has_items)
        return bp_fail(err, BP_E_internal, "", "the JSON writer was left before the end");
    return 0;
}
