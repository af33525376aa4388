#include "common/ir/concrete_ir.h"

#include <string.h>

#include "common/ir/codec.h"

#define BP_QUEUE(suffix, name) name,
const char *const bp_queue_names[] = {
#include "common/ir/vocabulary.def"
    NULL};
#undef BP_QUEUE

/* By enum bp_target_kind. */
static const char *const extension_kinds[] = {"none", "queue-order", "slot-dataflow", NULL};

static const struct bp_field target_fields[] = {
    {BP_FIELD("fingerprint", bp_form_digest, struct bp_concrete_ir, target_fingerprint)},
};

static void target_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    (void)at;
    const struct bp_concrete_ir *ir = encoder->root;
    bp_writer_object(&encoder->writer);
    bp_writer_key(&encoder->writer, "fingerprint");
    bp_writer_digest(&encoder->writer, &ir->target_fingerprint);
    bp_writer_key(&encoder->writer, "kind");
    bp_encode_enum(encoder, bp_target_kind_names, ir->target);
    bp_writer_end(&encoder->writer);
}

static enum bp_target_kind target_kind_read(const struct bp_reader *reader, const char *const *names)
{
    return (enum bp_target_kind)(1 + bp_reader_enum(reader, "kind", names + 1, -1));
}

static void target_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                        void *at)
{
    static const char *const known[] = {"fingerprint", "kind", NULL};
    (void)at;
    struct bp_concrete_ir *ir = decoder->root;
    struct bp_reader inner = bp_reader_object(reader, field->key, true);
    bp_reader_refuse_unknown(&inner, known);
    bp_form_digest.read(decoder, target_fields, &inner, &ir->target_fingerprint);
    if (target_kind_read(&inner, bp_target_kind_names) != ir->target)
        bp_reader_problem(&inner, BP_E_structure_violated, "kind", "must be the target of the extension");
}

static const struct bp_form form_target = {target_write, target_read};

static void deployment_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    bp_writer_object(&encoder->writer);
    bp_writer_key(&encoder->writer, "fingerprint");
    bp_writer_digest(&encoder->writer, at);
    bp_writer_end(&encoder->writer);
}

static void deployment_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                            void *at)
{
    static const char *const known[] = {"fingerprint", NULL};
    struct bp_reader inner = bp_reader_object(reader, field->key, true);
    bp_reader_refuse_unknown(&inner, known);
    bp_form_digest.read(decoder, target_fields, &inner, at);
}

static const struct bp_form form_deployment = {deployment_write, deployment_read};

static void queue_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    const enum bp_queue queue = *(const enum bp_queue *)at;
    if (queue == BP_QUEUE_NONE)
        bp_writer_null(&encoder->writer);
    else
        bp_encode_enum(encoder, bp_queue_names, queue);
}

static void queue_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                       void *at)
{
    (void)decoder;
    const json_t *value = bp_reader_get(reader, field->key, true);
    if (json_is_null(value))
        *(enum bp_queue *)at = BP_QUEUE_NONE;
    else if (value)
        *(enum bp_queue *)at = (enum bp_queue)bp_reader_enum(reader, field->key, bp_queue_names, -1);
}

static const struct bp_form form_queue = {queue_write, queue_read};

static const struct bp_field use_fields[] = {
    {BP_FIELD("access", bp_form_enum, struct bp_concrete_use, access), .names = bp_access_names},
    {BP_FIELD("buffer", bp_form_reference, struct bp_concrete_use, buffer), .of = BP_ENTITY_BUFFER},
};
static const struct bp_record use_record = {BP_RECORD_OF(struct bp_concrete_use, use_fields)};

/* Written as text: a command has several, and they are most of what a concrete snapshot holds. */
static void uses_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
#define BP_ACCESS(suffix, name)                                                                                        \
    {sizeof(name) - 1 + sizeof "{'access':'','buffer':" - 1, "{\"access\":\"" name "\",\"buffer\":"},
    static const struct {
        size_t n;
        char text[40];
    } heads[] = {
#include "common/ir/vocabulary.def"
    };
#undef BP_ACCESS
    const struct bp_concrete_command *command = (const void *)((const char *)at - field->at);
    const struct bp_id_text *buffers = encoder->ids[BP_ENTITY_BUFFER].at;
    char *to = bp_writer_room(&encoder->writer, 2 + command->n_uses * (sizeof *buffers + sizeof *heads));
    if (!to)
        return;
    *to++ = '[';
    for (const struct bp_concrete_use *use = command->uses; use < command->uses + command->n_uses; use++) {
        if (use->buffer >= encoder->ids[BP_ENTITY_BUFFER].n || use->access >= BP_ACCESS_N) {
            encoder->writer.breach = "a use of no buffer or of no kind";
            return;
        }
        if (use != command->uses)
            *to++ = ',';
        memcpy(to, heads[use->access].text, sizeof heads->text);
        to += heads[use->access].n;
        memcpy(to, buffers[use->buffer].text, sizeof buffers->text);
        to += buffers[use->buffer].len;
        *to++ = '}';
    }
    *to++ = ']';
    bp_writer_take(&encoder->writer, to);
}

static void uses_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                      void *at)
{
    bp_form_array.read(decoder, field, reader, at);
}

static const struct bp_form form_uses = {uses_write, uses_read};

/* One queue of the extension, as it stands in text. */
struct queue_text {
    enum bp_queue queue;
    struct bp_list commands;
};
static const struct bp_field queue_fields[] = {
    {BP_FIELD("commands", bp_form_list, struct queue_text, commands), .of = BP_ENTITY_COMMAND},
    {BP_FIELD("queue", bp_form_enum, struct queue_text, queue), .names = bp_queue_names},
};
static const struct bp_record queue_record = {BP_RECORD_OF(struct queue_text, queue_fields)};

static const struct bp_field issue_fields[] = {
    {BP_FIELD("command", bp_form_reference, struct bp_slot_issue, command), .of = BP_ENTITY_COMMAND},
    {BP_FIELD("cycle", bp_form_uint, struct bp_slot_issue, cycle)},
    {BP_FIELD("slot", bp_form_uint, struct bp_slot_issue, slot)},
};
static const struct bp_record issue_record = {BP_RECORD_OF(struct bp_slot_issue, issue_fields)};

static const struct bp_field route_fields[] = {
    {BP_FIELD("channel", bp_form_uint, struct bp_slot_route, channel)},
    {BP_FIELD("command", bp_form_reference, struct bp_slot_route, command), .of = BP_ENTITY_COMMAND},
    {BP_FIELD("destination", bp_form_uint, struct bp_slot_route, destination)},
    {BP_FIELD("source", bp_form_uint, struct bp_slot_route, source)},
};
static const struct bp_record route_record = {BP_RECORD_OF(struct bp_slot_route, route_fields)};

/* Both extensions are records of a struct of their own, so that their keys are those of the form; `kind` is apart, as
 * it says which of them it is. */
static const struct bp_field issue_field = {BP_FIELD("issue", bp_form_array, struct bp_concrete_ir, issues),
                                            .record = &issue_record,
                                            .count = offsetof(struct bp_concrete_ir, n_issues)};
static const struct bp_field route_field = {BP_FIELD("routes", bp_form_array, struct bp_concrete_ir, routes),
                                            .record = &route_record,
                                            .count = offsetof(struct bp_concrete_ir, n_routes)};

static void queues_write(struct bp_encoder *encoder, const struct bp_concrete_ir *ir)
{
    bp_writer_key(&encoder->writer, "queues");
    bp_writer_array(&encoder->writer);
    for (unsigned i = 0; i < BP_QUEUE_NONE; i++) {
        const struct queue_text queue = {(enum bp_queue)i, ir->queues[i]};
        bp_encode_record(encoder, &queue_record, &queue);
    }
    bp_writer_end(&encoder->writer);
}

static void extension_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    (void)at;
    const struct bp_concrete_ir *ir = encoder->root;
    struct bp_writer *writer = &encoder->writer;
    bp_writer_object(writer);
    if (ir->target == BP_TARGET_SLOT) {
        bp_writer_key(writer, "issue");
        bp_form_array.write(encoder, &issue_field, (const char *)ir + issue_field.at);
    }
    bp_writer_key(writer, "kind");
    bp_encode_enum(encoder, extension_kinds, ir->target);
    if (ir->target == BP_TARGET_SLOT) {
        bp_writer_key(writer, "routes");
        bp_form_array.write(encoder, &route_field, (const char *)ir + route_field.at);
    } else {
        queues_write(encoder, ir);
    }
    bp_writer_end(writer);
}

static void queues_read(struct bp_decoder *decoder, const struct bp_reader *extension, struct bp_concrete_ir *ir)
{
    const json_t *array = bp_decode_json_array(extension, "queues");
    if (array && json_array_size(array) != BP_QUEUE_NONE) {
        bp_reader_problem(extension, BP_E_structure_violated, "queues", "must have %d members", BP_QUEUE_NONE);
        return;
    }
    for (unsigned i = 0; array && i < BP_QUEUE_NONE; i++) {
        struct queue_text queue = {.queue = BP_QUEUE_NONE};
        struct bp_reader item = bp_decode_item(extension, "queues", i);
        if (item.object)
            bp_decode_record(decoder, &queue_record, &item, &queue);
        if (item.object && queue.queue != (enum bp_queue)i)
            bp_reader_problem(&item, BP_E_structure_violated, "queue", "must be %s", bp_queue_names[i]);
        ir->queues[i] = queue.commands;
    }
}

/* The target, a later key, is held to what the extension says. */
static void extension_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                           void *at)
{
    static const char *const queue_known[] = {"kind", "queues", NULL}, *const slot_known[] = {"issue", "kind", "routes",
                                                                                              NULL};
    (void)at;
    struct bp_concrete_ir *ir = decoder->root;
    struct bp_reader inner = bp_reader_object(reader, field->key, true);
    if (!inner.object)
        return;
    ir->target = target_kind_read(&inner, extension_kinds);
    if (ir->target == BP_TARGET_SLOT) {
        bp_reader_refuse_unknown(&inner, slot_known);
        bp_form_array.read(decoder, &issue_field, &inner, (char *)ir + issue_field.at);
        bp_form_array.read(decoder, &route_field, &inner, (char *)ir + route_field.at);
    } else {
        bp_reader_refuse_unknown(&inner, queue_known);
        queues_read(decoder, &inner, ir);
    }
}

static const struct bp_form form_extension = {extension_write, extension_read};

static const struct bp_field region_fields[] = {
    {BP_FIELD("capacity_bytes", bp_form_uint, struct bp_concrete_region, capacity)},
    {BP_FIELD("device", bp_form_uint, struct bp_concrete_region, device)},
    {BP_FIELD("id", bp_form_id, struct bp_concrete_region, id), .of = BP_ENTITY_REGION},
};
static const struct bp_record region_record = {BP_RECORD_OF(struct bp_concrete_region, region_fields), .has_id = true,
                                               .kind = BP_ENTITY_REGION};

static const struct bp_field buffer_fields[] = {
    {BP_FIELD("alignment_bytes", bp_form_uint, struct bp_concrete_buffer, alignment)},
    {BP_FIELD("id", bp_form_id, struct bp_concrete_buffer, id), .of = BP_ENTITY_BUFFER},
    {BP_FIELD("lineage", bp_form_lineage, struct bp_concrete_buffer, lineage)},
    {BP_FIELD("offset_bytes", bp_form_uint, struct bp_concrete_buffer, offset)},
    {BP_FIELD("region", bp_form_reference, struct bp_concrete_buffer, region), .of = BP_ENTITY_REGION},
    {BP_FIELD("size_bytes", bp_form_uint, struct bp_concrete_buffer, size)},
    {BP_FIELD("source", bp_form_id, struct bp_concrete_buffer, source), .of = BP_ENTITY_BUFFER},
};
static const struct bp_record buffer_record = {BP_RECORD_OF(struct bp_concrete_buffer, buffer_fields), .has_id = true,
                                               .kind = BP_ENTITY_BUFFER};

static const struct bp_field command_fields[] = {
    {BP_FIELD("buffers", form_uses, struct bp_concrete_command, uses), .record = &use_record,
     .count = offsetof(struct bp_concrete_command, n_uses)},
    {BP_FIELD("dependencies", bp_form_list, struct bp_concrete_command, dependencies), .of = BP_ENTITY_COMMAND},
    {BP_FIELD("id", bp_form_id, struct bp_concrete_command, id), .of = BP_ENTITY_COMMAND},
    {BP_FIELD("implementation", bp_form_text, struct bp_concrete_command, implementation)},
    {BP_FIELD("kind", bp_form_enum, struct bp_concrete_command, kind), .names = bp_task_kind_names},
    {BP_FIELD("lineage", bp_form_lineage, struct bp_concrete_command, lineage)},
    {BP_FIELD("queue", form_queue, struct bp_concrete_command, queue)},
    {BP_FIELD("task", bp_form_id, struct bp_concrete_command, task), .of = BP_ENTITY_TASK},
};
static const struct bp_record command_record = {BP_RECORD_OF(struct bp_concrete_command, command_fields),
                                                .has_id = true, .kind = BP_ENTITY_COMMAND};

static const struct bp_field root_fields[] = {
    {BP_FIELD("buffers", bp_form_array, struct bp_concrete_ir, buffers), .record = &buffer_record,
     .count = offsetof(struct bp_concrete_ir, n_buffers)},
    {BP_FIELD("commands", bp_form_array, struct bp_concrete_ir, commands), .record = &command_record,
     .count = offsetof(struct bp_concrete_ir, n_commands)},
    {BP_FIELD("deployment", form_deployment, struct bp_concrete_ir, deployment_fingerprint)},
    {BP_FIELD("devices", bp_form_range, struct bp_concrete_ir, n_devices)},
    {.key = "extension", .form = &form_extension},
    {BP_FIELD("parents", bp_form_parents, struct bp_concrete_ir, parent)},
    {BP_FIELD("regions", bp_form_array, struct bp_concrete_ir, regions), .record = &region_record,
     .count = offsetof(struct bp_concrete_ir, n_regions)},
    {.key = "schema", .form = &bp_form_constant, .names = &bp_stage_schemas[BP_STAGE_CONCRETE]},
    {.key = "stage", .form = &bp_form_constant, .names = &bp_stage_names[BP_STAGE_CONCRETE]},
    {.key = "target", .form = &form_target},
};
static const struct bp_record root_record = {BP_RECORD_OF(struct bp_concrete_ir, root_fields)};

int bp_concrete_ir_encode(const struct bp_concrete_ir *ir, struct bp_buf *out, struct bp_err *err)
{
    return bp_snapshot_encode(&root_record, ir, out, err);
}

const struct bp_concrete_ir *bp_concrete_ir_decode(const char *bytes, size_t n, struct bp_arena *arena,
                                                   struct bp_err *err)
{
    return bp_snapshot_decode(&root_record, bytes, n, arena, err);
}
