#include "tests/lib/fault_vfs.h"

#include <check.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <string.h>

/* A file of ours is followed in memory by the real one. */
struct fault_file {
    sqlite3_file base;
    int kind;                                     /* SQLITE_OPEN_MAIN_DB or SQLITE_OPEN_WAL matter */
    _Alignas(sqlite3_int64) unsigned char real[]; /* SQLite aligns no further */
};

static sqlite3_vfs *real_vfs, fault_vfs;
static atomic_int current;
static atomic_uint log_syncs;

static sqlite3_file *real_of(sqlite3_file *file)
{
    return (sqlite3_file *)(void *)((struct fault_file *)(void *)file)->real;
}

static int kind_of(sqlite3_file *file)
{
    return ((struct fault_file *)(void *)file)->kind;
}

static int fault_write(sqlite3_file *file, const void *bytes, int n, sqlite3_int64 offset)
{
    int fault = atomic_load(&current);
    if (kind_of(file) == SQLITE_OPEN_WAL && fault == FAULT_LOG_FULL)
        return SQLITE_FULL;
    if (kind_of(file) == SQLITE_OPEN_WAL && fault == FAULT_LOG_WRITE)
        return SQLITE_IOERR_WRITE;
    return real_of(file)->pMethods->xWrite(real_of(file), bytes, n, offset);
}

static int fault_sync(sqlite3_file *file, int flags)
{
    int fault = atomic_load(&current);
    if ((kind_of(file) == SQLITE_OPEN_WAL && fault == FAULT_LOG_SYNC) ||
        (kind_of(file) == SQLITE_OPEN_MAIN_DB && fault == FAULT_DATABASE_SYNC))
        return SQLITE_IOERR_FSYNC;
    if (kind_of(file) == SQLITE_OPEN_WAL)
        atomic_fetch_add(&log_syncs, 1);
    return real_of(file)->pMethods->xSync(real_of(file), flags);
}

/* The rest is passed on as it is. */
#define PASS(name, parameters, ...)                                                                                    \
    static int pass_##name parameters                                                                                  \
    {                                                                                                                  \
        return real_of(file)->pMethods->name(__VA_ARGS__);                                                             \
    }
PASS(xClose, (sqlite3_file * file), real_of(file))
PASS(xRead, (sqlite3_file * file, void *bytes, int n, sqlite3_int64 offset), real_of(file), bytes, n, offset)
PASS(xTruncate, (sqlite3_file * file, sqlite3_int64 size), real_of(file), size)
PASS(xFileSize, (sqlite3_file * file, sqlite3_int64 *size), real_of(file), size)
PASS(xLock, (sqlite3_file * file, int level), real_of(file), level)
PASS(xUnlock, (sqlite3_file * file, int level), real_of(file), level)
PASS(xCheckReservedLock, (sqlite3_file * file, int *ret), real_of(file), ret)
PASS(xFileControl, (sqlite3_file * file, int op, void *arg), real_of(file), op, arg)
PASS(xSectorSize, (sqlite3_file * file), real_of(file))
PASS(xDeviceCharacteristics, (sqlite3_file * file), real_of(file))
PASS(xShmMap, (sqlite3_file * file, int page, int size, int extend, void volatile **ret), real_of(file), page, size,
     extend, ret)
PASS(xShmLock, (sqlite3_file * file, int offset, int n, int flags), real_of(file), offset, n, flags)
PASS(xShmUnmap, (sqlite3_file * file, int remove), real_of(file), remove)

static void pass_xShmBarrier(sqlite3_file *file)
{
    real_of(file)->pMethods->xShmBarrier(real_of(file));
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = pass_xClose,
    .xRead = pass_xRead,
    .xWrite = fault_write,
    .xTruncate = pass_xTruncate,
    .xSync = fault_sync,
    .xFileSize = pass_xFileSize,
    .xLock = pass_xLock,
    .xUnlock = pass_xUnlock,
    .xCheckReservedLock = pass_xCheckReservedLock,
    .xFileControl = pass_xFileControl,
    .xSectorSize = pass_xSectorSize,
    .xDeviceCharacteristics = pass_xDeviceCharacteristics,
    .xShmMap = pass_xShmMap,
    .xShmLock = pass_xShmLock,
    .xShmBarrier = pass_xShmBarrier,
    .xShmUnmap = pass_xShmUnmap,
};

static int fault_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *ret_flags)
{
    (void)vfs;
    struct fault_file *ours = (struct fault_file *)(void *)file;
    ours->kind = flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL);
    memset(ours->real, 0, (size_t)real_vfs->szOsFile);
    int rc = real_vfs->xOpen(real_vfs, name, real_of(file), flags, ret_flags);
    ours->base.pMethods = real_of(file)->pMethods ? &methods : NULL;
    return rc;
}

void fault_vfs_install(void)
{
    real_vfs = sqlite3_vfs_find(NULL);
    ck_assert_ptr_nonnull(real_vfs);
    fault_vfs = *real_vfs;
    fault_vfs.zName = "fault";
    fault_vfs.szOsFile = (int)sizeof(struct fault_file) + real_vfs->szOsFile;
    fault_vfs.xOpen = fault_open;
    fault_vfs_set(FAULT_NONE);
    ck_assert_int_eq(sqlite3_vfs_register(&fault_vfs, 1), SQLITE_OK);
}

void fault_vfs_set(enum fault fault)
{
    atomic_store(&current, fault);
}

unsigned fault_vfs_log_syncs(void)
{
    return atomic_load(&log_syncs);
}
