/* model: a config.json or a model of the catalogue, explained without a server. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "client/client.h"
#include "client/print.h"
#include "common/view/explain.h"

/* ---- As text ---- */

static const struct bp_table_column component_columns[] = {
    {"component", NULL, false, bp_cell_name},
    {"parameters", NULL, true, bp_cell_value},
};

static const struct bp_table_column kind_columns[] = {
    {"kind", "kind", false, NULL},
    {"blocks", "layers", true, NULL},
    {"parameters each", "parameters", true, NULL},
    {"active", "active", true, NULL},
    {"attention", "attention", false, NULL},
    {"heads", "num_attention_heads", true, NULL},
    {"KV heads", "num_key_value_heads", true, NULL},
    {"head size", "head_dim", true, NULL},
    {"latent", "kv_lora_rank", true, NULL},
    {"window", "window", true, NULL},
    {"MLP", "intermediate_size", true, NULL},
    {"experts", "num_experts", true, NULL},
    {"a token", "experts_per_token", true, NULL},
    {"width", "expert_intermediate_size", true, NULL},
    {"shared", "shared_intermediate_size", true, NULL},
    {"activation", "activation", false, NULL},
};

static const struct bp_table_column refused_columns[] = {
    {"not planned", "path", false, NULL},
    {"why", "message", false, NULL},
};

static void print_pointers(struct bp_buf *out, const json_t *answer, const char *key)
{
    struct bp_table_row row = {0, "", answer, NULL};
    struct bp_buf list = {0};
    if (json_array_size(json_object_get(answer, key)) == 0)
        return;
    bp_cell_list(&list, &row, key);
    bp_buf_addf(out, "\n%s\n", key);
    bp_text_add_lines(out, bp_buf_string(&list), 2);
    bp_buf_release(&list);
}

enum bp_exit bp_print_model_explained(struct bp_buf *out, const json_t *answer)
{
    const json_t *parameters = json_object_get(answer, "parameters");
    bp_print_field(out, "model", json_object_get(answer, "name"));
    bp_print_field(out, "family", json_object_get(answer, "family"));
    bp_print_field(out, "class", json_object_get(answer, "class"));
    bp_print_field(out, "dtype", json_object_get(answer, "dtype"));
    bp_print_field(out, "quantised", json_object_get(json_object_get(answer, "quantisation"), "method"));
    bp_print_field(out, "parameters", json_object_get(parameters, "total"));
    bp_print_field(out, "active", json_object_get(parameters, "active"));
    bp_print_field(out, "no embedding", json_object_get(parameters, "active_without_embedding"));
    bp_print_field(out, "KV a token", json_object_get(answer, "kv_bytes_per_token"));
    bp_buf_addch(out, '\n');
    BP_PRINT_TABLE(out, json_object_get(parameters, "components"), component_columns);
    bp_buf_addch(out, '\n');
    BP_PRINT_TABLE(out, json_object_get(answer, "kinds"), kind_columns);
    print_pointers(out, answer, "ignored");
    print_pointers(out, answer, "assumed");
    if (json_array_size(json_object_get(answer, "refused"))) {
        bp_buf_addch(out, '\n');
        BP_PRINT_TABLE(out, json_object_get(answer, "refused"), refused_columns);
    }
    return BP_EXIT_YES;
}

/* ---- Reading ---- */

/* Any form of `model` that a request may have, or a config.json alone. */
static bool is_form(const json_t *value)
{
    return json_object_size(value) == 1 &&
           (json_is_object(json_object_get(value, "huggingface")) ||
            json_is_object(json_object_get(value, "transformer")) || json_is_string(json_object_get(value, "name")));
}

static enum bp_exit complain_of(const struct bp_problems *problems, const char *name)
{
    for (size_t i = 0; i < problems->n; i++)
        bp_complain(BP_EXIT_REFUSED, "%s: %s%s%s: %s", name, problems->at[i].path, *problems->at[i].path ? ": " : "",
                    bp_code_name(problems->at[i].code), problems->at[i].message);
    return BP_EXIT_REFUSED;
}

static enum bp_exit explain(const struct bp_invocation *invocation, const json_t *value, const char *name)
{
    struct bp_arena arena = {0};
    struct bp_problems problems = {0};
    struct bp_config config = {0};
    struct bp_err err = {0};
    struct bp_reply answer = {.status = 200};
    struct bp_writer writer = {.out = &answer.body, .any_order = true};
    enum bp_exit status;
    int failed = is_form(value) ? bp_config_resolve(value, "", &arena, &problems, &config)
                                : bp_config_import(value, "", &arena, &problems, &config);
    if (failed < 0)
        status = bp_complain(BP_EXIT_LOCAL, "out of memory");
    else if (!config.has_parameters)
        status = complain_of(&problems, name);
    else if (bp_explain_write(&writer, &config, &err) < 0 || bp_writer_finish(&writer, &err) < 0)
        status =
            bp_complain(err.code == BP_E_out_of_memory ? BP_EXIT_LOCAL : BP_EXIT_REFUSED, "%s: %s", name, err.message);
    else
        status = bp_reply_print(invocation, &answer, NULL);
    bp_buf_release(&answer.body);
    bp_problems_release(&problems);
    bp_arena_release(&arena);
    return status;
}

enum bp_exit bp_run_model(const struct bp_invocation *invocation)
{
    const char *name = invocation->arguments[0];
    struct bp_json_position position = {0};
    struct bp_err err = {0};
    struct bp_buf text = {0};
    enum bp_exit status = BP_EXIT_YES;
    if (bp_catalogue_find(name))
        bp_buf_addf(&text, "{\"name\": \"%s\"}", name);
    else if (strcmp(name, "-") != 0 && access(name, F_OK) < 0 && errno == ENOENT)
        status = bp_complain(BP_EXIT_USAGE,
                             "neither a file nor a model of the catalogue is called %s (blueprint models lists those)",
                             name);
    else
        status = bp_file_read(name, &text, &name);
    json_t *value = status == BP_EXIT_YES ? bp_json_parse(text.data, text.len, &position, &err) : NULL;
    if (value)
        status = explain(invocation, value, name);
    else if (status == BP_EXIT_YES)
        status = bp_complain(err.code == BP_E_out_of_memory ? BP_EXIT_LOCAL : BP_EXIT_REFUSED, "%s:%d:%d: %s", name,
                             position.line, position.column, err.message);
    json_decref(value);
    bp_buf_release(&text);
    return status;
}
