/* Errors: one code table, one error, and a list of problems.
 *
 * A function that can fail returns 0 or -1, takes `struct bp_err *err` last and leaves its out parameters
 * untouched when it fails. `err` may be NULL; the first error written to one wins. Validation, which must name
 * everything that is wrong, fills a `struct bp_problems` instead.
 *
 * Any thread may use these on its own objects; nothing here is shared, logs or exits.
 */
#ifndef BP_BASE_ERR_H
#define BP_BASE_ERR_H

#include <stdbool.h>
#include <stddef.h>

enum bp_code {
    BP_OK = 0,
#define BP_ERRCODE(number, name, kind, status, title) BP_E_##name = number,
#include "common/base/errcode.def"
#undef BP_ERRCODE
};

enum bp_code_kind { BP_KIND_INPUT, BP_KIND_ENVIRONMENT, BP_KIND_BUG };

/* What the table says of a code. An unknown code reads as `internal`. */
const char *bp_code_name(enum bp_code code);
enum bp_code_kind bp_code_kind(enum bp_code code);
int bp_code_status(enum bp_code code);
const char *bp_code_title(enum bp_code code);

/* One error: where (a JSON Pointer into what the caller sent, "" for the whole) and what. Fixed size, no ownership. */
struct bp_err {
    enum bp_code code;
    char path[256];
    char message[512];
};

/* Writes the first error of `err`; later calls are ignored. Always returns -1, so that `return bp_fail(...)` reads
 * well. */
int bp_fail(struct bp_err *err, enum bp_code code, const char *path, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts a printf-style context and ": " before the message of an error already written. Returns -1. */
int bp_err_prefix(struct bp_err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A growing list of errors, at most BP_PROBLEMS_MAX; beyond that only `n_dropped` counts. Zero-initialise;
 * release with bp_problems_release. When memory runs out `out_of_memory` is set and the list must not be believed
 * to be complete (nor, when empty, to mean success). */
#define BP_PROBLEMS_MAX 256
struct bp_problems {
    struct bp_err *at;
    size_t n, allocated, n_dropped;
    bool out_of_memory;
};

void bp_problems_add(struct bp_problems *problems, enum bp_code code, const char *path, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Leaves one of each: what is wrong with several kinds of block alike is one thing to change. */
void bp_problems_once(struct bp_problems *problems);

void bp_problems_release(struct bp_problems *problems);

/* Whether what should be at `path` could not be read: missing_key, wrong_type, out_of_range or unknown_value is a
 * problem of it, of a part of it, or of what holds it. */
bool bp_problems_unread(const struct bp_problems *problems, const char *path);

/* True when nothing was added and nothing was lost. */
bool bp_problems_none(const struct bp_problems *problems);

#endif
