/* What SQLite alone needs for the rows of a database: the same schema and rows, WAL and synchronous=FULL, everything
 * else as SQLite has it, its automatic checkpoints included. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"

enum { TABLES_MAX = 32 };

struct table {
    char name[64];
    int n_columns;
    sqlite3_value **values; /* rows, one after the other */
    size_t n_rows, allocated;
    sqlite3_stmt *insert;
};

static sqlite3 *open_database(const char *path, int flags)
{
    sqlite3 *db;
    if (sqlite3_open_v2(path, &db, flags, NULL) != SQLITE_OK)
        bench_die("%s: %s", path, sqlite3_errmsg(db));
    return db;
}

static sqlite3_stmt *prepare(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *stmt;
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
        bench_die("%s: %s", sql, sqlite3_errmsg(db));
    return stmt;
}

static void execute(sqlite3 *db, const char *sql)
{
    char *error = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK)
        bench_die("%s: %s", sql, error);
}

static void keep_row(struct table *table, sqlite3_stmt *row)
{
    const size_t width = (size_t)table->n_columns;
    if ((table->n_rows + 1) * width > table->allocated) {
        table->allocated = table->allocated * 2 + 64 * width;
        table->values = realloc(table->values, table->allocated * sizeof(*table->values));
        if (!table->values)
            bench_die("out of memory");
    }
    for (size_t i = 0; i < width; i++) {
        sqlite3_value *value = sqlite3_value_dup(sqlite3_column_value(row, (int)i));
        if (!value)
            bench_die("out of memory");
        table->values[table->n_rows * width + i] = value;
    }
    table->n_rows++;
}

static void read_table(sqlite3 *from, const char *name, struct table *table)
{
    char sql[160];
    snprintf(table->name, sizeof(table->name), "%s", name);
    snprintf(sql, sizeof(sql), "SELECT * FROM \"%s\"", name);
    sqlite3_stmt *rows = prepare(from, sql);
    table->n_columns = sqlite3_column_count(rows);
    while (sqlite3_step(rows) == SQLITE_ROW)
        keep_row(table, rows);
    sqlite3_finalize(rows);
}

/* Copies the schema and reads the rows of every table that has any. */
static size_t read_database(sqlite3 *from, sqlite3 *to, struct table *tables)
{
    size_t n = 0;
    sqlite3_stmt *schema = prepare(from, "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL"
                                         " AND name NOT LIKE 'sqlite_%' ORDER BY type = 'table' DESC, rowid");
    while (sqlite3_step(schema) == SQLITE_ROW) {
        execute(to, (const char *)sqlite3_column_text(schema, 2));
        if (strcmp((const char *)sqlite3_column_text(schema, 0), "table") != 0)
            continue;
        if (n == TABLES_MAX)
            bench_die("more than %d tables", TABLES_MAX);
        read_table(from, (const char *)sqlite3_column_text(schema, 1), &tables[n++]);
    }
    sqlite3_finalize(schema);
    return n;
}

static void prepare_insert(sqlite3 *to, struct table *table)
{
    char sql[512];
    int used = snprintf(sql, sizeof(sql), "INSERT INTO \"%s\" VALUES (?", table->name);
    for (int i = 1; i < table->n_columns; i++)
        used += snprintf(sql + used, sizeof(sql) - (size_t)used, ", ?");
    snprintf(sql + used, sizeof(sql) - (size_t)used, ")");
    table->insert = prepare(to, sql);
}

static void insert_rows(struct table *table, size_t from, size_t to)
{
    for (size_t row = from; row < to; row++) {
        for (int i = 0; i < table->n_columns; i++)
            sqlite3_bind_value(table->insert, i + 1, table->values[row * (size_t)table->n_columns + (size_t)i]);
        if (sqlite3_step(table->insert) != SQLITE_DONE)
            bench_die("inserting into %s: %s", table->name, sqlite3_errmsg(sqlite3_db_handle(table->insert)));
        sqlite3_reset(table->insert);
    }
}

static void release_table(struct table *table)
{
    for (size_t i = 0; i < table->n_rows * (size_t)table->n_columns; i++)
        sqlite3_value_free(table->values[i]);
    free(table->values);
    sqlite3_finalize(table->insert);
}

double bench_rows_commit(const char *database, size_t groups)
{
    static struct table tables[TABLES_MAX];
    char path[600];
    memset(tables, 0, sizeof(tables));
    snprintf(path, sizeof(path), "%s.raw", database);
    remove(path);
    sqlite3 *from = open_database(database, SQLITE_OPEN_READONLY);
    sqlite3 *to = open_database(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    execute(to, "PRAGMA journal_mode = WAL");
    execute(to, "PRAGMA synchronous = FULL");
    const size_t n = read_database(from, to, tables);
    size_t n_rows = 0;
    for (size_t i = 0; i < n; i++) {
        prepare_insert(to, &tables[i]);
        n_rows += tables[i].n_rows;
    }
    if (n_rows < groups)
        bench_die("%s has only %zu rows", database, n_rows);
    const double start = bench_now();
    for (size_t group = 0; group < groups; group++) {
        execute(to, "BEGIN IMMEDIATE");
        for (size_t i = 0; i < n; i++)
            insert_rows(&tables[i], tables[i].n_rows * group / groups, tables[i].n_rows * (group + 1) / groups);
        execute(to, "COMMIT");
    }
    const double seconds = bench_now() - start;
    for (size_t i = 0; i < n; i++)
        release_table(&tables[i]);
    sqlite3_close(from);
    sqlite3_close(to);
    remove(path);
    return seconds;
}
