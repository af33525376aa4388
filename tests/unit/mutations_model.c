#include "tests/unit/mutations.h"

static void share_id(struct spoiled *copy)
{
    struct bp_model_value *values = (struct bp_model_value *)copy->model->values;
    values[1].id = values[0].id;
}

static void shape_the_cache(struct spoiled *copy)
{
    struct bp_model_value *values = (struct bp_model_value *)copy->model->values;
    values[2].shape = values[0].shape;
}

static void read_nothing_known(struct spoiled *copy)
{
    ((struct bp_model_operation *)copy->model->operations)->inputs = list_of(copy, 1, (uint32_t[]){7});
}

static void write_the_input(struct spoiled *copy)
{
    ((struct bp_model_operation *)copy->model->operations)->outputs = list_of(copy, 1, (uint32_t[]){0});
}

static void affect_the_input(struct spoiled *copy)
{
    ((struct bp_model_operation *)copy->model->operations)->effects[0].value = 0;
}

#define M(check) .id = check, .stage = BP_STAGE_MODEL
#define FORM(member, to) SET(struct bp_model_operation, model.member, to)
static const struct mutation rows[] = {
    {M("model.ids"), .path = "/values/%u/id", .part = VALUE, .place = 1, FLIP(struct bp_model_value, id.hash)},
    {M("model.ids"), .path = "/operations/0/id", .part = OPERATION, FLIP(struct bp_model_operation, id.hash)},
    {M("model.unique_ids"), .path = "/values/1/id", .spoil = share_id},
    {M("model.values"), .path = "/values", .part = VALUE, SET(struct bp_model_value, role, BP_MODEL_OUTPUT)},
    {M("model.values"), .path = "/values/0/role", .part = VALUE, SET(struct bp_model_value, role, 99)},
    {M("model.values"), .path = "/values/%u/dtype", .part = VALUE, TEXT(struct bp_model_value, dtype, "")},
    {M("model.values"), .plan = DECODE, .path = "/values/2/shape", .spoil = shape_the_cache},
    {M("model.operation"), .path = "/operations", COUNT(struct bp_model_ir, n_operations, 0)},
    {M("model.operation"), .path = "/operations/0/name", .part = OPERATION,
     TEXT(struct bp_model_operation, name, "transformer.encoder")},
    {M("model.references"), .path = "/operations/0/inputs/0", .spoil = read_nothing_known},
    {M("model.references"), .path = "/operations/0/outputs/0", .spoil = write_the_input},
    {M("model.references"), .path = "/operations/0/outputs", .part = OPERATION,
     COUNT(struct bp_model_operation, outputs.n, 0)},
    {M("model.effects"), .plan = DECODE, .path = "/operations/0/effects", .part = OPERATION,
     SET(struct bp_model_operation, n_effects, 1)},
    {M("model.effects"), .plan = DECODE, .path = "/operations/0/effects/0/value", .spoil = affect_the_input},
    {M("model.effects"), .plan = PLAIN, .path = "/operations/0/effects", .part = OPERATION,
     SET(struct bp_model_operation, n_effects, 9)},
    {M("model.form"), .path = "/operations/0/model/hidden_size", .part = OPERATION, FORM(hidden_size, 0)},
    {M("model.form"), .path = "/operations/0/model/num_key_value_heads", .part = OPERATION,
     FORM(kinds[0].num_key_value_heads, 3)},
    {M("model.form"), .path = "/operations/0/model/activation", .part = OPERATION, FORM(kinds[0].activation, 99)},
    {M("model.form"), .path = "/operations/0/model/max_position_embeddings", .part = OPERATION,
     FORM(position, BP_POSITION_LEARNED)},
    {M("model.form"), .path = "/operations/0/model/kinds", .part = OPERATION, FORM(n_kinds, 2)},
    {M("model.form"), .path = "/operations/0/model/num_hidden_layers", .part = OPERATION, FORM(kinds[0].layers, 3)},
    {M("model.form"), .path = "/operations/0/model/attention", .part = OPERATION, FORM(kinds[0].attention, 99)},
    {M("model.request"), .path = "/operations/0/model", .part = OPERATION, FORM(kinds[0].intermediate_size, 8)},
    {M("model.request"), .path = "/operations/0/model", .part = OPERATION, FORM(kinds[0].window, 8)},
    {M("model.request"), .path = "/operations/0/model", .part = OPERATION, FORM(kinds[0].residual, 1)},
    {M("model.request"), .path = "/operations", FLIP(struct bp_model_ir, mode)},
    {M("model.request"), .path = "", FLIP(struct bp_model_ir, transformer)},
};
const struct mutation_group model_mutations = MUTATIONS(rows);
