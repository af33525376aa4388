#include "daemon/jobs/job.h"

#define AFTER(state) (1U << (state))

static const unsigned allowed_next[BP_JOB_STATE_N] = {
    [BP_JOB_QUEUED] = AFTER(BP_JOB_RUNNING) | AFTER(BP_JOB_FAILED) | AFTER(BP_JOB_CANCELLED),
    [BP_JOB_RUNNING] = AFTER(BP_JOB_COMMITTING) | AFTER(BP_JOB_FAILED) | AFTER(BP_JOB_CANCELLED),
    [BP_JOB_COMMITTING] = AFTER(BP_JOB_DONE) | AFTER(BP_JOB_FAILED),
};

enum bp_job_state bp_job_state(const struct bp_job *job)
{
    return (enum bp_job_state)atomic_load(&job->state);
}

bool bp_job_move(struct bp_job *job, enum bp_job_state next)
{
    int state = atomic_load(&job->state);
    do
        if (!(allowed_next[state] & AFTER(next)))
            return false;
    while (!atomic_compare_exchange_weak(&job->state, &state, (int)next));
    return true;
}
