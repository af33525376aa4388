/* A connection to SQLite, its prepared statements, and one statement being run. Internal to the store. A connection is
 * used by one thread at a time. */
#ifndef BP_STORE_SQLITE_H
#define BP_STORE_SQLITE_H

#include <sqlite3.h>

#include "daemon/store/store.h"

enum bp_sql {
#define BP_SQL(name, text) BP_SQL_##name,
#include "daemon/store/sql.def"
#undef BP_SQL
    BP_SQL_N
};

enum { BP_PLAN_LISTS = 16 };

struct bp_db {
    sqlite3 *handle;
    sqlite3_stmt *stmts[BP_SQL_N];           /* prepared at their first use */
    sqlite3_stmt *plan_lists[BP_PLAN_LISTS]; /* one per combination of filters */
    struct bp_store_packer *packer;
    int64_t deadline;        /* monotonic, nanoseconds; 0 is none */
    const atomic_bool *stop; /* ends what a reader runs, as its deadline does; or NULL */
};

/* Opens read-only and minding the deadline, or for writing (then the file is made when absent). Neither checkpoints
 * when it is closed. The connection stays where it was opened: SQLite knows its address. */
int bp_db_open(const char *path, bool for_writing, struct bp_db *ret, struct bp_err *err);
void bp_db_close(struct bp_db *db);

int bp_db_exec(struct bp_db *db, const char *sql, struct bp_err *err);

/* The integer that a pragma or a query answers with. */
int bp_db_int(struct bp_db *db, const char *sql, int64_t *ret, struct bp_err *err);

/* Our code for one of SQLite's. */
enum bp_code bp_db_code(int rc);

/* Writes the error of `rc` with SQLite's own words. Returns -1. */
int bp_db_fail(struct bp_db *db, int rc, struct bp_err *err);

int64_t bp_monotonic_ns(void);

/* A statement being run: bind its parameters in order, ask for rows, end it. The first failure sticks and is told by
 * bp_query_end; what is read after it is empty. What is bound must live until the end; what is read as text or string
 * lives in `arena`. */
struct bp_query {
    struct bp_db *db;
    sqlite3_stmt *stmt;
    struct bp_arena *arena;
    int rc; /* SQLITE_OK while nothing failed */
    int n_bound;
};

struct bp_query bp_query_of(struct bp_db *db, enum bp_sql sql, struct bp_arena *arena);

void bp_bind_int(struct bp_query *query, int64_t value);
void bp_bind_null(struct bp_query *query);
void bp_bind_digest(struct bp_query *query, const struct bp_digest *digest);
void bp_bind_string(struct bp_query *query, const char *text);
void bp_bind_text(struct bp_query *query, struct bp_store_text text); /* NULL when absent */
void bp_bind_blob(struct bp_query *query, struct bp_store_text bytes);

bool bp_query_row(struct bp_query *query);

int64_t bp_row_int(struct bp_query *query, int column);
struct bp_digest bp_row_digest(struct bp_query *query, int column);
const char *bp_row_string(struct bp_query *query, int column);
struct bp_store_text bp_row_text(struct bp_query *query, int column);
int bp_row_enum(struct bp_query *query, int column, const char *const *names);

/* Room for one more after n elements in an array that grows in the arena; NULL when memory ran out. */
void *bp_row_array(struct bp_query *query, void *array, size_t n, size_t size);

/* Resets the statement. 0, or -1 with what failed. */
int bp_query_end(struct bp_query *query, struct bp_err *err);

/* For statements without rows: runs, resets, gives SQLite's code. */
int bp_query_run(struct bp_query *query);

#endif
