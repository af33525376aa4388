#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "daemon/store/internal.h"

enum { BATCH = 64, READERS = 4, READ_DEADLINE_MS = 1000 };
#define WAL_LIMIT (UINT64_C(1) << 30)

const char *const bp_store_plan_state_names[] = {"committed", "rejected", "failed", NULL};
const char *const bp_store_job_state_names[] = {"queued", "running", "done", "failed", "superseded", NULL};

/* The rows that are there already; from then on the writer keeps count. */
static int count_rows(struct bp_db *db, struct bp_store_counts *ret, struct bp_err *err)
{
    struct bp_query query = bp_query_of(db, BP_SQL_COUNTS, NULL);
    if (bp_query_row(&query)) {
        ret->plans[BP_STORE_REJECTED] = bp_row_int(&query, 1);
        ret->plans[BP_STORE_FAILED] = bp_row_int(&query, 2);
        ret->plans[BP_STORE_COMMITTED] =
            bp_row_int(&query, 0) - ret->plans[BP_STORE_REJECTED] - ret->plans[BP_STORE_FAILED];
        ret->snapshots = bp_row_int(&query, 3);
        ret->derivations = bp_row_int(&query, 4);
        ret->replays = bp_row_int(&query, 5);
        ret->jobs_unfinished = bp_row_int(&query, 6);
    }
    return bp_query_end(&query, err);
}

/* The path and the lock are there; what is opened here is closed here when something fails. */
static int open_connections(struct bp_store *store, const struct bp_store_options *options, struct bp_err *err)
{
    struct bp_store_writer *writer = &store->writer;
    unsigned version, readers = options->readers ? options->readers : READERS;
    unsigned deadline_ms = options->read_deadline_ms ? options->read_deadline_ms : READ_DEADLINE_MS;
    writer->batch = options->batch ? options->batch : BATCH;
    writer->wal_limit = options->wal_limit ? options->wal_limit : WAL_LIMIT;
    writer->observer = options->observer;
    if (bp_store_check_log(store->path, err) < 0 || bp_store_schema(store->path, true, &version, err) < 0 ||
        bp_store_open_writer(store->path, version, &writer->db, err) < 0)
        return -1;
    store->is_new = version == 0;
    writer->path = store->path;
    writer->hold = &store->hold;
    if (bp_store_hold_file(store->path, &store->hold, err) == 0 && count_rows(&writer->db, &writer->counts, err) == 0 &&
        bp_store_pool_open(&store->pool, store->path, readers, deadline_ms, err) == 0) {
        if (bp_store_writer_start(writer, err) == 0)
            return 0;
        bp_store_pool_close(&store->pool);
    }
    bp_db_close(&writer->db);
    return bp_err_prefix(err, "%s", store->path);
}

static void free_store(struct bp_store *store)
{
    bp_store_let_go(&store->hold);
    free(store->path);
    free(store);
}

int bp_store_open(const struct bp_store_options *options, struct bp_store **ret, struct bp_err *err)
{
    struct bp_store *store = calloc(1, sizeof *store);
    if (!store)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for the store");
    store->hold = (struct bp_store_hold){-1, -1};
    store->path = bp_store_real_path(options->path, err);
    if (!store->path || bp_store_hold(store->path, &store->hold, err) < 0 ||
        open_connections(store, options, err) < 0) {
        free_store(store);
        return -1;
    }
    *ret = store;
    return 0;
}

int bp_store_open_reader(const char *path, struct bp_store **ret, struct bp_err *err)
{
    unsigned version = 0;
    struct bp_store *store = calloc(1, sizeof *store);
    if (!store)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for the store");
    store->hold = (struct bp_store_hold){-1, -1};
    store->path = bp_store_real_path(path, err);
    int result = store->path ? bp_store_check_log(store->path, err) : -1;
    if (result == 0)
        result = bp_store_schema(store->path, false, &version, err);
    if (result == 0 && version != bp_store_schema_known())
        result = bp_fail(err, BP_E_storage_failed, "", "%s has schema %u, %u is needed: migrate it first", path,
                         version, bp_store_schema_known());
    if (result == 0)
        result = bp_store_pool_open(&store->pool, store->path, 1, 0, err);
    if (result < 0) {
        free_store(store);
        return -1;
    }
    *ret = store;
    return 0;
}

bool bp_store_is_new(const struct bp_store *store)
{
    return store->is_new;
}

void bp_store_close(struct bp_store *store)
{
    if (!store)
        return;
    bool writes = store->hold.lock >= 0;
    if (writes)
        bp_store_writer_stop(&store->writer);
    bp_store_pool_close(&store->pool);
    if (writes)
        bp_db_close(&store->writer.db);
    free_store(store);
}

int bp_store_ready(const struct bp_store *store, struct bp_err *err)
{
    const struct bp_store_writer *writer = &store->writer;
    if (atomic_load(&writer->misplaced))
        return bp_fail(err, BP_E_storage_failed, "", "%s was moved or removed while it was in use", store->path);
    if (atomic_load(&writer->failed))
        return bp_fail(err, BP_E_storage_failed, "", "a write or a sync failed; the daemon must be started again");
    uint64_t wal_bytes = atomic_load(&writer->wal_bytes);
    if (wal_bytes >= writer->wal_limit)
        return bp_fail(err, BP_E_wal_full, "", "the write-ahead log has %llu bytes, the limit is %llu",
                       (unsigned long long)wal_bytes, (unsigned long long)writer->wal_limit);
    return 0;
}

/* By name: opening the database here would cost SQLite its locks. */
static uint64_t file_bytes(const char *path, const char *suffix)
{
    char *name = NULL;
    struct stat status;
    if (asprintf(&name, "%s%s", path, suffix) < 0)
        return 0;
    uint64_t bytes = stat(name, &status) == 0 ? (uint64_t)status.st_size : 0;
    free(name);
    return bytes;
}

static uint64_t disk_free_bytes(const char *path)
{
    struct statvfs disk;
    return statvfs(path, &disk) == 0 ? (uint64_t)disk.f_bavail * disk.f_frsize : UINT64_MAX;
}

void bp_store_stats(struct bp_store *store, struct bp_store_stats *ret)
{
    struct bp_store_writer *writer = &store->writer;
    struct bp_store_stats stats = {.database_bytes = file_bytes(store->path, ""),
                                   .wal_bytes = file_bytes(store->path, "-wal"),
                                   .disk_free_bytes = disk_free_bytes(store->path)};
    pthread_mutex_lock(&writer->queue_lock);
    stats.queued = writer->queued;
    pthread_mutex_unlock(&writer->queue_lock);
    pthread_mutex_lock(&writer->counts_lock);
    for (size_t i = 0; i < BP_STORE_PLAN_STATE_N; i++)
        stats.plans[i] = (uint64_t)writer->counts.plans[i];
    stats.snapshots = (uint64_t)writer->counts.snapshots;
    stats.derivations = (uint64_t)writer->counts.derivations;
    stats.replays = (uint64_t)writer->counts.replays;
    stats.jobs_unfinished = (uint64_t)writer->counts.jobs_unfinished;
    stats.commits = writer->commits;
    stats.units = writer->units;
    stats.failed_units = writer->failed_units;
    stats.checkpoints = writer->checkpoints;
    stats.busy_checkpoints = writer->busy_checkpoints;
    pthread_mutex_unlock(&writer->counts_lock);
    *ret = stats;
}

void bp_time_format(int64_t microseconds, char text[BP_TIME_TEXT])
{
    const int64_t least = INT64_C(-62167219200000000), most = INT64_C(253402300799999999); /* years 0 and 9999 */
    if (microseconds < least || microseconds > most)
        microseconds = microseconds < least ? least : most;
    int64_t fraction = microseconds % 1000000;
    if (fraction < 0)
        fraction += 1000000;
    time_t seconds = (microseconds - fraction) / 1000000;
    struct tm utc;
    gmtime_r(&seconds, &utc);
    /* The year in four digits by our own count: strftime's %Y is not padded everywhere. */
    snprintf(text, BP_TIME_TEXT, "%04u-%02u-%02uT%02u:%02u:%02u.%06uZ", (unsigned)(utc.tm_year + 1900) % 10000,
             (unsigned)(utc.tm_mon + 1) % 100, (unsigned)utc.tm_mday % 100, (unsigned)utc.tm_hour % 100,
             (unsigned)utc.tm_min % 100, (unsigned)utc.tm_sec % 100, (unsigned)fraction % 1000000);
}

/* n digits at `*at`, which moves past them; -1 when there are fewer. */
static int digits(const char **at, int n)
{
    int value = 0;
    for (; n > 0; n--, ++*at) {
        if (**at < '0' || **at > '9')
            return -1;
        value = value * 10 + (**at - '0');
    }
    return value;
}

static bool takes(const char **at, char c)
{
    bool there = **at == c;
    *at += there;
    return there;
}

/* Whether timegm left it as it was: the 31st of April becomes the 1st of May. */
static bool is_normal(const struct tm *given, const struct tm *made)
{
    return given->tm_mday == made->tm_mday && given->tm_mon == made->tm_mon && given->tm_hour == made->tm_hour &&
           given->tm_min == made->tm_min && given->tm_sec == made->tm_sec;
}

bool bp_time_parse(const char *text, int64_t *ret)
{
    struct tm utc = {.tm_mday = 1};
    int year = digits(&text, 4), month = takes(&text, '-') ? digits(&text, 2) : -1;
    int64_t fraction = 0, unit = 1000000;
    utc.tm_year = year - 1900;
    utc.tm_mon = month - 1;
    utc.tm_mday = takes(&text, '-') ? digits(&text, 2) : -1;
    if (year < 0 || month < 0 || utc.tm_mday < 0)
        return false;
    if (takes(&text, 'T')) {
        utc.tm_hour = digits(&text, 2);
        utc.tm_min = takes(&text, ':') ? digits(&text, 2) : -1;
        utc.tm_sec = takes(&text, ':') ? digits(&text, 2) : -1;
        if (utc.tm_hour < 0 || utc.tm_min < 0 || utc.tm_sec < 0)
            return false;
        if (takes(&text, '.')) {
            if (*text < '0' || *text > '9')
                return false;
            for (; *text >= '0' && *text <= '9'; text++)
                fraction += (unit /= 10) * (*text - '0');
        }
        if (!takes(&text, 'Z'))
            return false;
    }
    struct tm made = utc;
    time_t seconds = timegm(&made);
    if (*text || !is_normal(&utc, &made))
        return false;
    *ret = (int64_t)seconds * 1000000 + fraction;
    return true;
}
