/* A file system for SQLite that fails on demand, and a disk that forgets what was not synced.
 *
 * Any thread may call; what is set counts for the calls of every thread from then on. */
#ifndef BP_TESTS_FAULT_VFS_H
#define BP_TESTS_FAULT_VFS_H

#include <stdbool.h>

enum fault_call {
    FAULT_OPEN,
    FAULT_READ,
    FAULT_WRITE,
    FAULT_TRUNCATE,
    FAULT_SYNC,
    FAULT_SIZE,
    FAULT_LOCK,     /* of the database file */
    FAULT_SHM_MAP,  /* the index of the log */
    FAULT_SHM_LOCK, /* its locks, on which everything in WAL mode turns */
    FAULT_DELETE,
    FAULT_CALL_N
};

struct fault {
    enum fault_call call;
    int rc;     /* SQLite's code that it fails with */
    int files;  /* of which: SQLITE_OPEN_MAIN_DB, SQLITE_OPEN_WAL ... or-ed; 0 is all. Deletions: all. */
    long after; /* how many such calls pass first */
    bool once;  /* one fails; else all that follow */
    bool half;  /* a write that fails has put half of its bytes there */
};

/* Makes it the process's default, working until told otherwise. Before any database is opened. */
void fault_vfs_install(void);

/* NULL: nothing fails any more. */
void fault_vfs_set(const struct fault *fault);

/* While paused nothing fails and nothing counts. */
void fault_vfs_pause(bool paused);

/* How many calls failed since fault_vfs_set. */
unsigned long fault_vfs_failed(void);

/* How many syncs succeeded and how many were failed since the installation. */
unsigned long fault_vfs_syncs(void), fault_vfs_failed_syncs(void);

/* From here to fault_vfs_power_cut the database file, its log and journal are on a disk of this process's memory, where
 * a sync (which then syncs nothing real) makes durable what was written before. As in Linux, a sync that fails loses
 * what it could not write and the next one does not know of it. What the files hold now is durable; making or deleting
 * one of them is at once. */
void fault_vfs_disk_begin(void);

/* The files become what the disk has: what was durable, and of the writes since then a part that `seed` chooses, whole
 * or to the multiple of 512 bytes. SQLite must have closed them. Ends the disk. */
void fault_vfs_power_cut(unsigned seed);

#endif
