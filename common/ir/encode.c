/* The writing half of the codec that the forms share, and the whole snapshot. */
#include "common/ir/codec.h"

#include <string.h>

/* The shape of a record, made when the first one is written. */
static const struct bp_shape *shape_of(struct bp_encoder *encoder, const struct bp_record *record)
{
    size_t i = 0;
    while (encoder->shapes[i].record && encoder->shapes[i].record != record)
        i++;
    if (!encoder->shapes[i].record) {
        encoder->shapes[i].record = record;
        for (unsigned k = 0; k < record->n_fields; k++)
            bp_shape_key(&encoder->shapes[i].shape, record->fields[k].key);
    }
    return &encoder->shapes[i].shape;
}

void bp_encode_record(struct bp_encoder *encoder, const struct bp_record *record, const void *at)
{
    bp_writer_shaped(&encoder->writer, shape_of(encoder, record));
    for (const struct bp_field *field = record->fields; field < record->fields + record->n_fields; field++)
        field->form->write(encoder, field, (const char *)at + field->at);
    bp_writer_end(&encoder->writer);
}

void bp_encode_enum(struct bp_encoder *encoder, const char *const *names, unsigned value)
{
    unsigned i = 0;
    while (i < value && names[i])
        i++;
    if (names[i])
        bp_writer_string(&encoder->writer, names[i]);
    else
        encoder->writer.breach = "a word that is none of the vocabulary";
}

static void range_prepare(struct bp_encoder *encoder, uint64_t n)
{
    char *text = bp_arena_array(&encoder->scratch, 5 * n + BP_U128_TEXT, 1);
    if (!text) {
        encoder->writer.out->failed = true;
        return;
    }
    char *end = text;
    *end++ = '[';
    for (uint64_t i = 0; i < n; i++) {
        if (i)
            *end++ = ',';
        end += bp_u128_format(i, end);
    }
    *end++ = ']';
    encoder->range.text = text;
    encoder->range.len = (size_t)(end - text);
    encoder->range.n = n;
}

void bp_encode_range(struct bp_encoder *encoder, uint64_t n)
{
    if (n > BP_TENSOR_PARALLEL_MAX) {
        encoder->writer.breach = "a list of ranks past the largest degree";
        return;
    }
    if (!encoder->range.text || encoder->range.n != n)
        range_prepare(encoder, n);
    bp_writer_raw(&encoder->writer, encoder->range.text, encoder->range.len);
}

static uint32_t array_count(const struct bp_field *field, const void *ir)
{
    uint32_t n;
    memcpy(&n, (const char *)ir + field->count, sizeof n);
    return n;
}

static const char *array_at(const struct bp_field *field, const void *ir)
{
    const void *at;
    memcpy(&at, (const char *)ir + field->at, sizeof at);
    return at;
}

/* Ids into text once, however often they are referred to. */
static bool ids_prepare(struct bp_encoder *encoder, const struct bp_record *root)
{
    size_t n_all = 0;
    for (const struct bp_field *field = root->fields; field < root->fields + root->n_fields; field++) {
        if (field->form != &bp_form_array || !field->record->has_id)
            continue;
        const uint32_t n = array_count(field, encoder->root);
        const char *at = array_at(field, encoder->root);
        struct bp_id_text *ids = bp_arena_array(&encoder->scratch, n, sizeof *ids);
        if (!ids)
            return false;
        for (uint32_t i = 0; i < n; i++, at += field->record->size) {
            const char *end = bp_id_put(ids[i].text, (const struct bp_id *)(const void *)at);
            ids[i].len = (uint8_t)(end - ids[i].text);
        }
        encoder->ids[field->record->kind].at = ids;
        encoder->ids[field->record->kind].n = n;
        n_all += n;
    }
    bp_buf_reserve(encoder->writer.out, 4096 + 1024 * n_all);
    return true;
}

int bp_snapshot_encode(const struct bp_record *root, const void *ir, struct bp_buf *out, struct bp_err *err)
{
    struct bp_encoder encoder = {.writer = {.out = out}, .root = ir};
    int result = -1;
    if (ids_prepare(&encoder, root)) {
        bp_encode_record(&encoder, root, ir);
        result = bp_writer_finish(&encoder.writer, err);
    } else {
        bp_fail(err, BP_E_out_of_memory, "", "no memory to encode a snapshot");
    }
    bp_arena_release(&encoder.scratch);
    return result;
}
