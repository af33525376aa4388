/* fit, capacity: what each pipeline stage of a whole job holds, and whether that fits. */
#include <string.h>
#include <unistd.h>

#include "client/client.h"
#include "client/print.h"
#include "common/base/u128.h"

/* A unit of memory in text: thousandths of it are shown. */
struct unit {
    const char *name;
    uint64_t bytes;
};
static const struct unit gib = {"GiB", UINT64_C(1) << 30}, gb = {"GB", UINT64_C(1000000000)};

/* A byte count in the unit, rounded half up; nothing when it is none. */
static void add_bytes(struct bp_buf *out, const json_t *value, const struct unit *unit)
{
    json_int_t signed_bytes = json_integer_value(value);
    if (!json_is_integer(value) || signed_bytes < 0)
        return;
    uint64_t bytes = (uint64_t)signed_bytes;
    uint64_t whole = bytes / unit->bytes, rest = bytes % unit->bytes;
    uint64_t thousandths = (rest * 1000 + unit->bytes / 2) / unit->bytes;
    bp_buf_addf(out, "%llu.%03llu", (unsigned long long)(whole + thousandths / 1000),
                (unsigned long long)(thousandths % 1000));
}

/* A member of a row of a table; the row takes the value over. */
static void set(struct bp_buf *out, json_t *row, const char *key, json_t *value)
{
    out->failed |= json_object_set_new(row, key, value) < 0;
}

static json_t *bytes_cell(const json_t *value, const struct unit *unit)
{
    struct bp_buf text = {0};
    add_bytes(&text, value, unit);
    json_t *cell = json_string(bp_buf_string(&text));
    bp_buf_release(&text);
    return cell;
}

static void add_size(struct bp_buf *out, const json_t *value, const struct unit *unit)
{
    add_bytes(out, value, unit);
    bp_buf_addf(out, " %s", unit->name);
}

/* ---- The head: the model, and how it was counted ---- */

static void add_list(struct bp_buf *out, const char *label, const json_t *answer, const char *key)
{
    const struct bp_table_row row = {0, "", answer, NULL};
    if (json_array_size(json_object_get(answer, key)) == 0)
        return;
    bp_buf_addf(out, "%-12s ", label);
    bp_cell_list(out, &row, key);
    bp_buf_addch(out, '\n');
}

static void print_conventions(struct bp_buf *out, const json_t *conventions)
{
    const char *name;
    json_t *value;
    bool first = true;
    bp_buf_addf(out, "%-12s ", "counted");
    json_object_foreach((json_t *)(uintptr_t)conventions, name, value) {
        bp_buf_addstr(out, first ? "" : ", ");
        bp_text_add(out, name);
        bp_buf_addch(out, ' ');
        bp_text_add_value(out, value);
        first = false;
    }
    bp_buf_addch(out, '\n');
}

static void print_head(struct bp_buf *out, const json_t *answer)
{
    const json_t *parameters = json_object_get(answer, "parameters"), *operations;
    bp_print_field(out, "plan", json_object_get(answer, "plan"));
    bp_print_field(out, "parameters", json_object_get(parameters, "total"));
    if (strcmp(bp_json_text(parameters, "active"), bp_json_text(parameters, "total")) != 0)
        bp_print_field(out, "active", json_object_get(parameters, "active"));
    bp_print_field(out, "KV a token", json_object_get(answer, "kv_bytes_per_token"));
    operations = json_object_get(json_object_get(answer, "operations"), "per_step");
    const char *which = bp_json_text(json_object_get(answer, "conventions"), "operations");
    bp_print_field(out, "operations", json_object_get(operations, which));
    print_conventions(out, json_object_get(answer, "conventions"));
    add_list(out, "assuming", answer, "assumptions");
}

/* ---- The stages ---- */

/* Every component there is, so that a line has a fixed order; those that no stage has are left out. */
static const struct bp_table_column stage_columns[] = {
    {"stage", "stage", false, NULL},
    {"blocks", "blocks", false, NULL},
    {"kinds", "kinds", false, NULL},
    {"in flight", "in_flight", true, NULL},
    {"weights", "weights", true, NULL},
    {"gradients", "gradients", true, NULL},
    {"optimizer", "optimizer", true, NULL},
    {"stored", "stored_activations", true, NULL},
    {"checkpoints", "activation_checkpoints", true, NULL},
    {"embedding", "embedding_activations", true, NULL},
    {"head", "head_activations", true, NULL},
    {"transient", "transient", true, NULL},
    {"KV cache", "kv_cache", true, NULL},
    {"workspace", "workspace", true, NULL},
    {"boundary", "boundary", true, NULL},
    {"logits", "logits", true, NULL},
    {"total", "total", true, NULL},
};

static void add_blocks(struct bp_buf *out, const json_t *runs)
{
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        bp_buf_addstr(out, i ? "," : "");
        bp_text_add_value(out, json_array_get(run, 0));
        bp_buf_addch(out, '-');
        bp_text_add_value(out, json_array_get(run, 1));
    }
}

static void add_kinds(struct bp_buf *out, const json_t *kinds)
{
    const char *name;
    json_t *count;
    bool first = true;
    json_object_foreach((json_t *)(uintptr_t)kinds, name, count) {
        if (json_integer_value(count) == 0)
            continue;
        bp_buf_addstr(out, first ? "" : " ");
        bp_text_add_value(out, count);
        bp_buf_addch(out, ' ');
        bp_text_add(out, name);
        first = false;
    }
}

/* A string of what `add` writes of a value. */
static json_t *text_cell(void (*add)(struct bp_buf *out, const json_t *value), const json_t *value)
{
    struct bp_buf text = {0};
    add(&text, value);
    json_t *cell = json_string(bp_buf_string(&text));
    bp_buf_release(&text);
    return cell;
}

static bool has_any(const json_t *stages, const char *component)
{
    for (size_t i = 0; i < json_array_size(stages); i++)
        if (json_integer_value(json_object_get(json_object_get(json_array_get(stages, i), "components"), component)) >
            0)
            return true;
    return false;
}

static json_t *stage_row(struct bp_buf *out, const json_t *stages, const json_t *stage, bool binding,
                         const struct unit *unit)
{
    const char *name;
    json_t *bytes, *row = json_object();
    struct bp_buf label = {0};
    bp_text_add_value(&label, json_object_get(stage, "stage"));
    bp_buf_addstr(&label, binding ? " *" : "");
    set(out, row, "stage", json_string(bp_buf_string(&label)));
    bp_buf_release(&label);
    set(out, row, "blocks", text_cell(add_blocks, json_object_get(stage, "blocks")));
    set(out, row, "kinds", text_cell(add_kinds, json_object_get(stage, "kinds")));
    set(out, row, "in_flight", json_incref(json_object_get(stage, "in_flight")));
    json_object_foreach(json_object_get(stage, "components"), name, bytes) {
        if (has_any(stages, name))
            set(out, row, name, bytes_cell(bytes, unit));
    }
    set(out, row, "total", bytes_cell(json_object_get(stage, "total"), unit));
    return row;
}

static void print_stages(struct bp_buf *out, const json_t *answer, const struct unit *unit)
{
    const json_t *stages = json_object_get(answer, "stages");
    size_t binding = (size_t)json_integer_value(json_object_get(answer, "binding_stage"));
    json_t *rows = json_array();
    bp_buf_addf(out, "\n%s by pipeline stage (* holds the most)\n", unit->name);
    for (size_t i = 0; i < json_array_size(stages); i++)
        out->failed |=
            json_array_append_new(rows, stage_row(out, stages, json_array_get(stages, i), i == binding, unit)) < 0;
    BP_PRINT_TABLE(out, rows, stage_columns);
    json_decref(rows);
}

/* ---- The binding stage ---- */

static const struct bp_table_column holding_columns[] = {
    {"", "name", false, NULL},      {"size", "size", true, NULL}, {"%", "share", true, NULL},
    {"short", "short", true, NULL}, {"", "bar", false, NULL},
};

/* A share of the whole in tenths of a per cent, rounded half up. */
static uint64_t permille(uint64_t bytes, uint64_t whole)
{
    return whole ? (uint64_t)(((bp_u128)bytes * 1000 + whole / 2) / whole) : 0;
}

/* `missing` of the bytes have no room; NULL: nothing is said of that. */
static void add_holding(struct bp_buf *out, json_t *rows, const char *name, const json_t *bytes, json_t *missing,
                        uint64_t whole, bool bar, const struct unit *unit)
{
    enum { BAR = 40 };
    uint64_t share = permille((uint64_t)json_integer_value(bytes), whole);
    struct bp_buf per_cent = {0}, line = {0};
    bp_buf_addf(&per_cent, "%llu.%llu", (unsigned long long)(share / 10), (unsigned long long)(share % 10));
    for (uint64_t i = 0; bar && i < share * BAR / 1000 && i < BAR; i++)
        bp_buf_addch(&line, '#');
    json_t *row = json_object();
    set(out, row, "name", json_string(name));
    set(out, row, "size", bytes_cell(bytes, unit));
    set(out, row, "share", json_string(bp_buf_string(&per_cent)));
    if (json_integer_value(missing) > 0)
        set(out, row, "short", bytes_cell(missing, unit));
    set(out, row, "bar", json_string(bp_buf_string(&line)));
    out->failed |= json_array_append_new(rows, row) < 0;
    bp_buf_release(&per_cent);
    bp_buf_release(&line);
}

/* A bar is drawn where somebody looks. The shortfall is told by what no longer has room when the components are laid on
 * each other in the order listed. */
static void print_binding(struct bp_buf *out, const json_t *answer, const struct unit *unit)
{
    const json_t *binding = json_object_get(answer, "binding_stage"), *total = json_object_get(answer, "total");
    const json_t *stage = json_array_get(json_object_get(answer, "stages"), (size_t)json_integer_value(binding));
    uint64_t whole = (uint64_t)json_integer_value(total);
    bool bar = isatty(STDOUT_FILENO) == 1;
    json_t *shortfall = json_object_get(answer, "shortfall");
    json_int_t room = json_integer_value(total) - json_integer_value(shortfall);
    const char *name;
    json_t *bytes, *rows = json_array();
    bp_buf_addstr(out, "\nstage ");
    bp_text_add_value(out, binding);
    bp_buf_addf(out, " by component, %s\n", unit->name);
    json_object_foreach(json_object_get(stage, "components"), name, bytes) {
        json_int_t size = json_integer_value(bytes);
        if (size <= 0)
            continue;
        json_t *missing = json_integer(size > room ? size - room : 0);
        add_holding(out, rows, name, bytes, missing, whole, bar, unit);
        json_decref(missing);
        room = room > size ? room - size : 0;
    }
    add_holding(out, rows, "total", total, shortfall, whole, false, unit);
    BP_PRINT_TABLE(out, rows, holding_columns);
    json_decref(rows);
}

/* ---- The verdict ---- */

static void add_value_or_none(struct bp_buf *out, const json_t *value)
{
    if (json_is_null(value))
        bp_buf_addstr(out, "none");
    bp_text_add_value(out, value);
}

static void print_suggestion(struct bp_buf *out, const json_t *suggestion, const struct unit *unit)
{
    const json_t *changes = json_object_get(suggestion, "changes");
    bp_buf_addstr(out, "  ");
    for (size_t i = 0; i < json_array_size(changes); i++) {
        const json_t *change = json_array_get(changes, i);
        const char *path = bp_json_text(change, "path"), *key = strrchr(path, '/');
        bp_buf_addstr(out, i ? ", " : "");
        bp_text_add(out, key ? key + 1 : path);
        bp_buf_addch(out, ' ');
        add_value_or_none(out, json_object_get(change, "from"));
        bp_buf_addstr(out, " -> ");
        add_value_or_none(out, json_object_get(change, "to"));
    }
    bp_buf_addstr(out, ": ");
    add_size(out, json_object_get(suggestion, "total"), unit);
    bp_buf_addstr(out, ", ");
    add_size(out, json_object_get(suggestion, "headroom"), unit);
    bp_buf_addstr(out, " to spare\n");
}

static void print_strategy(struct bp_buf *out, const json_t *strategy)
{
    const char *key, *between = "  ";
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)strategy, key, value) {
        bp_buf_addstr(out, between);
        bp_text_add(out, key);
        bp_buf_addch(out, ' ');
        bp_text_add_value(out, value);
        between = ", ";
    }
    bp_buf_addstr(out, json_object_size(strategy) ? "\n" : "");
}

static void print_suggestions(struct bp_buf *out, const json_t *answer, const struct unit *unit)
{
    const json_t *suggestions = json_object_get(answer, "suggestions");
    json_int_t fewest = json_integer_value(json_object_get(answer, "fewest_devices"));
    bp_buf_addstr(out, json_array_size(suggestions) ? "\nwith one of these changes it fits on as many devices\n"
                                                    : "\nno change was found with which it fits on as many devices\n");
    for (size_t i = 0; i < json_array_size(suggestions); i++)
        print_suggestion(out, json_array_get(suggestions, i), unit);
    if (fewest > 0) {
        bp_buf_addf(out, "\nfewest devices on which it fits: %lld\n", (long long)fewest);
        print_strategy(out, json_object_get(answer, "fewest_strategy"));
    }
}

static enum bp_exit print_verdict(struct bp_buf *out, const json_t *answer, const struct unit *unit)
{
    const json_t *reserved = json_object_get(answer, "fits"), *bare = json_object_get(answer, "fits_before_reserve");
    const json_t *fits = reserved ? reserved : bare;
    if (!json_is_boolean(fits))
        return BP_EXIT_YES;
    bool yes = json_is_true(fits);
    bp_buf_addf(out, "\n%s%s: ", yes ? "it fits" : "it does not fit", bare ? ", before any reserve" : "");
    add_size(out, json_object_get(answer, yes ? "headroom" : "shortfall"), unit);
    bp_buf_addf(out, yes ? " to spare in " : " short of ");
    add_size(out, json_object_get(answer, "memory_bytes"), unit);
    if (json_integer_value(json_object_get(answer, "utilization_permille")) < 1000) {
        bp_buf_addstr(out, ", of which ");
        bp_text_add_value(out, json_object_get(answer, "utilization_permille"));
        bp_buf_addstr(out, " per mille are used");
    }
    if (json_integer_value(json_object_get(answer, "reserve_bytes")) > 0) {
        bp_buf_addstr(out, ", reserve ");
        add_size(out, json_object_get(answer, "reserve_bytes"), unit);
    }
    bp_buf_addch(out, '\n');
    bp_print_field(out, "KV tokens", json_object_get(answer, "kv_tokens_that_fit"));
    bp_print_field(out, "max batch", json_object_get(answer, "max_batch"));
    if (!yes)
        print_suggestions(out, answer, unit);
    return yes ? BP_EXIT_YES : BP_EXIT_NO;
}

static void print_excluded(struct bp_buf *out, const json_t *answer)
{
    const struct bp_table_row row = {0, "", answer, NULL};
    struct bp_buf list = {0};
    bp_cell_list(&list, &row, "excluded");
    bp_buf_addstr(out, "\nnot counted\n");
    bp_text_add_lines(out, bp_buf_string(&list), 2);
    out->failed |= list.failed;
    bp_buf_release(&list);
}

static enum bp_exit print_in(struct bp_buf *out, const json_t *answer, const struct unit *unit)
{
    print_head(out, answer);
    print_stages(out, answer, unit);
    print_binding(out, answer, unit);
    print_excluded(out, answer);
    return print_verdict(out, answer, unit);
}

enum bp_exit bp_print_capacity(struct bp_buf *out, const json_t *answer)
{
    return print_in(out, answer, &gib);
}

static enum bp_exit print_in_gb(struct bp_buf *out, const json_t *answer)
{
    return print_in(out, answer, &gb);
}

/* ---- Commands ---- */

/* The same call, printed in the unit asked for; the unit is no parameter of the query. Complains. */
static enum bp_exit choose_unit(const struct bp_invocation *invocation, struct bp_invocation *ret,
                                struct bp_command *ret_command)
{
    const char *name = bp_invocation_option(invocation, "unit");
    if (name && strcmp(name, gib.name) != 0 && strcmp(name, gb.name) != 0)
        return bp_complain(BP_EXIT_USAGE, "no unit is called %s: GiB or GB", name);
    *ret = *invocation;
    *ret_command = *invocation->command;
    if (name && strcmp(name, gb.name) == 0)
        ret_command->print = print_in_gb;
    ret->command = ret_command;
    ret->n_options = 0;
    return BP_EXIT_YES;
}

enum bp_exit bp_run_fit(const struct bp_invocation *invocation)
{
    struct bp_invocation call;
    struct bp_command command;
    enum bp_exit status = choose_unit(invocation, &call, &command);
    return status != BP_EXIT_YES ? status : bp_run_request(invocation, &call, BP_PEER_FIT);
}

enum bp_exit bp_run_capacity(const struct bp_invocation *invocation)
{
    struct bp_invocation call;
    struct bp_command command;
    enum bp_exit status = choose_unit(invocation, &call, &command);
    return status != BP_EXIT_YES ? status : bp_run_call(&call);
}
