/* An independent canonicaliser: from text to RFC 8785 text by recursive descent, with keys sorted as arrays of UTF-16
 * code units. The text is known to parse; so nothing is checked that a parser has checked. */
#include <string.h>

#include "tests/fuzz/fuzz.h"

struct source {
    const char *at, *end;
    bool writable; /* every number so far */
};

struct units {
    uint16_t *at;
    size_t n;
};

static void *must(void *memory)
{
    FUZZ_EXPECT(memory != NULL, "no memory");
    return memory;
}

static char peek(struct source *source)
{
    while (source->at < source->end && strchr(" \t\r\n", *source->at))
        source->at++;
    return source->at < source->end ? *source->at : '\0';
}

static unsigned hex4(struct source *source)
{
    char digits[5] = {0};
    memcpy(digits, source->at, 4);
    source->at += 4;
    return (unsigned)strtoul(digits, NULL, 16);
}

static uint32_t escaped(struct source *source)
{
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char name = *source->at++;
    return name == 'u' ? hex4(source) : (uint32_t)(unsigned char)meanings[strchr(names, name) - names];
}

/* One code point of UTF-8 that is known to be well-formed. */
static uint32_t code_point(struct source *source)
{
    const unsigned char first = (unsigned char)*source->at++;
    unsigned more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    uint32_t point = more == 0 ? first : first & (0x3fU >> more);
    for (; more; more--)
        point = point << 6 | (*(const unsigned char *)source->at++ & 0x3fU);
    return point;
}

static struct units string_of(struct source *source)
{
    const char *end = ++source->at;
    while (*end != '"')
        end += *end == '\\' ? 2 : 1;
    /* A byte is at most one unit. */
    struct units units = {must(calloc((size_t)(end - source->at) + 1, sizeof(uint16_t))), 0};
    while (*source->at != '"') {
        uint32_t point;
        if (*source->at == '\\') {
            source->at++;
            point = escaped(source);
        } else {
            point = code_point(source);
        }
        if (point >= 0x10000) {
            units.at[units.n++] = (uint16_t)(0xd800 + ((point - 0x10000) >> 10));
            point = 0xdc00 + ((point - 0x10000) & 0x3ff);
        }
        units.at[units.n++] = (uint16_t)point;
    }
    source->at++;
    return units;
}

static void put_point(struct bp_buf *out, uint32_t point)
{
    if (point < 0x80) {
        bp_buf_addch(out, (char)point);
        return;
    }
    const unsigned more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    static const unsigned marks[] = {0, 0xc0, 0xe0, 0xf0};
    bp_buf_addch(out, (char)(marks[more] | (point >> (6 * more))));
    for (unsigned i = more; i--;)
        bp_buf_addch(out, (char)(0x80U | ((point >> (6 * i)) & 0x3fU)));
}

static void put_string(struct bp_buf *out, const struct units *units)
{
    static const char short_for[] = "\b\t\n\f\r\"\\", letters[] = "btnfr\"\\";
    bp_buf_addch(out, '"');
    for (size_t i = 0; i < units->n; i++) {
        uint32_t unit = units->at[i];
        const char *is_short = unit && unit < 0x80 ? strchr(short_for, (int)unit) : NULL;
        if (is_short) {
            bp_buf_addch(out, '\\');
            bp_buf_addch(out, letters[is_short - short_for]);
        } else if (unit < 0x20) {
            bp_buf_addf(out, "\\u%04x", (unsigned)unit);
        } else if (unit >= 0xd800 && unit < 0xdc00) {
            i++;
            put_point(out, 0x10000 + ((unit - 0xd800) << 10) + (units->at[i] - 0xdc00U));
        } else {
            put_point(out, unit);
        }
    }
    bp_buf_addch(out, '"');
}

static void put_value(struct source *source, struct bp_buf *out);

struct member {
    struct units key;
    struct bp_buf value;
};

static int by_units(const void *left, const void *right)
{
    const struct units *a = &((const struct member *)left)->key, *b = &((const struct member *)right)->key;
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (a->at[i] != b->at[i])
            return a->at[i] < b->at[i] ? -1 : 1;
    return a->n < b->n ? -1 : a->n > b->n;
}

static void put_object(struct source *source, struct bp_buf *out)
{
    struct member *members = NULL;
    size_t n = 0;
    source->at++;
    while (peek(source) != '}') {
        if (*source->at == ',') {
            source->at++;
            peek(source);
        }
        members = must(realloc(members, (n + 1) * sizeof *members));
        members[n] = (struct member){.key = string_of(source)};
        peek(source);
        source->at++; /* the colon */
        put_value(source, &members[n++].value);
    }
    source->at++;
    if (n)
        qsort(members, n, sizeof *members, by_units);
    bp_buf_addch(out, '{');
    for (size_t i = 0; i < n; i++) {
        if (i)
            bp_buf_addch(out, ',');
        put_string(out, &members[i].key);
        bp_buf_addch(out, ':');
        bp_buf_add(out, members[i].value.data, members[i].value.len);
        bp_buf_release(&members[i].value);
        free(members[i].key.at);
    }
    bp_buf_addch(out, '}');
    free(members);
}

static void put_array(struct source *source, struct bp_buf *out)
{
    source->at++;
    bp_buf_addch(out, '[');
    while (peek(source) != ']') {
        if (*source->at == ',') {
            source->at++;
            bp_buf_addch(out, ',');
        }
        put_value(source, out);
    }
    source->at++;
    bp_buf_addch(out, ']');
}

/* A number, or true, false, null: as it stands. */
static void put_word(struct source *source, struct bp_buf *out)
{
    const char *begin = source->at;
    while (source->at < source->end && !strchr(" \t\r\n,]}", *source->at))
        source->at++;
    const size_t n = (size_t)(source->at - begin);
    char digits[24] = {0};
    if (*begin == '-' || (*begin >= '0' && *begin <= '9')) {
        memcpy(digits, begin, n < sizeof digits ? n : sizeof digits - 1);
        source->writable &=
            n < 17 && strspn(digits, "0123456789") == n && strtoull(digits, NULL, 10) < (UINT64_C(1) << 53);
    }
    bp_buf_add(out, begin, n);
}

static void put_value(struct source *source, struct bp_buf *out)
{
    switch (peek(source)) {
    case '{':
        put_object(source, out);
        break;
    case '[':
        put_array(source, out);
        break;
    case '"': {
        struct units units = string_of(source);
        put_string(out, &units);
        free(units.at);
        break;
    }
    default:
        put_word(source, out);
    }
}

bool fuzz_canonical(const char *text, size_t n, struct bp_buf *out)
{
    struct source source = {.at = text, .end = text + n, .writable = true};
    put_value(&source, out);
    return source.writable;
}
