/* The reading half of the codec that the forms share, and the whole snapshot. */
#include "common/ir/codec.h"

#include <stdlib.h>
#include <string.h>

void *bp_decode_array(struct bp_decoder *decoder, size_t n, size_t size)
{
    void *at = bp_arena_array(decoder->arena, n, size);
    if (!at)
        decoder->out_of_memory = true;
    return at;
}

static void item_pointer(const struct bp_reader *reader, const char *key, size_t at, char ret[BP_POINTER_MAX])
{
    struct bp_reader array = {0};
    char index[BP_U128_TEXT];
    bp_reader_pointer(reader, key, array.pointer);
    bp_u128_format(at, index);
    bp_reader_pointer(&array, index, ret);
}

struct bp_reader bp_decode_item(const struct bp_reader *reader, const char *key, size_t at)
{
    char pointer[BP_POINTER_MAX];
    item_pointer(reader, key, at, pointer);
    return bp_reader_of(json_array_get(json_object_get(reader->object, key), at), pointer, reader->problems);
}

const json_t *bp_decode_json_array(const struct bp_reader *reader, const char *key)
{
    const json_t *array = bp_reader_get(reader, key, true);
    if (!array)
        return NULL;
    if (!json_is_array(array) || json_array_size(array) > UINT32_MAX) {
        bp_reader_problem(reader, BP_E_wrong_type, key, "must be an array");
        return NULL;
    }
    return array;
}

void bp_decode_record(struct bp_decoder *decoder, const struct bp_record *record, const struct bp_reader *reader,
                      void *at)
{
    const char *known[BP_SHAPE_KEYS_MAX + 1] = {0};
    for (unsigned i = 0; i < record->n_fields && !decoder->out_of_memory; i++) {
        const struct bp_field *field = &record->fields[i];
        known[i] = field->key;
        field->form->read(decoder, field, reader, (char *)at + field->at);
    }
    bp_reader_refuse_unknown(reader, known);
}

void bp_decode_range(const struct bp_reader *reader, const char *key, uint64_t n)
{
    const json_t *array = bp_decode_json_array(reader, key);
    if (!array)
        return;
    if (json_array_size(array) != n) {
        bp_reader_problem(reader, BP_E_structure_violated, key, "must have %llu members", (unsigned long long)n);
        return;
    }
    size_t i;
    json_t *item;
    json_array_foreach(array, i, item) {
        if (!json_is_integer(item) || json_integer_value(item) != (json_int_t)i) {
            char pointer[BP_POINTER_MAX];
            item_pointer(reader, key, i, pointer);
            bp_problems_add(reader->problems, BP_E_structure_violated, pointer, "must be %zu", i);
            return;
        }
    }
}

void bp_decode_decimal(const struct bp_reader *reader, const char *key, bp_u128 *ret)
{
    const char *text = bp_reader_string(reader, key, true);
    if (text && !bp_u128_parse(text, ret))
        bp_reader_problem(reader, BP_E_structure_violated, key, "must be a decimal of at most 128 bits");
}

int bp_known_id_compare(const void *a, const void *b)
{
    const struct bp_known_id *x = a, *y = b;
    return memcmp(x->id.hash, y->id.hash, sizeof x->id.hash);
}

/* What the snapshot's own ids stand for, before anything that may refer to them is read. Ids that are none are left
 * for the record's reader to find. */
static void ids_collect(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *root)
{
    const json_t *array = json_object_get(root->object, field->key);
    const size_t n = json_array_size(array);
    struct bp_known_id *known = bp_decode_array(decoder, n, sizeof *known);
    if (!known)
        return;
    uint32_t n_known = 0;
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value(json_object_get(json_array_get(array, i), "id"));
        if (text && bp_id_parse(text, &known[n_known].id) && known[n_known].id.kind == field->record->kind)
            known[n_known++].at = (uint32_t)i;
    }
    qsort(known, n_known, sizeof *known, bp_known_id_compare);
    for (uint32_t i = 1; i < n_known; i++) {
        if (bp_known_id_compare(&known[i - 1], &known[i]) == 0) {
            struct bp_reader item = bp_decode_item(root, field->key, known[i].at);
            bp_reader_problem(&item, BP_E_structure_violated, "id", "is another entity's id too");
        }
    }
    decoder->ids[field->record->kind].sorted = known;
    decoder->ids[field->record->kind].n = n_known;
}

static void *decode_root(struct bp_decoder *decoder, const struct bp_record *root, const json_t *value)
{
    struct bp_reader reader = bp_reader_of(value, "", &decoder->problems);
    decoder->root = bp_decode_array(decoder, 1, root->size);
    for (unsigned i = 0; i < root->n_fields && !decoder->out_of_memory; i++)
        if (root->fields[i].form == &bp_form_array && root->fields[i].record->has_id)
            ids_collect(decoder, &root->fields[i], &reader);
    if (!decoder->out_of_memory)
        bp_decode_record(decoder, root, &reader, decoder->root);
    return decoder->root;
}

void *bp_snapshot_decode(const struct bp_record *root, const char *bytes, size_t n, struct bp_arena *arena,
                         struct bp_err *err)
{
    struct bp_json_position position;
    json_t *value = bp_json_parse(bytes, n, &position, err);
    if (!value)
        return NULL;
    struct bp_decoder decoder = {.arena = arena};
    void *ir = decode_root(&decoder, root, value);
    if (decoder.out_of_memory || decoder.problems.out_of_memory) {
        bp_fail(err, BP_E_out_of_memory, "", "no memory to decode a snapshot");
        ir = NULL;
    } else if (!bp_problems_none(&decoder.problems)) {
        bp_fail(err, BP_E_structure_violated, decoder.problems.at[0].path, "%s", decoder.problems.at[0].message);
        ir = NULL;
    }
    bp_problems_release(&decoder.problems);
    json_decref(value);
    return ir;
}
