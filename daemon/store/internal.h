/* What the files of the store share. */
#ifndef BP_STORE_INTERNAL_H
#define BP_STORE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "daemon/store/sqlite.h"

/* ---- lock.c ---- */

/* Where the file really is, links resolved; the file itself may be absent, a link to nothing may not. NULL on failure;
 * free it. */
char *bp_store_real_path(const char *path, struct bp_err *err);

/* What keeps another daemon away from a database, and what tells that it is still where it was. */
struct bp_store_hold {
    int lock; /* of PATH.lock; -1: nothing is held */
    int file; /* of the file itself; -1: it is not there yet. Not to be closed before SQLite has closed it */
};

/* Takes PATH.lock, writes the pid into it, and the file, where there is one. database_locked when another process has
 * either. */
int bp_store_hold(const char *real_path, struct bp_store_hold *ret, struct bp_err *err);

/* The same of a file that was made since then. */
int bp_store_hold_file(const char *real_path, struct bp_store_hold *hold, struct bp_err *err);
void bp_store_let_go(struct bp_store_hold *hold);

/* Whether the file that is held has its name yet: what is written to another is lost with it. */
bool bp_store_is_in_place(const char *real_path, const struct bp_store_hold *hold);

/* ---- wal.c ---- */

/* Before the file is opened: storage_failed when a log was left behind of which SQLite would drop without a word what
 * has been acknowledged. */
int bp_store_check_log(const char *real_path, struct bp_err *err);

/* ---- migrate.c ---- */

/* The schema version of the file, 0 when it is absent or empty, read through a connection that changes nothing; but
 * with `may_roll_back` what a crash left half written while the file was made is undone, as SQLite does. schema_newer,
 * or storage_failed when it is not one of our files. */
int bp_store_schema(const char *real_path, bool may_roll_back, unsigned *ret, struct bp_err *err);
unsigned bp_store_schema_known(void);

/* Opens the connection that writes, and brings the file from `version` to what is known. */
int bp_store_open_writer(const char *real_path, unsigned version, struct bp_db *ret, struct bp_err *err);

/* A TRUNCATE checkpoint that must get everything into the database file, waiting a few seconds for readers. */
int bp_store_checkpoint_all(struct bp_db *db, struct bp_err *err);

/* ---- write.c ---- */

/* What a unit adds to the counters of bp_store_stats, once it is committed. */
struct bp_store_counts {
    int64_t plans[BP_STORE_PLAN_STATE_N], snapshots, derivations, replays, jobs_unfinished;
};

/* Writes the rows of one unit within the open transaction. SQLite's code; `counts` is added to. SQLITE_CONSTRAINT also
 * stands for what the schema cannot express. */
int bp_store_write_unit(struct bp_db *db, struct bp_store_unit *unit, struct bp_store_counts *counts);

/* ---- collect.c ---- */

/* What came of taking plans out, beside `counts`. */
struct bp_store_taken {
    uint64_t plans, snapshots, derivations, replays, jobs, bytes;
};

/* Deletes a plan and of what it has what no other plan needs, but for its replays and jobs. SQLite's code. */
int bp_store_take_apart(struct bp_db *db, int64_t plan, struct bp_store_counts *counts, struct bp_store_taken *taken);

/* Parts of a unit, within the open transaction. SQLite's code. */
int bp_store_write_pin(struct bp_db *db, struct bp_store_pin *pin);
int bp_store_write_collection(struct bp_db *db, struct bp_store_collection *collection, struct bp_store_counts *counts);
int bp_store_write_progress(struct bp_db *db, const struct bp_store_progress *progress);

/* A place as a job's row has it. */
enum { BP_STORE_PLACE_TEXT = 48 };
void bp_store_place_write(const struct bp_store_place *place, char ret[BP_STORE_PLACE_TEXT]);
struct bp_store_place bp_store_place_read(const char *text); /* the beginning, when it is none */

/* ---- writer.c ---- */

struct bp_store_writer {
    struct bp_db db; /* the writer thread's */
    uint64_t wal_limit, next_checkpoint;
    int64_t page_size;
    unsigned batch;
    struct bp_store_observer observer;
    const char *path;                 /* where the file is to be */
    const struct bp_store_hold *hold; /* of it */
    pthread_t thread;

    pthread_mutex_t queue_lock;
    pthread_cond_t queue_more;
    struct bp_store_unit *head, **tail; /* under queue_lock, with all to `stopping` */
    uint64_t queued;
    uint64_t asked, answered; /* to turn around */
    bool stopping;

    pthread_mutex_t counts_lock;
    struct bp_store_counts counts; /* under counts_lock, with all to `busy_checkpoints` */
    uint64_t commits, units, failed_units, checkpoints, busy_checkpoints;

    atomic_bool failed;             /* for good */
    atomic_bool misplaced;          /* because the file is no longer where it was */
    atomic_uint_fast64_t wal_bytes; /* not yet in the database file, as of the last commit */
};

/* `writer->db`, `counts`, `wal_limit`, `batch`, `observer`, `path` and `hold` are set by the caller, the rest is zero.
 */
int bp_store_writer_start(struct bp_store_writer *writer, struct bp_err *err);
/* Commits what is queued and ends the thread. */
void bp_store_writer_stop(struct bp_store_writer *writer);

/* ---- pool.c ---- */

struct bp_store_pool {
    struct bp_db *at;
    struct bp_db **idle; /* a stack: the last one used has the warmest cache */
    unsigned n, n_idle;
    int64_t deadline_ns; /* 0: none, and one thread alone that reads */
    pthread_mutex_t lock;
    pthread_cond_t returned;
};

int bp_store_pool_open(struct bp_store_pool *pool, const char *real_path, unsigned n, unsigned deadline_ms,
                       struct bp_err *err);
void bp_store_pool_close(struct bp_store_pool *pool);

/* A connection with its deadline set, for one call's use; NULL with deadline_exceeded when none came free in time. */
struct bp_db *bp_store_pool_take(struct bp_store_pool *pool, struct bp_err *err);
void bp_store_pool_give(struct bp_store_pool *pool, struct bp_db *db);

/* ---- store.c ---- */

struct bp_store {
    char *path;
    bool is_new;
    struct bp_store_hold hold;
    struct bp_store_writer writer;
    struct bp_store_pool pool;
};

/* ---- read_plan.c ---- */

/* A page's cursor of one row number: "" and NULL read as `from_start`. */
int bp_store_cursor_read(const char *cursor, int64_t from_start, int64_t *ret, struct bp_err *err);
void bp_store_cursor_write(int64_t seq, char ret[BP_STORE_CURSOR_TEXT]);

#endif
