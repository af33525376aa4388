/* A copy of the database while it is in use.
 *
 * SQLite's backup begins anew whenever somebody writes, unless its source is within a read transaction: then every page
 * is that of the one state that the transaction sees. So the source is a connection of its own, which neither writes
 * nor checkpoints. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "daemon/store/internal.h"

enum { STEP_PAGES = 512 };

/* The pages, in steps between which the copy can be stopped. */
static int copy_pages(sqlite3 *from, sqlite3 *to, struct bp_store_backup *backup, struct bp_err *err)
{
    struct bp_db failed = {.handle = to};
    sqlite3_backup *copy = sqlite3_backup_init(to, "main", from, "main");
    if (!copy)
        return bp_db_fail(&failed, sqlite3_extended_errcode(to), err);
    int rc = SQLITE_OK;
    while (rc == SQLITE_OK && !(backup->stop && atomic_load(backup->stop))) {
        rc = sqlite3_backup_step(copy, STEP_PAGES);
        atomic_store(&backup->all_pages, (uint64_t)sqlite3_backup_pagecount(copy));
        atomic_store(&backup->pages, (uint64_t)(sqlite3_backup_pagecount(copy) - sqlite3_backup_remaining(copy)));
    }
    sqlite3_backup_finish(copy);
    if (rc == SQLITE_DONE)
        return 0;
    return rc == SQLITE_OK ? bp_fail(err, BP_E_stopping, "", "the backup was stopped") : bp_db_fail(&failed, rc, err);
}

/* The state of one moment, held until the connection is closed. */
static int hold_state(struct bp_db *db, struct bp_err *err)
{
    int64_t n;
    if (bp_db_exec(db, "BEGIN", err) < 0)
        return -1;
    return bp_db_int(db, "SELECT count(*) FROM sqlite_schema", &n, err);
}

static int copy_into(struct bp_db *from, const char *to, struct bp_store_backup *backup, struct bp_err *err)
{
    struct bp_db db;
    if (bp_db_open(to, true, &db, err) < 0)
        return -1;
    int result = bp_db_exec(&db, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF", err);
    if (result == 0)
        result = copy_pages(from->handle, db.handle, backup, err);
    bp_db_close(&db);
    return result;
}

/* The copy says of itself, as its original does, that it has a write-ahead log: it is made a file that stands alone. */
static int make_plain(const char *to, struct bp_err *err)
{
    struct bp_db db;
    int64_t plain = 0;
    if (bp_db_open(to, true, &db, err) < 0)
        return -1;
    int result = bp_db_exec(&db, "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = DELETE", err);
    if (result == 0)
        result = bp_db_int(&db, "SELECT journal_mode = 'delete' FROM pragma_journal_mode", &plain, err);
    bp_db_close(&db);
    if (result == 0 && !plain)
        result = bp_fail(err, BP_E_storage_failed, "", "the copy cannot be made to stand alone");
    return result;
}

static int sync_file(const char *path, struct bp_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int failed = fd < 0 || fsync(fd);
    if (failed)
        bp_fail(err, BP_E_storage_failed, "", "%s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return failed ? -1 : 0;
}

/* Made here so that nobody else can read it; SQLite then finds an empty file. */
static int make_file(const char *path, struct bp_err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return bp_fail(err, BP_E_storage_failed, "", "%s: %s", path, strerror(errno));
    close(fd);
    return 0;
}

int bp_store_backup(struct bp_store *store, const char *to, struct bp_store_backup *backup, struct bp_err *err)
{
    struct bp_db from;
    if (make_file(to, err) < 0)
        return -1;
    int result = bp_db_open(store->path, false, &from, err);
    if (result == 0) {
        result = hold_state(&from, err);
        if (result == 0)
            result = copy_into(&from, to, backup, err);
        bp_db_close(&from);
    }
    if (result == 0)
        result = make_plain(to, err);
    if (result == 0)
        result = sync_file(to, err);
    if (result < 0)
        unlink(to);
    return result;
}
