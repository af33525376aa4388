#include "common/ir/model_ir.h"

#include <string.h>

#include "common/ir/codec.h"

const char *const bp_model_role_names[] = {"input", "output", "kv_cache", NULL};

static const char *const operation_names[] = {"transformer.decoder_training", "transformer.decoder_inference"};

static const char *const hidden_shape[] = {"batch", "sequence", "hidden_size", NULL};
/* Keys and values, for every key/value head of every token seen. */
static const char *const kv_shape[] = {"key_value", "batch", "sequence", "num_key_value_heads", "head_dim", NULL};
/* One latent and one rotary key, where every block has latent attention. */
static const char *const latent_shape[] = {"batch", "sequence", "kv_lora_rank + qk_rope_head_dim", NULL};

static bool is_latent(const struct bp_model *model)
{
    bool latent = true;
    for (uint32_t i = 0; i < model->n_kinds; i++)
        latent &= model->kinds[i].attention == BP_ATTENTION_LATENT;
    return latent;
}

static const struct bp_list first = {(const uint32_t[]){0}, 1}, second = {(const uint32_t[]){1}, 1};

const struct bp_model_ir *bp_model_ir_of(const struct bp_request *request, const struct bp_digest *transformer,
                                         struct bp_arena *arena)
{
    const bool inference = request->workload.mode == BP_MODE_INFERENCE;
    const uint32_t n_values = inference ? 3 : 2;
    struct bp_model_ir *ir = bp_arena_array(arena, 1, sizeof *ir);
    struct bp_model_value *values = bp_arena_array(arena, n_values, sizeof *values);
    struct bp_model_operation *operation = bp_arena_array(arena, 1, sizeof *operation);
    struct bp_id_maker *maker = bp_id_maker_new(arena, transformer, NULL);
    const char *const *cache_shape = is_latent(&request->model) ? latent_shape : kv_shape;
    if (!ir || !values || !operation || !maker)
        return NULL;
    for (uint32_t i = 0; i < n_values; i++) {
        values[i].id = bp_id_make(maker, BP_ENTITY_VALUE, i, bp_model_role_names[i]);
        values[i].role = (enum bp_model_role)i;
        values[i].shape = i == BP_MODEL_KV_CACHE ? cache_shape : hidden_shape;
        values[i].dtype = "dtype";
    }
    operation->name = operation_names[inference];
    operation->id = bp_id_make(maker, BP_ENTITY_OPERATION, 0, operation->name);
    operation->inputs = first;
    operation->outputs = second;
    operation->model = request->model;
    memset(operation->model.name, 0, sizeof operation->model.name);
    for (; inference && operation->n_effects < 2; operation->n_effects++) {
        operation->effects[operation->n_effects].value = BP_MODEL_KV_CACHE;
        operation->effects[operation->n_effects].access = operation->n_effects ? BP_ACCESS_WRITE : BP_ACCESS_READ;
    }
    *ir = (struct bp_model_ir){request->workload.mode, *transformer, values, n_values, operation, 1};
    return ir;
}

static void shape_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    bp_writer_array(&encoder->writer);
    for (const char *const *symbol = *(const char *const *const *)at; *symbol; symbol++)
        bp_writer_string(&encoder->writer, *symbol);
    bp_writer_end(&encoder->writer);
}

static void shape_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                       void *at)
{
    const json_t *array = bp_decode_json_array(reader, field->key);
    const size_t n = json_array_size(array);
    const char **symbols = bp_decode_array(decoder, n + 1, sizeof *symbols);
    for (size_t i = 0; i < n && symbols; i++) {
        const char *text = json_string_value(json_array_get(array, i));
        if (!text) {
            bp_reader_problem(reader, BP_E_structure_violated, field->key, "must be symbols; member %zu is not", i);
            return;
        }
        symbols[i] = bp_arena_strndup(decoder->arena, text, strlen(text));
        decoder->out_of_memory |= !symbols[i];
    }
    memcpy(at, &symbols, sizeof symbols);
}

static const struct bp_form form_shape = {shape_write, shape_read};

static const struct bp_field effect_fields[] = {
    {BP_FIELD("access", bp_form_enum, struct bp_model_effect, access), .names = bp_access_names},
    {BP_FIELD("value", bp_form_reference, struct bp_model_effect, value), .of = BP_ENTITY_VALUE},
};
static const struct bp_record effect_record = {BP_RECORD_OF(struct bp_model_effect, effect_fields)};

static void effects_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    const struct bp_model_operation *operation =
        (const void *)((const char *)at - offsetof(struct bp_model_operation, effects));
    bp_writer_array(&encoder->writer);
    if (operation->n_effects > sizeof operation->effects / sizeof *operation->effects)
        encoder->writer.breach = "more effects than an operation has";
    for (uint32_t i = 0; i < operation->n_effects && !encoder->writer.breach; i++)
        bp_encode_record(encoder, &effect_record, &operation->effects[i]);
    bp_writer_end(&encoder->writer);
}

static void effects_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                         void *at)
{
    struct bp_model_operation *operation = (void *)((char *)at - offsetof(struct bp_model_operation, effects));
    const size_t n = json_array_size(bp_decode_json_array(reader, field->key));
    const size_t most = sizeof operation->effects / sizeof *operation->effects;
    if (n > most)
        bp_reader_problem(reader, BP_E_structure_violated, field->key, "must have at most %zu members", most);
    for (uint32_t i = 0; i < n && n <= most; i++) {
        struct bp_reader item = bp_decode_item(reader, field->key, i);
        if (item.object)
            bp_decode_record(decoder, &effect_record, &item, &operation->effects[i]);
        operation->n_effects = i + 1;
    }
}

static const struct bp_form form_effects = {effects_write, effects_read};

static void transformer_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    bp_model_write(&encoder->writer, at, false);
}

/* The form in a snapshot has no name, which the reader of requests asks for: it is read with a stand-in. */
static void transformer_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                             void *at)
{
    struct bp_model *model = at;
    struct bp_reader inner = bp_reader_object(reader, field->key, true);
    if (!inner.object)
        return;
    if (json_object_get(inner.object, "name"))
        bp_reader_problem(&inner, BP_E_structure_violated, "name", "is not part of a snapshot");
    json_t *named = bp_json_copy_object(inner.object);
    if (!named || json_object_set_new(named, "name", json_string("model")) != 0) {
        decoder->out_of_memory = true;
    } else {
        inner.object = named;
        bp_model_read(&inner, decoder->arena, model);
        memset(model->name, 0, sizeof model->name);
    }
    json_decref(named);
}

static const struct bp_form form_transformer = {transformer_write, transformer_read};

static void no_parents_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    (void)at;
    bp_writer_raw(&encoder->writer, "[]", 2);
}

static void no_parents_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                            void *at)
{
    (void)decoder;
    (void)at;
    if (json_array_size(bp_decode_json_array(reader, field->key)) != 0)
        bp_reader_problem(reader, BP_E_structure_violated, field->key, "must be empty");
}

static const struct bp_form form_no_parents = {no_parents_write, no_parents_read};

static const struct bp_field value_fields[] = {
    {BP_FIELD("dtype", bp_form_text, struct bp_model_value, dtype)},
    {BP_FIELD("id", bp_form_id, struct bp_model_value, id), .of = BP_ENTITY_VALUE},
    {BP_FIELD("role", bp_form_enum, struct bp_model_value, role), .names = bp_model_role_names},
    {BP_FIELD("shape", form_shape, struct bp_model_value, shape)},
};
static const struct bp_record value_record = {BP_RECORD_OF(struct bp_model_value, value_fields), .has_id = true,
                                              .kind = BP_ENTITY_VALUE};

static const struct bp_field operation_fields[] = {
    {BP_FIELD("effects", form_effects, struct bp_model_operation, effects)},
    {BP_FIELD("id", bp_form_id, struct bp_model_operation, id), .of = BP_ENTITY_OPERATION},
    {BP_FIELD("inputs", bp_form_list, struct bp_model_operation, inputs), .of = BP_ENTITY_VALUE},
    {BP_FIELD("model", form_transformer, struct bp_model_operation, model)},
    {BP_FIELD("name", bp_form_text, struct bp_model_operation, name)},
    {BP_FIELD("outputs", bp_form_list, struct bp_model_operation, outputs), .of = BP_ENTITY_VALUE},
};
static const struct bp_record operation_record = {BP_RECORD_OF(struct bp_model_operation, operation_fields),
                                                  .has_id = true, .kind = BP_ENTITY_OPERATION};

static const struct bp_field root_fields[] = {
    {BP_FIELD("mode", bp_form_enum, struct bp_model_ir, mode), .names = bp_mode_names},
    {BP_FIELD("operations", bp_form_array, struct bp_model_ir, operations), .record = &operation_record,
     .count = offsetof(struct bp_model_ir, n_operations)},
    {.key = "parents", .form = &form_no_parents},
    {.key = "schema", .form = &bp_form_constant, .names = &bp_stage_schemas[BP_STAGE_MODEL]},
    {.key = "stage", .form = &bp_form_constant, .names = &bp_stage_names[BP_STAGE_MODEL]},
    {BP_FIELD("values", bp_form_array, struct bp_model_ir, values), .record = &value_record,
     .count = offsetof(struct bp_model_ir, n_values)},
};
static const struct bp_record root_record = {BP_RECORD_OF(struct bp_model_ir, root_fields)};

int bp_model_ir_encode(const struct bp_model_ir *ir, struct bp_buf *out, struct bp_err *err)
{
    return bp_snapshot_encode(&root_record, ir, out, err);
}

/* The digest that the ids were made of is not in the snapshot; the form it is of is. */
static int transformer_digest(const struct bp_model *model, struct bp_digest *ret, struct bp_err *err)
{
    struct bp_buf text = {0};
    struct bp_writer writer = {.out = &text};
    bp_model_write(&writer, model, false);
    const int result = bp_writer_finish(&writer, err);
    if (result == 0)
        bp_digest_of(text.data, text.len, ret);
    bp_buf_release(&text);
    return result;
}

const struct bp_model_ir *bp_model_ir_decode(const char *bytes, size_t n, struct bp_arena *arena, struct bp_err *err)
{
    struct bp_model_ir *ir = bp_snapshot_decode(&root_record, bytes, n, arena, err);
    if (!ir)
        return NULL;
    if (ir->n_operations == 0) {
        bp_fail(err, BP_E_structure_violated, "/operations", "must not be empty");
        return NULL;
    }
    return transformer_digest(&ir->operations[0].model, &ir->transformer, err) == 0 ? ir : NULL;
}
