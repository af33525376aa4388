#include "daemon/store/sqlite.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How many virtual machine instructions between two looks at the clock: some 10 microseconds. */
enum { PROGRESS_STEPS = 1000 };

static const char *const sql_text[] = {
#define BP_SQL(name, text) text,
#include "daemon/store/sql.def"
#undef BP_SQL
};

int64_t bp_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int past_deadline(void *data)
{
    const struct bp_db *db = data;
    return (db->deadline && bp_monotonic_ns() > db->deadline) || (db->stop && atomic_load(db->stop));
}

enum bp_code bp_db_code(int rc)
{
    static const struct {
        int rc;
        enum bp_code code;
    } rows[] = {
        {SQLITE_INTERRUPT, BP_E_deadline_exceeded},
        {SQLITE_NOMEM, BP_E_out_of_memory},
        {SQLITE_CONSTRAINT, BP_E_internal},
        {SQLITE_MISMATCH, BP_E_internal},
        {SQLITE_RANGE, BP_E_internal},
        {SQLITE_TOOBIG, BP_E_internal},
        {SQLITE_MISUSE, BP_E_internal},
        {SQLITE_ERROR, BP_E_internal},
    };
    if (rc == SQLITE_IOERR_NOMEM)
        return BP_E_out_of_memory;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].rc == (rc & 0xff))
            return rows[i].code;
    return BP_E_storage_failed;
}

int bp_db_fail(struct bp_db *db, int rc, struct bp_err *err)
{
    /* The connection's own words belong to its last failure, which need not be this one. */
    const char *words = sqlite3_errstr(rc), *own = "";
    if (db->handle && sqlite3_extended_errcode(db->handle) == rc)
        own = sqlite3_errmsg(db->handle);
    return bp_fail(err, bp_db_code(rc), "", "%s (%d)%s%s", words, rc, *own ? ": " : "", own);
}

int bp_db_open(const char *path, bool for_writing, struct bp_db *ret, struct bp_err *err)
{
    struct bp_db db = {.packer = bp_store_packer_new()};
    if (!db.packer)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for a connection");
    int mode = for_writing ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
    int rc = sqlite3_open_v2(path, &db.handle, mode | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_db_config(db.handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    /* A reader only waits for another's recovery, the writer for readers to leave a checkpoint. */
    if (rc == SQLITE_OK)
        rc = sqlite3_busy_timeout(db.handle, 50);
    if (rc != SQLITE_OK) {
        bp_db_fail(&db, rc, err);
        bp_err_prefix(err, "%s", path);
        bp_db_close(&db);
        return -1;
    }
    *ret = db;
    if (!for_writing)
        sqlite3_progress_handler(db.handle, PROGRESS_STEPS, past_deadline, ret);
    return 0;
}

void bp_db_close(struct bp_db *db)
{
    for (size_t i = 0; i < BP_SQL_N; i++)
        sqlite3_finalize(db->stmts[i]);
    for (size_t i = 0; i < BP_PLAN_LISTS; i++)
        sqlite3_finalize(db->plan_lists[i]);
    sqlite3_close(db->handle);
    bp_store_packer_free(db->packer);
    *db = (struct bp_db){0};
}

int bp_db_exec(struct bp_db *db, const char *sql, struct bp_err *err)
{
    int rc = sqlite3_exec(db->handle, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : bp_db_fail(db, rc, err);
}

int bp_db_int(struct bp_db *db, const char *sql, int64_t *ret, struct bp_err *err)
{
    sqlite3_stmt *stmt;
    int rc = sqlite3_prepare_v2(db->handle, sql, -1, &stmt, NULL);
    if (rc == SQLITE_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        *ret = sqlite3_column_int64(stmt, 0);
        rc = SQLITE_OK;
    }
    if (rc != SQLITE_OK)
        bp_db_fail(db, rc, err);
    sqlite3_finalize(stmt);
    return rc == SQLITE_OK ? 0 : -1;
}

struct bp_query bp_query_of(struct bp_db *db, enum bp_sql sql, struct bp_arena *arena)
{
    struct bp_query query = {.db = db, .arena = arena};
    if (!db->stmts[sql])
        query.rc = sqlite3_prepare_v3(db->handle, sql_text[sql], -1, SQLITE_PREPARE_PERSISTENT, &db->stmts[sql], NULL);
    query.stmt = db->stmts[sql];
    return query;
}

static void note(struct bp_query *query, int rc)
{
    if (query->rc == SQLITE_OK)
        query->rc = rc;
}

void bp_bind_int(struct bp_query *query, int64_t value)
{
    note(query, sqlite3_bind_int64(query->stmt, ++query->n_bound, value));
}

void bp_bind_null(struct bp_query *query)
{
    note(query, sqlite3_bind_null(query->stmt, ++query->n_bound));
}

void bp_bind_digest(struct bp_query *query, const struct bp_digest *digest)
{
    note(query, sqlite3_bind_blob(query->stmt, ++query->n_bound, digest->bytes, sizeof digest->bytes, SQLITE_STATIC));
}

void bp_bind_text(struct bp_query *query, struct bp_store_text text)
{
    note(query, sqlite3_bind_text64(query->stmt, ++query->n_bound, text.at, text.n, SQLITE_STATIC, SQLITE_UTF8));
}

void bp_bind_string(struct bp_query *query, const char *text)
{
    bp_bind_text(query, (struct bp_store_text){text, text ? strlen(text) : 0});
}

void bp_bind_blob(struct bp_query *query, struct bp_store_text bytes)
{
    note(query, sqlite3_bind_blob64(query->stmt, ++query->n_bound, bytes.at, bytes.n, SQLITE_STATIC));
}

bool bp_query_row(struct bp_query *query)
{
    if (query->rc != SQLITE_OK)
        return false;
    int rc = sqlite3_step(query->stmt);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        note(query, rc);
    return rc == SQLITE_ROW;
}

int64_t bp_row_int(struct bp_query *query, int column)
{
    return sqlite3_column_int64(query->stmt, column);
}

struct bp_digest bp_row_digest(struct bp_query *query, int column)
{
    struct bp_digest digest = {{0}};
    const void *bytes = sqlite3_column_blob(query->stmt, column);
    if (bytes && sqlite3_column_bytes(query->stmt, column) == (int)sizeof digest.bytes)
        memcpy(digest.bytes, bytes, sizeof digest.bytes);
    else
        note(query, bytes ? SQLITE_CORRUPT : SQLITE_NOMEM);
    return digest;
}

struct bp_store_text bp_row_text(struct bp_query *query, int column)
{
    if (query->rc != SQLITE_OK || sqlite3_column_type(query->stmt, column) == SQLITE_NULL)
        return (struct bp_store_text){0};
    const char *text = (const char *)sqlite3_column_text(query->stmt, column);
    size_t n = (size_t)sqlite3_column_bytes(query->stmt, column);
    char *copy = text ? bp_arena_strndup(query->arena, text, n) : NULL;
    if (!copy) {
        note(query, SQLITE_NOMEM);
        return (struct bp_store_text){0};
    }
    return (struct bp_store_text){copy, n};
}

const char *bp_row_string(struct bp_query *query, int column)
{
    const char *text = bp_row_text(query, column).at;
    return text ? text : "";
}

int bp_row_enum(struct bp_query *query, int column, const char *const *names)
{
    const char *text = (const char *)sqlite3_column_text(query->stmt, column);
    for (int i = 0; text && names[i]; i++)
        if (strcmp(names[i], text) == 0)
            return i;
    note(query, text ? SQLITE_CORRUPT : SQLITE_NOMEM);
    return 0;
}

void *bp_row_array(struct bp_query *query, void *array, size_t n, size_t size)
{
    if (n & (n - 1) || query->rc != SQLITE_OK) /* there is room up to the next power of two */
        return query->rc == SQLITE_OK ? array : NULL;
    void *grown = bp_arena_array(query->arena, n ? 2 * n : 1, size);
    if (!grown)
        note(query, SQLITE_NOMEM);
    else if (n)
        memcpy(grown, array, n * size);
    return grown;
}

int bp_query_end(struct bp_query *query, struct bp_err *err)
{
    if (query->rc != SQLITE_OK)
        bp_db_fail(query->db, query->rc, err);
    sqlite3_reset(query->stmt);
    return query->rc == SQLITE_OK ? 0 : -1;
}

int bp_query_run(struct bp_query *query)
{
    bp_query_row(query);
    sqlite3_reset(query->stmt);
    return query->rc;
}
