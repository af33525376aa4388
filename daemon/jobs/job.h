/* A job: work that a request waits for, done by a worker. Knows no IR and no HTTP.
 *
 * The owner embeds a `struct bp_job` in its own record. From the push on the queue owns it, from the pop on the worker
 * that runs it, until `run` hands it on. The state alone may be read and moved by others meanwhile: it moves only
 * through bp_job_move, and only forward.
 */
#ifndef BP_JOBS_JOB_H
#define BP_JOBS_JOB_H

#include <stdatomic.h>
#include <stdbool.h>

#include "daemon/log.h"

enum bp_job_state {
    BP_JOB_QUEUED,
    BP_JOB_RUNNING,
    BP_JOB_COMMITTING, /* with the store's writer; too late to cancel */
    BP_JOB_DONE,
    BP_JOB_FAILED,
    BP_JOB_CANCELLED,
    BP_JOB_STATE_N
};

struct bp_worker;

/* Plans go before the rest. */
enum bp_job_lane { BP_LANE_PLANS, BP_LANE_REST, BP_LANE_N };

struct bp_job {
    enum bp_job_lane lane;
    /* On a worker: moves the state to running (or finds the job cancelled), works, and gives it back to its owner. */
    void (*run)(struct bp_job *job, struct bp_worker *worker);
    /* Of one that is left in a closed queue, when it is not freed otherwise. */
    void (*discard)(struct bp_job *job);
    atomic_int state;               /* of enum bp_job_state */
    struct bp_log_context about;    /* the request it is done for; its owner fills it in */
    struct bp_job *next, *previous; /* the queue's */
    bool in_queue;                  /* the queue's */
};

enum bp_job_state bp_job_state(const struct bp_job *job);

/* Moves the job to `next` when that may follow its state; false, and nothing changed, when it may not. Any thread; of
 * two that race, one wins. */
bool bp_job_move(struct bp_job *job, enum bp_job_state next);

#endif
