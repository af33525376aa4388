/* The JSON writer: RFC 8785 (JSON Canonicalization Scheme) text, straight into a buffer.
 *
 * What is digested is written by this and by nothing else. The writer holds the caller to the scheme: keys must come
 * in the order of their UTF-16 code units and once, strings must be UTF-8, integers at most 2^53 - 1, and there is no
 * way to write a float. Any breach is remembered and reported by bp_writer_finish. With `any_order` (answers that
 * people read, never digested) the order of keys is the caller's.
 */
#ifndef BP_BASE_CANON_H
#define BP_BASE_CANON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/digest.h"
#include "common/base/err.h"
#include "common/base/u128.h"

#define BP_JSON_DEPTH_MAX 64

/* The keys of an object that is written many times: brought into text and their order checked once, not per object.
 * Zero-initialise, then add the keys in order; a breach is reported by the writer that uses the shape. */
enum { BP_SHAPE_KEYS_MAX = 16, BP_SHAPE_KEY_TEXT = 32 };
struct bp_shape {
    unsigned n;
    const char *breach, *last_key;
    struct {
        unsigned len;
        char text[BP_SHAPE_KEY_TEXT]; /* the separator, the quoted key, a colon */
    } keys[BP_SHAPE_KEYS_MAX];
};
void bp_shape_key(struct bp_shape *shape, const char *key);

/* One text being written to `out`, which the caller owns and which must outlive the writer. Keys are remembered by
 * pointer until their object ends. Zero-initialise but for `out` and `any_order`. */
struct bp_writer {
    struct bp_buf *out;
    bool any_order;
    unsigned depth;
    const char *breach; /* what was done wrong first, or NULL */
    bool after_key;
    struct {
        bool is_object, has_items;
        unsigned next; /* key of `shape` */
        const char *last_key;
        const struct bp_shape *shape;
    } levels[BP_JSON_DEPTH_MAX];
};

void bp_writer_object(struct bp_writer *writer);
/* An object with the keys of `shape`, which outlives it: the keys are written by the values, one each, in order. */
void bp_writer_shaped(struct bp_writer *writer, const struct bp_shape *shape);
void bp_writer_array(struct bp_writer *writer);
void bp_writer_end(struct bp_writer *writer); /* of the innermost object or array */
void bp_writer_key(struct bp_writer *writer, const char *key);

void bp_writer_string(struct bp_writer *writer, const char *text);
void bp_writer_stringn(struct bp_writer *writer, const char *text, size_t n);
void bp_writer_uint(struct bp_writer *writer, uint64_t value);
void bp_writer_bool(struct bp_writer *writer, bool value);
void bp_writer_null(struct bp_writer *writer);
void bp_writer_decimal(struct bp_writer *writer, bp_u128 value); /* a string of decimal digits */
void bp_writer_digest(struct bp_writer *writer, const struct bp_digest *digest);

/* A member: a key and its value. */
void bp_writer_put_string(struct bp_writer *writer, const char *key, const char *text); /* null for NULL */
void bp_writer_put_uint(struct bp_writer *writer, const char *key, uint64_t value);
void bp_writer_put_bool(struct bp_writer *writer, const char *key, bool value);

/* A value that is JSON text already: the caller vouches for it, and in canonical text for its being canonical. */
void bp_writer_raw(struct bp_writer *writer, const char *json, size_t n);

/* The same in place: room for a value of at most n bytes, NULL when memory ran out. The caller writes the text there
 * and hands its end to bp_writer_take before it writes anything else. */
char *bp_writer_room(struct bp_writer *writer, size_t n);
void bp_writer_take(struct bp_writer *writer, const char *end);

/* 0 when one whole value was written by the rules; else -1: `internal` for a breach, `out_of_memory`. */
int bp_writer_finish(struct bp_writer *writer, struct bp_err *err);

/* The length of the well-formed UTF-8 sequence at `s`, of at most n bytes, and its code point; 0 when ill-formed
 * (RFC 3629 section 4: no overlong forms, no surrogates, nothing past U+10FFFF). */
size_t bp_utf8_decode(const unsigned char *s, size_t n, uint32_t *ret);

#endif
