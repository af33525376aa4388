#include "tests/lib/fault_vfs.h"

#include <check.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fault_alloc.h"
#include "tests/lib/fault_disk.h"

enum { DISKS_MAX = 8, KINDS = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL };

/* A file of ours is followed in memory by the real one. */
struct fault_file {
    sqlite3_file base;
    int kind; /* one of KINDS, or 0 */
    struct fault_disk *disk;
    _Alignas(sqlite3_int64) unsigned char real[]; /* SQLite aligns no further */
};

static sqlite3_vfs *real_vfs, fault_vfs;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    struct fault fault; /* under `lock`, with all that follows */
    bool armed, paused, has_disk;
    long passed;
    unsigned long failed, syncs, failed_syncs;
    struct fault_disk *disks[DISKS_MAX];
    size_t n_disks;
} state;

static sqlite3_file *real_of(sqlite3_file *file)
{
    return (sqlite3_file *)(void *)((struct fault_file *)(void *)file)->real;
}

static struct fault_file *ours(sqlite3_file *file)
{
    return (struct fault_file *)(void *)file;
}

/* SQLITE_OK, or what this call is to fail with. */
static int judge(enum fault_call call, int kind, bool *ret_half)
{
    int rc = SQLITE_OK;
    pthread_mutex_lock(&lock);
    const struct fault *fault = &state.fault;
    if (state.armed && !state.paused && fault->call == call && (!fault->files || (fault->files & kind))) {
        if (state.passed++ == fault->after || (state.passed > fault->after && !fault->once)) {
            rc = fault->rc;
            state.failed++;
            if (ret_half)
                *ret_half = fault->half;
        }
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

/* ---- The disk ---- */

/* Its memory is the test's own. */
static void enter(void)
{
    bp_fault_alloc_exempt(true);
    pthread_mutex_lock(&lock);
}

static void leave(void)
{
    pthread_mutex_unlock(&lock);
    bp_fault_alloc_exempt(false);
}

/* Under the lock. NULL when there is none, or the file is none of those that matter. */
static struct fault_disk *disk_of(const char *path, int kind)
{
    if (!state.has_disk || !path || !(kind & KINDS))
        return NULL;
    for (size_t i = 0; i < state.n_disks; i++)
        if (strcmp(fault_disk_path(state.disks[i]), path) == 0)
            return state.disks[i];
    ck_assert_uint_lt(state.n_disks, DISKS_MAX);
    return state.disks[state.n_disks++] = fault_disk_new(path);
}

static void note_write(sqlite3_file *file, const void *bytes, int n, sqlite3_int64 offset)
{
    enter();
    if (state.has_disk && ours(file)->disk)
        fault_disk_write(ours(file)->disk, bytes, (size_t)n, (size_t)offset);
    leave();
}

/* True when the sync has been done with. */
static bool note_sync(sqlite3_file *file, bool failed)
{
    enter();
    bool done = state.has_disk && ours(file)->disk;
    if (done)
        fault_disk_sync(ours(file)->disk, failed);
    state.syncs += !failed;
    state.failed_syncs += failed;
    leave();
    return done;
}

/* ---- The calls ---- */

static int fault_read(sqlite3_file *file, void *bytes, int n, sqlite3_int64 offset)
{
    int rc = judge(FAULT_READ, ours(file)->kind, NULL);
    return rc ? rc : real_of(file)->pMethods->xRead(real_of(file), bytes, n, offset);
}

static int fault_write(sqlite3_file *file, const void *bytes, int n, sqlite3_int64 offset)
{
    bool half = false;
    int rc = judge(FAULT_WRITE, ours(file)->kind, &half);
    if (rc && !half)
        return rc;
    int written = rc ? n / 2 : n, real = real_of(file)->pMethods->xWrite(real_of(file), bytes, written, offset);
    note_write(file, bytes, written, offset);
    return rc ? rc : real;
}

static int fault_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    int rc = judge(FAULT_TRUNCATE, ours(file)->kind, NULL);
    if (rc)
        return rc;
    enter();
    if (state.has_disk && ours(file)->disk)
        fault_disk_truncate(ours(file)->disk, (size_t)size);
    leave();
    return real_of(file)->pMethods->xTruncate(real_of(file), size);
}

static int fault_sync(sqlite3_file *file, int flags)
{
    int rc = judge(FAULT_SYNC, ours(file)->kind, NULL);
    bool done = note_sync(file, rc != SQLITE_OK);
    return rc || done ? rc : real_of(file)->pMethods->xSync(real_of(file), flags);
}

static int fault_size(sqlite3_file *file, sqlite3_int64 *size)
{
    int rc = judge(FAULT_SIZE, ours(file)->kind, NULL);
    return rc ? rc : real_of(file)->pMethods->xFileSize(real_of(file), size);
}

static int fault_lock(sqlite3_file *file, int level)
{
    int rc = judge(FAULT_LOCK, ours(file)->kind, NULL);
    return rc ? rc : real_of(file)->pMethods->xLock(real_of(file), level);
}

static int fault_shm_map(sqlite3_file *file, int page, int size, int extend, void volatile **ret)
{
    int rc = judge(FAULT_SHM_MAP, ours(file)->kind, NULL);
    if (rc)
        *ret = NULL;
    return rc ? rc : real_of(file)->pMethods->xShmMap(real_of(file), page, size, extend, ret);
}

/* Giving a lock back does not fail. */
static int fault_shm_lock(sqlite3_file *file, int offset, int n, int flags)
{
    int rc = flags & SQLITE_SHM_LOCK ? judge(FAULT_SHM_LOCK, ours(file)->kind, NULL) : SQLITE_OK;
    return rc ? rc : real_of(file)->pMethods->xShmLock(real_of(file), offset, n, flags);
}

/* The rest is passed on as it is. */
#define PASS(name, parameters, ...)                                                                                    \
    static int pass_##name parameters                                                                                  \
    {                                                                                                                  \
        return real_of(file)->pMethods->name(__VA_ARGS__);                                                             \
    }
PASS(xClose, (sqlite3_file * file), real_of(file))
PASS(xUnlock, (sqlite3_file * file, int level), real_of(file), level)
PASS(xCheckReservedLock, (sqlite3_file * file, int *ret), real_of(file), ret)
PASS(xFileControl, (sqlite3_file * file, int op, void *arg), real_of(file), op, arg)
PASS(xSectorSize, (sqlite3_file * file), real_of(file))
PASS(xDeviceCharacteristics, (sqlite3_file * file), real_of(file))
PASS(xShmUnmap, (sqlite3_file * file, int remove), real_of(file), remove)

static void pass_xShmBarrier(sqlite3_file *file)
{
    real_of(file)->pMethods->xShmBarrier(real_of(file));
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = pass_xClose,
    .xRead = fault_read,
    .xWrite = fault_write,
    .xTruncate = fault_truncate,
    .xSync = fault_sync,
    .xFileSize = fault_size,
    .xLock = fault_lock,
    .xUnlock = pass_xUnlock,
    .xCheckReservedLock = pass_xCheckReservedLock,
    .xFileControl = pass_xFileControl,
    .xSectorSize = pass_xSectorSize,
    .xDeviceCharacteristics = pass_xDeviceCharacteristics,
    .xShmMap = fault_shm_map,
    .xShmLock = fault_shm_lock,
    .xShmBarrier = pass_xShmBarrier,
    .xShmUnmap = pass_xShmUnmap,
};

static int fault_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *ret_flags)
{
    (void)vfs;
    ours(file)->kind = flags & KINDS;
    ours(file)->disk = NULL;
    ours(file)->base.pMethods = NULL;
    int rc = judge(FAULT_OPEN, flags & KINDS, NULL);
    if (rc)
        return rc;
    enter();
    ours(file)->disk = disk_of(name, flags & KINDS);
    leave();
    memset(ours(file)->real, 0, (size_t)real_vfs->szOsFile);
    rc = real_vfs->xOpen(real_vfs, name, real_of(file), flags, ret_flags);
    ours(file)->base.pMethods = real_of(file)->pMethods ? &methods : NULL;
    return rc;
}

static int fault_delete(sqlite3_vfs *vfs, const char *name, int sync_directory)
{
    (void)vfs;
    int rc = judge(FAULT_DELETE, KINDS, NULL);
    if (rc)
        return rc;
    enter();
    struct fault_disk *disk = disk_of(name, KINDS);
    if (disk) {
        fault_disk_truncate(disk, 0);
        fault_disk_sync(disk, false);
    }
    leave();
    return real_vfs->xDelete(real_vfs, name, sync_directory);
}

void fault_vfs_install(void)
{
    real_vfs = sqlite3_vfs_find(NULL);
    ck_assert_ptr_nonnull(real_vfs);
    fault_vfs = *real_vfs;
    fault_vfs.zName = "fault";
    fault_vfs.szOsFile = (int)sizeof(struct fault_file) + real_vfs->szOsFile;
    fault_vfs.xOpen = fault_open;
    fault_vfs.xDelete = fault_delete;
    ck_assert_int_eq(sqlite3_vfs_register(&fault_vfs, 1), SQLITE_OK);
}

void fault_vfs_set(const struct fault *fault)
{
    pthread_mutex_lock(&lock);
    state.armed = fault != NULL;
    if (fault)
        state.fault = *fault;
    state.passed = 0;
    state.failed = 0;
    state.paused = false;
    pthread_mutex_unlock(&lock);
}

void fault_vfs_pause(bool paused)
{
    pthread_mutex_lock(&lock);
    state.paused = paused;
    pthread_mutex_unlock(&lock);
}

static unsigned long read_count(const unsigned long *count)
{
    pthread_mutex_lock(&lock);
    unsigned long n = *count;
    pthread_mutex_unlock(&lock);
    return n;
}

unsigned long fault_vfs_failed(void)
{
    return read_count(&state.failed);
}

unsigned long fault_vfs_syncs(void)
{
    return read_count(&state.syncs);
}

unsigned long fault_vfs_failed_syncs(void)
{
    return read_count(&state.failed_syncs);
}

void fault_vfs_disk_begin(void)
{
    pthread_mutex_lock(&lock);
    state.has_disk = true;
    pthread_mutex_unlock(&lock);
}

void fault_vfs_power_cut(unsigned seed)
{
    unsigned short random[3] = {(unsigned short)seed, (unsigned short)(seed >> 16), 11};
    for (size_t i = 0; i < state.n_disks; i++) {
        fault_disk_cut(state.disks[i], random);
        fault_disk_free(state.disks[i]);
    }
    state.n_disks = 0;
    state.has_disk = false;
}
