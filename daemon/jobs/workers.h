/* The threads that run jobs. Started and stopped by one thread; a worker's memory is its own. */
#ifndef BP_JOBS_WORKERS_H
#define BP_JOBS_WORKERS_H

#include "daemon/jobs/queue.h"

/* What a job's `run` finds of the thread it runs on. */
struct bp_worker {
    struct bp_workers *pool;
    pthread_t thread;
    void *memory; /* made and freed by the pool's owner: what a worker keeps between jobs */
};

struct bp_workers {
    struct bp_job_queue *queue;
    struct bp_worker *at;
    size_t n;
    void *(*memory_new)(void); /* NULL: out of memory */
    void (*memory_free)(void *memory);
    atomic_size_t n_busy;
};

/* Starts n threads on the queue. On failure none runs. Codes: out_of_memory, internal (no thread could be made). */
int bp_workers_start(struct bp_workers *workers, struct bp_job_queue *queue, size_t n, void *(*memory_new)(void),
                     void (*memory_free)(void *memory), struct bp_err *err);

/* Waits until every worker has ended the job it runs; the queue must have been closed. */
void bp_workers_stop(struct bp_workers *workers);

#endif
