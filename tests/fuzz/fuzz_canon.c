/* The canonical writer: what it writes of any value is what an independent canonicaliser makes of the value's text,
 * parses to the same value, and is refused when the keys come in another order. */
#include <string.h>

#include "common/base/canon.h"
#include "common/base/json.h"
#include "tests/fuzz/fuzz.h"

static int by_utf16(const char *a, const char *b);

/* Keys in the writer's order, by insertion, or in the reverse. */
static size_t sorted_keys(const json_t *object, bool reversed, const char **ret, size_t most)
{
    size_t n = 0;
    for (void *at = json_object_iter((json_t *)(uintptr_t)object); at && n < most;
         at = json_object_iter_next((json_t *)(uintptr_t)object, at)) {
        const char *key = json_object_iter_key(at);
        size_t i = n++;
        for (; i && (by_utf16(ret[i - 1], key) > 0) != reversed; i--)
            ret[i] = ret[i - 1];
        ret[i] = key;
    }
    return n;
}

/* UTF-16 puts what is past U+FFFF, as surrogates, before U+E000 to U+FFFF: bytes of UTF-8 compare so but for those. */
static int by_utf16(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    const unsigned char x = (unsigned char)*a, y = (unsigned char)*b;
    const bool x_far = x >= 0xf0, y_far = y >= 0xf0;
    if (x_far != y_far && x >= 0xee && y >= 0xee)
        return x_far ? -1 : 1;
    return x < y ? -1 : x > y;
}

static void write_value(struct bp_writer *writer, const json_t *value, bool reversed);

static void write_object(struct bp_writer *writer, const json_t *value, bool reversed)
{
    size_t n = json_object_size(value);
    const char **keys = calloc(n + 1, sizeof *keys);
    FUZZ_EXPECT(keys != NULL, "no memory");
    n = sorted_keys(value, reversed, keys, n);
    bp_writer_object(writer);
    for (size_t i = 0; i < n; i++) {
        bp_writer_key(writer, keys[i]);
        write_value(writer, json_object_get(value, keys[i]), reversed);
    }
    bp_writer_end(writer);
    free(keys);
}

static void write_value(struct bp_writer *writer, const json_t *value, bool reversed)
{
    const json_t *item;
    size_t i;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        write_object(writer, value, reversed);
        break;
    case JSON_ARRAY:
        bp_writer_array(writer);
        json_array_foreach(value, i, item)
            write_value(writer, item, reversed);
        bp_writer_end(writer);
        break;
    case JSON_STRING:
        bp_writer_stringn(writer, json_string_value(value), json_string_length(value));
        break;
    case JSON_INTEGER:
        bp_writer_uint(writer, (uint64_t)json_integer_value(value));
        break;
    case JSON_REAL: /* not reached: the text is writable */
    case JSON_NULL:
        bp_writer_null(writer);
        break;
    default:
        bp_writer_bool(writer, json_is_true(value));
    }
}

static bool has_two_keys(const json_t *value)
{
    const char *key;
    const json_t *inner;
    size_t i;
    bool has = json_object_size(value) > 1;
    json_object_foreach((json_t *)(uintptr_t)value, key, inner)
        has |= has_two_keys(inner);
    json_array_foreach(value, i, inner)
        has |= has_two_keys(inner);
    return has;
}

static void expect_order_held(const json_t *value)
{
    struct bp_buf out = {0};
    struct bp_err err = {0};
    struct bp_writer strict = {.out = &out};
    write_value(&strict, value, true);
    FUZZ_EXPECT((bp_writer_finish(&strict, &err) < 0) == has_two_keys(value), "keys in reverse");
    bp_buf_clear(&out);
    struct bp_writer lenient = {.out = &out, .any_order = true};
    write_value(&lenient, value, true);
    FUZZ_EXPECT(bp_writer_finish(&lenient, NULL) == 0, "any order");
    json_t *again = bp_json_parse(out.data, out.len, NULL, &err);
    FUZZ_EXPECT(again && json_equal(again, (json_t *)(uintptr_t)value), "any order: %.*s", (int)out.len, out.data);
    json_decref(again);
    bp_buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bp_buf ours = {0}, theirs = {0};
    json_t *value = fuzz_parse(data, n);
    if (value && fuzz_canonical((const char *)data, n, &theirs)) {
        struct bp_err err = {0};
        struct bp_writer writer = {.out = &ours};
        write_value(&writer, value, false);
        FUZZ_EXPECT(bp_writer_finish(&writer, &err) == 0, "%s", err.message);
        fuzz_expect_same(&ours, &theirs, "two canonicalisers");
        json_t *again = bp_json_parse(ours.data, ours.len, NULL, &err);
        FUZZ_EXPECT(again && json_equal(again, value), "%s", err.message);
        json_decref(again);
        expect_order_held(value);
    }
    json_decref(value);
    bp_buf_release(&ours);
    bp_buf_release(&theirs);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t most, unsigned seed)
{
    return seed % 3 ? LLVMFuzzerMutate(data, n, most) : fuzz_mutate_json(data, n, most, seed);
}
