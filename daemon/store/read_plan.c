/* Plans: one whole, and pages of them. Each read sees one state of the database: it runs in a read transaction. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/store/internal.h"

/* ---- Cursors: a letter and the row number in hex ---- */

int bp_store_cursor_read(const char *cursor, int64_t from_start, int64_t *ret, struct bp_err *err)
{
    if (!cursor || !*cursor) {
        *ret = from_start;
        return 0;
    }
    size_t n = strlen(cursor);
    if (cursor[0] != 'p' || n < 2 || n > 16 || strspn(cursor + 1, "0123456789abcdef") != n - 1)
        return bp_fail(err, BP_E_invalid_query, "/cursor", "the cursor is not one that this list gave");
    *ret = strtoll(cursor + 1, NULL, 16);
    return 0;
}

void bp_store_cursor_write(int64_t seq, char ret[BP_STORE_CURSOR_TEXT])
{
    snprintf(ret, BP_STORE_CURSOR_TEXT, "p%llx", (unsigned long long)seq);
}

/* ---- The parts of a plan ---- */

static int read_evidence(struct bp_db *db, enum bp_sql sql, int64_t of, struct bp_arena *arena,
                         const struct bp_store_evidence **ret, size_t *ret_n, struct bp_err *err)
{
    struct bp_store_evidence *at = NULL;
    size_t n = 0;
    struct bp_query query = bp_query_of(db, sql, arena);
    bp_bind_int(&query, of);
    while (bp_query_row(&query) && (at = bp_row_array(&query, at, n, sizeof *at)))
        at[n++] = (struct bp_store_evidence){.check = bp_row_string(&query, 0),
                                             .kind = bp_row_string(&query, 1),
                                             .verdict = bp_row_string(&query, 2),
                                             .compared = (uint64_t)bp_row_int(&query, 3)};
    if (bp_query_end(&query, err) < 0)
        return -1;
    *ret = at;
    *ret_n = n;
    return 0;
}

/* The snapshots of a plan, with their evidence when `whole`. */
static int read_snapshots(struct bp_db *db, int64_t plan, bool whole, struct bp_arena *arena, struct bp_store_plan *ret,
                          struct bp_err *err)
{
    struct bp_store_snapshot *at = NULL;
    size_t n = 0;
    struct bp_query query = bp_query_of(db, BP_SQL_PLAN_SNAPSHOTS, arena);
    bp_bind_int(&query, plan);
    int result = 0;
    while (result == 0 && bp_query_row(&query) && (at = bp_row_array(&query, at, n, sizeof *at))) {
        at[n] = (struct bp_store_snapshot){.digest = bp_row_digest(&query, 1),
                                           .stage = bp_row_string(&query, 2),
                                           .schema = bp_row_string(&query, 3),
                                           .bytes = (uint64_t)bp_row_int(&query, 4)};
        if (whole)
            result = read_evidence(db, BP_SQL_SNAPSHOT_EVIDENCE, bp_row_int(&query, 0), arena, &at[n].evidence,
                                   &at[n].n_evidence, err);
        n++;
    }
    if (bp_query_end(&query, err) < 0 || result < 0)
        return -1;
    ret->snapshots = at;
    ret->n_snapshots = n;
    return 0;
}

static int read_derivations(struct bp_db *db, int64_t plan, struct bp_arena *arena, struct bp_store_plan *ret,
                            struct bp_err *err)
{
    struct bp_store_derivation *at = NULL;
    size_t n = 0;
    struct bp_query query = bp_query_of(db, BP_SQL_PLAN_DERIVATIONS, arena);
    bp_bind_int(&query, plan);
    int result = 0;
    while (result == 0 && bp_query_row(&query) && (at = bp_row_array(&query, at, n, sizeof *at))) {
        at[n] = (struct bp_store_derivation){.pass = bp_row_string(&query, 1),
                                             .revision = (unsigned)bp_row_int(&query, 2),
                                             .source = bp_row_digest(&query, 3),
                                             .target = bp_row_digest(&query, 4),
                                             .binding = bp_row_digest(&query, 5)};
        result =
            read_evidence(db, BP_SQL_EVIDENCE, bp_row_int(&query, 0), arena, &at[n].evidence, &at[n].n_evidence, err);
        n++;
    }
    if (bp_query_end(&query, err) < 0 || result < 0)
        return -1;
    ret->derivations = at;
    ret->n_derivations = n;
    return 0;
}

/* Columns of BP_SQL_PLAN from the second on, of the lists all but the last. */
static struct bp_store_plan plan_row(struct bp_query *query)
{
    return (struct bp_store_plan){
        .id = bp_row_digest(query, 1),
        .state = (enum bp_store_plan_state)bp_row_enum(query, 2, bp_store_plan_state_names),
        .created_at = bp_row_int(query, 3),
        .committed_at = bp_row_int(query, 4),
        .model = bp_row_string(query, 5),
        .parameters = bp_row_string(query, 6),
        .mode = bp_row_string(query, 7),
        .facts = bp_row_text(query, 8),
        .diagnostics = bp_row_text(query, 9),
    };
}

/* ---- One plan ---- */

static int read_plan(struct bp_db *db, const struct bp_digest *id, struct bp_arena *arena, struct bp_store_plan *ret,
                     struct bp_err *err)
{
    struct bp_query query = bp_query_of(db, BP_SQL_PLAN, arena);
    bp_bind_digest(&query, id);
    int64_t seq = 0;
    bool found = bp_query_row(&query);
    if (found) {
        seq = bp_row_int(&query, 0);
        *ret = plan_row(&query);
        ret->request = bp_row_text(&query, 10);
    }
    if (bp_query_end(&query, err) < 0)
        return -1;
    if (!found) {
        char text[BP_DIGEST_TEXT];
        bp_digest_format(id, text);
        return bp_fail(err, BP_E_not_found, "", "there is no plan %s", text);
    }
    if (read_snapshots(db, seq, true, arena, ret, err) < 0)
        return -1;
    return read_derivations(db, seq, arena, ret, err);
}

static int begin_read(struct bp_db *db, struct bp_err *err)
{
    struct bp_query query = bp_query_of(db, BP_SQL_BEGIN_READ, NULL);
    bp_query_row(&query);
    return bp_query_end(&query, err);
}

/* Nothing was written: how a read transaction ends is of no consequence, but it must end. The deadline no longer
 * counts. */
static void end_read(struct bp_db *db)
{
    db->deadline = 0;
    struct bp_query query = bp_query_of(db, BP_SQL_COMMIT, NULL);
    if (bp_query_run(&query) != SQLITE_OK)
        bp_db_exec(db, "ROLLBACK", NULL);
}

int bp_store_plan_read(struct bp_store *store, const struct bp_digest *id, struct bp_arena *arena,
                       struct bp_store_plan *ret, struct bp_err *err)
{
    struct bp_db *db = bp_store_pool_take(&store->pool, err);
    if (!db)
        return -1;
    struct bp_store_plan plan;
    int result = begin_read(db, err);
    if (result == 0) {
        result = read_plan(db, id, arena, &plan, err);
        end_read(db);
    }
    bp_store_pool_give(&store->pool, db);
    if (result == 0)
        *ret = plan;
    return result;
}

/* ---- Pages ---- */

/* A statement per combination of filters, so that each can use its index. The partial index of what is not committed is
 * used where its condition is repeated; a model is rarer than a mode, hence the plus that keeps the mode's index out.
 */
static const char *const state_sql[] = {
    "",
    " AND state = 'committed'",
    " AND state <> 'committed' AND state = 'rejected'",
    " AND state <> 'committed' AND state = 'failed'",
};
static const char *const model_sql[] = {"", " AND model = ?3"};
static const char *const mode_sql[] = {"", " AND mode = ?4", "", " AND +mode = ?4"};

_Static_assert(sizeof state_sql / sizeof *state_sql == 1 + BP_STORE_PLAN_STATE_N, "a condition for each state");
_Static_assert(BP_PLAN_LISTS == 4 * (1 + BP_STORE_PLAN_STATE_N), "a statement for each combination");

static struct bp_query list_query(struct bp_db *db, const struct bp_store_plan_filter *filter, struct bp_arena *arena)
{
    struct bp_query query = {.db = db, .arena = arena};
    size_t state = filter->state ? 1 + (size_t)*filter->state : 0, model = filter->model != NULL;
    size_t mode = filter->mode != NULL;
    sqlite3_stmt **stmt = &db->plan_lists[4 * state + 2 * model + mode];
    if (!*stmt) {
        char sql[512];
        snprintf(sql, sizeof sql,
                 "SELECT seq, id, state, created_at, committed_at, model, parameters, mode, facts, diagnostics "
                 "FROM plans WHERE seq < ?1%s%s%s ORDER BY seq DESC LIMIT ?2",
                 state_sql[state], model_sql[model], mode_sql[2 * model + mode]);
        query.rc = sqlite3_prepare_v3(db->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, stmt, NULL);
    }
    query.stmt = *stmt;
    return query;
}

static void bind_filter(struct bp_query *query, const struct bp_store_plan_filter *filter)
{
    if (filter->model)
        bp_bind_string(query, filter->model);
    query->n_bound = 3;
    if (filter->mode)
        bp_bind_string(query, filter->mode);
}

/* The plans of the page and their row numbers; one row more than the page holds says that there is a next one. */
static int read_page(struct bp_query *query, size_t limit, struct bp_store_plan **ret_plans, int64_t **ret_seqs,
                     struct bp_store_plan_page *page, struct bp_err *err)
{
    struct bp_store_plan *plans = NULL;
    int64_t *seqs = NULL;
    while (bp_query_row(query)) {
        if (page->n == limit) {
            bp_store_cursor_write(seqs[page->n - 1], page->next);
            break;
        }
        plans = bp_row_array(query, plans, page->n, sizeof *plans);
        seqs = bp_row_array(query, seqs, page->n, sizeof *seqs);
        if (!plans || !seqs)
            break;
        seqs[page->n] = bp_row_int(query, 0);
        plans[page->n++] = plan_row(query);
    }
    *ret_plans = plans;
    *ret_seqs = seqs;
    return bp_query_end(query, err);
}

static int list_plans(struct bp_db *db, const struct bp_store_plan_filter *filter, size_t limit, int64_t before,
                      struct bp_arena *arena, struct bp_store_plan_page *page, struct bp_err *err)
{
    struct bp_store_plan *plans;
    int64_t *seqs;
    struct bp_query query = list_query(db, filter, arena);
    bp_bind_int(&query, before);
    bp_bind_int(&query, (int64_t)limit + 1);
    bind_filter(&query, filter);
    if (read_page(&query, limit, &plans, &seqs, page, err) < 0)
        return -1;
    for (size_t i = 0; i < page->n; i++)
        if (read_snapshots(db, seqs[i], false, arena, &plans[i], err) < 0)
            return -1;
    page->plans = plans;
    return 0;
}

int bp_store_plan_list(struct bp_store *store, const struct bp_store_plan_filter *filter, size_t limit,
                       const char *cursor, struct bp_arena *arena, struct bp_store_plan_page *ret, struct bp_err *err)
{
    int64_t before;
    if (bp_store_cursor_read(cursor, INT64_MAX, &before, err) < 0)
        return -1;
    struct bp_db *db = bp_store_pool_take(&store->pool, err);
    if (!db)
        return -1;
    struct bp_store_plan_page page = {.n = 0};
    int result = begin_read(db, err);
    if (result == 0) {
        result = list_plans(db, filter, limit, before, arena, &page, err);
        end_read(db);
    }
    bp_store_pool_give(&store->pool, db);
    if (result == 0)
        *ret = page;
    return result;
}

int bp_store_plans_after(struct bp_store *store, const struct bp_store_place *after, size_t limit,
                         struct bp_arena *arena, const struct bp_store_plan_name **ret, size_t *ret_n,
                         struct bp_err *err)
{
    struct bp_store_plan_name *names = NULL;
    size_t n = 0;
    struct bp_db *db = bp_store_pool_take(&store->pool, err);
    if (!db)
        return -1;
    struct bp_query query = bp_query_of(db, BP_SQL_PLANS_AFTER, arena);
    bp_bind_int(&query, after->committed_at);
    bp_bind_int(&query, after->seq);
    bp_bind_int(&query, (int64_t)limit);
    while (bp_query_row(&query) && (names = bp_row_array(&query, names, n, sizeof *names)))
        names[n++] = (struct bp_store_plan_name){.place = {bp_row_int(&query, 0), bp_row_int(&query, 1)},
                                                 .id = bp_row_digest(&query, 2)};
    int result = bp_query_end(&query, err);
    bp_store_pool_give(&store->pool, db);
    if (result == 0) {
        *ret = names;
        *ret_n = n;
    }
    return result;
}
