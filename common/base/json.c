#include "common/base/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/canon.h"
#include "common/base/json_load.h"
#include "common/base/u128.h"

struct scan {
    bool has_text, too_deep, too_many;
    size_t n_values;                  /* at the most: what begins or follows another */
    struct bp_json_position position; /* where it went too far */
};

/* Counts brackets and commas outside strings, before the parser recurses on them and allocates for each value. */
static struct scan scan_text(const char *text, size_t n, size_t most)
{
    struct scan scan = {.n_values = 1, .position = {1, 0}};
    unsigned depth = 0;
    bool in_string = false, escaped = false;
    for (size_t i = 0; i < n && !scan.too_deep && !scan.too_many; i++) {
        char c = text[i];
        scan.position.column++;
        if (c == '\n')
            scan.position = (struct bp_json_position){scan.position.line + 1, 0};
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            scan.has_text = true;
        if (in_string) {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            scan.too_deep = ++depth > BP_JSON_DEPTH_MAX;
            scan.too_many = ++scan.n_values > most;
        } else if (c == ',') {
            scan.too_many = ++scan.n_values > most;
        } else if ((c == ']' || c == '}') && depth) {
            depth--;
        }
    }
    return scan;
}

static enum bp_code code_of_jansson(enum json_error_code code)
{
    switch (code) {
    case json_error_duplicate_key:
        return BP_E_duplicate_key;
    case json_error_stack_overflow:
        return BP_E_too_deep;
    default:
        return BP_E_invalid_json;
    }
}

/* Of the last byte that was read, which is where the text went wrong. */
static struct bp_json_position position_of(const char *text, size_t n, const json_error_t *error)
{
    struct bp_json_position position = {1, 1};
    for (size_t i = 0; i + 1 < (size_t)error->position && i < n; i++) {
        position.column++;
        if (text[i] == '\n')
            position = (struct bp_json_position){position.line + 1, 1};
    }
    return position;
}

static size_t count_digits(const char *text, size_t n)
{
    size_t digits = 0;
    while (digits < n && text[digits] >= '0' && text[digits] <= '9')
        digits++;
    return digits;
}

/* Puts a number of the same sort over one of `n` bytes that no machine type holds: past every range that a getter
 * allows, so that it is a problem where it is read and none where it is not. What is no JSON number stays as it is. */
static void tame_number(char *text, size_t n)
{
    size_t sign = text[0] == '-', whole = count_digits(text + sign, n - sign), at = sign + whole, exponent = 0;
    if (whole == 0 || (whole > 1 && text[sign] == '0'))
        return;
    bool real = at < n;
    if (at < n && text[at] == '.') {
        size_t fraction = count_digits(text + at + 1, n - at - 1);
        at = fraction ? at + 1 + fraction : n + 1;
    }
    if (at < n && (text[at] == 'e' || text[at] == 'E')) {
        at++;
        at += at < n && (text[at] == '+' || text[at] == '-') ? 1U : 0U;
        size_t digits = count_digits(text + at, n - at), last = at + digits;
        for (; text[at - 1] != '-' && at < last && exponent < 1000; at++)
            exponent = 10 * exponent + (size_t)(text[at] - '0');
        at = digits ? last : n + 1;
    }
    /* 19 digits do not all fit 64 bits, 309 before the point no double. */
    if (at != n || (real ? whole + exponent < 309 : whole < 19))
        return;
    const char *tame = real ? "9e9" : sign ? "-9223372036854775808" : "9223372036854775807";
    memset(text, ' ', n);
    memcpy(text + (real ? sign : 0), tame, strlen(tame));
    if (real && sign)
        text[0] = '-';
}

static json_t *load(const char *text, size_t n, json_error_t *error, bool *ret_out_of_memory)
{
    *error = (json_error_t){0};
    return bp_json_load(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, error, ret_out_of_memory);
}

/* The text again, its numbers tamed. Positions stay what they are. */
static json_t *load_tamed(const char *text, size_t n, json_error_t *error, bool *ret_out_of_memory)
{
    char *copy = malloc(n);
    bool in_string = false, escaped = false;
    *ret_out_of_memory = !copy;
    if (!copy)
        return NULL;
    memcpy(copy, text, n);
    for (size_t i = 0, end; i < n; i = end) {
        end = i + 1;
        if (in_string) {
            in_string = escaped || copy[i] != '"';
            escaped = !escaped && copy[i] == '\\';
        } else if (copy[i] == '"') {
            in_string = true;
        } else if (copy[i] == '-' || (copy[i] >= '0' && copy[i] <= '9')) {
            while (end < n && copy[end] && strchr("+-.0123456789Ee", copy[end]))
                end++;
            tame_number(copy + i, end - i);
        }
    }
    json_t *value = load(copy, n, error, ret_out_of_memory);
    free(copy);
    return value;
}

static json_t *parse(const char *text, size_t n, size_t most, struct bp_json_position *ret_position, struct bp_err *err)
{
    struct scan scan = scan_text(text, n, most);
    if (!scan.has_text) {
        *ret_position = (struct bp_json_position){1, 1};
        bp_fail(err, BP_E_empty_body, "", "there is no JSON text");
        return NULL;
    }
    if (scan.too_deep) {
        *ret_position = scan.position;
        bp_fail(err, BP_E_too_deep, "", "line %d, column %d: deeper than %d levels", scan.position.line,
                scan.position.column, BP_JSON_DEPTH_MAX);
        return NULL;
    }
    if (scan.too_many) {
        *ret_position = scan.position;
        bp_fail(err, BP_E_too_many_values, "", "line %d, column %d: more than %zu values", scan.position.line,
                scan.position.column, most);
        return NULL;
    }
    json_error_t error;
    bool out_of_memory;
    json_t *value = load(text, n, &error, &out_of_memory);
    if (!value && !out_of_memory && json_error_code(&error) == json_error_numeric_overflow)
        value = load_tamed(text, n, &error, &out_of_memory);
    if (!value) {
        *ret_position = position_of(text, n, &error);
        bp_fail(err, out_of_memory ? BP_E_out_of_memory : code_of_jansson(json_error_code(&error)), "",
                "line %d, column %d: %s", ret_position->line, ret_position->column,
                out_of_memory ? "no memory to read the text" : error.text);
    }
    return value;
}

json_t *bp_json_parse(const char *text, size_t n, struct bp_json_position *ret_position, struct bp_err *err)
{
    return parse(text, n, SIZE_MAX, ret_position, err);
}

json_t *bp_json_parse_request(const char *text, size_t n, struct bp_json_position *ret_position, struct bp_err *err)
{
    return parse(text, n, BP_JSON_VALUES_MAX, ret_position, err);
}

json_t *bp_json_copy_object(const json_t *object)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)object);
    if (copy && json_object_size(copy) != json_object_size(object)) { /* jansson does not say that it left one out */
        json_decref(copy);
        copy = NULL;
    }
    return copy;
}

struct bp_reader bp_reader_of(const json_t *value, const char *pointer, struct bp_problems *problems)
{
    struct bp_reader reader = {.object = json_is_object(value) ? value : NULL, .problems = problems};
    snprintf(reader.pointer, sizeof reader.pointer, "%s", pointer);
    if (!reader.object)
        bp_problems_add(problems, BP_E_wrong_type, pointer, "must be an object");
    return reader;
}

void bp_reader_pointer(const struct bp_reader *reader, const char *key, char ret[BP_POINTER_MAX])
{
    size_t n = strlen(reader->pointer);
    memcpy(ret, reader->pointer, n);
    if (n < BP_POINTER_MAX - 1)
        ret[n++] = '/';
    for (; *key && n < BP_POINTER_MAX - 2; key++) {
        if (*key == '~' || *key == '/') {
            ret[n++] = '~';
            ret[n++] = *key == '~' ? '0' : '1';
        } else {
            ret[n++] = *key;
        }
    }
    /* A key cut short must not end within a UTF-8 sequence. */
    if (*key) {
        while (n && ((unsigned char)ret[n - 1] & 0xc0) == 0x80)
            n--;
        if (n && (unsigned char)ret[n - 1] >= 0xc0)
            n--;
    }
    ret[n] = '\0';
}

void bp_reader_problem(const struct bp_reader *reader, enum bp_code code, const char *key, const char *format, ...)
{
    char pointer[BP_POINTER_MAX], message[sizeof((struct bp_err *)0)->message];
    bp_reader_pointer(reader, key, pointer);
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    bp_problems_add(reader->problems, code, pointer, "%s", message);
}

const json_t *bp_reader_get(const struct bp_reader *reader, const char *key, bool required)
{
    const json_t *value = reader->object ? json_object_get(reader->object, key) : NULL;
    if (!value && required && reader->object)
        bp_reader_problem(reader, BP_E_missing_key, key, "is required");
    return value;
}

struct bp_reader bp_reader_object(const struct bp_reader *reader, const char *key, bool required)
{
    const json_t *value = bp_reader_get(reader, key, required);
    char pointer[BP_POINTER_MAX];
    bp_reader_pointer(reader, key, pointer);
    if (value)
        return bp_reader_of(value, pointer, reader->problems);
    struct bp_reader none = {.problems = reader->problems};
    snprintf(none.pointer, sizeof none.pointer, "%s", pointer);
    return none;
}

uint64_t bp_reader_uint(const struct bp_reader *reader, const char *key, uint64_t least, uint64_t most,
                        uint64_t fallback)
{
    const json_t *value = bp_reader_get(reader, key, false);
    if (!value)
        return fallback;
    if (!json_is_integer(value)) {
        bp_reader_problem(reader, BP_E_wrong_type, key, "must be an integer, written without fraction or exponent");
        return fallback;
    }
    json_int_t number = json_integer_value(value);
    if (number < 0 || (uint64_t)number < least || (uint64_t)number > most) {
        bp_reader_problem(reader, BP_E_out_of_range, key, "must be between %llu and %llu", (unsigned long long)least,
                          (unsigned long long)most);
        return fallback;
    }
    return (uint64_t)number;
}

uint64_t bp_reader_uint_required(const struct bp_reader *reader, const char *key, uint64_t least, uint64_t most)
{
    return bp_reader_get(reader, key, true) ? bp_reader_uint(reader, key, least, most, least) : least;
}

bool bp_reader_bool(const struct bp_reader *reader, const char *key, bool fallback)
{
    const json_t *value = bp_reader_get(reader, key, false);
    if (!value)
        return fallback;
    if (!json_is_boolean(value)) {
        bp_reader_problem(reader, BP_E_wrong_type, key, "must be true or false");
        return fallback;
    }
    return json_is_true(value);
}

const char *bp_reader_string(const struct bp_reader *reader, const char *key, bool required)
{
    const json_t *value = bp_reader_get(reader, key, required);
    if (value && !json_is_string(value)) {
        bp_reader_problem(reader, BP_E_wrong_type, key, "must be a string");
        return NULL;
    }
    return value ? json_string_value(value) : NULL;
}

int bp_reader_enum(const struct bp_reader *reader, const char *key, const char *const *names, int fallback)
{
    const char *text = bp_reader_string(reader, key, fallback < 0);
    if (!text)
        return fallback < 0 ? 0 : fallback;
    char known[256] = "";
    for (int i = 0; names[i]; i++) {
        if (strcmp(names[i], text) == 0)
            return i;
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", names[i]);
    }
    bp_reader_problem(reader, BP_E_unknown_value, key, "must be one of %s", known);
    return fallback < 0 ? 0 : fallback;
}

void bp_reader_refuse_unknown(const struct bp_reader *reader, const char *const *known)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)reader->object, key, value) {
        const char *const *name = known;
        while (*name && strcmp(*name, key) != 0)
            name++;
        if (!*name)
            bp_reader_problem(reader, BP_E_unknown_key, key, "is not a key of this object");
    }
}
