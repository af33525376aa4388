#include "common/ir/distributed_ir.h"

#include <string.h>

#include "common/ir/codec.h"

static const char mesh_name[] = "logical";
static const char *const attention_full[] = {"full", NULL}, *const sums[] = {"sum", NULL};
static const char balanced_routing[] = "balanced_routing";
/* Of the forms that there are, without NONE. */
static const char *const latent_form_names[] = {"expanded", "absorbed", NULL};

static void extend(struct bp_span *span, uint32_t place)
{
    if (span->end == 0)
        span->first = place;
    span->end = place + 1;
}

struct bp_distributed_program bp_distributed_program_of(const struct bp_distributed_ir *ir, uint32_t block)
{
    struct bp_distributed_program program = {0};
    for (uint32_t i = 0; i < ir->n_values; i++)
        if (ir->values[i].block == block)
            extend(&program.values, i);
    for (uint32_t i = 0; i < ir->n_layers; i++)
        if (ir->layers[i].block == block)
            extend(&program.layers, i);
    for (uint32_t i = 0; i < ir->n_tasks; i++)
        if (ir->tasks[i].block == block)
            extend(&program.tasks, i);
    return program;
}

uint64_t bp_distributed_axis_size(const struct bp_distributed_ir *ir, enum bp_axis axis)
{
    if (axis == BP_AXIS_NONE)
        return 1;
    for (uint32_t i = 0; i < ir->n_axes && i < BP_MESH_AXES_MAX; i++)
        if (ir->axes[i].axis == axis)
            return ir->axes[i].size;
    return 0;
}

/* Workload and strategy are read with the bindings, the first key: what follows depends on the mode and the degrees. */
static void not_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader, void *at)
{
    (void)decoder;
    (void)field;
    (void)reader;
    (void)at;
}

static void workload_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    bp_workload_write(&encoder->writer, at);
}

static void strategy_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    const struct bp_distributed_ir *ir = encoder->root;
    bp_strategy_write(&encoder->writer, at, ir->workload.mode);
}

static const struct bp_form form_workload = {workload_write, not_read}, form_strategy = {strategy_write, not_read};

static void bindings_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    (void)at;
    const struct bp_distributed_ir *ir = encoder->root;
    bp_writer_object(&encoder->writer);
    bp_writer_key(&encoder->writer, "strategy");
    bp_writer_digest(&encoder->writer, &ir->strategy_fingerprint);
    bp_writer_key(&encoder->writer, "workload");
    bp_writer_digest(&encoder->writer, &ir->workload_fingerprint);
    bp_writer_end(&encoder->writer);
}

/* The fingerprint of both bindings together, which the ids are made of, is not in the snapshot; the bindings are. */
static void binding_digest(struct bp_decoder *decoder, struct bp_distributed_ir *ir)
{
    struct bp_buf text = {0};
    struct bp_writer writer = {.out = &text};
    bp_writer_object(&writer);
    bp_writer_key(&writer, "strategy");
    bp_strategy_write(&writer, &ir->strategy, ir->workload.mode);
    bp_writer_key(&writer, "workload");
    bp_workload_write(&writer, &ir->workload);
    bp_writer_end(&writer);
    if (bp_writer_finish(&writer, NULL) == 0)
        bp_digest_of(text.data, text.len, &ir->binding);
    else
        decoder->out_of_memory = true;
    bp_buf_release(&text);
}

static const struct bp_field fingerprint_fields[] = {
    {BP_FIELD("strategy", bp_form_digest, struct bp_distributed_ir, strategy_fingerprint)},
    {BP_FIELD("workload", bp_form_digest, struct bp_distributed_ir, workload_fingerprint)},
};
static const struct bp_record fingerprint_record = {BP_RECORD_OF(struct bp_distributed_ir, fingerprint_fields)};

static void bindings_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                          void *at)
{
    (void)at;
    struct bp_distributed_ir *ir = decoder->root;
    struct bp_reader fingerprints = bp_reader_object(reader, field->key, true);
    if (fingerprints.object)
        bp_decode_record(decoder, &fingerprint_record, &fingerprints, ir);
    struct bp_reader workload = bp_reader_object(reader, "workload", true);
    struct bp_reader strategy = bp_reader_object(reader, "strategy", true);
    if (!workload.object || !strategy.object)
        return;
    bp_workload_read(&workload, &ir->workload);
    bp_strategy_read(&strategy, ir->workload.mode, &ir->strategy);
    if (bp_problems_none(reader->problems))
        binding_digest(decoder, ir);
}

static const struct bp_form form_bindings = {bindings_write, bindings_read};

static void latent_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    const enum bp_latent_form *form = at;
    if (*form == BP_LATENT_NONE)
        bp_writer_null(&encoder->writer);
    else
        bp_encode_enum(encoder, latent_form_names, *form - BP_LATENT_EXPANDED);
}

static void latent_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                        void *at)
{
    (void)decoder;
    const json_t *form = bp_reader_get(reader, field->key, true);
    if (form && !json_is_null(form))
        *(enum bp_latent_form *)at =
            (enum bp_latent_form)(BP_LATENT_EXPANDED + bp_reader_enum(reader, field->key, latent_form_names, -1));
}

static const struct bp_form form_latent = {latent_write, latent_read};

static const struct bp_field convention_fields[] = {
    {.key = "attention", .form = &bp_form_constant, .names = attention_full},
    {BP_FIELD("latent_attention", form_latent, struct bp_distributed_ir, latent_attention)},
};
static const struct bp_record convention_record = {BP_RECORD_OF(struct bp_distributed_ir, convention_fields)};

static void conventions_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    bp_encode_record(encoder, &convention_record, at);
}

static void conventions_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                             void *at)
{
    struct bp_reader inner = bp_reader_object(reader, field->key, true);
    if (inner.object)
        bp_decode_record(decoder, &convention_record, &inner, at);
}

static const struct bp_form form_conventions = {conventions_write, conventions_read};

static void memory_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    const struct bp_distributed_ir *ir = encoder->root;
    bp_memory_write(&encoder->writer, at, ir->workload.mode);
}

static void memory_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                        void *at)
{
    const struct bp_distributed_ir *ir = decoder->root;
    struct bp_memory *memory = at;
    const char *known[BP_MEMORY_N + 1] = {0};
    size_t n_known = 0;
    struct bp_reader inner = bp_reader_object(reader, field->key, true);
    for (unsigned fact = 0; fact < BP_MEMORY_N; fact++) {
        if (!bp_memory_fact_in((enum bp_memory_fact)fact, ir->workload.mode))
            continue;
        known[n_known++] = bp_memory_names[fact];
        memory->at[fact].n = bp_reader_uint_required(&inner, bp_memory_names[fact], 0, BP_JSON_INT_MAX);
    }
    bp_reader_refuse_unknown(&inner, known);
}

static const struct bp_form form_memory = {memory_write, memory_read};

/* An array of the assumptions that are made; there is one. */
static void assumptions_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    bp_writer_array(&encoder->writer);
    if (*(const bool *)at)
        bp_writer_string(&encoder->writer, balanced_routing);
    bp_writer_end(&encoder->writer);
}

static void assumptions_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                             void *at)
{
    (void)decoder;
    const json_t *array = bp_decode_json_array(reader, field->key);
    const char *text = json_string_value(json_array_get(array, 0));
    if (json_array_size(array) > 1 || (json_array_size(array) == 1 && !(text && strcmp(text, balanced_routing) == 0)))
        bp_reader_problem(reader, BP_E_structure_violated, field->key, "must be empty or [\"%s\"]", balanced_routing);
    *(bool *)at = json_array_size(array) == 1;
}

static const struct bp_form form_assumptions = {assumptions_write, assumptions_read};

/* Entities name their block. */
static void block_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    const struct bp_distributed_ir *ir = encoder->root;
    const uint32_t block = *(const uint32_t *)at;
    if (block < ir->n_blocks)
        bp_writer_string(&encoder->writer, ir->blocks[block].name);
    else
        encoder->writer.breach = "a reference past the end";
}

static void block_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                       void *at)
{
    const struct bp_distributed_ir *ir = decoder->root;
    const char *text = bp_reader_string(reader, field->key, true);
    for (uint32_t i = 0; text && i < ir->n_blocks; i++) {
        if (ir->blocks[i].name && strcmp(ir->blocks[i].name, text) == 0) {
            *(uint32_t *)at = i;
            return;
        }
    }
    if (text)
        bp_reader_problem(reader, BP_E_structure_violated, field->key, "must be the name of a block");
}

static const struct bp_form form_block = {block_write, block_read};

static void mesh_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    const struct bp_mesh_axis *axes = at;
    const struct bp_distributed_ir *ir = encoder->root;
    struct bp_writer *writer = &encoder->writer;
    bp_writer_object(writer);
    bp_writer_key(writer, "axes");
    bp_writer_array(writer);
    for (uint32_t i = 0; i < ir->n_axes && i < BP_MESH_AXES_MAX; i++) {
        bp_writer_object(writer);
        bp_writer_key(writer, "name");
        bp_encode_enum(encoder, bp_axis_names, axes[i].axis);
        bp_writer_key(writer, "size");
        bp_writer_uint(writer, axes[i].size);
        bp_writer_end(writer);
    }
    bp_writer_end(writer);
    bp_writer_key(writer, "name");
    bp_writer_string(writer, mesh_name);
    bp_writer_end(writer);
}

/* The index of an axis by its name in JSON; BP_AXIS_NONE when it is none. */
static enum bp_axis axis_of(const char *text)
{
    unsigned axis = 0;
    while (axis < BP_AXIS_NONE && !(text && strcmp(bp_axis_names[axis], text) == 0))
        axis++;
    return (enum bp_axis)axis;
}

static void mesh_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                      void *at)
{
    static const char *const known[] = {"axes", "name", NULL}, *const known_axis[] = {"name", "size", NULL};
    struct bp_mesh_axis *axes = at;
    struct bp_distributed_ir *ir = decoder->root;
    struct bp_reader mesh = bp_reader_object(reader, field->key, true);
    const char *name = bp_reader_string(&mesh, "name", true);
    bp_reader_refuse_unknown(&mesh, known);
    if (name && strcmp(name, mesh_name) != 0)
        bp_reader_problem(&mesh, BP_E_structure_violated, "name", "must be %s", mesh_name);
    const size_t n = mesh.object ? json_array_size(bp_decode_json_array(&mesh, "axes")) : 0;
    if (n > BP_MESH_AXES_MAX) {
        bp_reader_problem(&mesh, BP_E_structure_violated, "axes", "must have at most %d members", BP_MESH_AXES_MAX);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        struct bp_reader item = bp_decode_item(&mesh, "axes", i);
        bp_reader_refuse_unknown(&item, known_axis);
        axes[i].axis = axis_of(bp_reader_string(&item, "name", true));
        axes[i].size = bp_reader_uint_required(&item, "size", 1, BP_JSON_INT_MAX);
        if (axes[i].axis == BP_AXIS_NONE)
            bp_reader_problem(&item, BP_E_structure_violated, "name", "must be an axis");
    }
    ir->n_axes = (uint32_t)n;
}

static const struct bp_form form_mesh = {mesh_write, mesh_read};

static const struct bp_distributed_value *value_of(const void *at, size_t member)
{
    return (const void *)((const char *)at - member);
}

static void shape_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    const struct bp_distributed_value *value = value_of(at, field->at);
    bp_writer_array(&encoder->writer);
    for (uint32_t i = 0; i < value->n_dims && i < BP_DIMS_MAX; i++)
        bp_writer_uint(&encoder->writer, value->shape[i]);
    bp_writer_end(&encoder->writer);
}

static void sharding_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    const struct bp_distributed_value *value = value_of(at, field->at);
    bp_writer_array(&encoder->writer);
    for (uint32_t i = 0; i < value->n_dims && i < BP_DIMS_MAX; i++)
        if (value->sharding[i] == BP_AXIS_NONE)
            bp_writer_null(&encoder->writer);
        else
            bp_encode_enum(encoder, bp_axis_names, value->sharding[i]);
    bp_writer_end(&encoder->writer);
}

static void shape_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                       void *at)
{
    (void)decoder;
    struct bp_distributed_value *value = (void *)((char *)at - field->at);
    const json_t *array = bp_decode_json_array(reader, field->key);
    const size_t n = json_array_size(array);
    if (n > BP_DIMS_MAX) {
        bp_reader_problem(reader, BP_E_structure_violated, field->key, "must have at most %d members", BP_DIMS_MAX);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const json_int_t size = json_integer_value(json_array_get(array, i));
        if (size < 1 || (uint64_t)size > BP_JSON_INT_MAX) {
            bp_reader_problem(reader, BP_E_structure_violated, field->key, "must be sizes; member %zu is not", i);
            return;
        }
        value->shape[i] = (uint64_t)size;
    }
    value->n_dims = (uint32_t)n;
}

static void sharding_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                          void *at)
{
    (void)decoder;
    struct bp_distributed_value *value = (void *)((char *)at - field->at);
    const json_t *array = bp_decode_json_array(reader, field->key);
    if (array && json_array_size(array) != value->n_dims) {
        bp_reader_problem(reader, BP_E_structure_violated, field->key, "must have a member per dimension");
        return;
    }
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *item = json_array_get(array, i);
        value->sharding[i] = axis_of(json_string_value(item));
        if (!json_is_null(item) && value->sharding[i] == BP_AXIS_NONE)
            bp_reader_problem(reader, BP_E_structure_violated, field->key, "must be axes or null; member %zu is not",
                              i);
    }
}

static const struct bp_form form_shape = {shape_write, shape_read}, form_sharding = {sharding_write, sharding_read};

static void layer_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    const struct bp_distributed_ir *ir = encoder->root;
    const uint32_t layer = *(const uint32_t *)at;
    if (layer < ir->n_layers)
        bp_writer_string(&encoder->writer, ir->layers[layer].name);
    else
        encoder->writer.breach = "a reference past the end";
}

/* A task names its row, which is one of its block. */
static void layer_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                       void *at)
{
    const struct bp_distributed_ir *ir = decoder->root;
    const struct bp_distributed_task *task = (const void *)((const char *)at - field->at);
    const char *text = bp_reader_string(reader, field->key, true);
    for (uint32_t i = 0; text && i < ir->n_layers; i++) {
        const struct bp_distributed_layer *layer = &ir->layers[i];
        if (layer->block == task->block && layer->name && strcmp(layer->name, text) == 0) {
            *(uint32_t *)at = i;
            return;
        }
    }
    if (text)
        bp_reader_problem(reader, BP_E_structure_violated, field->key, "must be the name of a layer of its block");
}

static const struct bp_form form_layer = {layer_write, layer_read};

static void body_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    const struct bp_distributed_task *task = (const void *)((const char *)at - field->at);
    const struct bp_distributed_ir *ir = encoder->root;
    struct bp_writer *writer = &encoder->writer;
    bp_writer_object(writer);
    if (task->kind == BP_TASK_COLLECTIVE) {
        bp_writer_key(writer, "axis");
        bp_encode_enum(encoder, bp_axis_names, task->axis);
        bp_writer_key(writer, "collective");
        bp_encode_enum(encoder, bp_collective_names, task->collective);
    }
    bp_writer_key(writer, "kind");
    bp_encode_enum(encoder, bp_task_kind_names, task->kind);
    if (task->kind == BP_TASK_COLLECTIVE) {
        bp_writer_key(writer, "message_bytes");
        bp_writer_uint(writer, task->work.message.n);
        bp_writer_key(writer, "participants");
        bp_encode_range(encoder, bp_distributed_axis_size(ir, task->axis));
        bp_writer_key(writer, "reduction");
        if (task->reduces)
            bp_writer_string(writer, sums[0]);
        else
            bp_writer_null(writer);
    }
    bp_writer_end(writer);
}

/* The message of a collective stands in its body and in its work; its participants are the places along its axis. */
static void collective_read(const struct bp_distributed_ir *ir, const struct bp_reader *body,
                            const struct bp_reader *work, struct bp_distributed_task *task)
{
    static const char *const known[] = {"axis",         "collective", "kind", "message_bytes",
                                        "participants", "reduction",  NULL};
    bp_reader_refuse_unknown(body, known);
    task->axis = axis_of(bp_reader_string(body, "axis", true));
    if (task->axis == BP_AXIS_NONE)
        bp_reader_problem(body, BP_E_structure_violated, "axis", "must be an axis");
    task->collective = (enum bp_collective)(1 + bp_reader_enum(body, "collective", bp_collective_names + 1, -1));
    const uint64_t message = bp_reader_uint_required(body, "message_bytes", 0, BP_JSON_INT_MAX);
    if (message != bp_reader_uint(work, "message_bytes", 0, BP_JSON_INT_MAX, message))
        bp_reader_problem(body, BP_E_structure_violated, "message_bytes", "must be the message of the work");
    bp_decode_range(body, "participants", bp_distributed_axis_size(ir, task->axis));
    const json_t *reduction = bp_reader_get(body, "reduction", true);
    if (reduction && !json_is_null(reduction)) {
        bp_reader_enum(body, "reduction", sums, -1);
        task->reduces = true;
    }
}

static void body_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                      void *at)
{
    static const char *const known[] = {"kind", NULL};
    const struct bp_distributed_ir *ir = decoder->root;
    struct bp_distributed_task *task = (void *)((char *)at - field->at);
    struct bp_reader body = bp_reader_object(reader, field->key, true);
    struct bp_reader work = bp_reader_object(reader, "work", false);
    if (!body.object)
        return;
    task->kind = (enum bp_task_kind)bp_reader_enum(&body, "kind", bp_task_kind_names, -1);
    task->axis = BP_AXIS_NONE;
    if (task->kind == BP_TASK_COLLECTIVE)
        collective_read(ir, &body, &work, task);
    else
        bp_reader_refuse_unknown(&body, known);
}

static const struct bp_form form_body = {body_write, body_read};

static void ranks_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    (void)at;
    const struct bp_distributed_ir *ir = encoder->root;
    bp_encode_range(encoder, ir->strategy.tensor_parallel);
}

static void ranks_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                       void *at)
{
    (void)at;
    const struct bp_distributed_ir *ir = decoder->root;
    bp_decode_range(reader, field->key, ir->strategy.tensor_parallel);
}

static const struct bp_form form_ranks = {ranks_write, ranks_read};

static const struct bp_field value_fields[] = {
    {BP_FIELD("block", form_block, struct bp_distributed_value, block)},
    {BP_FIELD("dtype", bp_form_enum, struct bp_distributed_value, dtype), .names = bp_dtype_names},
    {BP_FIELD("id", bp_form_id, struct bp_distributed_value, id), .of = BP_ENTITY_VALUE},
    {BP_FIELD("lineage", bp_form_lineage, struct bp_distributed_value, lineage)},
    {BP_FIELD("role", bp_form_text, struct bp_distributed_value, role)},
    {BP_FIELD("shape", form_shape, struct bp_distributed_value, shape)},
    {BP_FIELD("sharding", form_sharding, struct bp_distributed_value, sharding)},
};
static const struct bp_record value_record = {BP_RECORD_OF(struct bp_distributed_value, value_fields), .has_id = true,
                                              .kind = BP_ENTITY_VALUE};

static const struct bp_field layer_fields[] = {
    {BP_FIELD("activation_bytes", bp_form_uint, struct bp_distributed_layer, activation)},
    {BP_FIELD("block", form_block, struct bp_distributed_layer, block)},
    {BP_FIELD("keeps_activation", bp_form_bool, struct bp_distributed_layer, keeps_activation)},
    {BP_FIELD("keeps_output", bp_form_bool, struct bp_distributed_layer, keeps_output)},
    {BP_FIELD("name", bp_form_text, struct bp_distributed_layer, name)},
    {BP_FIELD("output_bytes", bp_form_uint, struct bp_distributed_layer, output)},
    {BP_FIELD("owns_activation", bp_form_bool, struct bp_distributed_layer, owns_activation)},
    {BP_FIELD("parameters", bp_form_uint, struct bp_distributed_layer, parameters)},
};
static const struct bp_record layer_record = {BP_RECORD_OF(struct bp_distributed_layer, layer_fields)};

static const struct bp_field block_fields[] = {
    {BP_FIELD("layers", bp_form_uint, struct bp_distributed_block, layers)},
    {BP_FIELD("memory", form_memory, struct bp_distributed_block, memory)},
    {BP_FIELD("name", bp_form_text, struct bp_distributed_block, name)},
};
static const struct bp_record block_record = {BP_RECORD_OF(struct bp_distributed_block, block_fields)};

static const struct bp_field task_fields[] = {
    {BP_FIELD("block", form_block, struct bp_distributed_task, block)},
    {BP_FIELD("body", form_body, struct bp_distributed_task, kind)},
    {BP_FIELD("dependencies", bp_form_list, struct bp_distributed_task, dependencies), .of = BP_ENTITY_TASK},
    {BP_FIELD("effects", bp_form_effects, struct bp_distributed_task, effect)},
    {BP_FIELD("engine", bp_form_enum, struct bp_distributed_task, engine), .names = bp_engine_names},
    {BP_FIELD("id", bp_form_id, struct bp_distributed_task, id), .of = BP_ENTITY_TASK},
    {BP_FIELD("inputs", bp_form_list, struct bp_distributed_task, inputs), .of = BP_ENTITY_VALUE},
    {BP_FIELD("layer", form_layer, struct bp_distributed_task, layer)},
    {BP_FIELD("lineage", bp_form_lineage, struct bp_distributed_task, lineage)},
    {BP_FIELD("name", bp_form_text, struct bp_distributed_task, name)},
    {BP_FIELD("outputs", bp_form_list, struct bp_distributed_task, outputs), .of = BP_ENTITY_VALUE},
    {BP_FIELD("phase", bp_form_enum, struct bp_distributed_task, phase), .names = bp_phase_names},
    {.key = "ranks", .form = &form_ranks},
    {BP_FIELD("work", bp_form_work, struct bp_distributed_task, work)},
};
static const struct bp_record task_record = {BP_RECORD_OF(struct bp_distributed_task, task_fields), .has_id = true,
                                             .kind = BP_ENTITY_TASK};

static const struct bp_field root_fields[] = {
    {BP_FIELD("assumptions", form_assumptions, struct bp_distributed_ir, balanced_routing)},
    {.key = "bindings", .form = &form_bindings},
    {BP_FIELD("blocks", bp_form_array, struct bp_distributed_ir, blocks), .record = &block_record,
     .count = offsetof(struct bp_distributed_ir, n_blocks)},
    {.key = "conventions", .form = &form_conventions},
    {BP_FIELD("layers", bp_form_array, struct bp_distributed_ir, layers), .record = &layer_record,
     .count = offsetof(struct bp_distributed_ir, n_layers)},
    {BP_FIELD("memory", form_memory, struct bp_distributed_ir, memory)},
    {BP_FIELD("mesh", form_mesh, struct bp_distributed_ir, axes)},
    {BP_FIELD("parents", bp_form_parents, struct bp_distributed_ir, parent)},
    {.key = "schema", .form = &bp_form_constant, .names = &bp_stage_schemas[BP_STAGE_DISTRIBUTED]},
    {.key = "stage", .form = &bp_form_constant, .names = &bp_stage_names[BP_STAGE_DISTRIBUTED]},
    {BP_FIELD("strategy", form_strategy, struct bp_distributed_ir, strategy)},
    {BP_FIELD("tasks", bp_form_array, struct bp_distributed_ir, tasks), .record = &task_record,
     .count = offsetof(struct bp_distributed_ir, n_tasks)},
    {BP_FIELD("values", bp_form_array, struct bp_distributed_ir, values), .record = &value_record,
     .count = offsetof(struct bp_distributed_ir, n_values)},
    {BP_FIELD("workload", form_workload, struct bp_distributed_ir, workload)},
};
static const struct bp_record root_record = {BP_RECORD_OF(struct bp_distributed_ir, root_fields)};

int bp_distributed_ir_encode(const struct bp_distributed_ir *ir, struct bp_buf *out, struct bp_err *err)
{
    return bp_snapshot_encode(&root_record, ir, out, err);
}

const struct bp_distributed_ir *bp_distributed_ir_decode(const char *bytes, size_t n, struct bp_arena *arena,
                                                         struct bp_err *err)
{
    return bp_snapshot_decode(&root_record, bytes, n, arena, err);
}
