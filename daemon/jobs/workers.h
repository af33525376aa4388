/* The threads that run jobs. Started and stopped by one thread; a worker's memory is its own. */
#ifndef BP_JOBS_WORKERS_H
#define BP_JOBS_WORKERS_H

#include "daemon/jobs/queue.h"

/* For one step of a job, several times what the longest takes: a worker that shows no progress for longer is stuck. */
#define BP_STEP_NS (UINT64_C(60) * 1000000000)

/* What a job's `run` finds of the thread it runs on. */
struct bp_worker {
    struct bp_workers *pool;
    pthread_t thread;
    void *memory;               /* made and freed by the pool's owner: what a worker keeps between jobs */
    atomic_uint_fast64_t asked; /* as of its last turn around the queue */
    atomic_uint_fast64_t since; /* CLOCK_MONOTONIC, ns: its last sign of progress in a job; 0: in none */
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

/* A job of many steps says after each that it gets on. The worker's own thread. */
void bp_worker_progress(struct bp_worker *worker);

/* Asks the workers that wait for a job to turn around once. Never waits for them; any thread. */
void bp_workers_ask(struct bp_workers *workers);

/* Whether every worker gets on, at a time of CLOCK_MONOTONIC: it turned around since it was last asked, or has been at
 * one step of a job for less than BP_STEP_NS. Any thread. */
bool bp_workers_get_on(struct bp_workers *workers, uint64_t now_ns);

/* Waits until every worker has ended the job it runs; the queue must have been closed. */
void bp_workers_stop(struct bp_workers *workers);

#endif
