/* The forms that members have in JSON. */
#include "common/ir/codec.h"

#include <stdlib.h>
#include <string.h>

static void text_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    const char *text;
    memcpy(&text, at, sizeof text);
    bp_writer_string(&encoder->writer, text);
}

static void decode_text(struct bp_decoder *decoder, const struct bp_reader *reader, const char *key, void *at)
{
    const char *text = bp_reader_string(reader, key, true);
    if (!text)
        return;
    const char *copy = bp_arena_strndup(decoder->arena, text, strlen(text));
    if (copy)
        memcpy(at, &copy, sizeof copy);
    else
        decoder->out_of_memory = true;
}

static void text_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                      void *at)
{
    decode_text(decoder, reader, field->key, at);
}

static void uint_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    uint64_t value;
    memcpy(&value, at, sizeof value);
    bp_writer_uint(&encoder->writer, value);
}

static void uint_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                      void *at)
{
    (void)decoder;
    const uint64_t value = bp_reader_uint_required(reader, field->key, 0, BP_JSON_INT_MAX);
    memcpy(at, &value, sizeof value);
}

static void bool_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    bp_writer_bool(&encoder->writer, *(const bool *)at);
}

static void bool_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                      void *at)
{
    (void)decoder;
    if (bp_reader_get(reader, field->key, true))
        *(bool *)at = bp_reader_bool(reader, field->key, false);
}

static void enum_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    unsigned value;
    memcpy(&value, at, sizeof value);
    bp_encode_enum(encoder, field->names, value);
}

static void enum_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                      void *at)
{
    (void)decoder;
    const unsigned value = (unsigned)bp_reader_enum(reader, field->key, field->names, -1);
    memcpy(at, &value, sizeof value);
}
_Static_assert(sizeof(enum bp_engine) == sizeof(unsigned), "an enum is read and written as an unsigned");

static void digest_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    bp_writer_digest(&encoder->writer, at);
}

static void digest_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                        void *at)
{
    (void)decoder;
    const char *text = bp_reader_string(reader, field->key, true);
    if (text && !bp_digest_parse(text, at))
        bp_reader_problem(reader, BP_E_structure_violated, field->key, "must be a digest");
}

static void constant_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)at;
    bp_writer_string(&encoder->writer, *field->names);
}

static void constant_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                          void *at)
{
    (void)decoder;
    (void)at;
    const char *text = bp_reader_string(reader, field->key, true);
    if (text && strcmp(text, *field->names) != 0)
        bp_reader_problem(reader, BP_E_structure_violated, field->key, "must be %s", *field->names);
}

static void parents_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    bp_writer_array(&encoder->writer);
    bp_writer_digest(&encoder->writer, at);
    bp_writer_end(&encoder->writer);
}

static void parents_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                         void *at)
{
    (void)decoder;
    const json_t *array = bp_decode_json_array(reader, field->key);
    const char *text = json_string_value(json_array_get(array, 0));
    if (array && (json_array_size(array) != 1 || !text || !bp_digest_parse(text, at)))
        bp_reader_problem(reader, BP_E_structure_violated, field->key, "must be the digest of one parent");
}

static void id_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    bp_writer_id(&encoder->writer, at);
}

static void id_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader, void *at)
{
    (void)decoder;
    struct bp_id id;
    const char *text = bp_reader_string(reader, field->key, true);
    if (!text)
        return;
    if (bp_id_parse(text, &id) && id.kind == field->of)
        memcpy(at, &id, sizeof id);
    else
        bp_reader_problem(reader, BP_E_structure_violated, field->key, "must be the id of a %s",
                          bp_entity_names[field->of]);
}

static void encode_reference(struct bp_encoder *encoder, enum bp_entity_kind of, uint32_t at)
{
    if (at < encoder->ids[of].n)
        bp_writer_raw(&encoder->writer, encoder->ids[of].at[at].text, encoder->ids[of].at[at].len);
    else
        encoder->writer.breach = "a reference past the end";
}

static void reference_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    encode_reference(encoder, field->of, *(const uint32_t *)at);
}

/* The position of an id of this snapshot; false after a problem at reader/key. */
static bool decode_reference(const struct bp_decoder *decoder, enum bp_entity_kind of, const json_t *value,
                             const struct bp_reader *reader, const char *key, uint32_t *ret)
{
    struct bp_known_id wanted;
    const struct bp_known_id *found = NULL;
    const char *text = json_string_value(value);
    if (text && bp_id_parse(text, &wanted.id) && wanted.id.kind == of)
        found = bsearch(&wanted, decoder->ids[of].sorted, decoder->ids[of].n, sizeof *found, bp_known_id_compare);
    if (found)
        *ret = found->at;
    else
        bp_reader_problem(reader, BP_E_structure_violated, key, "must be the id of a %s of this snapshot",
                          bp_entity_names[of]);
    return found != NULL;
}

static void reference_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                           void *at)
{
    const json_t *value = bp_reader_get(reader, field->key, true);
    if (value)
        decode_reference(decoder, field->of, value, reader, field->key, at);
}

static void list_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    const struct bp_list *list = at;
    const struct bp_id_text *ids = encoder->ids[field->of].at;
    char *to = bp_writer_room(&encoder->writer, 2 + (size_t)list->n * sizeof *ids);
    if (!to)
        return;
    *to++ = '[';
    for (uint32_t i = 0; i < list->n; i++) {
        if (list->at[i] >= encoder->ids[field->of].n) {
            encoder->writer.breach = "a reference past the end";
            return;
        }
        if (i)
            *to++ = ',';
        memcpy(to, ids[list->at[i]].text, sizeof ids->text);
        to += ids[list->at[i]].len;
    }
    *to++ = ']';
    bp_writer_take(&encoder->writer, to);
}

static void list_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                      void *at)
{
    const json_t *array = bp_decode_json_array(reader, field->key);
    const size_t n = json_array_size(array);
    uint32_t *positions = bp_decode_array(decoder, n, sizeof *positions);
    if (!positions)
        return;
    for (size_t i = 0; i < n; i++) {
        struct bp_reader list = {.problems = reader->problems};
        char index[BP_U128_TEXT];
        bp_u128_format(i, index);
        bp_reader_pointer(reader, field->key, list.pointer);
        if (!decode_reference(decoder, field->of, json_array_get(array, i), &list, index, &positions[i]))
            return;
        if (i && positions[i] <= positions[i - 1]) {
            bp_reader_problem(&list, BP_E_structure_violated, index, "must come after the member before it");
            return;
        }
    }
    *(struct bp_list *)at = (struct bp_list){positions, (uint32_t)n};
}

static void range_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    bp_encode_range(encoder, *(const uint64_t *)at);
}

static void range_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                       void *at)
{
    (void)decoder;
    const json_t *array = bp_decode_json_array(reader, field->key);
    const uint64_t n = json_array_size(array);
    if (n > BP_TENSOR_PARALLEL_MAX)
        bp_reader_problem(reader, BP_E_structure_violated, field->key, "must have at most %d members",
                          BP_TENSOR_PARALLEL_MAX);
    else if (array)
        bp_decode_range(reader, field->key, n);
    *(uint64_t *)at = n;
}

/* The text of a lineage as far as its sources: rules are few, so it is made when the rule changes. */
static bool lineage_head(struct bp_encoder *encoder, const char *rule)
{
    struct bp_buf text = {0};
    struct bp_writer writer = {.out = &text};
    bp_writer_object(&writer);
    bp_writer_key(&writer, "rule");
    bp_writer_string(&writer, rule);
    bp_writer_key(&writer, "sources");
    if (writer.breach)
        encoder->writer.breach = writer.breach;
    encoder->lineage.text = text.failed ? NULL : bp_arena_strndup(&encoder->scratch, text.data, text.len);
    encoder->lineage.len = text.len;
    encoder->lineage.rule = rule;
    encoder->writer.out->failed |= !encoder->lineage.text;
    bp_buf_release(&text);
    return encoder->lineage.text != NULL;
}

static void lineage_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    const struct bp_lineage *lineage = at;
    const char *last = encoder->lineage.rule;
    const bool known = last && (lineage->rule == last || strcmp(lineage->rule, last) == 0);
    if (!known && !lineage_head(encoder, lineage->rule))
        return;
    char *to = bp_writer_room(&encoder->writer, encoder->lineage.len + (size_t)lineage->n_sources * BP_ID_TEXT + 4);
    if (!to)
        return;
    memcpy(to, encoder->lineage.text, encoder->lineage.len);
    to += encoder->lineage.len;
    *to++ = '[';
    for (uint32_t i = 0; i < lineage->n_sources; i++) {
        if (i)
            *to++ = ',';
        to = bp_id_put(to, &lineage->sources[i]);
    }
    *to++ = ']';
    *to++ = '}';
    bp_writer_take(&encoder->writer, to);
}

static void lineage_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                         void *at)
{
    static const char *const known[] = {"rule", "sources", NULL};
    struct bp_lineage *lineage = at;
    struct bp_reader inner = bp_reader_object(reader, field->key, true);
    bp_reader_refuse_unknown(&inner, known);
    decode_text(decoder, &inner, "rule", &lineage->rule);
    const json_t *array = inner.object ? bp_decode_json_array(&inner, "sources") : NULL;
    const size_t n = json_array_size(array);
    struct bp_id *sources = bp_decode_array(decoder, n, sizeof *sources);
    if (!sources)
        return;
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value(json_array_get(array, i));
        if (!text || !bp_id_parse(text, &sources[i])) {
            bp_reader_problem(&inner, BP_E_structure_violated, "sources", "must be ids; member %zu is not", i);
            return;
        }
    }
    lineage->sources = sources;
    lineage->n_sources = (uint32_t)n;
}

static void work_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    bp_work_write(&encoder->writer, at);
}

static void work_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                      void *at)
{
    static const char *const known[] = {"message_bytes", "operations", "read_bytes", "write_bytes", NULL};
    (void)decoder;
    struct bp_work *work = at;
    struct bp_reader inner = bp_reader_object(reader, field->key, true);
    bp_reader_refuse_unknown(&inner, known);
    work->message.n = bp_reader_uint_required(&inner, "message_bytes", 0, BP_JSON_INT_MAX);
    work->read.n = bp_reader_uint_required(&inner, "read_bytes", 0, BP_JSON_INT_MAX);
    work->write.n = bp_reader_uint_required(&inner, "write_bytes", 0, BP_JSON_INT_MAX);
    bp_decode_decimal(&inner, "operations", &work->operations.n);
}

static void effects_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    (void)field;
    const struct bp_effect *effect = at;
    bp_writer_array(&encoder->writer);
    if (effect->has) {
        bp_writer_object(&encoder->writer);
        bp_writer_key(&encoder->writer, "access");
        bp_encode_enum(encoder, bp_access_names, effect->access);
        bp_writer_key(&encoder->writer, "state");
        bp_writer_string(&encoder->writer, "kv_cache");
        bp_writer_end(&encoder->writer);
    }
    bp_writer_end(&encoder->writer);
}

static void effects_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                         void *at)
{
    static const char *const known[] = {"access", "state", NULL}, *const states[] = {"kv_cache", NULL};
    (void)decoder;
    struct bp_effect *effect = at;
    const json_t *array = bp_decode_json_array(reader, field->key);
    if (json_array_size(array) > 1)
        bp_reader_problem(reader, BP_E_structure_violated, field->key, "must have at most one member");
    if (json_array_size(array) != 1)
        return;
    struct bp_reader inner = bp_decode_item(reader, field->key, 0);
    bp_reader_refuse_unknown(&inner, known);
    bp_reader_enum(&inner, "state", states, -1);
    effect->has = true;
    effect->access = (enum bp_access)bp_reader_enum(&inner, "access", bp_access_names, -1);
}

static void array_write(struct bp_encoder *encoder, const struct bp_field *field, const void *at)
{
    const char *item;
    uint32_t n;
    memcpy(&item, at, sizeof item);
    memcpy(&n, (const char *)at - field->at + field->count, sizeof n);
    bp_writer_array(&encoder->writer);
    for (uint32_t i = 0; i < n; i++, item += field->record->size)
        bp_encode_record(encoder, field->record, item);
    bp_writer_end(&encoder->writer);
}

static void array_read(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader,
                       void *at)
{
    const uint32_t n = (uint32_t)json_array_size(bp_decode_json_array(reader, field->key));
    char *items = bp_decode_array(decoder, n, field->record->size);
    for (uint32_t i = 0; i < n && !decoder->out_of_memory; i++) {
        struct bp_reader item = bp_decode_item(reader, field->key, i);
        if (item.object)
            bp_decode_record(decoder, field->record, &item, items + i * field->record->size);
    }
    memcpy(at, &items, sizeof items);
    memcpy((char *)at - field->at + field->count, &n, sizeof n);
}

const struct bp_form bp_form_text = {text_write, text_read}, bp_form_uint = {uint_write, uint_read},
                     bp_form_bool = {bool_write, bool_read}, bp_form_enum = {enum_write, enum_read},
                     bp_form_digest = {digest_write, digest_read}, bp_form_constant = {constant_write, constant_read},
                     bp_form_parents = {parents_write, parents_read}, bp_form_id = {id_write, id_read},
                     bp_form_reference = {reference_write, reference_read}, bp_form_list = {list_write, list_read},
                     bp_form_range = {range_write, range_read}, bp_form_lineage = {lineage_write, lineage_read},
                     bp_form_work = {work_write, work_read}, bp_form_effects = {effects_write, effects_read},
                     bp_form_array = {array_write, array_read};
