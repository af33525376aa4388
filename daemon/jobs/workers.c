#include "daemon/jobs/workers.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/metrics.h"

static void *worker_main(void *data)
{
    struct bp_worker *worker = data;
    struct bp_job *job;
    pthread_setname_np(pthread_self(), "bp-worker");
    while ((job = bp_job_queue_pop(worker->pool->queue, &worker->asked)) != NULL) {
        const struct bp_log_context about = job->about; /* the job may be gone before its last line */
        atomic_fetch_add(&worker->pool->n_busy, 1);
        bp_worker_progress(worker);
        bp_log_about(&about);
        job->run(job, worker);
        bp_log_about(NULL);
        atomic_store(&worker->since, 0);
        atomic_fetch_sub(&worker->pool->n_busy, 1);
    }
    return NULL;
}

static int worker_start(struct bp_workers *workers, struct bp_worker *worker, struct bp_err *err)
{
    *worker = (struct bp_worker){.pool = workers, .memory = workers->memory_new()};
    if (!worker->memory)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for a worker");
    int failure = pthread_create(&worker->thread, NULL, worker_main, worker);
    if (failure) {
        workers->memory_free(worker->memory);
        return bp_fail(err, BP_E_internal, "", "no thread for a worker: %s", strerror(failure));
    }
    workers->n++;
    return 0;
}

int bp_workers_start(struct bp_workers *workers, struct bp_job_queue *queue, size_t n, void *(*memory_new)(void),
                     void (*memory_free)(void *memory), struct bp_err *err)
{
    *workers = (struct bp_workers){.queue = queue, .memory_new = memory_new, .memory_free = memory_free};
    workers->at = calloc(n, sizeof *workers->at);
    if (!workers->at)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for %zu workers", n);
    for (size_t i = 0; i < n; i++)
        if (worker_start(workers, &workers->at[i], err)) {
            bp_job_queue_close(queue);
            bp_workers_stop(workers);
            return -1;
        }
    return 0;
}

void bp_worker_progress(struct bp_worker *worker)
{
    atomic_store(&worker->since, bp_clock_ns());
}

void bp_workers_ask(struct bp_workers *workers)
{
    bp_job_queue_ask(workers->queue);
}

bool bp_workers_get_on(struct bp_workers *workers, uint64_t now_ns)
{
    for (size_t i = 0; i < workers->n; i++) {
        const struct bp_worker *worker = &workers->at[i];
        uint64_t since = atomic_load(&worker->since);
        if (since ? now_ns > since && now_ns - since >= BP_STEP_NS
                  : bp_job_queue_is_ahead(workers->queue, &worker->asked))
            return false;
    }
    return true;
}

void bp_workers_stop(struct bp_workers *workers)
{
    for (size_t i = 0; i < workers->n; i++) {
        pthread_join(workers->at[i].thread, NULL);
        workers->memory_free(workers->at[i].memory);
    }
    free(workers->at);
    workers->at = NULL;
    workers->n = 0;
}
