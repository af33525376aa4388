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

void bp_problems_release(struct bp_problems *problems)
{
    free(problems->at);
    *problems = (struct bp_problems){0};
}

bool bp_problems_none(const struct bp_problems *problems)
{
    return problems->n == 0 && problems->n_dropped == 0 && !problems->out_of_memory;
}
