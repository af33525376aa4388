/* Megatron's YAML: arguments by the names of their variables, some in groups, whose names say nothing more. */
#include <string.h>

#include <yaml.h>

#include "common/request/import_args.h"

enum { DEPTH_MAX = 8 };

struct yaml_reader {
    struct bp_peer *peer;
    struct bp_args *args;
    yaml_parser_t parser;
    bool failed;
    unsigned depth; /* of groups */
};

static void refuse_at(struct yaml_reader *r, const yaml_mark_t *mark, enum bp_code code, const char *what)
{
    if (!r->failed)
        bp_problems_add(r->peer->problems, code, "", "line %zu, column %zu: %s", mark->line + 1, mark->column + 1,
                        what);
    r->failed = true;
}

/* The next event, to be deleted; false when there is none. */
static bool next_event(struct yaml_reader *r, yaml_event_t *ret)
{
    if (r->failed)
        return false;
    if (yaml_parser_parse(&r->parser, ret)) {
        if (ret->type != YAML_ALIAS_EVENT)
            return true;
        refuse_at(r, &ret->start_mark, BP_E_unsupported_feature, "an alias: write its value out");
        yaml_event_delete(ret);
        return false;
    }
    r->peer->out_of_memory |= r->parser.error == YAML_MEMORY_ERROR;
    const char *problem = r->parser.problem ? r->parser.problem : "it is no YAML";
    yaml_mark_t mark = r->parser.error == YAML_READER_ERROR ? r->parser.mark : r->parser.problem_mark;
    refuse_at(r, &mark, BP_E_invalid_request, problem);
    return false;
}

static bool is_one_of(const char *text, const char *const *words)
{
    while (*words && strcmp(*words, text) != 0)
        words++;
    return *words != NULL;
}

static bool is_null(const yaml_event_t *scalar)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    return scalar->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           is_one_of((const char *)scalar->data.scalar.value, nulls);
}

/* A copy of a scalar's text; NULL after a problem. */
static const char *scalar_text(struct yaml_reader *r, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t n = event->data.scalar.length;
    if (strlen(text) != n)
        refuse_at(r, &event->start_mark, BP_E_invalid_request, "a NUL character");
    const char *copy = bp_arena_strndup(r->peer->arena, text, n);
    r->failed |= !copy;
    r->peer->out_of_memory |= !copy;
    return r->failed ? NULL : copy;
}

static struct bp_arg *add_argument(struct yaml_reader *r, const char *key, const yaml_mark_t *mark)
{
    if (!bp_args_have_room(r->peer, r->args)) {
        r->failed = true;
        return NULL;
    }
    struct bp_arg *arg = bp_args_add(r->peer, r->args, key, (unsigned)mark->line + 1, (unsigned)mark->column + 1);
    r->peer->out_of_memory |= !arg;
    r->failed |= !arg;
    for (size_t i = 0; arg && i + 1 < r->args->n; i++) {
        const struct bp_arg *other = &r->args->at[i];
        if (arg->row ? other->row == arg->row : strcmp(other->shown, key) == 0)
            refuse_at(r, mark, BP_E_duplicate_key, "an argument that was given before");
    }
    return arg;
}

static void read_list(struct yaml_reader *r, struct bp_arg *arg)
{
    yaml_event_t event;
    while (next_event(r, &event)) {
        bool end = event.type == YAML_SEQUENCE_END_EVENT;
        const char *text = event.type == YAML_SCALAR_EVENT ? scalar_text(r, &event) : NULL;
        if (text)
            bp_arg_add_value(r->peer, arg, text);
        else if (!end)
            refuse_at(r, &event.start_mark, BP_E_too_deep, "a list within a list of values");
        yaml_event_delete(&event);
        if (end)
            return;
    }
}

/* What stands behind a key: a value, a list, or a group, which the caller goes on into. */
static void read_value(struct yaml_reader *r, const char *key, const yaml_mark_t *mark)
{
    yaml_event_t event;
    if (!next_event(r, &event))
        return;
    if (event.type == YAML_MAPPING_START_EVENT) {
        if (++r->depth > DEPTH_MAX)
            refuse_at(r, &event.start_mark, BP_E_too_deep, "groups nest too deep");
    } else if (event.type == YAML_SEQUENCE_START_EVENT) {
        struct bp_arg *arg = add_argument(r, key, mark);
        if (arg)
            read_list(r, arg);
    } else if (!is_null(&event)) {
        const char *text = scalar_text(r, &event);
        struct bp_arg *arg = text ? add_argument(r, key, mark) : NULL;
        if (arg)
            bp_arg_add_value(r->peer, arg, text);
    }
    yaml_event_delete(&event);
}

/* The members of the outermost group and of those within, to the end of the outermost. */
static void read_groups(struct yaml_reader *r)
{
    yaml_event_t event;
    r->depth = 1;
    while (r->depth && next_event(r, &event)) {
        yaml_mark_t mark = event.start_mark;
        const char *key = event.type == YAML_SCALAR_EVENT ? scalar_text(r, &event) : NULL;
        if (event.type == YAML_MAPPING_END_EVENT)
            r->depth--;
        else if (key)
            read_value(r, key, &mark);
        else
            refuse_at(r, &mark, BP_E_wrong_type, "a key must be a name");
        yaml_event_delete(&event);
    }
}

/* The document must be one group, and the only one. */
static void read_document(struct yaml_reader *r)
{
    static const yaml_event_type_t before[] = {YAML_STREAM_START_EVENT, YAML_DOCUMENT_START_EVENT,
                                               YAML_MAPPING_START_EVENT};
    static const yaml_event_type_t after[] = {YAML_DOCUMENT_END_EVENT, YAML_STREAM_END_EVENT};
    yaml_event_t event;
    for (size_t i = 0; i < sizeof before / sizeof *before && next_event(r, &event); i++) {
        if (event.type != before[i])
            refuse_at(r, &event.start_mark, BP_E_wrong_type, "a group of arguments is expected");
        yaml_event_delete(&event);
    }
    if (!r->failed)
        read_groups(r);
    for (size_t i = 0; i < sizeof after / sizeof *after && next_event(r, &event); i++) {
        if (event.type != after[i])
            refuse_at(r, &event.start_mark, BP_E_unsupported_feature, "a second document");
        yaml_event_delete(&event);
    }
}

void bp_args_read_yaml(struct bp_peer *peer, struct bp_peer_text text, struct bp_args *ret)
{
    struct yaml_reader r = {.peer = peer, .args = ret};
    ret->yaml = true;
    if (!yaml_parser_initialize(&r.parser)) {
        peer->out_of_memory = true;
        return;
    }
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text.data, text.len);
    read_document(&r);
    yaml_parser_delete(&r.parser);
}
