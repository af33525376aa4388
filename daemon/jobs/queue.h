/* The bounded queue between the threads that accept jobs and the workers. Any thread. */
#ifndef BP_JOBS_QUEUE_H
#define BP_JOBS_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "daemon/jobs/drain.h"
#include "daemon/jobs/job.h"

struct bp_job_queue {
    pthread_mutex_t lock;
    pthread_cond_t not_empty;
    struct {
        struct bp_job *first, *last;
        size_t n;
        struct bp_drain drain;
    } lanes[BP_LANE_N];
    size_t limit;   /* of each lane */
    uint64_t asked; /* how often bp_job_queue_ask was called */
    bool closed;
};

void bp_job_queue_init(struct bp_job_queue *queue, size_t limit);
void bp_job_queue_release(struct bp_job_queue *queue);

/* Hands a queued job over. A job that was `promised` (it is on disk and somebody was told so) goes past the limit: of
 * those there are never more than were once within it. Codes: queue_full, stopping. */
int bp_job_queue_push(struct bp_job_queue *queue, struct bp_job *job, bool promised, struct bp_err *err);

/* The same for a promised job that is to be the next of its lane. */
int bp_job_queue_push_first(struct bp_job_queue *queue, struct bp_job *job, struct bp_err *err);

/* Waits for a job; NULL when the queue was closed. `ret_asked` is brought up to date at every turn of the wait. */
struct bp_job *bp_job_queue_pop(struct bp_job_queue *queue, atomic_uint_fast64_t *ret_asked);

/* Wakes everyone who waits for a job, for them to note that they were asked, and how often. */
void bp_job_queue_ask(struct bp_job_queue *queue);

/* Whether who waits with that `asked` has been asked since and did not note it. */
bool bp_job_queue_is_ahead(struct bp_job_queue *queue, const atomic_uint_fast64_t *asked);

/* Takes a job back that no worker has taken; false when one has. To cancel: move the state to cancelled, then take the
 * job back; when that fails its worker finds it cancelled and ends it. */
bool bp_job_queue_take_back(struct bp_job_queue *queue, struct bp_job *job);

/* Workers get NULL from now on and pushes are refused. What is queued stays. */
void bp_job_queue_close(struct bp_job_queue *queue);

/* Takes the next job out of a closed queue; NULL when there is none. */
struct bp_job *bp_job_queue_drain(struct bp_job_queue *queue);

size_t bp_job_queue_depth(struct bp_job_queue *queue);
/* Seconds after which whoever found the lane full may come again: what waits there now should have left by then. */
unsigned bp_job_queue_retry_after(struct bp_job_queue *queue, enum bp_job_lane lane);

bool bp_job_queue_is_full(struct bp_job_queue *queue, enum bp_job_lane lane);

#endif
