/* Taking finished plans out, and what goes on over many transactions: how far a job has come. Everything here runs
 * inside the writer's transaction and gives SQLite's code. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/store/internal.h"

/* A plan has a snapshot a stage; what a damaged file has beyond that stays, which --verify tells. */
enum { PARTS_MAX = 16 };

struct parts {
    int64_t seqs[PARTS_MAX];
    size_t n;
};

static int run_of(struct bp_db *db, enum bp_sql sql, int64_t seq)
{
    struct bp_query query = bp_query_of(db, sql, NULL);
    bp_bind_int(&query, seq);
    return bp_query_run(&query);
}

static int run_of_id(struct bp_db *db, enum bp_sql sql, const struct bp_digest *id)
{
    struct bp_query query = bp_query_of(db, sql, NULL);
    bp_bind_digest(&query, id);
    return bp_query_run(&query);
}

static uint64_t changed(const struct bp_db *db)
{
    return (uint64_t)sqlite3_changes64(db->handle);
}

static int end(struct bp_query *query)
{
    sqlite3_reset(query->stmt);
    return query->rc;
}

static int read_parts(struct bp_db *db, enum bp_sql sql, int64_t plan, struct parts *ret)
{
    struct bp_query query = bp_query_of(db, sql, NULL);
    bp_bind_int(&query, plan);
    while (bp_query_row(&query) && ret->n < PARTS_MAX)
        ret->seqs[ret->n++] = bp_row_int(&query, 0);
    return end(&query);
}

/* Deletes the row when `free_sql` finds that nobody needs it, what hangs on it first. `ret_freed`: whether, and what
 * that said. */
static int free_part(struct bp_db *db, enum bp_sql free_sql, const enum bp_sql *drops, size_t n_drops, int64_t seq,
                     bool *ret_freed, int64_t *ret_said)
{
    struct bp_query query = bp_query_of(db, free_sql, NULL);
    bp_bind_int(&query, seq);
    *ret_freed = bp_query_row(&query);
    *ret_said = *ret_freed ? bp_row_int(&query, 0) : 0;
    int rc = end(&query);
    for (size_t i = 0; rc == SQLITE_OK && *ret_freed && i < n_drops; i++)
        rc = run_of(db, drops[i], seq);
    return rc;
}

static int free_derivations(struct bp_db *db, const struct parts *parts, struct bp_store_counts *counts,
                            struct bp_store_taken *taken)
{
    static const enum bp_sql drops[] = {BP_SQL_DROP_EVIDENCE, BP_SQL_DROP_EDGE, BP_SQL_DROP_DERIVATION};
    int rc = SQLITE_OK;
    for (size_t i = 0; rc == SQLITE_OK && i < parts->n; i++) {
        bool freed;
        int64_t said;
        rc = free_part(db, BP_SQL_FREE_DERIVATION, drops, sizeof drops / sizeof *drops, parts->seqs[i], &freed, &said);
        counts->derivations -= freed;
        taken->derivations += freed;
    }
    return rc;
}

static int free_snapshots(struct bp_db *db, const struct parts *parts, struct bp_store_counts *counts,
                          struct bp_store_taken *taken)
{
    static const enum bp_sql drops[] = {BP_SQL_DROP_SNAPSHOT_EVIDENCE, BP_SQL_DROP_SNAPSHOT};
    int rc = SQLITE_OK;
    for (size_t i = 0; rc == SQLITE_OK && i < parts->n; i++) {
        bool freed;
        int64_t bytes;
        rc = free_part(db, BP_SQL_FREE_SNAPSHOT, drops, sizeof drops / sizeof *drops, parts->seqs[i], &freed, &bytes);
        counts->snapshots -= freed;
        taken->snapshots += freed;
        taken->bytes += (uint64_t)bytes;
    }
    return rc;
}

int bp_store_take_apart(struct bp_db *db, int64_t plan, struct bp_store_counts *counts, struct bp_store_taken *taken)
{
    static const enum bp_sql links[] = {BP_SQL_DROP_PLAN_SNAPSHOTS, BP_SQL_DROP_PLAN_DERIVATIONS};
    struct parts snapshots = {.n = 0}, derivations = {.n = 0};
    int rc = read_parts(db, BP_SQL_SNAPSHOTS_OF, plan, &snapshots);
    if (rc == SQLITE_OK)
        rc = read_parts(db, BP_SQL_DERIVATIONS_OF, plan, &derivations);
    for (size_t i = 0; rc == SQLITE_OK && i < sizeof links / sizeof *links; i++)
        rc = run_of(db, links[i], plan);
    if (rc == SQLITE_OK)
        rc = free_derivations(db, &derivations, counts, taken);
    if (rc == SQLITE_OK)
        rc = free_snapshots(db, &snapshots, counts, taken);
    return rc == SQLITE_OK ? run_of(db, BP_SQL_DROP_PLAN, plan) : rc;
}

/* ---- Collections ---- */

struct old_plan {
    struct bp_store_place place;
    struct bp_digest id;
    enum bp_store_plan_state state;
};

static int next_old_plan(struct bp_db *db, const struct bp_store_collection *collection, struct old_plan *ret,
                         bool *ret_found)
{
    struct bp_query query = bp_query_of(db, BP_SQL_NEXT_OLD_PLAN, NULL);
    bp_bind_int(&query, collection->place.committed_at);
    bp_bind_int(&query, collection->place.seq);
    bp_bind_int(&query, collection->before);
    *ret_found = bp_query_row(&query);
    if (*ret_found)
        *ret = (struct old_plan){
            .place = {bp_row_int(&query, 0), bp_row_int(&query, 1)},
            .id = bp_row_digest(&query, 2),
            .state = (enum bp_store_plan_state)bp_row_enum(&query, 3, bp_store_plan_state_names),
        };
    return end(&query);
}

static int take_plan(struct bp_db *db, const struct old_plan *plan, struct bp_store_counts *counts,
                     struct bp_store_taken *taken)
{
    int rc = run_of_id(db, BP_SQL_DROP_REPLAYS, &plan->id);
    if (rc != SQLITE_OK)
        return rc;
    taken->replays += changed(db);
    counts->replays -= (int64_t)changed(db);
    rc = bp_store_take_apart(db, plan->place.seq, counts, taken);
    if (rc != SQLITE_OK)
        return rc;
    taken->plans++;
    counts->plans[plan->state]--;
    rc = run_of_id(db, BP_SQL_DROP_PLAN_JOBS, &plan->id);
    if (rc == SQLITE_OK)
        taken->jobs += changed(db);
    return rc;
}

/* A part of an ended job, which may have found much; `ret_found` is false when there is none. */
static int take_job(struct bp_db *db, int64_t before, struct bp_store_taken *taken, bool *ret_found)
{
    static const enum bp_sql drops[] = {BP_SQL_DROP_GROUPS, BP_SQL_DROP_TALLIES, BP_SQL_DROP_JOB};
    struct bp_query query = bp_query_of(db, BP_SQL_OLD_JOB, NULL);
    bp_bind_int(&query, before);
    *ret_found = bp_query_row(&query);
    int64_t seq = *ret_found ? bp_row_int(&query, 0) : 0;
    int rc = end(&query);
    if (rc != SQLITE_OK || !*ret_found)
        return rc;
    rc = run_of(db, BP_SQL_DROP_DIVERGENCES, seq);
    if (rc != SQLITE_OK || changed(db) > 0)
        return rc;
    for (size_t i = 0; rc == SQLITE_OK && i < sizeof drops / sizeof *drops; i++)
        rc = run_of(db, drops[i], seq);
    taken->jobs += rc == SQLITE_OK;
    return rc;
}

static int take_next(struct bp_db *db, struct bp_store_collection *collection, struct bp_store_counts *counts,
                     struct bp_store_taken *taken)
{
    bool found;
    struct old_plan plan = {.state = BP_STORE_COMMITTED};
    int rc = next_old_plan(db, collection, &plan, &found);
    if (rc == SQLITE_OK && found) {
        rc = take_plan(db, &plan, counts, taken);
        collection->place = plan.place;
    } else if (rc == SQLITE_OK) {
        rc = take_job(db, collection->before, taken, &found);
        collection->ended = !found;
    }
    return rc;
}

int bp_store_write_collection(struct bp_db *db, struct bp_store_collection *collection, struct bp_store_counts *counts)
{
    const int64_t until = bp_monotonic_ns() + collection->budget_ns;
    struct bp_store_taken taken = {0};
    int rc = SQLITE_OK;
    collection->ended = false;
    collection->place = collection->from;
    do
        rc = take_next(db, collection, counts, &taken);
    while (rc == SQLITE_OK && !collection->ended && bp_monotonic_ns() < until);
    collection->plans = taken.plans;
    const struct bp_store_tally tallies[] = {
        {"removed_plans", taken.plans},
        {"removed_snapshots", taken.snapshots},
        {"removed_derivations", taken.derivations},
        {"removed_replays", taken.replays},
        {"removed_jobs", taken.jobs},
        {"removed_bytes", taken.bytes},
    };
    const struct bp_store_progress progress = {.job = collection->job,
                                               .at = collection->at,
                                               .place = collection->place,
                                               .tallies = tallies,
                                               .n_tallies = sizeof tallies / sizeof *tallies};
    return rc == SQLITE_OK ? bp_store_write_progress(db, &progress) : rc;
}

/* ---- Progress ---- */

void bp_store_place_write(const struct bp_store_place *place, char ret[BP_STORE_PLACE_TEXT])
{
    snprintf(ret, BP_STORE_PLACE_TEXT, "%" PRId64 " %" PRId64, place->committed_at, place->seq);
}

struct bp_store_place bp_store_place_read(const char *text)
{
    struct bp_store_place place;
    if (sscanf(text, "%" SCNd64 " %" SCNd64, &place.committed_at, &place.seq) == 2)
        return place;
    return (struct bp_store_place){0};
}

/* SQLITE_CONSTRAINT when there is no such job, or it does not run. */
static int write_position(struct bp_db *db, const struct bp_store_progress *progress, int64_t *ret_job)
{
    char text[BP_STORE_PLACE_TEXT];
    bp_store_place_write(&progress->place, text);
    struct bp_query query = bp_query_of(db, BP_SQL_PUT_POSITION, NULL);
    bp_bind_digest(&query, &progress->job);
    bp_bind_string(&query, text);
    bp_bind_int(&query, progress->at);
    bool found = bp_query_row(&query);
    *ret_job = found ? bp_row_int(&query, 0) : 0;
    while (found && bp_query_row(&query))
        ;
    int rc = end(&query);
    return rc == SQLITE_OK && !found ? SQLITE_CONSTRAINT : rc;
}

static int write_tally(struct bp_db *db, int64_t job, const struct bp_store_tally *tally)
{
    struct bp_query query = bp_query_of(db, BP_SQL_PUT_TALLY, NULL);
    bp_bind_int(&query, job);
    bp_bind_string(&query, tally->name);
    bp_bind_int(&query, (int64_t)tally->n);
    return bp_query_run(&query);
}

static int write_group(struct bp_db *db, int64_t job, const struct bp_store_divergence *divergence, const char *check)
{
    struct bp_query query = bp_query_of(db, BP_SQL_PUT_GROUP, NULL);
    bp_bind_int(&query, job);
    bp_bind_string(&query, divergence->pass);
    bp_bind_int(&query, divergence->revision);
    bp_bind_int(&query, divergence->current_revision);
    bp_bind_string(&query, check);
    return bp_query_run(&query);
}

static int write_divergence(struct bp_db *db, int64_t job, const struct bp_store_divergence *divergence)
{
    struct bp_query query = bp_query_of(db, BP_SQL_PUT_DIVERGENCE, NULL);
    bp_bind_int(&query, job);
    bp_bind_digest(&query, &divergence->plan);
    bp_bind_text(&query, divergence->record);
    int rc = bp_query_run(&query);
    if (rc == SQLITE_OK && divergence->n_checks == 0)
        rc = write_group(db, job, divergence, "");
    for (size_t i = 0; rc == SQLITE_OK && i < divergence->n_checks; i++)
        rc = write_group(db, job, divergence, divergence->checks[i]);
    return rc;
}

int bp_store_write_progress(struct bp_db *db, const struct bp_store_progress *progress)
{
    int64_t job;
    int rc = write_position(db, progress, &job);
    for (size_t i = 0; rc == SQLITE_OK && i < progress->n_tallies; i++)
        rc = write_tally(db, job, &progress->tallies[i]);
    for (size_t i = 0; rc == SQLITE_OK && i < progress->n_divergences; i++)
        rc = write_divergence(db, job, &progress->divergences[i]);
    return rc;
}

/* ---- Pins ---- */

/* When it was pinned; `missing` when it is not. */
static int read_pin(struct bp_db *db, struct bp_store_pin *pin)
{
    struct bp_query query = bp_query_of(db, BP_SQL_PIN, NULL);
    bp_bind_digest(&query, &pin->plan);
    pin->missing = !bp_query_row(&query);
    if (!pin->missing)
        pin->at = bp_row_int(&query, 0);
    return end(&query);
}

int bp_store_write_pin(struct bp_db *db, struct bp_store_pin *pin)
{
    if (pin->remove) {
        int rc = run_of_id(db, BP_SQL_DROP_PIN, &pin->plan);
        pin->missing = rc == SQLITE_OK && changed(db) == 0;
        return rc;
    }
    struct bp_query query = bp_query_of(db, BP_SQL_PUT_PIN, NULL);
    bp_bind_digest(&query, &pin->plan);
    bp_bind_int(&query, pin->at);
    int rc = bp_query_run(&query);
    return rc == SQLITE_OK ? read_pin(db, pin) : rc;
}
