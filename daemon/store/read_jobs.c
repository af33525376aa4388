/* What jobs found and counted, pins, and what a collection would take. */
#include "daemon/store/internal.h"

int bp_store_plans_count(struct bp_store *store, int64_t from, int64_t until, uint64_t *ret, struct bp_err *err)
{
    uint64_t n = 0;
    struct bp_db *db = bp_store_pool_take(&store->pool, err);
    if (!db)
        return -1;
    struct bp_query query = bp_query_of(db, BP_SQL_PLANS_COUNT, NULL);
    bp_bind_int(&query, from);
    bp_bind_int(&query, until);
    if (bp_query_row(&query))
        n = (uint64_t)bp_row_int(&query, 0);
    int result = bp_query_end(&query, err);
    bp_store_pool_give(&store->pool, db);
    if (result == 0)
        *ret = n;
    return result;
}

/* Two numbers that a query about a plan and a time answers with. */
static int ask(struct bp_db *db, enum bp_sql sql, const struct bp_store_plan_name *plan, int64_t before,
               bool *ret_found, uint64_t *ret_first, uint64_t *ret_second, struct bp_err *err)
{
    struct bp_query query = bp_query_of(db, sql, NULL);
    bp_bind_int(&query, plan->place.seq);
    bp_bind_int(&query, before);
    *ret_found = bp_query_row(&query);
    if (*ret_found) {
        *ret_first = (uint64_t)bp_row_int(&query, 0);
        if (ret_second)
            *ret_second = (uint64_t)bp_row_int(&query, 1);
    }
    return bp_query_end(&query, err);
}

int bp_store_plan_takings(struct bp_store *store, const struct bp_store_plan_name *plan, int64_t before,
                          struct bp_store_takings *ret, struct bp_err *err)
{
    struct bp_store_takings takings = {0};
    bool found;
    struct bp_db *db = bp_store_pool_take(&store->pool, err);
    if (!db)
        return -1;
    int result = ask(db, BP_SQL_TAKES, plan, before, &takings.takes, &takings.replays, NULL, err);
    if (result == 0 && takings.takes)
        result = ask(db, BP_SQL_TAKES_SNAPSHOTS, plan, before, &found, &takings.snapshots, &takings.bytes, err);
    if (result == 0 && takings.takes)
        result = ask(db, BP_SQL_TAKES_DERIVATIONS, plan, before, &found, &takings.derivations, NULL, err);
    bp_store_pool_give(&store->pool, db);
    if (result == 0)
        *ret = takings;
    return result;
}

int bp_store_tallies(struct bp_store *store, int64_t job_seq, struct bp_arena *arena, struct bp_store_tally_page *ret,
                     struct bp_err *err)
{
    struct bp_store_tally *tallies = NULL;
    size_t n = 0;
    struct bp_db *db = bp_store_pool_take(&store->pool, err);
    if (!db)
        return -1;
    struct bp_query query = bp_query_of(db, BP_SQL_TALLIES, arena);
    bp_bind_int(&query, job_seq);
    while (bp_query_row(&query) && (tallies = bp_row_array(&query, tallies, n, sizeof *tallies)))
        tallies[n++] = (struct bp_store_tally){bp_row_string(&query, 0), (uint64_t)bp_row_int(&query, 1)};
    int result = bp_query_end(&query, err);
    bp_store_pool_give(&store->pool, db);
    if (result == 0)
        *ret = (struct bp_store_tally_page){tallies, n};
    return result;
}

int bp_store_divergences(struct bp_store *store, int64_t job_seq, size_t limit, const char *cursor,
                         struct bp_arena *arena, struct bp_store_divergence_page *ret, struct bp_err *err)
{
    int64_t after, last = 0;
    struct bp_store_text *records = NULL;
    struct bp_store_divergence_page page = {.n = 0};
    if (bp_store_cursor_read(cursor, 0, &after, err) < 0)
        return -1;
    struct bp_db *db = bp_store_pool_take(&store->pool, err);
    if (!db)
        return -1;
    struct bp_query query = bp_query_of(db, BP_SQL_DIVERGENCES, arena);
    bp_bind_int(&query, job_seq);
    bp_bind_int(&query, after);
    bp_bind_int(&query, (int64_t)limit + 1);
    while (bp_query_row(&query)) {
        if (page.n == limit) {
            bp_store_cursor_write(last, page.next);
            break;
        }
        if (!(records = bp_row_array(&query, records, page.n, sizeof *records)))
            break;
        last = bp_row_int(&query, 0);
        records[page.n++] = bp_row_text(&query, 1);
    }
    int result = bp_query_end(&query, err);
    bp_store_pool_give(&store->pool, db);
    page.records = records;
    if (result == 0)
        *ret = page;
    return result;
}

int bp_store_groups(struct bp_store *store, int64_t job_seq, size_t limit, struct bp_arena *arena,
                    struct bp_store_group_page *ret, struct bp_err *err)
{
    struct bp_store_group *groups = NULL;
    size_t n = 0;
    struct bp_db *db = bp_store_pool_take(&store->pool, err);
    if (!db)
        return -1;
    struct bp_query query = bp_query_of(db, BP_SQL_GROUPS, arena);
    bp_bind_int(&query, job_seq);
    bp_bind_int(&query, (int64_t)limit);
    while (bp_query_row(&query) && (groups = bp_row_array(&query, groups, n, sizeof *groups)))
        groups[n++] = (struct bp_store_group){.pass = bp_row_string(&query, 0),
                                              .revision = (unsigned)bp_row_int(&query, 1),
                                              .current_revision = (unsigned)bp_row_int(&query, 2),
                                              .check = bp_row_string(&query, 3),
                                              .plans = (uint64_t)bp_row_int(&query, 4)};
    int result = bp_query_end(&query, err);
    bp_store_pool_give(&store->pool, db);
    if (result == 0)
        *ret = (struct bp_store_group_page){groups, n};
    return result;
}

int bp_store_pin_list(struct bp_store *store, size_t limit, const char *cursor, struct bp_arena *arena,
                      struct bp_store_pin_page *ret, struct bp_err *err)
{
    int64_t before, last = 0;
    struct bp_store_pin *pins = NULL;
    struct bp_store_pin_page page = {.n = 0};
    if (bp_store_cursor_read(cursor, INT64_MAX, &before, err) < 0)
        return -1;
    struct bp_db *db = bp_store_pool_take(&store->pool, err);
    if (!db)
        return -1;
    struct bp_query query = bp_query_of(db, BP_SQL_PINS, arena);
    bp_bind_int(&query, before);
    bp_bind_int(&query, (int64_t)limit + 1);
    while (bp_query_row(&query)) {
        if (page.n == limit) {
            bp_store_cursor_write(last, page.next);
            break;
        }
        if (!(pins = bp_row_array(&query, pins, page.n, sizeof *pins)))
            break;
        last = bp_row_int(&query, 0);
        pins[page.n++] = (struct bp_store_pin){.plan = bp_row_digest(&query, 1), .at = bp_row_int(&query, 2)};
    }
    int result = bp_query_end(&query, err);
    bp_store_pool_give(&store->pool, db);
    page.pins = pins;
    if (result == 0)
        *ret = page;
    return result;
}
