/* The schema: its version, and the way from an older one. The version is SQLite's user_version, which a migration
 * raises in its own transaction; the application id tells our files from others'. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/embedded.h"
#include "daemon/store/internal.h"

extern const struct bp_embedded bp_migrations[];

enum { APPLICATION_ID = 0x62707264 /* "bprd" */, PATIENCE = 100 /* busy timeouts of 50 ms */ };

unsigned bp_store_schema_known(void)
{
    unsigned n = 0;
    while (bp_migrations[n].name)
        n++;
    return n;
}

static int judge_schema(const char *path, int64_t version, int64_t application, int64_t n_tables, struct bp_err *err)
{
    if (version == 0 ? application != 0 || n_tables != 0 : application != APPLICATION_ID)
        return bp_fail(err, BP_E_storage_failed, "", "%s is a database of another program", path);
    if (version < 0 || version > bp_store_schema_known())
        return bp_fail(err, BP_E_schema_newer, "", "%s has schema %lld, this program knows up to %u", path,
                       (long long)version, bp_store_schema_known());
    return 0;
}

/* What the file says of itself. A process that ended while it made the file can have left a rollback journal, without
 * which the file cannot be read, and which only a connection that writes may apply: `ret_journal` then. */
static int read_schema(const char *path, bool for_writing, int64_t ret[3], bool *ret_journal, struct bp_err *err)
{
    static const char *const questions[] = {"PRAGMA user_version", "PRAGMA application_id",
                                            "SELECT count(*) FROM sqlite_schema"};
    struct bp_db db;
    int result = bp_db_open(path, for_writing, &db, err);
    if (result < 0)
        return -1;
    for (size_t i = 0; result == 0 && i < sizeof questions / sizeof *questions; i++)
        if ((result = bp_db_int(&db, questions[i], &ret[i], err)) < 0)
            *ret_journal = sqlite3_extended_errcode(db.handle) == SQLITE_READONLY_ROLLBACK;
    bp_db_close(&db);
    return result == 0 ? 0 : bp_err_prefix(err, "%s", path);
}

int bp_store_schema(const char *real_path, bool may_roll_back, unsigned *ret, struct bp_err *err)
{
    struct stat status;
    if (stat(real_path, &status) < 0 || (S_ISREG(status.st_mode) && status.st_size == 0)) {
        *ret = 0;
        return 0;
    }
    if (!S_ISREG(status.st_mode))
        return bp_fail(err, BP_E_storage_failed, "", "%s is not a file", real_path);
    int64_t answers[3] = {0};
    struct bp_err first = {0};
    bool has_journal = false;
    int result = read_schema(real_path, false, answers, &has_journal, &first);
    if (result < 0 && has_journal && !may_roll_back)
        return bp_fail(err, BP_E_storage_failed, "", "%s was left half written: start the daemon on it first",
                       real_path);
    if (result < 0 && has_journal)
        result = read_schema(real_path, true, answers, &has_journal, err);
    else if (result < 0)
        return bp_fail(err, first.code, first.path, "%s", first.message);
    if (result == 0)
        result = judge_schema(real_path, answers[0], answers[1], answers[2], err);
    if (result == 0)
        *ret = (unsigned)answers[0];
    return result;
}

static int apply(struct bp_db *db, unsigned number, struct bp_err *err)
{
    char stamp[96];
    snprintf(stamp, sizeof stamp, "PRAGMA user_version = %u; PRAGMA application_id = %d;", number, APPLICATION_ID);
    const struct bp_embedded *migration = &bp_migrations[number - 1];
    if (bp_db_exec(db, "BEGIN IMMEDIATE", err) == 0 && bp_db_exec(db, (const char *)migration->bytes, err) == 0 &&
        bp_db_exec(db, stamp, err) == 0 && bp_db_exec(db, "COMMIT", err) == 0)
        return 0;
    bp_db_exec(db, "ROLLBACK", NULL);
    return bp_err_prefix(err, "migration %s", migration->name);
}

/* What journal mode the file ends up in is an answer, not an error. */
static int use_wal(struct bp_db *db, struct bp_err *err)
{
    static const char sql[] = "SELECT journal_mode = 'wal' FROM pragma_journal_mode";
    int64_t is_wal = 0;
    if (bp_db_exec(db, "PRAGMA journal_mode = WAL", err) < 0 || bp_db_int(db, sql, &is_wal, err) < 0)
        return -1;
    if (!is_wal)
        return bp_fail(err, BP_E_storage_failed, "", "the file system does not support a write-ahead log");
    return 0;
}

static int migrate(struct bp_db *db, unsigned version, struct bp_err *err)
{
    static const char settings[] = "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; "
                                   "PRAGMA temp_store = MEMORY; PRAGMA cache_size = -16384;";
    if (use_wal(db, err) < 0 || bp_db_exec(db, settings, err) < 0)
        return -1;
    for (unsigned number = version + 1; number <= bp_store_schema_known(); number++)
        if (apply(db, number, err) < 0)
            return -1;
    return bp_db_exec(db, "PRAGMA foreign_keys = ON", err);
}

int bp_store_open_writer(const char *real_path, unsigned version, struct bp_db *ret, struct bp_err *err)
{
    if (bp_db_open(real_path, true, ret, err) < 0)
        return -1;
    /* SQLite falls back to reading alone where it may not write. */
    int result = sqlite3_db_readonly(ret->handle, "main") == 1
                     ? bp_fail(err, BP_E_storage_failed, "", "the file or its directory cannot be written to")
                     : 0;
    if (result == 0 && migrate(ret, version, err) == 0 && bp_store_checkpoint_all(ret, err) == 0)
        return 0;
    bp_db_close(ret);
    return bp_err_prefix(err, "%s", real_path);
}

int bp_store_checkpoint_all(struct bp_db *db, struct bp_err *err)
{
    int rc = SQLITE_BUSY, in_log = 0, copied = 0;
    for (int i = 0; i < PATIENCE && (rc & 0xff) == SQLITE_BUSY; i++) {
        rc = sqlite3_wal_checkpoint_v2(db->handle, NULL, SQLITE_CHECKPOINT_TRUNCATE, &in_log, &copied);
        /* A reader of the newest rows keeps the log from being cut, not from having been copied and synced. */
        if ((rc & 0xff) == SQLITE_BUSY && in_log >= 0 && in_log == copied)
            rc = SQLITE_OK;
    }
    if ((rc & 0xff) == SQLITE_BUSY)
        return bp_fail(err, BP_E_database_locked, "", "another process uses this database and does not leave it");
    return rc == SQLITE_OK ? 0 : bp_db_fail(db, rc, err);
}

int bp_store_migrate(const char *path, bool dry_run, unsigned *ret_from, unsigned *ret_to, struct bp_err *err)
{
    struct bp_store_hold hold;
    int result = -1;
    unsigned version = 0;
    char *real = bp_store_real_path(path, err);
    if (!real)
        return -1;
    if (bp_store_hold(real, &hold, err) == 0) {
        result = bp_store_check_log(real, err);
        if (result == 0)
            result = bp_store_schema(real, !dry_run, &version, err);
        struct bp_db db;
        if (result == 0 && !dry_run && (result = bp_store_open_writer(real, version, &db, err)) == 0)
            bp_db_close(&db);
        bp_store_let_go(&hold);
    }
    free(real);
    if (result == 0) {
        *ret_from = version;
        *ret_to = bp_store_schema_known();
    }
    return result;
}
