/* snapshot, and show --stage: the entities of a stage as tables. */
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "client/client.h"
#include "client/print.h"
#include "common/base/digest.h"

/* The bytes must be those of the digest that was asked for, which may be a prefix with or without "sha256:". */
static bool is_digest_of(const struct bp_buf *bytes, const char *asked)
{
    struct bp_digest digest;
    char text[BP_DIGEST_TEXT];
    bp_digest_of(bytes->data, bytes->len, &digest);
    bp_digest_format(&digest, text);
    const char *hex = strchr(text, ':') + 1;
    return strncasecmp(text, asked, strlen(asked)) == 0 || strncasecmp(hex, asked, strlen(asked)) == 0;
}

enum bp_exit bp_run_snapshot(const struct bp_invocation *invocation)
{
    struct bp_reply answer = {0};
    enum bp_exit status = bp_invocation_call(invocation, NULL, &answer);
    if (status != BP_EXIT_YES)
        return status;
    if (answer.status == 200 && !is_digest_of(&answer.body, invocation->arguments[0])) {
        bp_buf_release(&answer.body);
        return bp_complain(BP_EXIT_REFUSED, "the bytes that came are not those of %s", invocation->arguments[0]);
    }
    return bp_reply_print(invocation, &answer, NULL);
}

static void cell_shape(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    bp_buf_addch(out, '[');
    bp_cell_list(out, row, key);
    bp_buf_addch(out, ']');
}

/* The axis of each split dimension, '-' for one that is not split. */
static void cell_sharding(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    const json_t *axes = json_object_get(row->value, key);
    for (size_t i = 0; i < json_array_size(axes); i++) {
        const json_t *axis = json_array_get(axes, i);
        bp_buf_addstr(out, i ? ", " : "");
        bp_text_add(out, json_is_string(axis) ? json_string_value(axis) : "-");
    }
}

static void cell_work(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    const json_t *work = json_object_get(row->value, "work");
    bp_text_add_value(out, json_object_get(work ? work : json_object_get(row->value, "workload"), key));
}

static void cell_capability(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    const json_t *list = json_object_get(row->value, key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        bp_buf_addstr(out, i ? ", " : "");
        bp_text_add(out, bp_json_text(json_array_get(list, i), "name"));
    }
}

/* "3:rw": the place of the buffer and how the command uses it. */
static void cell_uses(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    static const struct {
        const char *access, *sign;
    } signs[] = {{"read", ":r"}, {"write", ":w"}, {"read_write", ":rw"}};
    const json_t *uses = json_object_get(row->value, key);
    for (size_t i = 0; i < json_array_size(uses); i++) {
        const json_t *use = json_array_get(uses, i);
        bp_buf_addstr(out, i ? " " : "");
        bp_text_add_place(out, row->places, json_object_get(use, "buffer"));
        for (size_t s = 0; s < sizeof signs / sizeof *signs; s++)
            if (strcmp(signs[s].access, bp_json_text(use, "access")) == 0)
                bp_buf_addstr(out, signs[s].sign);
    }
}

static void cell_yes(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    bp_buf_addstr(out, json_is_true(json_object_get(row->value, key)) ? "yes" : "no");
}

static void cell_effects(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    const json_t *effects = json_object_get(row->value, key);
    for (size_t i = 0; i < json_array_size(effects); i++) {
        const json_t *effect = json_array_get(effects, i);
        bp_buf_addstr(out, i ? ", " : "");
        bp_text_add(out, bp_json_text(effect, "access"));
        bp_buf_addch(out, ' ');
        bp_text_add(out, bp_json_text(effect, "state"));
    }
}

static const struct bp_table_column value_columns[] = {
    {"value", NULL, true, bp_cell_index},  {"id", "id", false, bp_cell_short},
    {"block", "block", false, NULL},       {"role", "role", false, NULL},
    {"shape", "shape", false, cell_shape}, {"sharding", "sharding", false, cell_sharding},
    {"dtype", "dtype", false, NULL},
};

static const struct bp_table_column axis_columns[] = {
    {"mesh axis", "name", false, NULL},
    {"size", "size", true, NULL},
};

static const struct bp_table_column block_columns[] = {
    {"block", "name", false, NULL},
    {"layers", "layers", true, NULL},
    BP_MEMORY_COLUMNS,
};

static const struct bp_table_column operation_columns[] = {
    {"operation", "name", false, NULL},
    {"id", "id", false, bp_cell_short},
    {"inputs", "inputs", false, bp_cell_places},
    {"outputs", "outputs", false, bp_cell_places},
};

static const struct bp_table_column model_columns[] = {
    {"of the model", NULL, false, bp_cell_name},
    {"", NULL, true, bp_cell_value},
};

static const struct bp_table_column kind_columns[] = {
    {"of the kind", NULL, false, bp_cell_name},
    {"", NULL, true, bp_cell_value},
};

static const struct bp_table_column run_columns[] = {
    {"layers", "count", true, NULL},
    {"of the kind", "kind", false, NULL},
};

static const struct bp_table_column layer_columns[] = {
    {"row", "name", false, NULL},
    {"block", "block", false, NULL},
    {"parameters", "parameters", true, NULL},
    {"activation bytes", "activation_bytes", true, NULL},
    {"kept", "keeps_activation", false, cell_yes},
    {"own", "owns_activation", false, cell_yes},
    {"output bytes", "output_bytes", true, NULL},
    {"kept", "keeps_output", false, cell_yes},
};

static const struct bp_table_column task_columns[] = {
    {"task", NULL, true, bp_cell_index},
    {"id", "id", false, bp_cell_short},
    {"block", "block", false, NULL},
    {"name", "name", false, NULL},
    {"engine", "engine", false, NULL},
    {"operations", "operations", true, cell_work},
    {"read bytes", "read_bytes", true, cell_work},
    {"write bytes", "write_bytes", true, cell_work},
    {"message bytes", "message_bytes", true, cell_work},
    {"capability", "capabilities", false, cell_capability},
    {"effect", "effects", false, cell_effects},
    {"after", "dependencies", false, bp_cell_places},
};

static const struct bp_table_column buffer_columns[] = {
    {"buffer", NULL, true, bp_cell_index},
    {"id", "id", false, bp_cell_short},
    {"block", "block", false, NULL},
    {"role", "role", false, NULL},
    {"storage", "storage", false, NULL},
    {"source", "source", false, bp_cell_short},
    {"region", "region", true, bp_cell_place},
    {"offset bytes", "offset_bytes", true, NULL},
    {"size bytes", "size_bytes", true, NULL},
    {"alignment", "alignment_bytes", true, NULL},
    {"written by", "producers", true, bp_cell_count},
    {"read by", "consumers", true, bp_cell_count},
};

static const struct bp_table_column region_columns[] = {
    {"region", NULL, true, bp_cell_index},
    {"id", "id", false, bp_cell_short},
    {"device", "device", true, NULL},
    {"capacity bytes", "capacity_bytes", true, NULL},
};

static const struct bp_table_column command_columns[] = {
    {"command", NULL, true, bp_cell_index},   {"id", "id", false, bp_cell_short},
    {"task", "task", false, bp_cell_short},   {"kind", "kind", false, NULL},
    {"queue", "queue", false, NULL},          {"implementation", "implementation", false, NULL},
    {"buffers", "buffers", false, cell_uses}, {"after", "dependencies", false, bp_cell_places},
};

static const struct bp_table_column queue_columns[] = {
    {"queue", "queue", false, NULL},
    {"commands in issue order", "commands", false, bp_cell_places},
};

static const struct bp_table_column issue_columns[] = {
    {"issue of command", "command", true, bp_cell_place},
    {"cycle", "cycle", true, NULL},
    {"slot", "slot", true, NULL},
};

static const struct bp_table_column route_columns[] = {
    {"route of command", "command", true, bp_cell_place},
    {"from", "source", true, NULL},
    {"to", "destination", true, NULL},
    {"channel", "channel", true, NULL},
};

/* The arrays of all stages, in the order in which they print. A stage has some of them. `within` is the member that
 * holds the array, NULL when the snapshot itself does. */
static const struct {
    const char *within, *key;
    const struct bp_table_column *columns;
    size_t n;
} tables[] = {
#define TABLE(within, key, columns)                                                                                    \
    {                                                                                                                  \
        within, key, columns, sizeof(columns) / sizeof *(columns)                                                      \
    }
    TABLE("mesh", "axes", axis_columns),          TABLE(NULL, "blocks", block_columns),
    TABLE(NULL, "operations", operation_columns), TABLE(NULL, "values", value_columns),
    TABLE(NULL, "layers", layer_columns),         TABLE(NULL, "tasks", task_columns),
    TABLE(NULL, "regions", region_columns),       TABLE(NULL, "buffers", buffer_columns),
    TABLE(NULL, "commands", command_columns),     TABLE("extension", "queues", queue_columns),
    TABLE("extension", "issue", issue_columns),   TABLE("extension", "routes", route_columns),
#undef TABLE
};

static const struct bp_table_column memory_columns[] = {
    {"memory", NULL, false, bp_cell_name},
    {"bytes", NULL, true, bp_cell_value},
    {"GiB", NULL, true, bp_cell_gib},
};

static void print_head(struct bp_buf *out, const json_t *snapshot)
{
    static const char *const keys[] = {"stage",    "schema",      "mode",        "workload", "strategy",
                                       "bindings", "assumptions", "conventions", "target",   "deployment"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        bp_print_field(out, keys[i], json_object_get(snapshot, keys[i]));
    const json_t *parents = json_object_get(snapshot, "parents");
    for (size_t i = 0; i < json_array_size(parents); i++)
        bp_print_field(out, "derived from", json_array_get(parents, i));
}

/* What the blocks of a model of several kinds have, a table a kind, and the runs of layers. */
static void print_kinds(struct bp_buf *out, const json_t *model)
{
    const json_t *kinds = json_object_get(model, "kinds");
    for (size_t i = 0; i < json_array_size(kinds); i++) {
        bp_buf_addch(out, '\n');
        BP_PRINT_TABLE(out, json_array_get(kinds, i), kind_columns);
    }
    if (json_array_size(json_object_get(model, "layers"))) {
        bp_buf_addch(out, '\n');
        BP_PRINT_TABLE(out, json_object_get(model, "layers"), run_columns);
    }
}

/* The model form. Its kinds are tables of their own: a cell as wide as one would push all others out of sight. */
static void print_model(struct bp_buf *out, const json_t *model)
{
    json_t *around = json_copy((json_t *)(uintptr_t)model);
    if (!around) {
        out->failed = true;
        return;
    }
    json_object_del(around, "kinds");
    json_object_del(around, "layers");
    bp_buf_addch(out, '\n');
    BP_PRINT_TABLE(out, around, model_columns);
    json_decref(around);
    print_kinds(out, model);
}

enum bp_exit bp_print_snapshot(struct bp_buf *out, const json_t *answer)
{
    print_head(out, answer);
    json_t *places = bp_places_of(answer);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const json_t *holder = tables[i].within ? json_object_get(answer, tables[i].within) : answer;
        const json_t *rows = json_object_get(holder, tables[i].key);
        if (json_array_size(rows) == 0)
            continue;
        bp_buf_addch(out, '\n');
        bp_print_table(out, rows, places, tables[i].columns, tables[i].n);
    }
    json_decref(places);
    const json_t *model = json_object_get(json_array_get(json_object_get(answer, "operations"), 0), "model");
    if (json_object_size(model))
        print_model(out, model);
    const json_t *memory = json_object_get(answer, "memory");
    if (json_object_size(memory)) {
        bp_buf_addch(out, '\n');
        BP_PRINT_TABLE(out, memory, memory_columns);
    }
    return BP_EXIT_YES;
}
