/* Structure of the model stage: one semantic operation, the values it needs in its mode, a sound description. */
#include <string.h>

#include "common/gate/checks.h"

static const struct bp_model_ir *target(const struct bp_gate *gate)
{
    return gate->target.as.model;
}

static const char *value_name(const struct bp_gate *gate, uint32_t i)
{
    enum bp_model_role role = target(gate)->values[i].role;
    return role < BP_MODEL_ROLE_N ? bp_model_role_names[role] : NULL;
}

static const char *operation_name(const struct bp_gate *gate, uint32_t i)
{
    return target(gate)->operations[i].name;
}

static struct bp_gate_arrays entities(const struct bp_gate *gate)
{
    const struct bp_model_ir *ir = target(gate);
    return (struct bp_gate_arrays){.n = 2,
                                   .at = {BP_GATE_NAMED(VALUE, ir->values, ir->n_values, value_name),
                                          BP_GATE_NAMED(OPERATION, ir->operations, ir->n_operations, operation_name)}};
}

static void check_ids(struct bp_gate *gate)
{
    const struct bp_gate_arrays arrays = entities(gate);
    bp_gate_check_ids(gate, NULL, &arrays);
}

static void check_unique_ids(struct bp_gate *gate)
{
    const struct bp_gate_arrays arrays = entities(gate);
    bp_gate_check_unique_ids(gate, &arrays);
}

static bool same_symbols(const char *const *a, const char *const *b)
{
    for (; *a && *b; a++, b++)
        if (strcmp(*a, *b) != 0)
            return false;
    return !*a && !*b;
}

/* Sizes and element type are symbols, which the workload binds at the next stage. */
static void check_values(struct bp_gate *gate)
{
    static const char *const hidden[] = {"batch", "sequence", "hidden_size", NULL};
    static const char *const cache[] = {"key_value", "batch", "sequence", "num_key_value_heads", "head_dim", NULL};
    static const char *const latents[] = {"batch", "sequence", "kv_lora_rank + qk_rope_head_dim", NULL};
    const struct bp_model *model = &gate->request->model;
    bool latent = true;
    for (uint32_t i = 0; i < model->n_kinds; i++)
        latent &= model->kinds[i].attention == BP_ATTENTION_LATENT;
    const char *const *const shapes[BP_MODEL_ROLE_N] = {
        [BP_MODEL_INPUT] = hidden, [BP_MODEL_OUTPUT] = hidden, [BP_MODEL_KV_CACHE] = latent ? latents : cache};
    const struct bp_model_ir *ir = target(gate);
    uint32_t of_role[BP_MODEL_ROLE_N] = {0};
    for (uint32_t i = 0; i < ir->n_values; i++) {
        const struct bp_model_value *value = &ir->values[i];
        bool known = value->role < BP_MODEL_ROLE_N;
        BP_GATE_EXPECT(gate, known, BP_E_structure_violated, bp_gate_path(gate, "/values/%u/role", i),
                       "there is no role %d", (int)value->role);
        BP_GATE_EXPECT(gate, strcmp(value->dtype, "dtype") == 0, BP_E_structure_violated,
                       bp_gate_path(gate, "/values/%u/dtype", i), "%s is not the symbol of the element type",
                       value->dtype);
        if (!known)
            continue;
        of_role[value->role]++;
        BP_GATE_EXPECT(gate, same_symbols(value->shape, shapes[value->role]), BP_E_structure_violated,
                       bp_gate_path(gate, "/values/%u/shape", i), "these are not the symbols of the %s",
                       bp_model_role_names[value->role]);
    }
    for (uint32_t role = 0; role < BP_MODEL_ROLE_N; role++) {
        uint32_t wanted = role != BP_MODEL_KV_CACHE || ir->mode == BP_MODE_INFERENCE;
        BP_GATE_EXPECT(gate, of_role[role] == wanted, BP_E_structure_violated, "/values",
                       "%u values are the %s, not %u", of_role[role], bp_model_role_names[role], wanted);
    }
}

static void check_operation(struct bp_gate *gate)
{
    static const char *const names[] = {
        [BP_MODE_TRAINING] = "transformer.decoder_training", [BP_MODE_INFERENCE] = "transformer.decoder_inference"};
    const struct bp_model_ir *ir = target(gate);
    BP_GATE_EXPECT(gate, ir->n_operations == 1, BP_E_structure_violated, "/operations", "%u operations, not one",
                   ir->n_operations);
    const char *name = names[ir->mode == BP_MODE_INFERENCE];
    for (uint32_t i = 0; i < ir->n_operations; i++)
        BP_GATE_EXPECT(gate, strcmp(ir->operations[i].name, name) == 0, BP_E_structure_violated,
                       bp_gate_path(gate, "/operations/%u/name", i), "the operation of this mode is %s", name);
}

/* What an operand of the operation may be. */
static void check_operands(struct bp_gate *gate, uint32_t i, const struct bp_list *list, const char *key,
                           enum bp_model_role role)
{
    const struct bp_model_ir *ir = target(gate);
    bp_gate_check_list(gate, list, (struct bp_span){0, ir->n_values}, "operations", i, key);
    BP_GATE_EXPECT(gate, list->n == 1, BP_E_structure_violated, bp_gate_path(gate, "/operations/%u/%s", i, key),
                   "%u values, not one", list->n);
    for (uint32_t j = 0; j < list->n; j++)
        if (list->at[j] < ir->n_values)
            BP_GATE_EXPECT(gate, ir->values[list->at[j]].role == role, BP_E_structure_violated,
                           bp_gate_path(gate, "/operations/%u/%s/%u", i, key, j), "the value is not the %s",
                           bp_model_role_names[role]);
}

static void check_references(struct bp_gate *gate)
{
    const struct bp_model_ir *ir = target(gate);
    for (uint32_t i = 0; i < ir->n_operations; i++) {
        check_operands(gate, i, &ir->operations[i].inputs, "inputs", BP_MODEL_INPUT);
        check_operands(gate, i, &ir->operations[i].outputs, "outputs", BP_MODEL_OUTPUT);
    }
}

/* The KV cache is the one state that outlives the operation: inference reads and writes it, training has none. */
static void check_effects(struct bp_gate *gate)
{
    const struct bp_model_ir *ir = target(gate);
    for (uint32_t i = 0; i < ir->n_operations; i++) {
        const struct bp_model_operation *operation = &ir->operations[i];
        bool reads = false, writes = false;
        uint32_t room = (uint32_t)BP_GATE_COUNT(operation->effects);
        for (uint32_t j = 0; j < operation->n_effects && j < room; j++) {
            uint32_t value = operation->effects[j].value;
            enum bp_access access = operation->effects[j].access;
            bool cache = value < ir->n_values && ir->values[value].role == BP_MODEL_KV_CACHE;
            BP_GATE_EXPECT(gate, cache, BP_E_structure_violated,
                           bp_gate_path(gate, "/operations/%u/effects/%u/value", i, j), "it is not the KV cache");
            reads |= access == BP_ACCESS_READ || access == BP_ACCESS_READ_WRITE;
            writes |= access == BP_ACCESS_WRITE || access == BP_ACCESS_READ_WRITE;
        }
        bool inference = ir->mode == BP_MODE_INFERENCE;
        BP_GATE_EXPECT(gate, operation->n_effects <= room && reads == inference && writes == inference,
                       BP_E_structure_violated, bp_gate_path(gate, "/operations/%u/effects", i), "%s",
                       inference ? "inference reads and writes the KV cache" : "training has no effects");
    }
}

/* What must hold for a description to be written at all: words that exist, kinds that have all of the layers. */
static bool can_be_written(struct bp_gate *gate, uint32_t i, const struct bp_model *m)
{
    bool all = true;
    bool several = m->n_kinds >= 1 && m->n_kinds <= BP_KINDS_MAX;
    bp_u128 layers = 0;
    for (uint32_t j = 0; several && j < m->n_kinds; j++) {
        const struct bp_kind *kind = &m->kinds[j];
        const struct {
            const char *key;
            bool holds;
        } words[] = {
            {"activation", kind->activation <= BP_ACTIVATION_GEGLU},
            {"attention", kind->attention <= BP_ATTENTION_LATENT},
            {"qk_norm", kind->qk_norm <= BP_QK_NORM_WITHOUT_WEIGHT},
            {"norm_place", kind->norm_place <= BP_NORM_PLACE_SHARED},
            {"residual", kind->residual <= BP_RESIDUAL_PARALLEL},
            {"name", memchr(kind->name, '\0', sizeof kind->name) != NULL},
        };
        for (size_t k = 0; k < BP_GATE_COUNT(words); k++) {
            all &= words[k].holds;
            BP_GATE_EXPECT(gate, words[k].holds, BP_E_structure_violated,
                           bp_gate_path(gate, "/operations/%u/model/%s", i, words[k].key), "there is no such word");
        }
        layers += kind->layers;
    }
    const struct {
        const char *key;
        bool holds;
    } rules[] = {
        {"kinds", several && (m->n_kinds > 1) == (m->layer_kinds != NULL)},
        {"num_hidden_layers", layers == m->num_hidden_layers},
        {"norm", m->norm <= BP_NORM_RMSNORM},
        {"position", m->position <= BP_POSITION_ALIBI},
        {"name", *m->name == '\0'},
    };
    for (size_t j = 0; j < BP_GATE_COUNT(rules); j++) {
        all &= rules[j].holds;
        BP_GATE_EXPECT(gate, rules[j].holds, BP_E_structure_violated,
                       bp_gate_path(gate, "/operations/%u/model/%s", i, rules[j].key),
                       "no transformer form has this %s", rules[j].key);
    }
    return all;
}

/* The canonical form of a description that can be written; false when memory ran out. */
static bool write_form(struct bp_gate *gate, const struct bp_model *model, struct bp_buf *ret)
{
    struct bp_writer writer = {.out = ret};
    bp_model_write(&writer, model, false);
    if (bp_writer_finish(&writer, NULL) == 0)
        return true;
    bp_gate_no_memory(gate);
    return false;
}

/* It reads as a transformer form without a problem. */
static void expect_readable(struct bp_gate *gate, uint32_t i, const struct bp_buf *text)
{
    struct bp_json_position position;
    struct bp_problems problems = {0};
    struct bp_model read;
    json_t *form = bp_json_parse(text->data, text->len, &position, NULL);
    if (!form) {
        bp_gate_no_memory(gate);
        return;
    }
    struct bp_reader reader = bp_reader_of(form, bp_gate_path(gate, "/operations/%u/model", i), &problems);
    bp_model_read(&reader, gate->arena, &read);
    for (size_t j = 0; j < problems.n; j++)
        bp_gate_finding(gate, BP_E_structure_violated, problems.at[j].path, "%s", problems.at[j].message);
    gate->compared++;
    if (problems.out_of_memory)
        bp_gate_no_memory(gate);
    bp_problems_release(&problems);
    json_decref(form);
}

static void check_form(struct bp_gate *gate)
{
    const struct bp_model_ir *ir = target(gate);
    for (uint32_t i = 0; i < ir->n_operations; i++) {
        struct bp_buf text = {0};
        if (can_be_written(gate, i, &ir->operations[i].model) && write_form(gate, &ir->operations[i].model, &text))
            expect_readable(gate, i, &text);
        bp_buf_release(&text);
    }
}

/* The same canonical form, which says all of a model but its label. */
static bool same_model(struct bp_gate *gate, const struct bp_model *a, const struct bp_model *b)
{
    struct bp_buf texts[2] = {{0}};
    bool same = write_form(gate, a, &texts[0]) && write_form(gate, b, &texts[1]) && texts[0].len == texts[1].len &&
                memcmp(texts[0].data, texts[1].data, texts[0].len) == 0;
    bp_buf_release(&texts[0]);
    bp_buf_release(&texts[1]);
    return same;
}

static void check_request(struct bp_gate *gate)
{
    const struct bp_model_ir *ir = target(gate);
    BP_GATE_EXPECT(gate, bp_digest_equal(&ir->transformer, &gate->fingerprints->transformer), BP_E_cross_stage_violated,
                   "", "the ids are made of another transformer form");
    BP_GATE_EXPECT(gate, ir->mode == gate->request->workload.mode, BP_E_cross_stage_violated, "/operations",
                   "the operation is not of the workload's mode");
    for (uint32_t i = 0; i < ir->n_operations; i++) {
        const struct bp_model *model = &ir->operations[i].model;
        BP_GATE_EXPECT(gate, can_be_written(gate, i, model) && same_model(gate, model, &gate->request->model),
                       BP_E_cross_stage_violated, bp_gate_path(gate, "/operations/%u/model", i),
                       "it is not the model of the request");
    }
}

static const struct bp_check rows[] = {
    {"model.ids", BP_CHECK_STRUCTURE, "Every id is made of the transformer form, the place and the role.", check_ids},
    {"model.unique_ids", BP_CHECK_STRUCTURE, "No two entities share an id.", check_unique_ids},
    {"model.values", BP_CHECK_STRUCTURE,
     "There is one input, one output and, in inference only, one KV cache, each in its symbols.", check_values},
    {"model.operation", BP_CHECK_STRUCTURE, "There is one operation, and it is the one of the mode.", check_operation},
    {"model.references", BP_CHECK_STRUCTURE, "The operation reads the input and writes the output.", check_references},
    {"model.effects", BP_CHECK_STRUCTURE, "Inference reads and writes the KV cache; training has no effects.",
     check_effects},
    {"model.form", BP_CHECK_STRUCTURE, "The description is a transformer form: its sizes and its words are possible.",
     check_form},
    {"model.request", BP_CHECK_CROSS_STAGE, "The description and the mode are those of the request.", check_request},
};
const struct bp_check_group bp_model_checks = BP_GATE_GROUP(rows);
