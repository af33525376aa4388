#include "common/request/import_args.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct bp_arg_row arg_rows[] = {
#define BP_MEGATRON_READ(values, name) {name, BP_ARG_##values, BP_ARG_READ, NULL, NULL},
#define BP_MEGATRON_LISTED(values, why, name) {name, BP_ARG_##values, BP_ARG_LISTED, NULL, why},
#define BP_MEGATRON_REFUSED(values, name, harmless, why) {name, BP_ARG_##values, BP_ARG_REFUSED, harmless, why},
#include "common/request/import_megatron.def"
#undef BP_MEGATRON_READ
#undef BP_MEGATRON_LISTED
#undef BP_MEGATRON_REFUSED
};

static const struct other_name {
    const char *other, *name;
    bool inverted;
} other_names[] = {
#define BP_MEGATRON_ALSO(other, name) {other, name, false},
#define BP_MEGATRON_CONTRARY(other, name) {other, name, true},
#include "common/request/import_megatron.def"
#undef BP_MEGATRON_ALSO
#undef BP_MEGATRON_CONTRARY
};

static bool is_named(const char *name, size_t n, const char *wanted)
{
    size_t i = 0;
    while (i < n && wanted[i] && (name[i] == '_' ? '-' : name[i]) == wanted[i])
        i++;
    return i == n && !wanted[n];
}

const struct bp_arg_row *bp_arg_row_find(const char *name, size_t n, bool *ret_inverted)
{
    *ret_inverted = false;
    for (size_t i = 0; i < sizeof other_names / sizeof *other_names; i++) {
        if (!is_named(name, n, other_names[i].other))
            continue;
        *ret_inverted = other_names[i].inverted;
        name = other_names[i].name;
        n = strlen(name);
        break;
    }
    for (size_t i = 0; i < sizeof arg_rows / sizeof *arg_rows; i++)
        if (is_named(name, n, arg_rows[i].name))
            return &arg_rows[i];
    return NULL;
}

bool bp_args_have_room(struct bp_peer *peer, const struct bp_args *args)
{
    if (args->n == BP_ARGS_MAX)
        bp_problems_add(peer->problems, BP_E_out_of_range, "", "more than %d arguments", BP_ARGS_MAX);
    return args->n < BP_ARGS_MAX;
}

struct bp_arg *bp_args_add(struct bp_peer *peer, struct bp_args *args, const char *shown, unsigned line,
                           unsigned column)
{
    if (args->n == args->n_allocated) {
        size_t n = args->n_allocated ? 2 * args->n_allocated : 64;
        struct bp_arg *grown = bp_arena_array(peer->arena, n, sizeof *grown);
        if (!grown)
            return NULL;
        if (args->n)
            memcpy(grown, args->at, args->n * sizeof *grown);
        args->at = grown;
        args->n_allocated = n;
    }
    struct bp_arg *arg = &args->at[args->n++];
    const char *name = strncmp(shown, "--", 2) == 0 ? shown + 2 : shown;
    *arg = (struct bp_arg){.shown = shown, .line = line, .column = column};
    arg->row = bp_arg_row_find(name, strlen(name), &arg->inverted);
    return arg;
}

void bp_arg_add_value(struct bp_peer *peer, struct bp_arg *arg, const char *value)
{
    size_t n = arg->n_values;
    if ((n & (n - 1)) == 0) { /* full at every power of two */
        const char **grown = bp_arena_array(peer->arena, n ? 2 * n : 1, sizeof *grown);
        peer->out_of_memory |= !grown;
        if (!grown)
            return;
        if (n)
            memcpy(grown, arg->values, n * sizeof *grown);
        arg->values = grown;
    }
    arg->values[arg->n_values++] = value;
}

const char *bp_arg_text(struct bp_peer *peer, const struct bp_arg *arg)
{
    struct bp_buf text = {0};
    for (size_t i = 0; i < arg->n_values; i++) {
        if (i)
            bp_buf_addch(&text, ' ');
        bp_buf_addstr(&text, arg->values[i]);
    }
    const char *copy = text.failed ? NULL : bp_arena_strndup(peer->arena, text.len ? text.data : "", text.len);
    bp_buf_release(&text);
    peer->out_of_memory |= !copy;
    return copy;
}

void bp_arg_problem(struct bp_peer *peer, const struct bp_arg *arg, enum bp_code code, const char *format, ...)
{
    char message[400];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    bp_problems_add(peer->problems, code, arg->shown, "line %u, column %u: %s", arg->line, arg->column, message);
}
