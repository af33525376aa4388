/* The check of a whole file, which may be in use. Whatever is found is told, not only the first; a check that the
 * damage itself keeps from ending is a finding too. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/store/internal.h"

/* How much SQLite's own check says, at most. */
#define INTEGRITY "SELECT integrity_check FROM pragma_integrity_check(100) WHERE integrity_check <> 'ok'"
#define REFERENCES                                                                                                     \
    "SELECT \"table\", coalesce('row ' || rowid, 'a row'), 'refers to a row of ' || parent || ' that is not there' "   \
    "FROM pragma_foreign_key_check"

static const struct rule {
    const char *table, *reason, *sql;
} rules[] = {
#define BP_RULE(table, reason, sql) {table, reason, sql},
#include "daemon/store/verify.def"
#undef BP_RULE
};

struct verify {
    struct bp_db db;
    const struct bp_store_verifier *verifier;
    struct bp_store_verified done;
};

static void tell(struct verify *verify, const char *table, const char *key, const char *reason)
{
    const struct bp_store_defect defect = {table, key, reason};
    verify->done.defects++;
    verify->verifier->defect(verify->verifier->data, &defect);
}

/* What keeps a check from going on: the file's fault is a finding, ours and the machine's is an error. */
static int stopped(struct verify *verify, const char *table, int rc, struct bp_err *err)
{
    int kind = rc & 0xff;
    if (kind != SQLITE_CORRUPT && kind != SQLITE_NOTADB)
        return bp_db_fail(&verify->db, rc, err);
    tell(verify, table, "", "cannot be read to its end: SQLite finds the file damaged");
    return 0;
}

static const char *column(sqlite3_stmt *stmt, int i)
{
    const char *text = (const char *)sqlite3_column_text(stmt, i);
    return text ? text : "";
}

/* Runs a statement whose rows are breaches: of three columns with table, key, reason; of one with what is not given. */
static int run_rule(struct verify *verify, const struct rule *rule, struct bp_err *err)
{
    sqlite3_stmt *stmt = NULL;
    if (verify->verifier->stop && atomic_load(verify->verifier->stop))
        return bp_fail(err, BP_E_deadline_exceeded, "", "the check was stopped");
    int rc = sqlite3_prepare_v2(verify->db.handle, rule->sql, -1, &stmt, NULL);
    bool whole = stmt && sqlite3_column_count(stmt) == 3;
    while (rc == SQLITE_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        if (whole)
            tell(verify, column(stmt, 0), column(stmt, 1), column(stmt, 2));
        else
            tell(verify, rule->table, rule->reason ? column(stmt, 0) : "",
                 rule->reason ? rule->reason : column(stmt, 0));
        rc = SQLITE_OK;
    }
    sqlite3_finalize(stmt);
    return rc == SQLITE_DONE ? 0 : stopped(verify, rule->table, rc, err);
}

static int check_rows(struct verify *verify, struct bp_err *err)
{
    static const struct rule integrity = {"file", NULL, INTEGRITY}, references = {"file", NULL, REFERENCES};
    if (run_rule(verify, &integrity, err) < 0 || run_rule(verify, &references, err) < 0)
        return -1;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (run_rule(verify, &rules[i], err) < 0)
            return -1;
    return 0;
}

/* ---- Snapshots ---- */

/* NULL when the stored bytes are those of the digest, else what is wrong. */
static const char *judge_snapshot(struct bp_query *query, const struct bp_digest *digest, struct bp_buf *scratch,
                                  struct bp_err *err)
{
    struct bp_digest actual;
    bp_buf_clear(scratch);
    const void *packed = sqlite3_column_blob(query->stmt, 3);
    size_t n = (size_t)sqlite3_column_bytes(query->stmt, 3);
    if (bp_store_unpack(query->db->packer, packed, n, (uint64_t)bp_row_int(query, 2), scratch, err) < 0)
        return "the stored bytes do not unpack";
    bp_digest_of(scratch->data, scratch->len, &actual);
    return bp_digest_equal(&actual, digest) ? NULL : "the stored bytes are not those of the digest";
}

/* Some of them after `*seq`, which moves on; the statement ends in between, so that the log of a file in use can be
 * cut. */
static int check_some(struct verify *verify, int64_t *seq, struct bp_buf *scratch, bool *ret_found)
{
    struct bp_query query = bp_query_of(&verify->db, BP_SQL_SNAPSHOTS_AFTER, NULL);
    bp_bind_int(&query, *seq);
    *ret_found = false;
    while (bp_query_row(&query)) {
        char key[BP_DIGEST_TEXT];
        struct bp_err unpacking = {0};
        struct bp_digest digest = bp_row_digest(&query, 0);
        *seq = bp_row_int(&query, 1);
        *ret_found = true;
        bp_digest_format(&digest, key);
        const char *wrong = judge_snapshot(&query, &digest, scratch, &unpacking);
        if (unpacking.code == BP_E_out_of_memory)
            query.rc = SQLITE_NOMEM;
        verify->done.snapshots++;
        if (query.rc == SQLITE_OK && wrong)
            tell(verify, "snapshots", key, wrong);
    }
    int rc = query.rc;
    sqlite3_reset(query.stmt);
    return rc;
}

static int check_snapshots(struct verify *verify, struct bp_err *err)
{
    struct bp_buf scratch = {0};
    int64_t seq = 0;
    bool found = true;
    int rc = SQLITE_OK;
    while (rc == SQLITE_OK && found)
        rc = check_some(verify, &seq, &scratch, &found);
    bp_buf_release(&scratch);
    return rc == SQLITE_OK ? 0 : stopped(verify, "snapshots", rc, err);
}

static int count_rows(struct verify *verify, struct bp_err *err)
{
    struct bp_store_verified *done = &verify->done;
    const struct {
        const char *sql;
        uint64_t *ret;
    } counts[] = {
        {"SELECT count(*) FROM plans", &done->plans},
        {"SELECT count(*) FROM derivations", &done->derivations},
        {"SELECT count(*) FROM edges", &done->edges},
        {"SELECT (SELECT count(*) FROM evidence) + (SELECT count(*) FROM snapshot_evidence)", &done->evidence},
        {"SELECT count(*) FROM replays", &done->replays},
        {"SELECT count(*) FROM jobs", &done->jobs},
        {"SELECT count(*) FROM audit", &done->audit},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int64_t n = 0;
        struct bp_err counting = {0};
        /* One that cannot be counted was found to be damaged above. */
        if (bp_db_int(&verify->db, counts[i].sql, &n, &counting) < 0 && counting.code != BP_E_storage_failed)
            return bp_fail(err, counting.code, "", "%s", counting.message);
        *counts[i].ret = (uint64_t)n;
    }
    return 0;
}

/* ---- All of it ---- */

static int verify_file(const char *real, const struct bp_store_verifier *verifier, struct bp_store_verified *ret,
                       struct bp_err *err)
{
    struct verify verify = {.verifier = verifier};
    if (bp_db_open(real, false, &verify.db, err) < 0)
        return -1;
    verify.db.stop = verifier->stop;
    int result = check_rows(&verify, err);
    if (result == 0)
        result = check_snapshots(&verify, err);
    if (result == 0)
        result = count_rows(&verify, err);
    bp_db_close(&verify.db);
    if (result == 0)
        *ret = verify.done;
    return result;
}

int bp_store_verify(const char *path, const struct bp_store_verifier *verifier, struct bp_store_verified *ret,
                    struct bp_err *err)
{
    unsigned version;
    char *real = bp_store_real_path(path, err);
    if (!real)
        return -1;
    int result = access(real, F_OK) ? bp_fail(err, BP_E_storage_failed, "", "%s: %s", path, strerror(errno))
                                    : bp_store_check_log(real, err);
    if (result == 0)
        result = bp_store_schema(real, false, &version, err);
    if (result == 0 && version != bp_store_schema_known())
        result = bp_fail(err, BP_E_storage_failed, "", "%s has schema %u, %u is needed: migrate it first", path,
                         version, bp_store_schema_known());
    if (result == 0)
        result = verify_file(real, verifier, ret, err);
    free(real);
    return result;
}
