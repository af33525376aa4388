/* plan, list, show: a plan as a page of text, plans as lines. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "client/print.h"
#include "common/ir/ir.h"

/* A request longer than this is not sent: the daemon's own limit is far below. */
#define REQUEST_MAX (64UL * 1024 * 1024)

/* All of a file, or of standard input. Complains. */
static enum bp_exit read_request(FILE *file, const char *name, struct bp_buf *ret)
{
    size_t n = 1;
    while (n && !ferror(file) && ret->len <= REQUEST_MAX) {
        if (!bp_buf_reserve(ret, 65536))
            return bp_complain(BP_EXIT_LOCAL, "out of memory");
        n = fread(ret->data + ret->len, 1, 65536, file);
        ret->len += n;
    }
    if (ferror(file))
        return bp_complain(BP_EXIT_USAGE, "cannot read %s: %s", name, strerror(errno));
    if (ret->len > REQUEST_MAX)
        return bp_complain(BP_EXIT_USAGE, "%s is larger than %lu bytes", name, REQUEST_MAX);
    return BP_EXIT_YES;
}

enum bp_exit bp_file_read(const char *path, struct bp_buf *ret, const char **ret_name)
{
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(path, "rb");
    if (!file)
        return bp_complain(BP_EXIT_USAGE, "cannot read %s: %s", path, strerror(errno));
    *ret_name = is_stdin ? "<stdin>" : path;
    enum bp_exit status = read_request(file, *ret_name, ret);
    if (!is_stdin)
        fclose(file);
    return status;
}

enum bp_exit bp_run_request(const struct bp_invocation *invocation, const struct bp_invocation *call,
                            enum bp_peer_form form)
{
    const char *name;
    struct bp_buf body = {0};
    enum bp_exit status = bp_request_of_files(invocation, form, &body, &name);
    struct bp_reply answer = {0};
    if (status == BP_EXIT_YES)
        status = bp_invocation_call(call, &body, &answer);
    bp_buf_release(&body);
    return status != BP_EXIT_YES ? status : bp_reply_print(call, &answer, name);
}

enum bp_exit bp_run_plan(const struct bp_invocation *invocation)
{
    struct bp_invocation call = *invocation;
    call.n_options = 0; /* they say how the request is made */
    return bp_run_request(invocation, &call, BP_PEER_PLAN);
}

/* The digest of one stage of a plan into `ret`. Complains. */
static enum bp_exit stage_digest(const struct bp_reply *answer, const char *stage, struct bp_buf *ret)
{
    json_t *plan;
    enum bp_exit status = bp_reply_parse(answer, &plan);
    const json_t *snapshots = json_object_get(plan, "snapshots");
    for (size_t i = 0; i < json_array_size(snapshots) && !ret->len; i++) {
        const json_t *snapshot = json_array_get(snapshots, i);
        if (strcmp(bp_json_text(snapshot, "stage"), stage) == 0)
            bp_buf_addstr(ret, bp_json_text(snapshot, "digest"));
    }
    json_decref(plan);
    if (status == BP_EXIT_YES && ret->failed)
        status = bp_complain(BP_EXIT_LOCAL, "out of memory");
    if (status == BP_EXIT_YES && !ret->len)
        status = bp_complain(BP_EXIT_NO, "the plan has no %s snapshot", stage);
    return status;
}

enum bp_exit bp_run_show(const struct bp_invocation *invocation)
{
    const char *stage = bp_invocation_option(invocation, "stage");
    if (!stage)
        return bp_run_call(invocation);
    size_t known = 0;
    while (bp_stage_names[known] && strcmp(bp_stage_names[known], stage) != 0)
        known++;
    if (!bp_stage_names[known])
        return bp_complain(BP_EXIT_USAGE, "no stage is called %s: model, distributed, portable or concrete", stage);
    struct bp_invocation plan = *invocation;
    plan.n_options = 0;
    struct bp_reply answer = {0};
    enum bp_exit status = bp_invocation_call(&plan, NULL, &answer);
    if (status != BP_EXIT_YES)
        return status;
    if (answer.status != 200)
        return bp_reply_print(&plan, &answer, NULL);
    struct bp_buf digest = {0};
    status = stage_digest(&answer, stage, &digest);
    bp_buf_release(&answer.body);
    struct bp_invocation snapshot = {.command = bp_command_find(NULL, "snapshot"),
                                     .server = invocation->server,
                                     .json = invocation->json,
                                     .arguments = {bp_buf_string(&digest)},
                                     .n_arguments = 1};
    if (status == BP_EXIT_YES)
        status = bp_run_snapshot(&snapshot);
    bp_buf_release(&digest);
    return status;
}

static const struct bp_table_column snapshot_columns[] = {
    {"stage", "stage", false, NULL},
    {"digest", "digest", false, NULL},
    {"bytes", "bytes", true, NULL},
};

static const struct bp_table_column work_columns[] = {
    {"", NULL, false, bp_cell_name},
    {"tasks", "tasks", true, NULL},
    {"operations", "operations", true, NULL},
    {"read bytes", "read_bytes", true, NULL},
    {"write bytes", "write_bytes", true, NULL},
    {"message bytes", "message_bytes", true, NULL},
};

static const struct bp_table_column memory_columns[] = {
    {"memory", NULL, false, bp_cell_name},
    {"bytes", NULL, true, bp_cell_value},
    {"GiB", NULL, true, bp_cell_gib},
};

static const struct bp_table_column block_columns[] = {
    {"bytes of one", NULL, false, bp_cell_name},
    {"of layers", "layers", true, NULL},
    BP_MEMORY_COLUMNS,
};

static const struct bp_table_column diagnostic_columns[] = {
    {"code", "code", false, NULL},
    {"path", "path", false, NULL},
    {"message", "message", false, NULL},
};

static void count_verdict(const json_t *evidence, size_t *ret_held, uint64_t *ret_compared)
{
    for (size_t i = 0; i < json_array_size(evidence); i++) {
        const json_t *record = json_array_get(evidence, i);
        *ret_held += strcmp(bp_json_text(record, "verdict"), "holds") == 0;
        *ret_compared += (uint64_t)json_integer_value(json_object_get(record, "compared"));
    }
}

static void cell_pass(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    bp_text_add(out, bp_json_text(row->value, key));
    bp_buf_addstr(out, ", revision ");
    bp_text_add_value(out, json_object_get(row->value, "revision"));
}

static void cell_held(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    const json_t *evidence = json_object_get(row->value, key);
    size_t held = 0;
    uint64_t compared = 0;
    count_verdict(evidence, &held, &compared);
    bp_buf_addf(out, "%zu of %zu", held, json_array_size(evidence));
}

static void cell_compared(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    size_t held = 0;
    uint64_t compared = 0;
    count_verdict(json_object_get(row->value, key), &held, &compared);
    bp_buf_addu(out, compared);
}

static const struct bp_table_column derivation_columns[] = {
    {"pass", "pass", false, cell_pass},
    {"checks held", "evidence", true, cell_held},
    {"compared", "evidence", true, cell_compared},
};

/* Adds the members of a group ("forward" of by_phase as "phase forward") to the rows. */
static bool add_group(json_t *rows, const char *label, const json_t *group)
{
    const char *name;
    json_t *value;
    bool added = true;
    json_object_foreach((json_t *)(uintptr_t)group, name, value) {
        struct bp_buf key = {0};
        bp_buf_addf(&key, "%s %s", label, name);
        added = added && json_object_set(rows, bp_buf_string(&key), value) == 0 && !key.failed;
        bp_buf_release(&key);
    }
    return added;
}

/* Phases, engines and the whole block in one table, so that they align. */
static void print_work(struct bp_buf *out, const json_t *facts)
{
    json_t *rows = json_object();
    if (!rows || !add_group(rows, "phase", json_object_get(facts, "by_phase")) ||
        !add_group(rows, "engine", json_object_get(facts, "by_engine")) ||
        !add_group(rows, "block", json_object_get(facts, "by_block")) ||
        json_object_set(rows, "all", (json_t *)(uintptr_t)facts) < 0)
        out->failed = true;
    BP_PRINT_TABLE(out, rows, work_columns);
    json_decref(rows);
}

/* "label  a, b, c", on as many lines as it takes. */
static void print_list(struct bp_buf *out, const char *label, const json_t *list)
{
    enum { INDENT = 13, WIDTH = 100 };
    size_t column = INDENT;
    for (size_t i = 0; i < json_array_size(list); i++) {
        size_t before = out->len;
        if (i == 0)
            bp_buf_addf(out, "%-*s", INDENT, label);
        else
            bp_buf_addstr(out, column > WIDTH ? "," : ", ");
        if (column > WIDTH) {
            bp_buf_addf(out, "\n%*s", INDENT, "");
            column = INDENT;
            before = out->len;
        }
        bp_text_add_value(out, json_array_get(list, i));
        column += out->len - before;
    }
    if (json_array_size(list))
        bp_buf_addch(out, '\n');
}

static void print_model(struct bp_buf *out, const json_t *model)
{
    bp_print_field(out, "model", json_object_get(model, "name"));
    bp_print_field(out, "family", json_object_get(model, "family"));
    bp_print_field(out, "parameters", json_object_get(model, "parameters"));
    print_list(out, "assumed", json_object_get(model, "assumed"));
    print_list(out, "ignored", json_object_get(model, "ignored"));
}

static void print_facts(struct bp_buf *out, const json_t *facts)
{
    bp_buf_addch(out, '\n');
    bp_print_field(out, "facts of", json_object_get(facts, "scope"));
    print_work(out, facts);
    bp_buf_addch(out, '\n');
    BP_PRINT_TABLE(out, json_object_get(facts, "memory"), memory_columns);
    if (json_object_get(facts, "by_block")) {
        bp_buf_addch(out, '\n');
        BP_PRINT_TABLE(out, json_object_get(facts, "by_block"), block_columns);
    }
}

enum bp_exit bp_print_plan(struct bp_buf *out, const json_t *answer)
{
    bp_print_field(out, "plan", json_object_get(answer, "id"));
    bp_print_field(out, "state", json_object_get(answer, "state"));
    bp_print_field(out, "mode", json_object_get(answer, "mode"));
    bp_print_field(out, "created", json_object_get(answer, "created_at"));
    bp_print_field(out, "committed", json_object_get(answer, "committed_at"));
    print_model(out, json_object_get(answer, "model"));
    const struct {
        const char *key;
        const struct bp_table_column *columns;
        size_t n;
    } tables[] = {
        {"diagnostics", diagnostic_columns, sizeof diagnostic_columns / sizeof *diagnostic_columns},
        {"snapshots", snapshot_columns, sizeof snapshot_columns / sizeof *snapshot_columns},
        {"derivations", derivation_columns, sizeof derivation_columns / sizeof *derivation_columns},
    };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const json_t *rows = json_object_get(answer, tables[i].key);
        if (json_array_size(rows) == 0)
            continue;
        bp_buf_addch(out, '\n');
        bp_print_table(out, rows, NULL, tables[i].columns, tables[i].n);
    }
    if (json_object_get(answer, "facts"))
        print_facts(out, json_object_get(answer, "facts"));
    return BP_EXIT_YES;
}

static void cell_model(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    bp_text_add_value(out, json_object_get(json_object_get(row->value, "model"), key));
}

static const struct bp_table_column plan_columns[] = {
    {"plan", "id", false, bp_cell_short},   {"state", "state", false, NULL},
    {"created", "created_at", false, NULL}, {"mode", "mode", false, NULL},
    {"model", "name", false, cell_model},   {"parameters", "parameters", true, cell_model},
};

enum bp_exit bp_print_plans(struct bp_buf *out, const json_t *answer)
{
    const json_t *plans = json_object_get(answer, "plans"), *next = json_object_get(answer, "next");
    if (json_array_size(plans) == 0)
        bp_buf_addstr(out, "no plans\n");
    BP_PRINT_TABLE(out, plans, plan_columns);
    if (json_is_string(next)) {
        bp_buf_addstr(out, "more: --cursor ");
        bp_text_add_value(out, next);
        bp_buf_addch(out, '\n');
    }
    return BP_EXIT_YES;
}
