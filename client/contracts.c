/* passes and models: what the daemon knows before it is asked for a plan. */
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "client/print.h"

static void cell_boundary(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    (void)key;
    bp_text_add(out, bp_json_text(row->value, "source"));
    bp_buf_addstr(out, " -> ");
    bp_text_add(out, bp_json_text(row->value, "target"));
}

static const struct bp_table_column pass_columns[] = {
    {"pass", "name", false, NULL},
    {"revision", "revision", true, NULL},
    {"boundary", NULL, false, cell_boundary},
    {"laws", "laws", true, bp_cell_count},
    {"checks", "checks", true, bp_cell_count},
};

static const struct bp_table_column check_columns[] = {
    {"check", "id", false, NULL},
    {"kind", "kind", false, NULL},
    {"what it holds", "what", false, NULL},
};

static void print_laws(struct bp_buf *out, const json_t *laws)
{
    if (json_array_size(laws))
        bp_buf_addstr(out, "\nLAWS\n\n");
    for (size_t i = 0; i < json_array_size(laws); i++) {
        const json_t *law = json_array_get(laws, i);
        bp_text_add(out, bp_json_text(law, "id"));
        bp_buf_addch(out, '\n');
        bp_text_add_lines(out, bp_json_text(law, "statement"), 4);
        const char *const notes[][2] = {{"for", "condition"}, {"from", "source"}};
        for (size_t n = 0; n < sizeof notes / sizeof *notes; n++) {
            if (!bp_json_text(law, notes[n][1])[0])
                continue;
            bp_buf_addf(out, "    %s: ", notes[n][0]);
            bp_text_add(out, bp_json_text(law, notes[n][1]));
            bp_buf_addch(out, '\n');
        }
    }
}

static void print_references(struct bp_buf *out, const json_t *references)
{
    if (json_array_size(references))
        bp_buf_addstr(out, "\nREFERENCES\n\n");
    for (size_t i = 0; i < json_array_size(references); i++) {
        const json_t *reference = json_array_get(references, i);
        bp_text_add_lines(out, bp_json_text(reference, "citation"), 0);
        bp_text_add_lines(out, bp_json_text(reference, "url"), 4);
    }
}

static void print_pass(struct bp_buf *out, const json_t *pass)
{
    struct bp_table_row row = {0, "", pass, NULL};
    bp_print_field(out, "title", json_object_get(pass, "title"));
    bp_print_field(out, "pass", json_object_get(pass, "name"));
    bp_print_field(out, "revision", json_object_get(pass, "revision"));
    bp_buf_addf(out, "%-12s ", "boundary");
    cell_boundary(out, &row, NULL);
    bp_buf_addf(out, "\n%-12s ", "requires");
    bp_cell_list(out, &row, "bindings");
    bp_buf_addch(out, '\n');
    bp_print_field(out, "rule", json_object_get(pass, "rule"));
    bp_print_field(out, "formulas", json_object_get(pass, "formula_source"));
    bp_buf_addch(out, '\n');
    bp_text_add_lines(out, bp_json_text(pass, "summary"), 0);
    bp_buf_addstr(out, "\nTHEORY\n\n");
    bp_text_add_lines(out, bp_json_text(pass, "theory"), 0);
    print_laws(out, json_object_get(pass, "laws"));
    bp_buf_addstr(out, "\nCHECKS\n\n");
    BP_PRINT_TABLE(out, json_object_get(pass, "checks"), check_columns);
    print_references(out, json_object_get(pass, "references"));
}

enum bp_exit bp_print_passes(struct bp_buf *out, const json_t *answer)
{
    const json_t *passes = json_object_get(answer, "passes");
    if (passes)
        BP_PRINT_TABLE(out, passes, pass_columns);
    else
        print_pass(out, answer);
    return BP_EXIT_YES;
}

static const struct bp_table_column model_columns[] = {
    {"model", "name", false, NULL},
    {"family", "family", false, NULL},
    {"parameters", "parameters", true, NULL},
};

enum bp_exit bp_print_models(struct bp_buf *out, const json_t *answer)
{
    const json_t *models = json_object_get(answer, "models");
    if (models) {
        BP_PRINT_TABLE(out, models, model_columns);
        return BP_EXIT_YES;
    }
    bp_print_field(out, "model", json_object_get(answer, "name"));
    bp_print_field(out, "family", json_object_get(answer, "family"));
    bp_print_field(out, "parameters", json_object_get(answer, "parameters"));
    bp_print_field(out, "published", json_object_get(answer, "published_parameters"));
    bp_print_field(out, "source", json_object_get(answer, "source"));
    char *form = json_dumps(json_object_get(answer, "form"), JSON_INDENT(2));
    if (form) {
        bp_buf_addstr(out, "\nthe same model, spelled out:\n");
        bp_text_add_lines(out, form, 0);
    }
    free(form);
    return BP_EXIT_YES;
}
