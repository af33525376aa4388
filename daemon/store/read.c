/* Ids by their beginning, snapshots, replays, jobs, and the check of a whole file. */
#include <string.h>

#include "daemon/store/internal.h"

/* ---- Ids ---- */

struct range {
    struct bp_digest least, most;
    size_t digits;
};

/* 8 to 64 hex digits, as the range of digests that begin with them. */
static int read_range(const char *text, struct range *ret, struct bp_err *err)
{
    static const char scheme[] = "sha256:", hex[] = "0123456789abcdef";
    const char *digits = strncmp(text, scheme, sizeof scheme - 1) == 0 ? text + sizeof scheme - 1 : text;
    size_t n = strspn(digits, hex);
    if (n < 8 || n > 64 || digits[n])
        return bp_fail(err, BP_E_invalid_id, "", "an id is 8 to 64 lower-case hex digits, with or without \"sha256:\"");
    char least[BP_DIGEST_TEXT], most[BP_DIGEST_TEXT];
    memcpy(least, scheme, sizeof scheme - 1);
    memcpy(most, scheme, sizeof scheme - 1);
    for (size_t i = 0; i < 64; i++) {
        least[sizeof scheme - 1 + i] = i < n ? digits[i] : '0';
        most[sizeof scheme - 1 + i] = i < n ? digits[i] : 'f';
    }
    least[BP_DIGEST_TEXT - 1] = most[BP_DIGEST_TEXT - 1] = '\0';
    if (!bp_digest_parse(least, &ret->least) || !bp_digest_parse(most, &ret->most))
        return bp_fail(err, BP_E_internal, "", "an id that was checked does not parse");
    ret->digits = n;
    return 0;
}

static int find(struct bp_db *db, enum bp_sql sql, const struct range *range, struct bp_store_candidates *ret,
                struct bp_err *err)
{
    struct bp_query query = bp_query_of(db, sql, NULL);
    bp_bind_digest(&query, &range->least);
    bp_bind_digest(&query, &range->most);
    struct bp_store_candidates found = {.n = 0};
    while (bp_query_row(&query)) {
        if (found.n == BP_STORE_CANDIDATES_MAX)
            found.more = true;
        else
            found.at[found.n++] = bp_row_digest(&query, 0);
    }
    if (bp_query_end(&query, err) < 0)
        return -1;
    *ret = found;
    return 0;
}

int bp_store_find(struct bp_store *store, enum bp_store_kind kind, const char *text, struct bp_digest *ret,
                  struct bp_store_candidates *ret_candidates, struct bp_err *err)
{
    static const enum bp_sql finds[] = {[BP_STORE_PLANS] = BP_SQL_FIND_PLAN,
                                        [BP_STORE_SNAPSHOTS] = BP_SQL_FIND_SNAPSHOT,
                                        [BP_STORE_REPLAYS] = BP_SQL_FIND_REPLAY,
                                        [BP_STORE_JOBS] = BP_SQL_FIND_JOB};
    struct range range;
    if (read_range(text, &range, err) < 0)
        return -1;
    struct bp_store_candidates found = {.at = {range.least}, .n = 1};
    if (range.digits < 64) {
        struct bp_db *db = bp_store_pool_take(&store->pool, err);
        int result = db ? find(db, finds[kind], &range, &found, err) : -1;
        if (db)
            bp_store_pool_give(&store->pool, db);
        if (result < 0)
            return -1;
    }
    if (found.n == 0)
        return bp_fail(err, BP_E_not_found, "", "nothing begins with %s", text);
    if (found.n > 1) {
        *ret_candidates = found;
        return bp_fail(err, BP_E_ambiguous_prefix, "", "%s%zu begin with %s", found.more ? "more than " : "", found.n,
                       text);
    }
    *ret = found.at[0];
    return 0;
}

/* ---- Snapshots ---- */

static int not_found(const char *what, const struct bp_digest *id, struct bp_err *err)
{
    char text[BP_DIGEST_TEXT];
    bp_digest_format(id, text);
    return bp_fail(err, BP_E_not_found, "", "there is no %s %s", what, text);
}

/* Unpacks straight from SQLite's page cache. `ret_unpacking` gets what went wrong with the bytes alone. */
static int unpack_row(struct bp_query *query, int column, struct bp_buf *out, struct bp_err *ret_unpacking)
{
    const void *packed = sqlite3_column_blob(query->stmt, column + 1);
    int n = sqlite3_column_bytes(query->stmt, column + 1);
    if (!packed && n == 0 && sqlite3_errcode(query->db->handle) == SQLITE_NOMEM)
        return bp_fail(ret_unpacking, BP_E_out_of_memory, "", "no memory to read a snapshot");
    return bp_store_unpack(query->db->packer, packed, (size_t)n, (uint64_t)bp_row_int(query, column), out,
                           ret_unpacking);
}

static int read_snapshot(struct bp_db *db, const struct bp_digest *digest, struct bp_buf *out, struct bp_err *err)
{
    struct bp_err unpacking = {0};
    size_t before = out->len;
    struct bp_query query = bp_query_of(db, BP_SQL_SNAPSHOT, NULL);
    bp_bind_digest(&query, digest);
    bool found = bp_query_row(&query);
    if (found)
        unpack_row(&query, 0, out, &unpacking);
    int result = bp_query_end(&query, err);
    if (result == 0 && !found)
        result = not_found("snapshot", digest, err);
    if (result == 0 && unpacking.code != BP_OK)
        result = bp_fail(err, unpacking.code, "", "%s", unpacking.message);
    if (result < 0)
        out->len = before;
    return result;
}

static int check_digest(const struct bp_digest *digest, const char *bytes, size_t n, struct bp_err *err)
{
    struct bp_digest actual;
    bp_digest_of(bytes, n, &actual);
    if (bp_digest_equal(&actual, digest))
        return 0;
    char expected_text[BP_DIGEST_TEXT], actual_text[BP_DIGEST_TEXT];
    bp_digest_format(digest, expected_text);
    bp_digest_format(&actual, actual_text);
    return bp_fail(err, BP_E_snapshot_corrupt, "", "the bytes stored as %s have digest %s", expected_text, actual_text);
}

int bp_store_snapshot_read(struct bp_store *store, const struct bp_digest *digest, struct bp_buf *out,
                           struct bp_err *err)
{
    struct bp_db *db = bp_store_pool_take(&store->pool, err);
    if (!db)
        return -1;
    size_t before = out->len;
    int result = read_snapshot(db, digest, out, err);
    bp_store_pool_give(&store->pool, db);
    if (result == 0 && (result = check_digest(digest, out->data + before, out->len - before, err)) < 0)
        out->len = before;
    return result;
}

int bp_store_snapshot_read_raw(struct bp_store *store, const struct bp_digest *digest, struct bp_buf *out,
                               bool *ret_unpacked, struct bp_err *err)
{
    struct bp_db *db = bp_store_pool_take(&store->pool, err);
    if (!db)
        return -1;
    struct bp_err reading = {0};
    int result = read_snapshot(db, digest, out, &reading);
    bp_store_pool_give(&store->pool, db);
    if (result < 0 && reading.code != BP_E_snapshot_corrupt)
        return bp_fail(err, reading.code, "", "%s", reading.message);
    *ret_unpacked = result == 0;
    return 0;
}

/* ---- Replays ---- */

static struct bp_store_replay replay_row(struct bp_query *query)
{
    return (struct bp_store_replay){.id = bp_row_digest(query, 1),
                                    .plan = bp_row_digest(query, 2),
                                    .verdict = bp_row_string(query, 3),
                                    .created_at = bp_row_int(query, 4),
                                    .record = bp_row_text(query, 5)};
}

int bp_store_replay_read(struct bp_store *store, const struct bp_digest *id, struct bp_arena *arena,
                         struct bp_store_replay *ret, struct bp_err *err)
{
    struct bp_db *db = bp_store_pool_take(&store->pool, err);
    if (!db)
        return -1;
    struct bp_query query = bp_query_of(db, BP_SQL_REPLAY, arena);
    bp_bind_digest(&query, id);
    struct bp_store_replay replay;
    bool found = bp_query_row(&query);
    if (found)
        replay = replay_row(&query);
    int result = bp_query_end(&query, err);
    bp_store_pool_give(&store->pool, db);
    if (result == 0 && !found)
        result = not_found("replay", id, err);
    if (result == 0)
        *ret = replay;
    return result;
}

/* One row more than the page holds is asked for: it says that there is a next page. */
static int list_replays(struct bp_query *query, size_t limit, struct bp_store_replay_page *page, struct bp_err *err)
{
    struct bp_store_replay *replays = NULL;
    int64_t last = 0;
    bool more = false;
    while (!more && bp_query_row(query)) {
        more = page->n == limit;
        if (more || !(replays = bp_row_array(query, replays, page->n, sizeof *replays)))
            break;
        last = bp_row_int(query, 0);
        replays[page->n++] = replay_row(query);
    }
    page->replays = replays;
    if (more)
        bp_store_cursor_write(last, page->next);
    return bp_query_end(query, err);
}

int bp_store_replay_list(struct bp_store *store, const struct bp_digest *plan, size_t limit, const char *cursor,
                         struct bp_arena *arena, struct bp_store_replay_page *ret, struct bp_err *err)
{
    int64_t before;
    if (bp_store_cursor_read(cursor, INT64_MAX, &before, err) < 0)
        return -1;
    struct bp_db *db = bp_store_pool_take(&store->pool, err);
    if (!db)
        return -1;
    struct bp_query query = bp_query_of(db, BP_SQL_REPLAYS, arena);
    bp_bind_digest(&query, plan);
    bp_bind_int(&query, before);
    bp_bind_int(&query, (int64_t)limit + 1);
    struct bp_store_replay_page page = {.n = 0};
    int result = list_replays(&query, limit, &page, err);
    bp_store_pool_give(&store->pool, db);
    if (result == 0)
        *ret = page;
    return result;
}

/* ---- Jobs ---- */

static struct bp_store_job job_row(struct bp_query *query)
{
    struct bp_store_job job = {
        .seq = bp_row_int(query, 0),
        .id = bp_row_digest(query, 1),
        .kind = bp_row_string(query, 2),
        .state = (enum bp_store_job_state)bp_row_enum(query, 3, bp_store_job_state_names),
        .attempts = (unsigned)bp_row_int(query, 4),
        .created_at = bp_row_int(query, 5),
        .updated_at = bp_row_int(query, 6),
        .has_superseded_by = sqlite3_column_type(query->stmt, 7) != SQLITE_NULL,
        .passes = bp_row_text(query, 8),
        .request = bp_row_text(query, 9),
        .place = bp_store_place_read(bp_row_string(query, 10)),
        .problem = bp_row_text(query, 11),
    };
    if (job.has_superseded_by)
        job.superseded_by = bp_row_digest(query, 7);
    return job;
}

static int read_jobs(struct bp_query *query, struct bp_store_job_page *ret, struct bp_err *err)
{
    struct bp_store_job *jobs = NULL;
    size_t n = 0;
    while (bp_query_row(query) && (jobs = bp_row_array(query, jobs, n, sizeof *jobs)))
        jobs[n++] = job_row(query);
    if (bp_query_end(query, err) < 0)
        return -1;
    *ret = (struct bp_store_job_page){.jobs = jobs, .n = n};
    return 0;
}

int bp_store_job_read(struct bp_store *store, const struct bp_digest *id, struct bp_arena *arena,
                      struct bp_store_job *ret, struct bp_err *err)
{
    struct bp_db *db = bp_store_pool_take(&store->pool, err);
    if (!db)
        return -1;
    struct bp_query query = bp_query_of(db, BP_SQL_JOB, arena);
    bp_bind_digest(&query, id);
    struct bp_store_job_page page;
    int result = read_jobs(&query, &page, err);
    bp_store_pool_give(&store->pool, db);
    if (result == 0 && page.n == 0)
        result = not_found("job", id, err);
    if (result == 0)
        *ret = page.jobs[0];
    return result;
}

int bp_store_jobs_unfinished(struct bp_store *store, int64_t after, size_t limit, struct bp_arena *arena,
                             struct bp_store_job_page *ret, struct bp_err *err)
{
    struct bp_db *db = bp_store_pool_take(&store->pool, err);
    if (!db)
        return -1;
    struct bp_query query = bp_query_of(db, BP_SQL_JOBS, arena);
    bp_bind_int(&query, after);
    bp_bind_int(&query, (int64_t)limit);
    int result = read_jobs(&query, ret, err);
    bp_store_pool_give(&store->pool, db);
    return result;
}

int bp_store_job_list(struct bp_store *store, size_t limit, const char *cursor, struct bp_arena *arena,
                      struct bp_store_job_page *ret, struct bp_err *err)
{
    int64_t before;
    if (bp_store_cursor_read(cursor, INT64_MAX, &before, err) < 0)
        return -1;
    struct bp_db *db = bp_store_pool_take(&store->pool, err);
    if (!db)
        return -1;
    struct bp_query query = bp_query_of(db, BP_SQL_JOB_LIST, arena);
    bp_bind_int(&query, before);
    bp_bind_int(&query, (int64_t)limit + 1);
    int result = read_jobs(&query, ret, err);
    bp_store_pool_give(&store->pool, db);
    if (result == 0 && ret->n > limit) {
        ret->n = limit;
        bp_store_cursor_write(ret->jobs[limit - 1].seq, ret->next);
    }
    return result;
}
