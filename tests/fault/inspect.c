#include "tests/fault/inspect.h"

#include <check.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

static void found(struct inspection *inspection, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void found(struct inspection *inspection, const char *format, ...)
{
    va_list args;
    if (inspection->n_faults++)
        return;
    va_start(args, format);
    vsnprintf(inspection->first, sizeof inspection->first, format, args);
    va_end(args);
}

static sqlite3_stmt *prepare(sqlite3 *database, const char *sql)
{
    sqlite3_stmt *statement = NULL;
    ck_assert_msg(sqlite3_prepare_v2(database, sql, -1, &statement, NULL) == SQLITE_OK, "%s: %s", sql,
                  sqlite3_errmsg(database));
    return statement;
}

/* `since` is the parameter of the statements that have one. */
static unsigned long count(sqlite3 *database, const char *sql, int64_t since)
{
    sqlite3_stmt *statement = prepare(database, sql);
    if (sqlite3_bind_parameter_count(statement) > 0)
        sqlite3_bind_int64(statement, 1, since);
    ck_assert_msg(sqlite3_step(statement) == SQLITE_ROW, "%s: %s", sql, sqlite3_errmsg(database));
    unsigned long n = (unsigned long)sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return n;
}

/* Each counts what must not be. */
static const struct {
    const char *what, *sql;
} rules[] = {
    {"findings of SQLite's integrity check",
     "SELECT count(*) FROM pragma_integrity_check(10) WHERE integrity_check <> 'ok'"},
    {"rows that refer to rows that are not there", "SELECT count(*) FROM pragma_foreign_key_check"},
    {"committed plans without all of their stages, or without facts",
     "SELECT count(*) FROM plans AS p WHERE state = 'committed' AND (facts IS NULL"
     " OR (SELECT count(*) FROM plan_snapshots WHERE plan = p.seq)"
     "  <> CASE WHEN json_extract(request, '$.target') IS NULL THEN 3 ELSE 4 END)"},
    {"rejected plans without the stages before, or without diagnostics",
     "SELECT count(*) FROM plans AS p WHERE state = 'rejected' AND (diagnostics IS NULL"
     " OR (SELECT count(*) FROM plan_snapshots WHERE plan = p.seq) <> 3)"},
    {"plans whose positions have gaps, or that lack a derivation",
     "SELECT count(*) FROM plans AS p JOIN (SELECT plan, count(*) AS n, max(position) AS last FROM plan_snapshots"
     " GROUP BY plan) AS s ON s.plan = p.seq WHERE s.last <> s.n - 1"
     " OR (SELECT count(*) FROM plan_derivations WHERE plan = p.seq) <> s.n - 1"},
    {"plans whose derivations are not between their snapshots",
     "SELECT count(*) FROM plan_derivations AS pd JOIN derivations AS d ON d.seq = pd.derivation"
     " WHERE NOT EXISTS (SELECT 1 FROM plan_snapshots WHERE plan = pd.plan AND snapshot = d.source)"
     " OR NOT EXISTS (SELECT 1 FROM plan_snapshots WHERE plan = pd.plan AND snapshot = d.target)"},
    {"plans without the record of who asked for them",
     "SELECT count(*) FROM plans AS p WHERE created_at >= ?1 AND NOT EXISTS (SELECT 1 FROM audit WHERE plan = p.id"
     " AND action IN ('derive', 'accept'))"},
    {"jobs and replays without the record of who asked for them",
     "SELECT (SELECT count(*) FROM jobs AS j WHERE kind = 'plan' AND created_at >= ?1 AND NOT EXISTS (SELECT 1 FROM "
     "audit WHERE plan = j.id"
     " AND action = 'accept')) + (SELECT count(*) FROM (SELECT plan, count(*) AS n FROM replays WHERE created_at >= ?1 "
     "GROUP BY plan) AS r"
     " WHERE r.n > (SELECT count(*) FROM audit WHERE plan = r.plan AND action = 'replay'))"},
    {"gaps in the audit", "SELECT coalesce(max(seq) - min(seq) + 1 - count(*), 0) FROM audit"},
    {"plans that failed", "SELECT count(*) FROM plans WHERE state = 'failed'"},
    {"derivations without evidence, or with a check that does not hold",
     "SELECT count(*) FROM derivations AS d WHERE NOT EXISTS (SELECT 1 FROM evidence WHERE derivation = d.seq)"
     " OR EXISTS (SELECT 1 FROM evidence WHERE derivation = d.seq AND verdict <> 'holds')"},
    {"derivations without their edge", "SELECT count(*) FROM derivations AS d WHERE NOT EXISTS (SELECT 1 FROM edges"
                                       " WHERE source = d.source AND target = d.target AND derivation = d.seq)"},
    {"edges that are not their derivation's",
     "SELECT count(*) FROM edges AS e LEFT JOIN derivations AS d ON d.seq = e.derivation"
     " WHERE d.seq IS NULL OR d.source <> e.source OR d.target <> e.target"},
    {"models without evidence", "SELECT count(*) FROM snapshots AS s WHERE stage = 'model'"
                                " AND NOT EXISTS (SELECT 1 FROM snapshot_evidence WHERE snapshot = s.seq)"},
    {"snapshots of no plan",
     "SELECT count(*) FROM snapshots AS s WHERE NOT EXISTS (SELECT 1 FROM plan_snapshots WHERE snapshot = s.seq)"},
    {"derivations of no plan",
     "SELECT count(*) FROM derivations WHERE seq NOT IN (SELECT derivation FROM plan_derivations)"},
    {"jobs that are under way, or done without their plan",
     "SELECT count(*) FROM jobs AS j WHERE state NOT IN ('done', 'failed', 'superseded')"
     " OR (state <> 'failed' AND kind = 'plan'"
     " AND NOT EXISTS (SELECT 1 FROM plans WHERE id = coalesce(j.superseded_by, j.id)))"},
};

static void check_snapshots(sqlite3 *database, struct inspection *inspection)
{
    sqlite3_stmt *statement = prepare(database, "SELECT digest, bytes, data FROM snapshots");
    int rc;
    while ((rc = sqlite3_step(statement)) == SQLITE_ROW) {
        struct bp_digest actual = {{0}};
        const void *digest = sqlite3_column_blob(statement, 0), *packed = sqlite3_column_blob(statement, 2);
        size_t n = (size_t)sqlite3_column_int64(statement, 1);
        char *bytes = malloc(n);
        ck_assert_ptr_nonnull(bytes);
        if (ZSTD_decompress(bytes, n, packed, (size_t)sqlite3_column_bytes(statement, 2)) == n)
            bp_digest_of(bytes, n, &actual);
        free(bytes);
        inspection->n_snapshots++;
        if (memcmp(digest, actual.bytes, sizeof actual.bytes) != 0)
            found(inspection, "snapshot %lu does not have its digest", inspection->n_snapshots);
    }
    if (rc != SQLITE_DONE)
        found(inspection, "the snapshots cannot be read: %s", sqlite3_errmsg(database));
    sqlite3_finalize(statement);
}

static void check_ack(sqlite3_stmt *const statements[2], const struct ack *ack, struct inspection *inspection)
{
    sqlite3_stmt *statement = statements[ack->kind == ACK_REPLAY];
    struct bp_digest id;
    ck_assert(bp_digest_parse(ack->id, &id));
    sqlite3_bind_blob(statement, 1, id.bytes, sizeof id.bytes, SQLITE_STATIC);
    const char *state = sqlite3_step(statement) == SQLITE_ROW ? (const char *)sqlite3_column_text(statement, 0) : NULL;
    if (!state)
        found(inspection, "%s was acknowledged and is not there", ack->id);
    else if (ack->kind == ACK_REPLAY ? strcmp(state, "identical") != 0
             : ack->kind == ACK_PLAN ? strcmp(state, ack->rejected ? "rejected" : "committed") != 0
                                     : strcmp(state, "committed") != 0 && strcmp(state, "rejected") != 0)
        found(inspection, "%s was acknowledged and is %s", ack->id, state);
    sqlite3_reset(statement);
}

struct inspection inspect(const char *path, const struct ack *acks, size_t n_acks)
{
    return inspect_since(path, 0, acks, n_acks);
}

struct inspection inspect_since(const char *path, int64_t since, const struct ack *acks, size_t n_acks)
{
    struct inspection inspection = {0};
    sqlite3 *database = NULL;
    ck_assert_int_eq(sqlite3_open_v2(path, &database, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_busy_timeout(database, 5000), SQLITE_OK);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        unsigned long n = count(database, rules[i].sql, since);
        if (n)
            found(&inspection, "%lu %s", n, rules[i].what);
    }
    check_snapshots(database, &inspection);
    sqlite3_stmt *const statements[2] = {
        prepare(database, "SELECT state FROM plans WHERE id = ?"),
        prepare(database, "SELECT verdict FROM replays WHERE id = ?"),
    };
    for (size_t i = 0; i < n_acks; i++)
        check_ack(statements, &acks[i], &inspection);
    sqlite3_finalize(statements[0]);
    sqlite3_finalize(statements[1]);
    inspection.n_plans = count(database, "SELECT count(*) FROM plans", 0);
    inspection.n_edges = count(database, "SELECT count(*) FROM edges", 0);
    ck_assert_int_eq(sqlite3_close(database), SQLITE_OK);
    return inspection;
}
