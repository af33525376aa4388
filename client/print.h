/* Answers as text for people: safe for a terminal, aligned in columns.
 *
 * Everything that came over the network or from the command line goes through bp_text_add, so that nothing in it can
 * drive the terminal. JSON of an unexpected shape prints as little or nothing; it is never an error here.
 */
#ifndef BP_CLIENT_PRINT_H
#define BP_CLIENT_PRINT_H

#include <stdint.h>

#include <jansson.h>

#include "client/client.h"
#include "common/base/buf.h"

/* Appends text on one line: control characters (C0, DEL, C1), line and paragraph separators, bidirectional controls and
 * bytes that are not UTF-8 come out as '?' each. */
void bp_text_add(struct bp_buf *out, const char *text);
void bp_text_addn(struct bp_buf *out, const char *text, size_t n);

/* The same, but line feeds and tabs stay, and long lines are broken at blanks; `indent` spaces before every line that
 * is not empty. */
void bp_text_add_lines(struct bp_buf *out, const char *text, unsigned indent);

/* A value on one line: strings as they are, numbers and words as JSON writes them, compact JSON of the rest. Nothing
 * for NULL and null. */
void bp_text_add_value(struct bp_buf *out, const json_t *value);

/* Bytes as GiB with three decimals, rounded half up. */
void bp_text_add_gib(struct bp_buf *out, uint64_t bytes);

/* "label  value" with the label in a column of 13; nothing when value is NULL or null. */
void bp_print_field(struct bp_buf *out, const char *label, const json_t *value);

/* A member as a string, or "" when it is none. Borrowed. */
const char *bp_json_text(const json_t *object, const char *key);

/* One row of a table: an element of the array, or a member of the object, that the table is of. `name` is the member's
 * name, "" in an array; `places` is the table's. */
struct bp_table_row {
    size_t index;
    const char *name;
    const json_t *value, *places;
};

struct bp_table_column {
    const char *title;
    const char *key; /* of the row's value */
    bool right;      /* aligned to the right: a number */
    /* Writes the cell; NULL writes the member `key`. */
    void (*cell)(struct bp_buf *out, const struct bp_table_row *row, const char *key);
};

void bp_cell_index(struct bp_buf *out, const struct bp_table_row *row, const char *key);  /* the row's place */
void bp_cell_name(struct bp_buf *out, const struct bp_table_row *row, const char *key);   /* the member's name */
void bp_cell_value(struct bp_buf *out, const struct bp_table_row *row, const char *key);  /* the row itself */
void bp_cell_gib(struct bp_buf *out, const struct bp_table_row *row, const char *key);    /* the row itself, in GiB */
void bp_cell_memory(struct bp_buf *out, const struct bp_table_row *row, const char *key); /* of the row's `memory` */
void bp_cell_short(struct bp_buf *out, const struct bp_table_row *row, const char *key); /* a digest or id, cut short */
void bp_cell_or_dash(struct bp_buf *out, const struct bp_table_row *row, const char *key); /* '-' for none */
void bp_cell_list(struct bp_buf *out, const struct bp_table_row *row, const char *key);    /* an array, with commas */
void bp_cell_count(struct bp_buf *out, const struct bp_table_row *row, const char *key);   /* how many an array has */
void bp_cell_place(struct bp_buf *out, const struct bp_table_row *row, const char *key);   /* an id as its place */
void bp_cell_places(struct bp_buf *out, const struct bp_table_row *row,
                    const char *key); /* an array of ids as places */

/* The columns of what a rank holds of a kind of block: of training or of inference, never all. */
#define BP_MEMORY_COLUMNS                                                                                              \
    {"weights", "weights", true, bp_cell_memory}, {"gradients", "gradients", true, bp_cell_memory},                    \
        {"optimizer", "optimizer", true, bp_cell_memory}, {"stored", "stored_activations", true, bp_cell_memory},      \
        {"checkpoint", "activation_checkpoint", true, bp_cell_memory},                                                 \
        {"working", "working_activations", true, bp_cell_memory}, {"KV cache", "kv_cache", true, bp_cell_memory},      \
        {"workspace", "workspace", true, bp_cell_memory},                                                              \
    {                                                                                                                  \
        "boundary", "boundary", true, bp_cell_memory                                                                   \
    }

/* A table of an array or an object, with its titles; nothing when it is empty or neither. Columns without a single
 * cell are left out. `places` maps ids to the places of their entities, or is NULL. */
void bp_print_table(struct bp_buf *out, const json_t *rows, const json_t *places, const struct bp_table_column *columns,
                    size_t n_columns);
#define BP_PRINT_TABLE(out, rows, columns) bp_print_table(out, rows, NULL, columns, sizeof(columns) / sizeof *(columns))

/* The "id" of every element of every array of a snapshot to its place in that array. NULL when memory ran out: ids
 * then print as they are. */
json_t *bp_places_of(const json_t *snapshot);

/* An id as its place, or as it is when it has none. */
void bp_text_add_place(struct bp_buf *out, const json_t *places, const json_t *id);

/* Writes all of it to standard output: as it is, or made safe when that is a terminal and `raw` bytes of the server.
 * `status`, or BP_EXIT_LOCAL with a message when memory had run out or the bytes could not be written. */
enum bp_exit bp_print_text(struct bp_buf *out, enum bp_exit status);
enum bp_exit bp_print_raw(const char *bytes, size_t n, enum bp_exit status);

/* "blueprint: " and a message made safe, on standard error. Returns `status`. */
enum bp_exit bp_complain(enum bp_exit status, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
