/* lineage, trace, replay, diff: what a plan rests on, and how two differ. */
#include <string.h>

#include "client/client.h"
#include "client/print.h"

static const struct bp_table_column node_columns[] = {
    {"stage", "stage", false, NULL},
    {"snapshot", "digest", false, NULL},
};

static const struct bp_table_column edge_columns[] = {
    {"source", "source", false, bp_cell_short},
    {"pass", "pass", false, NULL},
    {"revision", "revision", true, NULL},
    {"target", "target", false, bp_cell_short},
};

enum bp_exit bp_print_lineage(struct bp_buf *out, const json_t *answer)
{
    const json_t *edges = json_object_get(answer, "edges"), *next = json_object_get(answer, "next");
    BP_PRINT_TABLE(out, json_object_get(answer, "nodes"), node_columns);
    if (json_array_size(edges))
        bp_buf_addch(out, '\n');
    BP_PRINT_TABLE(out, edges, edge_columns);
    if (json_is_string(next)) {
        bp_buf_addstr(out, "more: --cursor ");
        bp_text_add_value(out, next);
        bp_buf_addch(out, '\n');
    }
    return BP_EXIT_YES;
}

enum bp_exit bp_print_trace(struct bp_buf *out, const json_t *answer)
{
    const json_t *chain = json_object_get(answer, "chain");
    for (size_t i = 0; i < json_array_size(chain); i++) {
        const json_t *link = json_array_get(chain, i);
        bp_buf_addf(out, "%s", i ? "  <- " : "");
        bp_text_add(out, bp_json_text(link, "stage"));
        bp_buf_addstr(out, ": ");
        bp_text_add(out, bp_json_text(link, "name"));
        bp_buf_addstr(out, "\n     ");
        bp_text_add(out, bp_json_text(link, "entity"));
        bp_buf_addstr(out, "\n     in ");
        bp_text_add(out, bp_json_text(link, "digest"));
        if (bp_json_text(link, "rule")[0]) {
            bp_buf_addstr(out, "\n     by ");
            bp_text_add(out, bp_json_text(link, "rule"));
        }
        bp_buf_addch(out, '\n');
    }
    return BP_EXIT_YES;
}

static void print_stage_verdict(struct bp_buf *out, const json_t *stage)
{
    bool identical = json_is_true(json_object_get(stage, "identical"));
    struct bp_buf name = {0};
    bp_text_add(&name, bp_json_text(stage, "stage"));
    bp_buf_addf(out, "%-12s %s", bp_buf_string(&name), identical ? "identical" : "divergent");
    out->failed |= name.failed;
    bp_buf_release(&name);
    if (bp_json_text(stage, "pass")[0]) {
        bp_buf_addstr(out, "  ");
        bp_text_add(out, bp_json_text(stage, "pass"));
        bp_buf_addstr(out, ", revision ");
        bp_text_add_value(out, json_object_get(stage, "revision"));
        const json_t *current = json_object_get(stage, "current_revision");
        if (current && !json_equal(current, json_object_get(stage, "revision"))) {
            bp_buf_addstr(out, ", now ");
            bp_text_add_value(out, current);
        }
    }
    bp_buf_addch(out, '\n');
    if (identical)
        return;
    static const char *const keys[][2] = {{"  expected", "expected"},
                                          {"  actual", "actual"},
                                          {"  differs at", "first_difference"},
                                          {"  because", "code"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        bp_print_field(out, keys[i][0], json_object_get(stage, keys[i][1]));
}

enum bp_exit bp_print_replay(struct bp_buf *out, const json_t *answer)
{
    const char *verdict = bp_json_text(answer, "verdict");
    bp_print_field(out, "plan", json_object_get(answer, "plan"));
    bp_print_field(out, "replay", json_object_get(answer, "id"));
    bp_print_field(out, "verdict", json_object_get(answer, "verdict"));
    bp_buf_addch(out, '\n');
    const json_t *stages = json_object_get(answer, "stages");
    for (size_t i = 0; i < json_array_size(stages); i++)
        print_stage_verdict(out, json_array_get(stages, i));
    return strcmp(verdict, "identical") == 0 ? BP_EXIT_YES : BP_EXIT_NO;
}

static void cell_same(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    bp_buf_addstr(out, json_is_true(json_object_get(row->value, key)) ? "same" : "differs");
}

static void cell_digest(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    if (bp_json_text(row->value, key)[0])
        bp_cell_short(out, row, key);
    else
        bp_buf_addch(out, '-');
}

static const struct bp_table_column stage_columns[] = {
    {"stage", "stage", false, NULL},
    {"", "same", false, cell_same},
    {"a", "a", false, cell_digest},
    {"b", "b", false, cell_digest},
};

static const struct bp_table_column request_columns[] = {
    {"request", "path", false, NULL},
    {"a", "a", false, bp_cell_or_dash},
    {"b", "b", false, bp_cell_or_dash},
};

static const struct bp_table_column fact_columns[] = {
    {"fact", "path", false, NULL},
    {"a", "a", true, bp_cell_or_dash},
    {"b", "b", true, bp_cell_or_dash},
};

enum bp_exit bp_print_diff(struct bp_buf *out, const json_t *answer)
{
    const json_t *request = json_object_get(answer, "request"), *facts = json_object_get(answer, "facts");
    BP_PRINT_TABLE(out, json_object_get(answer, "stages"), stage_columns);
    bp_buf_addstr(out, json_array_size(request) ? "\n" : "\nthe requests are the same\n");
    BP_PRINT_TABLE(out, request, request_columns);
    bp_buf_addstr(out, json_array_size(facts) ? "\n" : "\nthe facts are the same\n");
    BP_PRINT_TABLE(out, facts, fact_columns);
    return BP_EXIT_YES;
}
