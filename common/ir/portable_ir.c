#include "common/ir/portable_ir.h"

#include <string.h>

#include "common/ir/codec.h"

static bool list_has(const struct bp_list *list, uint32_t position)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (list->at[i] == position)
            return true;
    return false;
}

bool bp_portable_access(const struct bp_portable_task *task, uint32_t buffer, enum bp_access *ret)
{
    const bool reads = list_has(&task->inputs, buffer), writes = list_has(&task->outputs, buffer);
    if (reads || writes)
        *ret = !writes ? BP_ACCESS_READ : reads ? BP_ACCESS_READ_WRITE : BP_ACCESS_WRITE;
    return reads || writes;
}

static void capabilities_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    const struct bp_capability *capability = at;
    struct bp_writer *writer = &encoder->writer;
    bp_writer_array(writer);
    bp_writer_object(writer);
    bp_writer_key(writer, "alternatives");
    bp_writer_array(writer);
    const size_t room = sizeof capability->alternatives / sizeof *capability->alternatives;
    for (uint32_t i = 0; i < capability->n_alternatives && i < room; i++)
        bp_writer_string(writer, capability->alternatives[i]);
    bp_writer_end(writer);
    bp_writer_key(writer, "name");
    bp_writer_string(writer, capability->name);
    bp_writer_end(writer);
    bp_writer_end(writer);
}

static const struct bp_field capability_fields[] = {
    {BP_FIELD("name", bp_form_text, struct bp_capability, name)},
};

static void capabilities_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                              void *at)
{
    static const char *const known[] = {"alternatives", "name", NULL};
    struct bp_capability *capability = at;
    const json_t *array = bp_decode_json_array(reader, field->key);
    if (array && json_array_size(array) != 1)
        bp_reader_problem(reader, BP_E_structure_violated, field->key, "must have one member");
    if (json_array_size(array) != 1)
        return;
    struct bp_reader inner = bp_decode_item(reader, field->key, 0);
    if (!inner.object)
        return;
    bp_reader_refuse_unknown(&inner, known);
    bp_form_text.read(decoder, capability_fields, &inner, &capability->name);
    const json_t *alternatives = bp_decode_json_array(&inner, "alternatives");
    const size_t n = json_array_size(alternatives);
    const size_t most = sizeof capability->alternatives / sizeof *capability->alternatives;
    if (alternatives && (n < 1 || n > most)) {
        bp_reader_problem(&inner, BP_E_structure_violated, "alternatives", "must have 1 to %zu members", most);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value(json_array_get(alternatives, i));
        if (!text) {
            bp_reader_problem(&inner, BP_E_structure_violated, "alternatives", "must be names; member %zu is not", i);
            return;
        }
        capability->alternatives[i] = bp_arena_strndup(decoder->arena, text, strlen(text));
        decoder->out_of_memory |= !capability->alternatives[i];
    }
    capability->n_alternatives = (uint32_t)n;
}

static const struct bp_form form_capabilities = {capabilities_write, capabilities_read};

static void resources_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    const struct bp_resources *resources = at;
    struct bp_writer *writer = &encoder->writer;
    bp_writer_object(writer);
    if (resources->compute.n) {
        bp_writer_key(writer, "compute");
        bp_writer_decimal(writer, resources->compute.n);
    }
    if (resources->memory.n) {
        bp_writer_key(writer, "memory");
        bp_writer_uint(writer, resources->memory.n);
    }
    if (resources->network.n) {
        bp_writer_key(writer, "network");
        bp_writer_uint(writer, resources->network.n);
    }
    bp_writer_end(writer);
}

static void resources_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                           void *at)
{
    static const char *const known[] = {"compute", "memory", "network", NULL};
    (void)decoder;
    struct bp_resources *resources = at;
    struct bp_reader inner = bp_reader_object(reader, field->key, true);
    bp_reader_refuse_unknown(&inner, known);
    resources->memory.n = bp_reader_uint(&inner, "memory", 1, BP_JSON_INT_MAX, 0);
    resources->network.n = bp_reader_uint(&inner, "network", 1, BP_JSON_INT_MAX, 0);
    if (!bp_reader_get(&inner, "compute", false))
        return;
    bp_decode_decimal(&inner, "compute", &resources->compute.n);
    if (resources->compute.n == 0)
        bp_reader_problem(&inner, BP_E_structure_violated, "compute", "must be left out when 0");
}

static const struct bp_form form_resources = {resources_write, resources_read};

static const struct bp_field task_fields[] = {
    {BP_FIELD("block", bp_form_text, struct bp_portable_task, block)},
    {BP_FIELD("capabilities", form_capabilities, struct bp_portable_task, capability)},
    {BP_FIELD("dependencies", bp_form_list, struct bp_portable_task, dependencies), .of = BP_ENTITY_TASK},
    {BP_FIELD("effects", bp_form_effects, struct bp_portable_task, effect)},
    {BP_FIELD("engine", bp_form_enum, struct bp_portable_task, engine), .names = bp_engine_names},
    {BP_FIELD("id", bp_form_id, struct bp_portable_task, id), .of = BP_ENTITY_TASK},
    {BP_FIELD("inputs", bp_form_list, struct bp_portable_task, inputs), .of = BP_ENTITY_BUFFER},
    {BP_FIELD("kind", bp_form_enum, struct bp_portable_task, kind), .names = bp_task_kind_names},
    {BP_FIELD("layer", bp_form_text, struct bp_portable_task, layer)},
    {BP_FIELD("lineage", bp_form_lineage, struct bp_portable_task, lineage)},
    {BP_FIELD("name", bp_form_text, struct bp_portable_task, name)},
    {BP_FIELD("outputs", bp_form_list, struct bp_portable_task, outputs), .of = BP_ENTITY_BUFFER},
    {BP_FIELD("phase", bp_form_enum, struct bp_portable_task, phase), .names = bp_phase_names},
    {BP_FIELD("ranks", bp_form_range, struct bp_portable_task, n_ranks)},
    {BP_FIELD("resources", form_resources, struct bp_portable_task, resources)},
    {BP_FIELD("workload", bp_form_work, struct bp_portable_task, work)},
};
static const struct bp_record task_record = {BP_RECORD_OF(struct bp_portable_task, task_fields), .has_id = true,
                                             .kind = BP_ENTITY_TASK};

static const struct bp_field buffer_fields[] = {
    {BP_FIELD("alignment_bytes", bp_form_uint, struct bp_portable_buffer, alignment)},
    {BP_FIELD("block", bp_form_text, struct bp_portable_buffer, block)},
    {BP_FIELD("consumers", bp_form_list, struct bp_portable_buffer, consumers), .of = BP_ENTITY_TASK},
    {BP_FIELD("id", bp_form_id, struct bp_portable_buffer, id), .of = BP_ENTITY_BUFFER},
    {BP_FIELD("lineage", bp_form_lineage, struct bp_portable_buffer, lineage)},
    {BP_FIELD("producers", bp_form_list, struct bp_portable_buffer, producers), .of = BP_ENTITY_TASK},
    {BP_FIELD("role", bp_form_enum, struct bp_portable_buffer, role), .names = bp_buffer_role_names},
    {BP_FIELD("size_bytes", bp_form_uint, struct bp_portable_buffer, size)},
    {BP_FIELD("storage", bp_form_enum, struct bp_portable_buffer, storage), .names = bp_storage_names},
};
static const struct bp_record buffer_record = {BP_RECORD_OF(struct bp_portable_buffer, buffer_fields), .has_id = true,
                                               .kind = BP_ENTITY_BUFFER};

static const struct bp_field root_fields[] = {
    {BP_FIELD("buffers", bp_form_array, struct bp_portable_ir, buffers), .record = &buffer_record,
     .count = offsetof(struct bp_portable_ir, n_buffers)},
    {BP_FIELD("parents", bp_form_parents, struct bp_portable_ir, parent)},
    {.key = "schema", .form = &bp_form_constant, .names = &bp_stage_schemas[BP_STAGE_PORTABLE]},
    {.key = "stage", .form = &bp_form_constant, .names = &bp_stage_names[BP_STAGE_PORTABLE]},
    {BP_FIELD("tasks", bp_form_array, struct bp_portable_ir, tasks), .record = &task_record,
     .count = offsetof(struct bp_portable_ir, n_tasks)},
};
static const struct bp_record root_record = {BP_RECORD_OF(struct bp_portable_ir, root_fields)};

int bp_portable_ir_encode(const struct bp_portable_ir *ir, struct bp_buf *out, struct bp_err *err)
{
    return bp_snapshot_encode(&root_record, ir, out, err);
}

const struct bp_portable_ir *bp_portable_ir_decode(const char *bytes, size_t n, struct bp_arena *arena,
                                                   struct bp_err *err)
{
    return bp_snapshot_decode(&root_record, bytes, n, arena, err);
}
