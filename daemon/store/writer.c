/* The writer thread: takes what is queued, commits it as a group, tells the callers, checkpoints.
 *
 * Groups form by themselves: what arrives while one is being synced is the next. After a failed write or sync nothing
 * is acknowledged from this connection again: the kernel may have dropped the pages that it failed to write, and a
 * second sync would succeed without them. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "daemon/store/internal.h"

/* The log is cut when it reaches CHECKPOINT_BYTES, and when readers were in the way, tried again after as much more
 * or when the writer was idle for RETRY_MS. */
#define CHECKPOINT_BYTES (UINT64_C(8) << 20)
enum { RETRY_MS = 250, BEGIN_TRIES = 100 /* busy timeouts of 50 ms */ };

/* ---- What a failure means ---- */

enum severity {
    OF_THE_UNIT,  /* some unit breaks a rule: find out which */
    OF_THE_GROUP, /* could not be written now; the next one may */
    OF_THE_STORE, /* the connection is not to be trusted any more */
};

static enum severity severity_of(int rc)
{
    static const struct {
        int rc;
        enum severity severity;
    } rows[] = {
        {SQLITE_CONSTRAINT, OF_THE_UNIT}, {SQLITE_MISMATCH, OF_THE_UNIT}, {SQLITE_TOOBIG, OF_THE_UNIT},
        {SQLITE_RANGE, OF_THE_UNIT},      {SQLITE_NOMEM, OF_THE_GROUP},   {SQLITE_FULL, OF_THE_GROUP},
        {SQLITE_BUSY, OF_THE_GROUP},      {SQLITE_LOCKED, OF_THE_GROUP},
    };
    if (rc == SQLITE_IOERR_NOMEM || rc == SQLITE_IOERR_SHMSIZE) /* memory, or room for the index of the log */
        return OF_THE_GROUP;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].rc == (rc & 0xff))
            return rows[i].severity;
    return OF_THE_STORE;
}

/* ---- Committing a group ---- */

static int run(struct bp_db *db, enum bp_sql sql)
{
    struct bp_query query = bp_query_of(db, sql, NULL);
    return bp_query_run(&query);
}

/* Another process that writes is waited for: it should not be there. */
static int begin(struct bp_db *db)
{
    int rc = SQLITE_BUSY;
    for (int i = 0; i < BEGIN_TRIES && (rc & 0xff) == SQLITE_BUSY; i++)
        rc = run(db, BP_SQL_BEGIN_WRITE);
    return rc;
}

static int write_group(struct bp_db *db, struct bp_store_unit *group, struct bp_store_counts *counts,
                       int64_t *ret_commit_ns)
{
    int rc = begin(db);
    for (struct bp_store_unit *unit = group; rc == SQLITE_OK && unit; unit = unit->next)
        rc = bp_store_write_unit(db, unit, counts);
    if (rc != SQLITE_OK)
        return rc;
    int64_t began = bp_monotonic_ns();
    rc = run(db, BP_SQL_COMMIT);
    *ret_commit_ns = bp_monotonic_ns() - began;
    return rc;
}

static void add_counts(struct bp_store_counts *to, const struct bp_store_counts *add)
{
    for (size_t i = 0; i < BP_STORE_PLAN_STATE_N; i++)
        to->plans[i] += add->plans[i];
    to->snapshots += add->snapshots;
    to->derivations += add->derivations;
    to->replays += add->replays;
    to->jobs_unfinished += add->jobs_unfinished;
}

static uint64_t tell(struct bp_store_unit *group, const struct bp_err *err)
{
    uint64_t n = 0;
    for (struct bp_store_unit *unit = group, *next; unit; unit = next, n++) {
        next = unit->next; /* `done` may free the unit */
        unit->done(unit, err);
    }
    return n;
}

static uint64_t length(const struct bp_store_unit *group)
{
    uint64_t n = 0;
    for (; group; group = group->next)
        n++;
    return n;
}

static void fail_group(struct bp_store_writer *writer, struct bp_store_unit *group, const struct bp_err *err)
{
    pthread_mutex_lock(&writer->counts_lock);
    writer->failed_units += length(group);
    pthread_mutex_unlock(&writer->counts_lock);
    tell(group, err);
}

static void group_committed(struct bp_store_writer *writer, struct bp_store_unit *group,
                            const struct bp_store_counts *counts, int64_t commit_ns)
{
    const uint64_t n = length(group);
    pthread_mutex_lock(&writer->counts_lock);
    add_counts(&writer->counts, counts);
    writer->commits++;
    writer->units += n;
    pthread_mutex_unlock(&writer->counts_lock);
    if (writer->observer.committed)
        writer->observer.committed(writer->observer.data, n, (uint64_t)commit_ns);
    tell(group, NULL);
}

/* After a failure: what went wrong, in `err`, and the transaction undone. */
static enum severity undo(struct bp_store_writer *writer, int rc, struct bp_err *err)
{
    enum severity severity = severity_of(rc);
    bp_db_fail(&writer->db, rc, err);
    if (severity != OF_THE_UNIT)
        err->code = rc == SQLITE_IOERR_NOMEM ? BP_E_out_of_memory : bp_db_code(rc);
    /* SQLite undoes some failures by itself, and a failed COMMIT leaves the transaction open. */
    if (!sqlite3_get_autocommit(writer->db.handle))
        run(&writer->db, BP_SQL_ROLLBACK);
    if (!sqlite3_get_autocommit(writer->db.handle))
        severity = OF_THE_STORE;
    if (severity == OF_THE_STORE) {
        err->code = BP_E_storage_failed;
        atomic_store(&writer->failed, true);
    }
    return severity;
}

static void commit_group(struct bp_store_writer *writer, struct bp_store_unit *group)
{
    struct bp_err err = {0};
    if (atomic_load(&writer->failed)) {
        bp_fail(&err, BP_E_storage_failed, "", "the store has failed before");
        fail_group(writer, group, &err);
        return;
    }
    if (!bp_store_is_in_place(writer->path, writer->hold)) {
        atomic_store(&writer->misplaced, true);
        atomic_store(&writer->failed, true);
        bp_fail(&err, BP_E_storage_failed, "", "the database was moved or removed while it was in use");
        fail_group(writer, group, &err);
        return;
    }
    struct bp_store_counts counts = {0};
    int64_t commit_ns = 0;
    int rc = write_group(&writer->db, group, &counts, &commit_ns);
    if (rc == SQLITE_OK) {
        group_committed(writer, group, &counts, commit_ns);
        return;
    }
    if (undo(writer, rc, &err) != OF_THE_UNIT || !group->next) {
        fail_group(writer, group, &err);
        return;
    }
    for (struct bp_store_unit *unit = group, *next; unit; unit = next) {
        next = unit->next;
        unit->next = NULL;
        commit_group(writer, unit);
    }
}

/* ---- Checkpoints ---- */

static int note_wal(void *data, sqlite3 *handle, const char *name, int pages)
{
    struct bp_store_writer *writer = data;
    (void)handle;
    (void)name;
    /* A header of 32 bytes; each frame is one of 24 and a page. */
    atomic_store(&writer->wal_bytes, 32 + (uint64_t)pages * (24 + (uint64_t)writer->page_size));
    return SQLITE_OK;
}

static void checkpoint(struct bp_store_writer *writer)
{
    int64_t began = bp_monotonic_ns();
    int rc = sqlite3_wal_checkpoint_v2(writer->db.handle, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    bool busy = rc != SQLITE_OK;
    if (writer->observer.checkpointed)
        writer->observer.checkpointed(writer->observer.data, (uint64_t)(bp_monotonic_ns() - began));
    /* A sync that failed here leaves the log as it is, but a second one could pass without the lost pages. */
    if (busy && severity_of(rc) == OF_THE_STORE)
        atomic_store(&writer->failed, true);
    if (!busy)
        atomic_store(&writer->wal_bytes, 0);
    writer->next_checkpoint = atomic_load(&writer->wal_bytes) + CHECKPOINT_BYTES;
    pthread_mutex_lock(&writer->counts_lock);
    writer->checkpoints += !busy;
    writer->busy_checkpoints += busy;
    pthread_mutex_unlock(&writer->counts_lock);
}

static bool checkpoint_is_late(struct bp_store_writer *writer)
{
    return !atomic_load(&writer->failed) && atomic_load(&writer->wal_bytes) >= CHECKPOINT_BYTES;
}

static bool checkpoint_is_due(struct bp_store_writer *writer, bool idle)
{
    return checkpoint_is_late(writer) && (idle || atomic_load(&writer->wal_bytes) >= writer->next_checkpoint);
}

/* ---- The queue ---- */

static struct timespec retry_time(void)
{
    int64_t at = bp_monotonic_ns() + (int64_t)RETRY_MS * 1000000;
    return (struct timespec){.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
}

/* The first units of the queue, at most a group; NULL when there are none. */
static struct bp_store_unit *cut_group(struct bp_store_writer *writer)
{
    struct bp_store_unit *group = writer->head, **end = &writer->head;
    for (unsigned n = 0; *end && n < writer->batch; n++, writer->queued--)
        end = &(*end)->next;
    if (group) {
        writer->head = *end;
        *end = NULL;
        if (!writer->head)
            writer->tail = &writer->head;
    }
    return group;
}

/* Waits for units. False when the writer is to end; a NULL group means that nothing came for a while. */
static bool next_group(struct bp_store_writer *writer, struct bp_store_unit **ret)
{
    bool late = checkpoint_is_late(writer);
    struct timespec until = retry_time();
    int waited = 0;
    pthread_mutex_lock(&writer->queue_lock);
    writer->answered = writer->asked;
    while (!writer->head && !writer->stopping && waited != ETIMEDOUT) {
        waited = late ? pthread_cond_timedwait(&writer->queue_more, &writer->queue_lock, &until)
                      : pthread_cond_wait(&writer->queue_more, &writer->queue_lock);
        writer->answered = writer->asked;
    }
    *ret = cut_group(writer);
    bool more = *ret || !writer->stopping;
    pthread_mutex_unlock(&writer->queue_lock);
    return more;
}

static void *writer_main(void *data)
{
    struct bp_store_writer *writer = data;
    struct bp_store_unit *group;
    pthread_setname_np(pthread_self(), "bp-writer");
    while (next_group(writer, &group)) {
        if (group)
            commit_group(writer, group);
        if (checkpoint_is_due(writer, !group))
            checkpoint(writer);
    }
    return NULL;
}

/* Signals are the main thread's. */
static int start_thread(struct bp_store_writer *writer)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&writer->thread, NULL, writer_main, writer);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

int bp_store_writer_start(struct bp_store_writer *writer, struct bp_err *err)
{
    if (bp_db_int(&writer->db, "PRAGMA page_size", &writer->page_size, err) < 0)
        return -1;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&writer->queue_more, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&writer->queue_lock, NULL);
    pthread_mutex_init(&writer->counts_lock, NULL);
    writer->tail = &writer->head;
    writer->next_checkpoint = CHECKPOINT_BYTES;
    sqlite3_wal_hook(writer->db.handle, note_wal, writer);
    int rc = start_thread(writer);
    if (rc == 0)
        return 0;
    pthread_cond_destroy(&writer->queue_more);
    pthread_mutex_destroy(&writer->queue_lock);
    pthread_mutex_destroy(&writer->counts_lock);
    return bp_fail(err, BP_E_storage_failed, "", "the writer's thread: %s", strerror(rc));
}

void bp_store_writer_stop(struct bp_store_writer *writer)
{
    pthread_mutex_lock(&writer->queue_lock);
    writer->stopping = true;
    pthread_cond_signal(&writer->queue_more);
    pthread_mutex_unlock(&writer->queue_lock);
    pthread_join(writer->thread, NULL);
    if (!atomic_load(&writer->failed))
        checkpoint(writer);
    pthread_cond_destroy(&writer->queue_more);
    pthread_mutex_destroy(&writer->queue_lock);
    pthread_mutex_destroy(&writer->counts_lock);
}

void bp_store_submit(struct bp_store *store, struct bp_store_unit *unit)
{
    struct bp_store_writer *writer = &store->writer;
    unit->next = NULL;
    pthread_mutex_lock(&writer->queue_lock);
    *writer->tail = unit;
    writer->tail = &unit->next;
    writer->queued++;
    pthread_cond_signal(&writer->queue_more);
    pthread_mutex_unlock(&writer->queue_lock);
}

void bp_store_ask(struct bp_store *store)
{
    struct bp_store_writer *writer = &store->writer;
    pthread_mutex_lock(&writer->queue_lock);
    writer->asked++;
    pthread_cond_signal(&writer->queue_more);
    pthread_mutex_unlock(&writer->queue_lock);
}

bool bp_store_has_answered(struct bp_store *store)
{
    struct bp_store_writer *writer = &store->writer;
    pthread_mutex_lock(&writer->queue_lock);
    bool has_answered = writer->answered == writer->asked;
    pthread_mutex_unlock(&writer->queue_lock);
    return has_answered;
}
