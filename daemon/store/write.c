/* From records to rows, inside the writer's transaction. Functions return SQLite's code: what it means for the group
 * is the writer's to decide. */
#include <stdio.h>
#include <string.h>

#include "daemon/store/internal.h"

/* Where the snapshots of the plan being written were found or put, to spare the look-ups of its derivations. */
enum { SEQS_KEPT = 8 };

struct plan_write {
    struct bp_db *db;
    const struct bp_store_plan *plan;
    struct bp_store_counts *counts;
    int64_t seq;
    int64_t snapshot_seqs[SEQS_KEPT];
};

static bool changed(const struct bp_db *db)
{
    return sqlite3_changes(db->handle) > 0;
}

/* The row number that a query finds; SQLITE_CONSTRAINT when there is none. */
static int run_for_seq(struct bp_query *query, int64_t *ret)
{
    bool found = bp_query_row(query);
    if (found)
        *ret = bp_row_int(query, 0);
    sqlite3_reset(query->stmt);
    return query->rc != SQLITE_OK || found ? query->rc : SQLITE_CONSTRAINT;
}

static int write_evidence(struct bp_db *db, enum bp_sql sql, int64_t of, const struct bp_store_evidence *at, size_t n)
{
    int rc = SQLITE_OK;
    for (size_t i = 0; rc == SQLITE_OK && i < n; i++) {
        struct bp_query query = bp_query_of(db, sql, NULL);
        bp_bind_int(&query, of);
        bp_bind_int(&query, (int64_t)i);
        bp_bind_string(&query, at[i].check);
        bp_bind_string(&query, at[i].kind);
        bp_bind_string(&query, at[i].verdict);
        bp_bind_int(&query, (int64_t)at[i].compared);
        rc = bp_query_run(&query);
    }
    return rc;
}

static int snapshot_seq(struct bp_db *db, const struct bp_digest *digest, int64_t *ret)
{
    struct bp_query query = bp_query_of(db, BP_SQL_SNAPSHOT_SEQ, NULL);
    bp_bind_digest(&query, digest);
    return run_for_seq(&query, ret);
}

/* Stores the snapshot unless it is there, and gives its row number. */
static int write_snapshot(struct plan_write *write, const struct bp_store_snapshot *snapshot, int64_t *ret)
{
    struct bp_query query = bp_query_of(write->db, BP_SQL_PUT_SNAPSHOT, NULL);
    bp_bind_digest(&query, &snapshot->digest);
    bp_bind_string(&query, snapshot->stage);
    bp_bind_string(&query, snapshot->schema);
    bp_bind_int(&query, (int64_t)snapshot->bytes);
    bp_bind_blob(&query, snapshot->packed);
    int rc = bp_query_run(&query);
    if (rc != SQLITE_OK)
        return rc;
    if (!changed(write->db))
        return snapshot_seq(write->db, &snapshot->digest, ret);
    *ret = sqlite3_last_insert_rowid(write->db->handle);
    write->counts->snapshots++;
    return write_evidence(write->db, BP_SQL_PUT_SNAPSHOT_EVIDENCE, *ret, snapshot->evidence, snapshot->n_evidence);
}

static int write_link(struct plan_write *write, enum bp_sql sql, size_t position, int64_t seq)
{
    struct bp_query query = bp_query_of(write->db, sql, NULL);
    bp_bind_int(&query, write->seq);
    bp_bind_int(&query, (int64_t)position);
    bp_bind_int(&query, seq);
    return bp_query_run(&query);
}

static int write_snapshots(struct plan_write *write)
{
    int rc = SQLITE_OK;
    for (size_t i = 0; rc == SQLITE_OK && i < write->plan->n_snapshots; i++) {
        int64_t seq;
        rc = write_snapshot(write, &write->plan->snapshots[i], &seq);
        if (rc == SQLITE_OK)
            rc = write_link(write, BP_SQL_PUT_PLAN_SNAPSHOT, i, seq);
        if (rc == SQLITE_OK && i < SEQS_KEPT)
            write->snapshot_seqs[i] = seq;
    }
    return rc;
}

static int seq_of(const struct plan_write *write, const struct bp_digest *digest, int64_t *ret)
{
    for (size_t i = 0; i < write->plan->n_snapshots && i < SEQS_KEPT; i++)
        if (bp_digest_equal(&write->plan->snapshots[i].digest, digest)) {
            *ret = write->snapshot_seqs[i];
            return SQLITE_OK;
        }
    return snapshot_seq(write->db, digest, ret);
}

static int write_edge(struct bp_db *db, int64_t source, int64_t target, int64_t derivation)
{
    struct bp_query query = bp_query_of(db, BP_SQL_PUT_EDGE, NULL);
    bp_bind_int(&query, source);
    bp_bind_int(&query, target);
    bp_bind_int(&query, derivation);
    return bp_query_run(&query);
}

static struct bp_query derivation_query(struct bp_db *db, enum bp_sql sql, const struct bp_store_derivation *derivation,
                                        int64_t source, int64_t target)
{
    struct bp_query query = bp_query_of(db, sql, NULL);
    bp_bind_string(&query, derivation->pass);
    bp_bind_int(&query, derivation->revision);
    bp_bind_int(&query, source);
    bp_bind_int(&query, target);
    bp_bind_digest(&query, &derivation->binding);
    return query;
}

static int write_derivation(struct plan_write *write, const struct bp_store_derivation *derivation, int64_t *ret)
{
    int64_t source, target;
    int rc = seq_of(write, &derivation->source, &source);
    if (rc == SQLITE_OK)
        rc = seq_of(write, &derivation->target, &target);
    if (rc != SQLITE_OK)
        return rc;
    struct bp_query put = derivation_query(write->db, BP_SQL_PUT_DERIVATION, derivation, source, target);
    rc = bp_query_run(&put);
    if (rc != SQLITE_OK)
        return rc;
    if (!changed(write->db)) {
        struct bp_query find = derivation_query(write->db, BP_SQL_DERIVATION_SEQ, derivation, source, target);
        return run_for_seq(&find, ret);
    }
    *ret = sqlite3_last_insert_rowid(write->db->handle);
    write->counts->derivations++;
    rc = write_edge(write->db, source, target, *ret);
    if (rc != SQLITE_OK)
        return rc;
    return write_evidence(write->db, BP_SQL_PUT_EVIDENCE, *ret, derivation->evidence, derivation->n_evidence);
}

static int write_derivations(struct plan_write *write)
{
    int rc = SQLITE_OK;
    for (size_t i = 0; rc == SQLITE_OK && i < write->plan->n_derivations; i++) {
        int64_t seq;
        rc = write_derivation(write, &write->plan->derivations[i], &seq);
        if (rc == SQLITE_OK)
            rc = write_link(write, BP_SQL_PUT_PLAN_DERIVATION, i, seq);
    }
    return rc;
}

/* SQLITE_OK whether it was put or was there: see changed(). */
static int put_plan(struct plan_write *write)
{
    const struct bp_store_plan *plan = write->plan;
    struct bp_query query = bp_query_of(write->db, BP_SQL_PUT_PLAN, NULL);
    bp_bind_digest(&query, &plan->id);
    bp_bind_string(&query, bp_store_plan_state_names[plan->state]);
    bp_bind_int(&query, plan->created_at);
    bp_bind_int(&query, plan->committed_at);
    bp_bind_string(&query, plan->model);
    bp_bind_string(&query, plan->parameters);
    bp_bind_string(&query, plan->mode);
    bp_bind_text(&query, plan->facts);
    bp_bind_text(&query, plan->diagnostics);
    bp_bind_text(&query, plan->request);
    return bp_query_run(&query);
}

/* Makes room for another try at a plan that failed. SQLITE_CONSTRAINT when the stored one did not fail. */
static int drop_failed_plan(struct plan_write *write)
{
    int64_t seq;
    struct bp_store_taken taken = {0};
    struct bp_query find = bp_query_of(write->db, BP_SQL_FAILED_PLAN, NULL);
    bp_bind_digest(&find, &write->plan->id);
    int rc = run_for_seq(&find, &seq);
    if (rc == SQLITE_OK)
        rc = bp_store_take_apart(write->db, seq, write->counts, &taken);
    if (rc == SQLITE_OK)
        write->counts->plans[BP_STORE_FAILED]--;
    return rc;
}

static int write_plan(struct bp_db *db, const struct bp_store_plan *plan, struct bp_store_counts *counts,
                      bool *ret_existed)
{
    struct plan_write write = {.db = db, .plan = plan, .counts = counts};
    int rc = put_plan(&write);
    if (rc == SQLITE_OK && !changed(db)) {
        rc = drop_failed_plan(&write);
        if (rc == SQLITE_CONSTRAINT) {
            *ret_existed = true;
            return SQLITE_OK;
        }
        if (rc == SQLITE_OK)
            rc = put_plan(&write);
    }
    if (rc != SQLITE_OK)
        return rc;
    counts->plans[plan->state]++;
    write.seq = sqlite3_last_insert_rowid(db->handle);
    rc = write_snapshots(&write);
    return rc == SQLITE_OK ? write_derivations(&write) : rc;
}

static int write_replay(struct bp_db *db, const struct bp_store_replay *replay, struct bp_store_counts *counts)
{
    struct bp_query query = bp_query_of(db, BP_SQL_PUT_REPLAY, NULL);
    bp_bind_digest(&query, &replay->id);
    bp_bind_digest(&query, &replay->plan);
    bp_bind_string(&query, replay->verdict);
    bp_bind_int(&query, replay->created_at);
    bp_bind_text(&query, replay->record);
    counts->replays++;
    return bp_query_run(&query);
}

static int put_job(struct bp_db *db, const struct bp_store_job *job)
{
    struct bp_query query = bp_query_of(db, BP_SQL_PUT_JOB, NULL);
    bp_bind_digest(&query, &job->id);
    bp_bind_string(&query, job->kind);
    bp_bind_int(&query, job->created_at);
    bp_bind_text(&query, job->passes);
    bp_bind_text(&query, job->request);
    return bp_query_run(&query);
}

static int accept_job(struct bp_db *db, const struct bp_store_job *job, struct bp_store_counts *counts,
                      bool *ret_existed)
{
    int rc = put_job(db, job);
    if (rc == SQLITE_OK && !changed(db)) {
        struct bp_query drop_ended = bp_query_of(db, BP_SQL_DROP_ENDED_JOB, NULL);
        bp_bind_digest(&drop_ended, &job->id);
        rc = bp_query_run(&drop_ended);
        if (rc == SQLITE_OK && !changed(db)) {
            *ret_existed = true;
            return SQLITE_OK;
        }
        if (rc == SQLITE_OK)
            rc = put_job(db, job);
    }
    if (rc == SQLITE_OK)
        counts->jobs_unfinished++;
    return rc;
}

static int step_job(struct bp_db *db, const struct bp_store_job_change *change, struct bp_store_counts *counts)
{
    if (change->state == BP_STORE_JOB_QUEUED)
        return SQLITE_CONSTRAINT;
    struct bp_query query = bp_query_of(db, BP_SQL_STEP_JOB, NULL);
    bp_bind_digest(&query, &change->id);
    bp_bind_string(&query, bp_store_job_state_names[change->state]);
    bp_bind_int(&query, change->state == BP_STORE_JOB_RUNNING);
    if (change->state == BP_STORE_JOB_SUPERSEDED)
        bp_bind_digest(&query, &change->superseded_by);
    else
        bp_bind_null(&query);
    bp_bind_int(&query, change->at);
    bp_bind_text(&query, change->problem);
    int rc = bp_query_run(&query);
    if (rc != SQLITE_OK)
        return rc;
    if (!changed(db)) /* there is no such job, or it has ended: states only move forward */
        return SQLITE_CONSTRAINT;
    if (change->state != BP_STORE_JOB_RUNNING)
        counts->jobs_unfinished--;
    return SQLITE_OK;
}

static int write_audit(struct bp_db *db, const struct bp_store_audit *row)
{
    struct bp_query query = bp_query_of(db, BP_SQL_PUT_AUDIT, NULL);
    bp_bind_int(&query, row->at);
    bp_bind_int(&query, row->until);
    bp_bind_int(&query, (int64_t)row->times);
    bp_bind_string(&query, row->caller);
    bp_bind_string(&query, row->origin);
    bp_bind_string(&query, row->action);
    if (row->plan)
        bp_bind_digest(&query, row->plan);
    else
        bp_bind_null(&query);
    return bp_query_run(&query);
}

static int forget_audit(struct bp_db *db, int64_t before, unsigned *ret_forgotten)
{
    struct bp_query query = bp_query_of(db, BP_SQL_FORGET_AUDIT, NULL);
    bp_bind_int(&query, before);
    int rc = bp_query_run(&query);
    *ret_forgotten = rc == SQLITE_OK ? (unsigned)sqlite3_changes(db->handle) : 0;
    return rc;
}

/* Setting the version writes its page, whether it changes or not. */
static int probe(struct bp_db *db, bool *ret_differs)
{
    char write[64];
    int64_t version = 0;
    if (bp_db_int(db, "PRAGMA user_version", &version, NULL))
        return sqlite3_extended_errcode(db->handle);
    *ret_differs = version != bp_store_schema_known();
    if (*ret_differs)
        return SQLITE_OK;
    snprintf(write, sizeof write, "PRAGMA user_version = %u", bp_store_schema_known());
    return sqlite3_exec(db->handle, write, NULL, NULL, NULL);
}

int bp_store_write_unit(struct bp_db *db, struct bp_store_unit *unit, struct bp_store_counts *counts)
{
    int rc = SQLITE_OK;
    unit->existed = unit->schema_differs = false;
    if (unit->probe)
        rc = probe(db, &unit->schema_differs);
    if (unit->accept)
        rc = accept_job(db, unit->accept, counts, &unit->existed);
    if (rc == SQLITE_OK && unit->plan)
        rc = write_plan(db, unit->plan, counts, &unit->existed);
    if (rc == SQLITE_OK && unit->replay)
        rc = write_replay(db, unit->replay, counts);
    if (rc == SQLITE_OK && unit->pin)
        rc = bp_store_write_pin(db, unit->pin);
    if (rc == SQLITE_OK && unit->collection)
        rc = bp_store_write_collection(db, unit->collection, counts);
    if (rc == SQLITE_OK && unit->progress)
        rc = bp_store_write_progress(db, unit->progress);
    if (rc == SQLITE_OK && unit->change)
        rc = step_job(db, unit->change, counts);
    for (size_t i = 0; rc == SQLITE_OK && i < unit->n_audit; i++)
        rc = write_audit(db, &unit->audit[i]);
    if (rc == SQLITE_OK && unit->audit_forget_before)
        rc = forget_audit(db, unit->audit_forget_before, &unit->audit_forgotten);
    return rc;
}
