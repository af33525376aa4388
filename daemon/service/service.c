#include "daemon/service/service.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/service/chore.h"

/* Bounds of what is kept for repeats. */
enum { BODIES_MAX = 4096, SNAPSHOTS_MAX = 4096 };
static const uint64_t bodies_bytes = UINT64_C(32) << 20, snapshots_bytes = UINT64_C(96) << 20;

int64_t bp_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void worker_memory_free(void *data)
{
    struct bp_service_worker *memory = data;
    bp_store_packer_free(memory->packer);
    free(memory);
}

static void *worker_memory_new(void)
{
    struct bp_service_worker *memory = calloc(1, sizeof *memory);
    if (memory && !(memory->packer = bp_store_packer_new())) {
        free(memory);
        return NULL;
    }
    return memory;
}

/* The database and its log by the names SQLite gives them. */
static int name_files(struct bp_service *service, const char *database, struct bp_err *err)
{
    char *path = realpath(database, NULL);
    size_t n = path ? strlen(path) : 0;
    char *wal = path ? malloc(n + sizeof "-wal") : NULL;
    if (!wal) {
        free(path);
        return bp_fail(err, BP_E_storage_failed, "", "the database file cannot be named");
    }
    memcpy(wal, path, n);
    memcpy(wal + n, "-wal", sizeof "-wal");
    service->files[0] = path;
    service->files[1] = wal;
    return 0;
}

void bp_service_free(struct bp_service *service)
{
    if (!service)
        return;
    for (struct bp_job *job; (job = bp_job_queue_drain(&service->queue)) != NULL;)
        if (job->discard)
            job->discard(job); /* a plan's job is freed with its claim */
    bp_claims_release(&service->claims);
    bp_cache_release(&service->bodies);
    bp_cache_release(&service->snapshots);
    bp_job_queue_release(&service->queue);
    if (service->files[1])
        bp_backup_release(service);
    pthread_mutex_destroy(&service->audit.lock);
    pthread_mutex_destroy(&service->readiness.lock);
    free(service->files[0]);
    free(service->files[1]);
    free(service);
}

int bp_service_start(const struct bp_service_options *options, struct bp_service **ret, struct bp_err *err)
{
    struct bp_service *service = calloc(1, sizeof *service);
    if (!service)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for the service");
    service->store = options->store;
    service->metrics = options->metrics;
    service->disk_reserve = options->disk_reserve;
    service->version = 1;
    service->audit_days = options->audit_days;
    pthread_mutex_init(&service->audit.lock, NULL);
    if (bp_cache_init(&service->bodies, BODIES_MAX, bodies_bytes, err)) {
        free(service);
        return -1;
    }
    if (bp_cache_init(&service->snapshots, SNAPSHOTS_MAX, snapshots_bytes, err)) {
        bp_cache_release(&service->bodies);
        free(service);
        return -1;
    }
    bp_claims_init(&service->claims);
    pthread_mutex_init(&service->readiness.lock, NULL);
    bp_job_queue_init(&service->queue, options->queue);
    if (name_files(service, options->database, err)) {
        bp_service_free(service);
        return -1;
    }
    bp_backup_init(service);
    if (bp_workers_start(&service->workers, &service->queue, options->workers, worker_memory_new, worker_memory_free,
                         err)) {
        bp_service_free(service);
        return -1;
    }
    *ret = service;
    return 0;
}

void bp_service_drain(struct bp_service *service, uint64_t deadline_ns)
{
    const struct timespec moment = {.tv_nsec = 2000000};
    while (bp_claims_count(&service->claims) && bp_clock_ns() < deadline_ns)
        nanosleep(&moment, NULL);
}

void bp_service_stop(struct bp_service *service)
{
    if (!service)
        return;
    bp_job_queue_close(&service->queue);
    bp_workers_stop(&service->workers);
    bp_backup_stop(service);
    bp_audit_flush(service);
}

bool bp_service_leave(struct bp_service *service, struct bp_waiter *waiter)
{
    unsigned cancelled = 0;
    bool left = bp_claims_leave(&service->claims, &service->queue, waiter, &cancelled);
    if (cancelled)
        bp_metrics_count(service->metrics, BP_COUNTER_PLANS_CANCELLED);
    if (!left)
        left = bp_errand_leave(service, waiter) || bp_readiness_leave(service, waiter);
    if (left) {
        free(waiter->model_extra);
        waiter->model_extra = NULL;
    }
    return left;
}

int bp_service_name(struct bp_service *service, const char *of, int64_t at, struct bp_digest *ret, struct bp_err *err)
{
    struct bp_buf text = {0};
    struct bp_writer writer = {.out = &text};
    bp_writer_array(&writer);
    bp_writer_string(&writer, of);
    bp_writer_uint(&writer, (uint64_t)at);
    bp_writer_uint(&writer, atomic_fetch_add(&service->n_named, 1));
    bp_writer_end(&writer);
    int failed = bp_writer_finish(&writer, err);
    if (!failed)
        bp_digest_of(text.data, text.len, ret);
    bp_buf_release(&text);
    return failed;
}

void bp_service_log_err(const struct bp_job *job, const char *message, const struct bp_err *err)
{
    bp_log_about(&job->about);
    bp_log_err(BP_LOG_ERROR, message, err);
    bp_log_about(NULL);
}

/* ---- Bodies ---- */

struct bp_answer *bp_service_written(struct bp_writer *writer, int status, struct bp_err *err)
{
    if (err->code == BP_OK && bp_writer_finish(writer, err) == 0)
        return bp_answer_new(status, BP_MEDIA_JSON, writer->out);
    bp_buf_release(writer->out);
    return bp_problem_of(err, NULL);
}

struct bp_answer *bp_service_come_again(struct bp_service *service, enum bp_job_lane lane, struct bp_answer *answer)
{
    if (!bp_answer_is_standing(answer))
        answer->retry_after = bp_job_queue_retry_after(&service->queue, lane);
    return answer;
}

void bp_service_write_next(struct bp_writer *writer, const char *next)
{
    bp_writer_key(writer, "next");
    if (*next)
        bp_writer_string(writer, next);
    else
        bp_writer_null(writer);
}

/* ---- Ids in URLs ---- */

static struct bp_answer *refusal_of(const struct bp_err *err, const struct bp_store_candidates *candidates)
{
    struct bp_problem_extra extra = {0};
    if (err->code == BP_E_ambiguous_prefix && candidates->n > 1) {
        extra.candidates = candidates->at;
        extra.n_candidates = candidates->n;
    }
    return bp_problem_of(err, &extra);
}

/* Plans in flight that no row stands for yet have ids as well. */
static bool find_in_flight(struct bp_service *service, const char *text, struct bp_digest *ret)
{
    static const char prefix[] = "sha256:";
    if (strncmp(text, prefix, sizeof prefix - 1) == 0)
        text += sizeof prefix - 1;
    return bp_claims_find(&service->claims, text, ret, 1) == 1;
}

bool bp_service_find(struct bp_service *service, enum bp_store_kind kind, const char *text, struct bp_digest *ret,
                     struct bp_answer **ret_refusal)
{
    struct bp_store_candidates candidates = {0};
    struct bp_err err = {0};
    if (bp_store_find(service->store, kind, text, ret, &candidates, &err) == 0)
        return true;
    if (err.code == BP_E_not_found && kind == BP_STORE_PLANS && find_in_flight(service, text, ret))
        return true;
    *ret_refusal = refusal_of(&err, &candidates);
    return false;
}

/* ---- How it is ---- */

static void on_commit(void *data, uint64_t units, uint64_t nanoseconds)
{
    bp_metrics_observe(data, BP_HISTOGRAM_COMMIT_UNITS, 0, units);
    bp_metrics_observe(data, BP_HISTOGRAM_COMMIT_SECONDS, 0, nanoseconds);
}

static void on_checkpoint(void *data, uint64_t nanoseconds)
{
    bp_metrics_observe(data, BP_HISTOGRAM_CHECKPOINT_SECONDS, 0, nanoseconds);
}

struct bp_store_observer bp_service_store_observer(struct bp_metrics *metrics)
{
    return (struct bp_store_observer){.committed = on_commit, .checkpointed = on_checkpoint, .data = metrics};
}

void bp_service_ask(struct bp_service *service)
{
    bp_workers_ask(&service->workers);
}

bool bp_service_gets_on(struct bp_service *service, uint64_t now_ns)
{
    return bp_workers_get_on(&service->workers, now_ns);
}

void bp_service_gauges(struct bp_service *service, uint64_t gauges[BP_GAUGE_N])
{
    struct bp_store_stats stats;
    bp_store_stats(service->store, &stats);
    gauges[BP_GAUGE_QUEUE_DEPTH] = bp_job_queue_depth(&service->queue);
    gauges[BP_GAUGE_QUEUE_LIMIT] = service->queue.limit;
    gauges[BP_GAUGE_WORKERS] = service->workers.n;
    gauges[BP_GAUGE_WORKERS_BUSY] = atomic_load(&service->workers.n_busy);
    gauges[BP_GAUGE_IN_FLIGHT] = bp_claims_count(&service->claims);
    gauges[BP_GAUGE_CACHE_BYTES] = bp_cache_bytes(&service->bodies) + bp_cache_bytes(&service->snapshots);
    gauges[BP_GAUGE_STORE_BYTES] = stats.database_bytes;
    gauges[BP_GAUGE_WAL_BYTES] = stats.wal_bytes;
    gauges[BP_GAUGE_DISK_FREE] = stats.disk_free_bytes;
    gauges[BP_GAUGE_STORE_PLANS] = 0;
    for (size_t i = 0; i < BP_STORE_PLAN_STATE_N; i++)
        gauges[BP_GAUGE_STORE_PLANS] += stats.plans[i];
    gauges[BP_GAUGE_STORE_SNAPSHOTS] = stats.snapshots;
    gauges[BP_GAUGE_STORE_QUEUED] = stats.queued;
    gauges[BP_GAUGE_JOBS_UNFINISHED] = stats.jobs_unfinished;
    gauges[BP_GAUGE_LONG_JOBS] = bp_chores_count(service);
    bp_backup_gauges(service, gauges);
    gauges[BP_GAUGE_FAILED_UNITS] = stats.failed_units;
    gauges[BP_GAUGE_BUSY_CHECKPOINTS] = stats.busy_checkpoints;
}
