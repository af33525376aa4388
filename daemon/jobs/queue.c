#include "daemon/jobs/queue.h"

#include "daemon/metrics.h"

void bp_job_queue_init(struct bp_job_queue *queue, size_t limit)
{
    *queue = (struct bp_job_queue){.limit = limit};
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->not_empty, NULL);
}

void bp_job_queue_release(struct bp_job_queue *queue)
{
    pthread_cond_destroy(&queue->not_empty);
    pthread_mutex_destroy(&queue->lock);
}

static void append(struct bp_job_queue *queue, struct bp_job *job)
{
    job->next = NULL;
    job->previous = queue->lanes[job->lane].last;
    if (job->previous)
        job->previous->next = job;
    else
        queue->lanes[job->lane].first = job;
    queue->lanes[job->lane].last = job;
    if (queue->lanes[job->lane].n++ == 0)
        bp_drain_begin(&queue->lanes[job->lane].drain, bp_clock_ns());
    job->in_queue = true;
}

static void prepend(struct bp_job_queue *queue, struct bp_job *job)
{
    job->previous = NULL;
    job->next = queue->lanes[job->lane].first;
    if (job->next)
        job->next->previous = job;
    else
        queue->lanes[job->lane].last = job;
    queue->lanes[job->lane].first = job;
    if (queue->lanes[job->lane].n++ == 0)
        bp_drain_begin(&queue->lanes[job->lane].drain, bp_clock_ns());
    job->in_queue = true;
}

static void unlink_job(struct bp_job_queue *queue, struct bp_job *job)
{
    if (job->previous)
        job->previous->next = job->next;
    else
        queue->lanes[job->lane].first = job->next;
    if (job->next)
        job->next->previous = job->previous;
    else
        queue->lanes[job->lane].last = job->previous;
    if (--queue->lanes[job->lane].n == 0)
        bp_drain_end(&queue->lanes[job->lane].drain);
    job->in_queue = false;
}

static struct bp_job *first_job(struct bp_job_queue *queue)
{
    for (int lane = 0; lane < BP_LANE_N; lane++)
        if (queue->lanes[lane].first)
            return queue->lanes[lane].first;
    return NULL;
}

int bp_job_queue_push(struct bp_job_queue *queue, struct bp_job *job, bool promised, struct bp_err *err)
{
    int ret = 0;
    pthread_mutex_lock(&queue->lock);
    if (queue->closed)
        ret = bp_fail(err, BP_E_stopping, "", "the daemon is stopping");
    else if (!promised && queue->lanes[job->lane].n >= queue->limit)
        ret = bp_fail(err, BP_E_queue_full, "", "%zu jobs are waiting already", queue->lanes[job->lane].n);
    else {
        append(queue, job);
        pthread_cond_signal(&queue->not_empty);
    }
    pthread_mutex_unlock(&queue->lock);
    return ret;
}

int bp_job_queue_push_first(struct bp_job_queue *queue, struct bp_job *job, struct bp_err *err)
{
    int ret = 0;
    pthread_mutex_lock(&queue->lock);
    if (queue->closed) {
        ret = bp_fail(err, BP_E_stopping, "", "the daemon is stopping");
    } else {
        prepend(queue, job);
        pthread_cond_signal(&queue->not_empty);
    }
    pthread_mutex_unlock(&queue->lock);
    return ret;
}

struct bp_job *bp_job_queue_pop(struct bp_job_queue *queue, atomic_uint_fast64_t *ret_asked)
{
    struct bp_job *job = NULL;
    pthread_mutex_lock(&queue->lock);
    atomic_store(ret_asked, queue->asked);
    while (!queue->closed && !(job = first_job(queue))) {
        pthread_cond_wait(&queue->not_empty, &queue->lock);
        atomic_store(ret_asked, queue->asked);
    }
    if (queue->closed) {
        job = NULL;
    } else {
        bp_drain_count(&queue->lanes[job->lane].drain, bp_clock_ns());
        unlink_job(queue, job);
    }
    pthread_mutex_unlock(&queue->lock);
    return job;
}

void bp_job_queue_ask(struct bp_job_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->asked++;
    pthread_cond_broadcast(&queue->not_empty);
    pthread_mutex_unlock(&queue->lock);
}

bool bp_job_queue_is_ahead(struct bp_job_queue *queue, const atomic_uint_fast64_t *asked)
{
    pthread_mutex_lock(&queue->lock);
    bool is_ahead = atomic_load(asked) != queue->asked;
    pthread_mutex_unlock(&queue->lock);
    return is_ahead;
}

bool bp_job_queue_take_back(struct bp_job_queue *queue, struct bp_job *job)
{
    pthread_mutex_lock(&queue->lock);
    bool was_queued = job->in_queue;
    if (was_queued)
        unlink_job(queue, job);
    pthread_mutex_unlock(&queue->lock);
    return was_queued;
}

void bp_job_queue_close(struct bp_job_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->closed = true;
    pthread_cond_broadcast(&queue->not_empty);
    pthread_mutex_unlock(&queue->lock);
}

struct bp_job *bp_job_queue_drain(struct bp_job_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    struct bp_job *job = first_job(queue);
    if (job)
        unlink_job(queue, job);
    pthread_mutex_unlock(&queue->lock);
    return job;
}

size_t bp_job_queue_depth(struct bp_job_queue *queue)
{
    size_t n = 0;
    pthread_mutex_lock(&queue->lock);
    for (int lane = 0; lane < BP_LANE_N; lane++)
        n += queue->lanes[lane].n;
    pthread_mutex_unlock(&queue->lock);
    return n;
}

unsigned bp_job_queue_retry_after(struct bp_job_queue *queue, enum bp_job_lane lane)
{
    pthread_mutex_lock(&queue->lock);
    unsigned seconds = bp_drain_seconds(&queue->lanes[lane].drain, bp_clock_ns(), queue->lanes[lane].n);
    pthread_mutex_unlock(&queue->lock);
    return seconds;
}

bool bp_job_queue_is_full(struct bp_job_queue *queue, enum bp_job_lane lane)
{
    pthread_mutex_lock(&queue->lock);
    bool is_full = queue->lanes[lane].n >= queue->limit;
    pthread_mutex_unlock(&queue->lock);
    return is_full;
}
