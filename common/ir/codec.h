/* How snapshots become text and text becomes snapshots; for the stages' own files.
 *
 * A record is a table of fields: the key, where the member lies in the struct, and its form, which can write it and
 * read it back. One table serves encoder and decoder, so a key cannot be written and not read, and the keys of a record
 * are put into text and order-checked once a snapshot. Entities refer to each other by index in memory and by id in
 * text. One thread at a time.
 */
#ifndef BP_IR_CODEC_H
#define BP_IR_CODEC_H

#include "common/ir/ir.h"

struct bp_encoder;
struct bp_decoder;
struct bp_field;

/* `at` is the member. A read adds its problems to the reader's list and leaves the member alone when it has any. */
struct bp_form {
    void (*write)(struct bp_encoder *encoder, const struct bp_field *field, const void *at);
    void (*read)(struct bp_decoder *decoder, const struct bp_field *field, const struct bp_reader *reader, void *at);
};

/* Only what the form asks for is set beside the first three. */
struct bp_field {
    const char *key;
    const struct bp_form *form;
    size_t at;
    const char *const *names;       /* of an enum; of a constant, its text */
    enum bp_entity_kind of;         /* of an id, a reference or a list */
    const struct bp_record *record; /* of an array */
    size_t count;                   /* of an array: where its uint32_t length lies */
};

#define BP_FIELD(json_key, json_form, type, member)                                                                    \
    .key = (json_key), .form = &(json_form), .at = offsetof(type, member)

/* Fields in the order of their keys, at most BP_SHAPE_KEYS_MAX. With `has_id` the struct begins with a struct bp_id of
 * that kind, and others of the snapshot may refer to it. */
struct bp_record {
    const struct bp_field *fields;
    unsigned n_fields;
    size_t size;
    bool has_id;
    enum bp_entity_kind kind;
};
#define BP_RECORD_OF(type, table) .fields = (table), .n_fields = sizeof(table) / sizeof *(table), .size = sizeof(type)

extern const struct bp_form bp_form_text, /* const char * */
    bp_form_uint,                         /* uint64_t or struct bp_bytes */
    bp_form_bool,                         /* bool */
    bp_form_enum,                         /* an enum, by its `names` */
    bp_form_digest,                       /* struct bp_digest */
    bp_form_constant,                     /* nothing in memory: the first of `names` */
    bp_form_parents,                      /* struct bp_digest, as an array of one */
    bp_form_id,                           /* struct bp_id of kind `of`, this snapshot's or another's */
    bp_form_reference,                    /* uint32_t, a position in this snapshot's array of `of` */
    bp_form_list,                         /* struct bp_list of such positions */
    bp_form_range,                        /* uint64_t n: the integers 0 to n - 1 */
    bp_form_lineage,                      /* struct bp_lineage */
    bp_form_work,                         /* struct bp_work */
    bp_form_effects,                      /* struct bp_effect, as an array of none or one */
    bp_form_array;                        /* a pointer to structs of `record`, and their count */

/* Kinds of record in one snapshot. */
enum { BP_RECORDS_MAX = 8 };

struct bp_id_text {
    size_t len;
    char text[BP_ID_TEXT]; /* quoted */
};

struct bp_encoder {
    struct bp_writer writer;
    const void *root; /* the snapshot's struct */
    struct bp_arena scratch;
    struct {
        const struct bp_record *record;
        struct bp_shape shape;
    } shapes[BP_RECORDS_MAX + 1]; /* of the records met so far; the last stays empty */
    struct {
        const char *rule;
        char *text;
        size_t len;
    } lineage; /* the last rule, and the text of a lineage as far as its sources */
    struct {
        struct bp_id_text *at;
        uint32_t n;
    } ids[BP_ENTITY_N];
    struct {
        char *text;
        size_t len;
        uint64_t n;
    } range; /* the last one written */
};

struct bp_known_id {
    struct bp_id id;
    uint32_t at;
};

struct bp_decoder {
    void *root;
    struct bp_arena *arena;
    struct bp_problems problems;
    struct {
        struct bp_known_id *sorted;
        uint32_t n;
    } ids[BP_ENTITY_N];
    bool out_of_memory;
};

void bp_encode_record(struct bp_encoder *encoder, const struct bp_record *record, const void *at);
void bp_encode_range(struct bp_encoder *encoder, uint64_t n);
void bp_encode_enum(struct bp_encoder *encoder, const char *const *names, unsigned value);

/* Memory of the snapshot; NULL, remembered by the decoder, when there is none. */
void *bp_decode_array(struct bp_decoder *decoder, size_t n, size_t size);

/* The members of an array as readers and pointers: `at` is an index of the array at `key`. */
struct bp_reader bp_decode_item(const struct bp_reader *reader, const char *key, size_t at);
/* The array at `key`, or NULL after a problem. */
const json_t *bp_decode_json_array(const struct bp_reader *reader, const char *key);
void bp_decode_record(struct bp_decoder *decoder, const struct bp_record *record, const struct bp_reader *reader,
                      void *at);
/* A problem unless the array at `key` is 0, 1, ... and `n` long. */
void bp_decode_range(const struct bp_reader *reader, const char *key, uint64_t n);

/* A string of decimal digits. */
void bp_decode_decimal(const struct bp_reader *reader, const char *key, bp_u128 *ret);
int bp_known_id_compare(const void *a, const void *b); /* of struct bp_known_id, by hash */

/* Whole snapshots. Encoding appends to `out`: `internal` when the struct cannot be written (a reference past the end, a
 * text that is not UTF-8, a number past 2^53 - 1), out_of_memory. Decoding: the codes of bp_json_parse, or
 * structure_violated at the first problem; NULL. */
int bp_snapshot_encode(const struct bp_record *root, const void *ir, struct bp_buf *out, struct bp_err *err);
void *bp_snapshot_decode(const struct bp_record *root, const char *bytes, size_t n, struct bp_arena *arena,
                         struct bp_err *err);

#endif
