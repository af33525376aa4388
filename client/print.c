#include "client/print.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/canon.h"

/* What must not reach a terminal: C0 and C1 controls and DEL; separators that break a line; and the bidirectional
 * controls, which reorder what stands around them. */
static bool is_unsafe(uint32_t point)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {{0, 0x1f}, {0x7f, 0x9f}, {0x61c, 0x61c}, {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (point >= ranges[i].first && point <= ranges[i].last)
            return true;
    return false;
}

static void add_safe(struct bp_buf *out, const char *text, size_t n, const char *allowed)
{
    for (size_t i = 0, step; i < n; i += step) {
        uint32_t point = 0;
        step = bp_utf8_decode((const unsigned char *)text + i, n - i, &point);
        bool safe = step && (!is_unsafe(point) || (text[i] && step == 1 && strchr(allowed, text[i])));
        if (safe)
            bp_buf_add(out, text + i, step);
        else
            bp_buf_addch(out, '?');
        if (step == 0)
            step = 1;
    }
}

void bp_text_addn(struct bp_buf *out, const char *text, size_t n)
{
    add_safe(out, text, n, "");
}

void bp_text_add(struct bp_buf *out, const char *text)
{
    add_safe(out, text, strlen(text), "");
}

/* Where a line of n bytes is best broken: at the last blank within WIDTH, else at the first after it. The rows of a
 * Markdown table are left whole. */
static size_t break_of(const char *text, size_t n)
{
    enum { WIDTH = 100 };
    size_t at = WIDTH;
    if (n <= WIDTH || text[0] == '|')
        return n;
    while (at > 0 && text[at] != ' ')
        at--;
    if (at == 0)
        for (at = WIDTH; at < n && text[at] != ' ';)
            at++;
    return at;
}

void bp_text_add_lines(struct bp_buf *out, const char *text, unsigned indent)
{
    while (*text) {
        size_t n = break_of(text, strcspn(text, "\n"));
        if (n)
            bp_buf_addf(out, "%*s", (int)indent, "");
        add_safe(out, text, n, "\t");
        bp_buf_addch(out, '\n');
        text += n + (text[n] == '\n' || text[n] == ' ');
    }
}

void bp_text_add_value(struct bp_buf *out, const json_t *value)
{
    if (!value || json_is_null(value))
        return;
    if (json_is_string(value)) {
        bp_text_addn(out, json_string_value(value), json_string_length(value));
        return;
    }
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (text)
        bp_text_add(out, text);
    else
        out->failed = true;
    free(text);
}

void bp_text_add_gib(struct bp_buf *out, uint64_t bytes)
{
    uint64_t gib = bytes >> 30, rest = bytes & ((UINT64_C(1) << 30) - 1);
    uint64_t thousandths = (rest * 1000 + (UINT64_C(1) << 29)) >> 30;
    bp_buf_addf(out, "%llu.%03llu", (unsigned long long)(gib + thousandths / 1000),
                (unsigned long long)(thousandths % 1000));
}

void bp_print_field(struct bp_buf *out, const char *label, const json_t *value)
{
    if (!value || json_is_null(value))
        return;
    bp_buf_addf(out, "%-12s ", label);
    bp_text_add_value(out, value);
    bp_buf_addch(out, '\n');
}

const char *bp_json_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

void bp_cell_index(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    (void)key;
    bp_buf_addf(out, "%zu", row->index);
}

void bp_cell_name(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    (void)key;
    bp_text_add(out, row->name);
}

void bp_cell_value(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    (void)key;
    bp_text_add_value(out, row->value);
}

void bp_cell_gib(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    (void)key;
    json_int_t bytes = json_integer_value(row->value);
    if (json_is_integer(row->value) && bytes >= 0)
        bp_text_add_gib(out, (uint64_t)bytes);
}

void bp_cell_memory(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    bp_text_add_value(out, json_object_get(json_object_get(row->value, "memory"), key));
}

void bp_cell_short(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    enum { DIGITS = 16 };
    const char *text = bp_json_text(row->value, key);
    size_t n = strlen(text), colon = strcspn(text, ":");
    bp_text_addn(out, text, text[colon] && n - colon - 1 > DIGITS ? colon + 1 + DIGITS : n);
}

void bp_cell_or_dash(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    const json_t *value = json_object_get(row->value, key);
    if (!value || json_is_null(value))
        bp_buf_addch(out, '-');
    bp_text_add_value(out, value);
}

void bp_cell_list(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    const json_t *list = json_object_get(row->value, key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        bp_buf_addstr(out, i ? ", " : "");
        bp_text_add_value(out, json_array_get(list, i));
    }
}

void bp_cell_count(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    const json_t *list = json_object_get(row->value, key);
    if (json_is_array(list))
        bp_buf_addf(out, "%zu", json_array_size(list));
}

void bp_text_add_place(struct bp_buf *out, const json_t *places, const json_t *id)
{
    const json_t *place = json_is_string(id) ? json_object_get(places, json_string_value(id)) : NULL;
    bp_text_add_value(out, place ? place : id);
}

void bp_cell_place(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    bp_text_add_place(out, row->places, json_object_get(row->value, key));
}

void bp_cell_places(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    const json_t *list = json_object_get(row->value, key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        bp_buf_addstr(out, i ? "," : "");
        bp_text_add_place(out, row->places, json_array_get(list, i));
    }
}

static bool add_places(json_t *places, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_object_get(json_array_get(list, i), "id");
        if (json_is_string(id) && json_object_set_new(places, json_string_value(id), json_integer((json_int_t)i)) < 0)
            return false;
    }
    return true;
}

json_t *bp_places_of(const json_t *snapshot)
{
    json_t *places = json_object(), *list;
    const char *name;
    json_object_foreach((json_t *)(uintptr_t)snapshot, name, list) {
        if (places && !add_places(places, list)) {
            json_decref(places);
            places = NULL;
        }
    }
    return places;
}

/* A table at work. A column of width 0 has no cell. */
struct table {
    const json_t *rows, *places;
    const struct bp_table_column *columns;
    size_t n_columns;
    size_t *widths;
    struct bp_buf cell;
    bool failed; /* memory ran out in a cell */
};

static size_t width_of(const struct bp_buf *text)
{
    size_t width = 0;
    for (size_t i = 0; i < text->len; i++)
        width += ((unsigned char)text->data[i] & 0xc0) != 0x80;
    return width;
}

static void fill_cell(struct table *table, const struct bp_table_row *row, const struct bp_table_column *column)
{
    bp_buf_clear(&table->cell);
    if (column->cell)
        column->cell(&table->cell, row, column->key);
    else
        bp_text_add_value(&table->cell, json_object_get(row->value, column->key));
    table->failed |= table->cell.failed;
}

static void measure_row(struct table *table, const struct bp_table_row *row)
{
    for (size_t i = 0; i < table->n_columns; i++) {
        fill_cell(table, row, &table->columns[i]);
        size_t width = width_of(&table->cell);
        if (width > table->widths[i])
            table->widths[i] = width;
    }
}

static void add_cell(struct bp_buf *out, const struct bp_buf *cell, size_t width, bool right)
{
    int pad = (int)(width - width_of(cell));
    bp_buf_addf(out, "%*s", right ? pad : 0, "");
    bp_buf_add(out, cell->data, cell->len);
    bp_buf_addf(out, "%*s", (right ? 0 : pad) + 2, "");
}

/* A row, or with NULL the titles. */
static void write_row(struct table *table, struct bp_buf *out, const struct bp_table_row *row)
{
    for (size_t i = 0; i < table->n_columns; i++) {
        if (table->widths[i] == 0)
            continue;
        if (row) {
            fill_cell(table, row, &table->columns[i]);
        } else {
            bp_buf_clear(&table->cell);
            bp_buf_addstr(&table->cell, table->columns[i].title);
            table->failed |= table->cell.failed;
        }
        add_cell(out, &table->cell, table->widths[i], table->columns[i].right);
    }
    while (out->len && out->data[out->len - 1] == ' ')
        out->len--;
    bp_buf_addch(out, '\n');
}

static void each_row(struct table *table, struct bp_buf *out)
{
    if (json_is_object(table->rows)) {
        const char *name;
        json_t *value;
        size_t index = 0;
        json_object_foreach((json_t *)(uintptr_t)table->rows, name, value) {
            struct bp_table_row row = {index++, name, value, table->places};
            if (out)
                write_row(table, out, &row);
            else
                measure_row(table, &row);
        }
        return;
    }
    for (size_t i = 0; i < json_array_size(table->rows); i++) {
        struct bp_table_row row = {i, "", json_array_get(table->rows, i), table->places};
        if (out)
            write_row(table, out, &row);
        else
            measure_row(table, &row);
    }
}

void bp_print_table(struct bp_buf *out, const json_t *rows, const json_t *places, const struct bp_table_column *columns,
                    size_t n_columns)
{
    if (json_array_size(rows) == 0 && json_object_size(rows) == 0)
        return;
    struct table table = {.rows = rows, .places = places, .columns = columns, .n_columns = n_columns};
    table.widths = calloc(n_columns, sizeof *table.widths);
    if (!table.widths) {
        out->failed = true;
        return;
    }
    each_row(&table, NULL);
    for (size_t i = 0; i < n_columns; i++) {
        size_t width = strlen(columns[i].title);
        if (table.widths[i] && table.widths[i] < width)
            table.widths[i] = width;
    }
    write_row(&table, out, NULL);
    each_row(&table, out);
    out->failed |= table.failed;
    bp_buf_release(&table.cell);
    free(table.widths);
}

static enum bp_exit write_out(const char *bytes, size_t n, enum bp_exit status)
{
    bool written = n == 0 || fwrite(bytes, 1, n, stdout) == n;
    if (!written || fflush(stdout) != 0)
        return bp_complain(BP_EXIT_LOCAL, "cannot write: %s", strerror(errno));
    return status;
}

enum bp_exit bp_print_text(struct bp_buf *out, enum bp_exit status)
{
    if (out->failed)
        status = bp_complain(BP_EXIT_LOCAL, "out of memory");
    else
        status = write_out(out->data, out->len, status);
    bp_buf_release(out);
    return status;
}

enum bp_exit bp_print_raw(const char *bytes, size_t n, enum bp_exit status)
{
    if (!isatty(STDOUT_FILENO))
        return write_out(bytes, n, status);
    struct bp_buf safe = {0};
    add_safe(&safe, bytes, n, "\n\t");
    if (n == 0 || bytes[n - 1] != '\n')
        bp_buf_addch(&safe, '\n');
    return bp_print_text(&safe, status);
}

enum bp_exit bp_complain(enum bp_exit status, const char *format, ...)
{
    char message[2048];
    struct bp_buf safe = {0};
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    bp_buf_addstr(&safe, "blueprint: ");
    bp_text_add(&safe, message);
    bp_buf_addch(&safe, '\n');
    const char *text = bp_buf_string(&safe);
    fputs(text[0] ? text : "blueprint: out of memory\n", stderr);
    bp_buf_release(&safe);
    return status;
}
