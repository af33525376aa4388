/* Work that a worker does for one waiter and that is of no use to anybody else. */
#include <stdlib.h>

#include "daemon/service/chore.h"

static void errand_free(struct bp_errand *errand)
{
    bp_buf_release(&errand->record);
    bp_buf_release(&errand->body);
    if (errand->chore)
        bp_chore_free(errand->chore);
    free(errand);
}

void bp_errand_finish(struct bp_errand *errand, struct bp_answer *answer)
{
    pthread_mutex_lock(&errand->service->claims.lock);
    struct bp_waiter *waiter = errand->waiter;
    if (waiter)
        waiter->errand = NULL;
    pthread_mutex_unlock(&errand->service->claims.lock);
    if (waiter)
        bp_service_wake(waiter, answer);
    else
        bp_answer_unref(answer);
    errand_free(errand);
}

static void discard(struct bp_job *job)
{
    errand_free((struct bp_errand *)(void *)job);
}

static void run_errand(struct bp_job *job, struct bp_worker *worker)
{
    struct bp_errand *errand = (struct bp_errand *)(void *)job;
    (void)worker;
    if (!bp_job_move(job, BP_JOB_RUNNING)) {
        /* Who cancelled it may not be done with it yet. */
        pthread_mutex_lock(&errand->service->claims.lock);
        pthread_mutex_unlock(&errand->service->claims.lock);
        errand_free(errand);
        return;
    }
    struct bp_answer *answer = errand->run(errand);
    if (answer)
        bp_errand_finish(errand, answer);
}

struct bp_answer *bp_errand_start(struct bp_service *service, const struct bp_errand *errand, struct bp_waiter *waiter)
{
    struct bp_err err = {0};
    struct bp_errand *copy = malloc(sizeof *copy);
    if (!copy) {
        struct bp_buf body = errand->body;
        bp_buf_release(&body);
        if (errand->chore)
            bp_chore_free(errand->chore);
        return bp_problem_say(BP_E_out_of_memory, "", "no memory for the work");
    }
    *copy = *errand;
    copy->job.lane = BP_LANE_REST;
    copy->job.run = run_errand;
    copy->job.discard = discard;
    bp_log_current(&copy->job.about);
    copy->service = service;
    copy->waiter = waiter;
    waiter->errand = copy;
    if (bp_job_queue_push(&service->queue, &copy->job, false, &err) == 0)
        return NULL;
    waiter->errand = NULL;
    errand_free(copy);
    if (err.code != BP_E_queue_full)
        return bp_problem_of(&err, NULL);
    bp_metrics_count(service->metrics, BP_COUNTER_QUEUE_FULL);
    return bp_service_come_again(service, BP_LANE_REST, bp_problem_of(&err, NULL));
}

bool bp_errand_leave(struct bp_service *service, struct bp_waiter *waiter)
{
    struct bp_errand *to_free = NULL;
    pthread_mutex_lock(&service->claims.lock);
    struct bp_errand *errand = waiter->errand;
    if (errand) {
        waiter->errand = NULL;
        errand->waiter = NULL;
        /* One that runs already is left to end: what it stores is of use. */
        if (bp_job_state(&errand->job) == BP_JOB_QUEUED && bp_job_move(&errand->job, BP_JOB_CANCELLED) &&
            bp_job_queue_take_back(&service->queue, &errand->job))
            to_free = errand;
    }
    pthread_mutex_unlock(&service->claims.lock);
    if (to_free)
        errand_free(to_free);
    return errand != NULL;
}
