/* The check of a whole file, which may be in use. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/store/internal.h"

static int check_structure(struct bp_db *db, struct bp_err *err)
{
    int64_t sound = 0, dangling = 0;
    if (bp_db_int(db, "SELECT count(*) = 1 AND max(integrity_check) = 'ok' FROM pragma_integrity_check(2)", &sound,
                  err) < 0 ||
        bp_db_int(db, "SELECT count(*) FROM pragma_foreign_key_check", &dangling, err) < 0)
        return -1;
    if (!sound)
        return bp_fail(err, BP_E_storage_failed, "", "SQLite's integrity check found damage");
    if (dangling)
        return bp_fail(err, BP_E_storage_failed, "", "%lld rows refer to rows that are not there", (long long)dangling);
    return 0;
}

static bool snapshot_is_good(struct bp_query *query, const struct bp_digest *digest, struct bp_buf *scratch,
                             struct bp_err *err)
{
    struct bp_digest actual;
    bp_buf_clear(scratch);
    const void *packed = sqlite3_column_blob(query->stmt, 3);
    size_t n = (size_t)sqlite3_column_bytes(query->stmt, 3);
    if (bp_store_unpack(query->db->packer, packed, n, (uint64_t)bp_row_int(query, 2), scratch, err) < 0)
        return false;
    bp_digest_of(scratch->data, scratch->len, &actual);
    return bp_digest_equal(&actual, digest);
}

static int check_snapshots(struct bp_db *db, void (*corrupt)(void *, const struct bp_digest *, const char *),
                           void *data, uint64_t *ret_checked, uint64_t *ret_corrupt, struct bp_err *err)
{
    struct bp_buf scratch = {0};
    struct bp_query query = bp_query_of(db, BP_SQL_ALL_SNAPSHOTS, NULL);
    uint64_t n = 0, n_corrupt = 0;
    while (bp_query_row(&query)) {
        struct bp_err unpacking = {0};
        struct bp_digest digest = bp_row_digest(&query, 0);
        const char *stage = (const char *)sqlite3_column_text(query.stmt, 1);
        bool good = snapshot_is_good(&query, &digest, &scratch, &unpacking);
        if (unpacking.code == BP_E_out_of_memory || !stage)
            query.rc = SQLITE_NOMEM;
        n++;
        if (query.rc == SQLITE_OK && !good) {
            n_corrupt++;
            corrupt(data, &digest, stage);
        }
    }
    bp_buf_release(&scratch);
    if (bp_query_end(&query, err) < 0)
        return -1;
    *ret_checked = n;
    *ret_corrupt = n_corrupt;
    return 0;
}

int bp_store_verify(const char *path, void (*corrupt)(void *data, const struct bp_digest *digest, const char *stage),
                    void *data, uint64_t *ret_checked, uint64_t *ret_corrupt, struct bp_err *err)
{
    unsigned version;
    struct bp_db db;
    char *real = bp_store_real_path(path, err);
    if (!real)
        return -1;
    int result = access(real, F_OK) ? bp_fail(err, BP_E_storage_failed, "", "%s: %s", path, strerror(errno))
                                    : bp_store_schema(real, &version, err);
    if (result == 0 && version != bp_store_schema_known())
        result = bp_fail(err, BP_E_storage_failed, "", "%s has schema %u, %u is needed: migrate it first", path,
                         version, bp_store_schema_known());
    if (result == 0 && (result = bp_db_open(real, false, &db, err)) == 0) {
        result = check_structure(&db, err);
        if (result == 0)
            result = check_snapshots(&db, corrupt, data, ret_checked, ret_corrupt, err);
        bp_db_close(&db);
    }
    free(real);
    return result;
}
