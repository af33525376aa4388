/* A file system for SQLite that fails on demand. */
#ifndef BP_TESTS_FAULT_VFS_H
#define BP_TESTS_FAULT_VFS_H

enum fault {
    FAULT_NONE,
    FAULT_LOG_FULL,      /* a write to the write-ahead log finds no room: SQLITE_FULL */
    FAULT_LOG_WRITE,     /* a write to the log fails: SQLITE_IOERR_WRITE */
    FAULT_LOG_SYNC,      /* a sync of the log fails: SQLITE_IOERR_FSYNC */
    FAULT_DATABASE_SYNC, /* a sync of the database file fails, as in a checkpoint */
};

/* Makes it the process's default, working until told otherwise. Before any database is opened. */
void fault_vfs_install(void);

/* From now on; any thread. */
void fault_vfs_set(enum fault fault);

/* How many syncs of the log and of the database succeeded since the installation. */
unsigned fault_vfs_log_syncs(void);

#endif
