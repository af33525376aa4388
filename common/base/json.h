/* Reading JSON that comes from outside: one guarded parse, and typed getters that name every problem.
 *
 * jansson does the parsing, behind a size cap, a depth cap and refusal of duplicate keys. A getter looks a key up in an
 * object, marks it as known, checks its type and range, and on failure adds a problem with the value's JSON Pointer and
 * returns its fallback; so a caller reads all it wants and asks once, at the end, whether there were problems.
 */
#ifndef BP_BASE_JSON_H
#define BP_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "common/base/err.h"

/* Where a text does not parse; 1-based, column in bytes. */
struct bp_json_position {
    int line, column;
};

/* Parses n bytes as one JSON value; NULL on failure, with `err` (path "") and the position. Codes: empty_body (no text
 * or white space alone), invalid_json, duplicate_key, too_deep, out_of_memory. A number that no machine type holds is
 * read as one past every range a getter allows, so that it is a problem where it is read and none where it is not. Give
 * the value back with json_decref. */
json_t *bp_json_parse(const char *text, size_t n, struct bp_json_position *ret_position, struct bp_err *err);

/* The same of a request's text, which may hold no more than BP_JSON_VALUES_MAX values (else too_many_values): some five
 * times what the largest request that means something has, and no more than a reader should be kept from others for. */
#define BP_JSON_VALUES_MAX 32768
json_t *bp_json_parse_request(const char *text, size_t n, struct bp_json_position *ret_position, struct bp_err *err);

/* A copy of an object with the same members, which are shared; NULL when memory ran out. */
json_t *bp_json_copy_object(const json_t *object);

/* Longest JSON Pointer kept in full. */
#define BP_POINTER_MAX 256

/* One object being read. `pointer` is its own JSON Pointer ("" for the root). */
struct bp_reader {
    const json_t *object; /* borrowed; NULL reads as an object without keys */
    char pointer[BP_POINTER_MAX];
    struct bp_problems *problems;
};

/* A reader of `value`, which must be an object: otherwise `wrong_type` at `pointer` and a reader of nothing. */
struct bp_reader bp_reader_of(const json_t *value, const char *pointer, struct bp_problems *problems);

/* `pointer` of a member, RFC 6901 escaped, into `ret`. */
void bp_reader_pointer(const struct bp_reader *reader, const char *key, char ret[BP_POINTER_MAX]);

/* Adds a problem at a member. */
void bp_reader_problem(const struct bp_reader *reader, enum bp_code code, const char *key, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The member, or NULL when it is absent. `required` adds missing_key. */
const json_t *bp_reader_get(const struct bp_reader *reader, const char *key, bool required);
struct bp_reader bp_reader_object(const struct bp_reader *reader, const char *key, bool required);

/* Typed members. Absent: `fallback`. Wrong: a problem and `fallback`. A number with a fraction or an exponent is
 * wrong_type; an integer outside least..most is out_of_range. `most` is never above 2^53 - 1. */
uint64_t bp_reader_uint(const struct bp_reader *reader, const char *key, uint64_t least, uint64_t most,
                        uint64_t fallback);
uint64_t bp_reader_uint_required(const struct bp_reader *reader, const char *key, uint64_t least, uint64_t most);
bool bp_reader_bool(const struct bp_reader *reader, const char *key, bool fallback);
const char *bp_reader_string(const struct bp_reader *reader, const char *key, bool required); /* borrowed, or NULL */

/* A member that is one of `names` (NULL-terminated): its index; absent: `fallback`; none of them: unknown_value.
 * With fallback < 0 the member is required. */
int bp_reader_enum(const struct bp_reader *reader, const char *key, const char *const *names, int fallback);

/* Adds unknown_key for every member that `known` (NULL-terminated) does not list. */
void bp_reader_refuse_unknown(const struct bp_reader *reader, const char *const *known);

#endif
