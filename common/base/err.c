#include "common/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct code_row {
    enum bp_code code;
    enum bp_code_kind kind;
    int status;
    const char *name, *title;
} code_rows[] = {
#define BP_ERRCODE(number, name, kind, status, title) {BP_E_##name, BP_KIND_##kind, status, #name, title},
#include "common/base/errcode.def"
#undef BP_ERRCODE
};

static const struct code_row *code_row(enum bp_code code)
{
    const struct code_row *internal = NULL;
    for (size_t i = 0; i < sizeof code_rows / sizeof *code_rows; i++) {
        if (code_rows[i].code == code)
            return &code_rows[i];
        if (code_rows[i].code == BP_E_internal)
            internal = &code_rows[i];
    }
    return internal;
}

const char *bp_code_name(enum bp_code code)
{
    return code_row(code)->name;
}

enum bp_code_kind bp_code_kind(enum bp_code code)
{
    return code_row(code)->kind;
}

int bp_code_status(enum bp_code code)
{
    return code_row(code)->status;
}

const char *bp_code_title(enum bp_code code)
{
    return code_row(code)->title;
}

static void err_write(struct bp_err *err, enum bp_code code, const char *path, const char *format, va_list args)
{
    err->code = code;
    snprintf(err->path, sizeof err->path, "%s", path);
    vsnprintf(err->message, sizeof err->message, format, args);
}

int bp_fail(struct bp_err *err, enum bp_code code, const char *path, const char *format, ...)
{
    if (err && err->code == BP_OK) {
        va_list args;
        va_start(args, format);
        err_write(err, code, path, format, args);
        va_end(args);
    }
    return -1;
}

int bp_err_prefix(struct bp_err *err, const char *format, ...)
{
    if (err && err->code != BP_OK) {
        char text[sizeof err->message];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        size_t n = strlen(text), room = sizeof text - n;
        if (room > 2) {
            memcpy(text + n, ": ", 2);
            memcpy(text + n + 2, err->message, room - 2);
            text[sizeof text - 1] = '\0';
        }
        memcpy(err->message, text, sizeof text);
    }
    return -1;
}

void bp_problems_add(struct bp_problems *problems, enum bp_code code, const char *path, const char *format, ...)
{
    if (problems->n >= BP_PROBLEMS_MAX) {
        problems->n_dropped++;
        return;
    }
    if (problems->n == problems->allocated) {
        size_t allocated = problems->allocated ? 2 * problems->allocated : 8;
        struct bp_err *at = realloc(problems->at, allocated * sizeof *at);
        if (!at) {
            problems->out_of_memory = true;
            problems->n_dropped++;
            return;
        }
        problems->at = at;
        problems->allocated = allocated;
    }
    va_list args;
    va_start(args, format);
    err_write(&problems->at[problems->n++], code, path, format, args);
    va_end(args);
}

static bool are_same(const struct bp_err *a, const struct bp_err *b)
{
    return a->code == b->code && strcmp(a->path, b->path) == 0 && strcmp(a->message, b->message) == 0;
}

void bp_problems_once(struct bp_problems *problems)
{
    size_t n = 0;
    for (size_t i = 0, j; i < problems->n; i++) {
        for (j = 0; j < n && !are_same(&problems->at[i], &problems->at[j]); j++)
            continue;
        if (j == n)
            problems->at[n++] = problems->at[i];
    }
    problems->n = n;
}

void bp_problems_release(struct bp_problems *problems)
{
    free(problems->at);
    *problems = (struct bp_problems){0};
}

/* Whether one path is the other, or holds it. */
static bool are_on_one_way(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), shorter = n < m ? n : m;
    const char *rest = n < m ? b + n : a + m;
    return strncmp(a, b, shorter) == 0 && (*rest == '\0' || *rest == '/');
}

bool bp_problems_unread(const struct bp_problems *problems, const char *path)
{
    for (size_t i = 0; i < problems->n; i++) {
        enum bp_code code = problems->at[i].code;
        bool unread = code == BP_E_missing_key || code == BP_E_wrong_type || code == BP_E_out_of_range ||
                      code == BP_E_unknown_value;
        if (unread && are_on_one_way(problems->at[i].path, path))
            return true;
    }
    return false;
}

bool bp_problems_none(const struct bp_problems *problems)
{
    return problems->n == 0 && problems->n_dropped == 0 && !problems->out_of_memory;
}
