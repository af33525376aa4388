/* Jobs: the state machine, the queue, the workers. */
#include <check.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <time.h>

#include "daemon/jobs/workers.h"

/* ---- States ---- */

static bool may(enum bp_job_state from, enum bp_job_state to)
{
    struct bp_job job = {.state = (int)from};
    bool moved = bp_job_move(&job, to);
    ck_assert_int_eq(bp_job_state(&job), moved ? to : from);
    return moved;
}

START_TEST(test_job__states_only_move_forward)
{
    static const bool expected[BP_JOB_STATE_N][BP_JOB_STATE_N] = {
        [BP_JOB_QUEUED] = {[BP_JOB_RUNNING] = true, [BP_JOB_FAILED] = true, [BP_JOB_CANCELLED] = true},
        [BP_JOB_RUNNING] = {[BP_JOB_COMMITTING] = true, [BP_JOB_FAILED] = true, [BP_JOB_CANCELLED] = true},
        [BP_JOB_COMMITTING] = {[BP_JOB_DONE] = true, [BP_JOB_FAILED] = true},
    };
    for (int from = 0; from < BP_JOB_STATE_N; from++)
        for (int to = 0; to < BP_JOB_STATE_N; to++)
            ck_assert_msg(may((enum bp_job_state)from, (enum bp_job_state)to) == expected[from][to], "%d to %d", from,
                          to);
}
END_TEST

struct race {
    struct bp_job job;
    pthread_barrier_t barrier;
    bool cancelled;
};

static void *cancel(void *data)
{
    struct race *race = data;
    pthread_barrier_wait(&race->barrier);
    race->cancelled = bp_job_move(&race->job, BP_JOB_CANCELLED);
    return NULL;
}

START_TEST(test_job__of_two_that_race_one_wins)
{
    for (int i = 0; i < 200; i++) {
        struct race race = {.job = {.state = BP_JOB_RUNNING}};
        pthread_t thread;
        pthread_barrier_init(&race.barrier, NULL, 2);
        ck_assert_int_eq(pthread_create(&thread, NULL, cancel, &race), 0);
        pthread_barrier_wait(&race.barrier);
        bool committing = bp_job_move(&race.job, BP_JOB_COMMITTING);
        pthread_join(thread, NULL);
        pthread_barrier_destroy(&race.barrier);
        ck_assert(committing != race.cancelled);
        ck_assert_int_eq(bp_job_state(&race.job), committing ? BP_JOB_COMMITTING : BP_JOB_CANCELLED);
    }
}
END_TEST

/* ---- The queue ---- */

static struct bp_job_queue queue;
static atomic_uint_fast64_t asked;

static void push(struct bp_job *job)
{
    ck_assert_int_eq(bp_job_queue_push(&queue, job, false, NULL), 0);
}

START_TEST(test_queue__plans_go_before_the_rest_and_each_in_order)
{
    struct bp_job jobs[4] = {
        {.lane = BP_LANE_REST}, {.lane = BP_LANE_PLANS}, {.lane = BP_LANE_REST}, {.lane = BP_LANE_PLANS}};
    struct bp_job first = {.lane = BP_LANE_PLANS};
    bp_job_queue_init(&queue, 4);
    for (size_t i = 0; i < 4; i++)
        push(&jobs[i]);
    ck_assert_int_eq(bp_job_queue_push_first(&queue, &first, NULL), 0);
    ck_assert_uint_eq(bp_job_queue_depth(&queue), 5);
    struct bp_job *const expected[] = {&first, &jobs[1], &jobs[3], &jobs[0], &jobs[2]};
    for (size_t i = 0; i < 5; i++)
        ck_assert_ptr_eq(bp_job_queue_pop(&queue, &asked), expected[i]);
    bp_job_queue_release(&queue);
}
END_TEST

START_TEST(test_queue__past_the_limit_takes_only_what_was_promised)
{
    struct bp_job jobs[4] = {{.lane = BP_LANE_PLANS}, {.lane = BP_LANE_PLANS}, {.lane = BP_LANE_PLANS}};
    struct bp_job other = {.lane = BP_LANE_REST};
    struct bp_err err = {0};
    bp_job_queue_init(&queue, 2);
    push(&jobs[0]);
    ck_assert(!bp_job_queue_is_full(&queue, BP_LANE_PLANS));
    push(&jobs[1]);
    ck_assert(bp_job_queue_is_full(&queue, BP_LANE_PLANS));
    ck_assert_int_eq(bp_job_queue_push(&queue, &jobs[2], false, &err), -1);
    ck_assert_int_eq(err.code, BP_E_queue_full);
    ck_assert_int_eq(bp_job_queue_push(&queue, &jobs[2], true, NULL), 0);
    push(&other); /* a lane of its own */
    bp_job_queue_release(&queue);
}
END_TEST

START_TEST(test_queue__what_was_taken_back_does_not_come_out)
{
    struct bp_job jobs[3] = {{.lane = BP_LANE_PLANS}, {.lane = BP_LANE_PLANS}, {.lane = BP_LANE_PLANS}};
    for (size_t back = 0; back < 3; back++) {
        bp_job_queue_init(&queue, 3);
        for (size_t i = 0; i < 3; i++)
            push(&jobs[i]);
        ck_assert(bp_job_queue_take_back(&queue, &jobs[back]));
        ck_assert(!bp_job_queue_take_back(&queue, &jobs[back]));
        for (size_t i = 0; i < 3; i++)
            if (i != back)
                ck_assert_ptr_eq(bp_job_queue_pop(&queue, &asked), &jobs[i]);
        ck_assert_uint_eq(bp_job_queue_depth(&queue), 0);
        bp_job_queue_release(&queue);
    }
}
END_TEST

START_TEST(test_queue__closed_gives_nothing_and_takes_nothing_but_keeps_what_it_has)
{
    struct bp_job jobs[2] = {{.lane = BP_LANE_PLANS}, {.lane = BP_LANE_PLANS}};
    struct bp_err err = {0};
    bp_job_queue_init(&queue, 2);
    push(&jobs[0]);
    bp_job_queue_close(&queue);
    ck_assert_ptr_null(bp_job_queue_pop(&queue, &asked));
    ck_assert_int_eq(bp_job_queue_push(&queue, &jobs[1], true, &err), -1);
    ck_assert_int_eq(err.code, BP_E_stopping);
    ck_assert_int_eq(bp_job_queue_push_first(&queue, &jobs[1], NULL), -1);
    ck_assert_ptr_eq(bp_job_queue_drain(&queue), &jobs[0]);
    ck_assert_ptr_null(bp_job_queue_drain(&queue));
    bp_job_queue_release(&queue);
}
END_TEST

/* ---- How fast it drains ---- */

static const uint64_t ms = 1000000;

/* Jobs that leave every `interval` while others wait; returns the time. */
static uint64_t leave(struct bp_drain *drain, uint64_t now, unsigned n, uint64_t interval)
{
    while (n--)
        bp_drain_count(drain, now += interval);
    return now;
}

START_TEST(test_drain__what_is_not_known_yet_is_a_second)
{
    struct bp_drain drain = {0};
    ck_assert_uint_eq(bp_drain_seconds(&drain, 5000 * ms, 256), 1);
    bp_drain_begin(&drain, 5000 * ms);
    ck_assert_uint_eq(bp_drain_seconds(&drain, 5000 * ms, 256), 1);
    /* One that an idle worker took says nothing. */
    bp_drain_count(&drain, 5001 * ms);
    ck_assert_uint_eq(drain.n, 0);
}
END_TEST

START_TEST(test_drain__the_estimate_is_of_the_jobs_that_left)
{
    struct bp_drain drain = {0};
    bp_drain_begin(&drain, 0);
    uint64_t now = leave(&drain, 0, 11, 10 * ms);
    ck_assert_uint_eq(drain.n, 10);
    ck_assert_uint_eq(bp_drain_seconds(&drain, now, 99), 1);
    ck_assert_uint_eq(bp_drain_seconds(&drain, now, 550), 6);
    ck_assert_uint_eq(bp_drain_seconds(&drain, now, 1000000), BP_DRAIN_SECONDS_MAX);
    /* The last ones count. */
    now = leave(&drain, now, BP_DRAIN_SAMPLES, 100 * ms);
    ck_assert_uint_eq(bp_drain_seconds(&drain, now, 55), 6);
    now = leave(&drain, now, BP_DRAIN_SAMPLES, ms);
    ck_assert_uint_eq(bp_drain_seconds(&drain, now, 550), 1);
}
END_TEST

START_TEST(test_drain__time_without_work_does_not_count)
{
    struct bp_drain drain = {0};
    bp_drain_begin(&drain, 0);
    uint64_t now = leave(&drain, 0, 11, 10 * ms) + 3600000 * ms;
    bp_drain_end(&drain);
    ck_assert_uint_eq(bp_drain_seconds(&drain, now, 550), 6);
    bp_drain_begin(&drain, now);
    now = leave(&drain, now, 11, 10 * ms);
    ck_assert_uint_eq(bp_drain_seconds(&drain, now, 550), 6);
}
END_TEST

START_TEST(test_drain__one_that_takes_long_raises_the_estimate)
{
    struct bp_drain drain = {0};
    bp_drain_begin(&drain, 0);
    ck_assert_uint_eq(bp_drain_seconds(&drain, 2000 * ms, 10), 21); /* nothing else is known */
    uint64_t now = leave(&drain, 0, 10, 10 * ms);
    ck_assert_uint_eq(bp_drain_seconds(&drain, now + 10 * ms, 100), 2);
    ck_assert_uint_eq(bp_drain_seconds(&drain, now + 910 * ms, 100), 11);
    ck_assert_uint_eq(bp_drain_seconds(&drain, now + 3600000 * ms, 100), BP_DRAIN_SECONDS_MAX);
}
END_TEST

START_TEST(test_queue__says_when_to_come_again_by_what_left_it)
{
    struct bp_job jobs[4] = {{.lane = BP_LANE_PLANS}, {.lane = BP_LANE_PLANS}, {.lane = BP_LANE_PLANS}};
    bp_job_queue_init(&queue, 4);
    ck_assert_uint_eq(bp_job_queue_retry_after(&queue, BP_LANE_PLANS), 1);
    for (size_t i = 0; i < 3; i++)
        push(&jobs[i]);
    bp_job_queue_pop(&queue, &asked);
    nanosleep(&(struct timespec){.tv_nsec = 20 * (long)ms}, NULL);
    bp_job_queue_pop(&queue, &asked);
    const struct bp_drain *drain = &queue.lanes[BP_LANE_PLANS].drain;
    ck_assert_uint_eq(drain->n, 1);
    ck_assert_uint_ge(drain->sum, 20 * ms);
    ck_assert(drain->waiting);
    ck_assert_uint_eq(queue.lanes[BP_LANE_REST].drain.n, 0);
    bp_job_queue_pop(&queue, &asked);
    ck_assert(!drain->waiting);
    push(&jobs[0]);
    ck_assert(bp_job_queue_take_back(&queue, &jobs[0])); /* it left, but for no worker */
    ck_assert_uint_eq(drain->n, 2);
    ck_assert(!drain->waiting);
    bp_job_queue_release(&queue);
}
END_TEST

/* ---- Workers ---- */

enum { WORKERS = 4, JOBS = 500 };

struct counted {
    struct bp_job job;
    atomic_int runs;
    atomic_int *left;
    sem_t *all_done;
};

static atomic_int memories;

static void *memory_new(void)
{
    int *memory = malloc(sizeof *memory);
    *memory = atomic_fetch_add(&memories, 1);
    return memory;
}

static void memory_free(void *memory)
{
    free(memory);
    atomic_fetch_sub(&memories, 1);
}

static void count_run(struct bp_job *job, struct bp_worker *worker)
{
    struct counted *counted = (struct counted *)(void *)job;
    ck_assert_ptr_nonnull(worker->memory);
    ck_assert(bp_job_move(job, BP_JOB_RUNNING));
    atomic_fetch_add(&counted->runs, 1);
    if (atomic_fetch_sub(counted->left, 1) == 1)
        sem_post(counted->all_done);
}

START_TEST(test_workers__run_every_job_once)
{
    static struct counted jobs[JOBS];
    struct bp_workers workers;
    atomic_int left = JOBS;
    sem_t all_done;
    sem_init(&all_done, 0, 0);
    bp_job_queue_init(&queue, JOBS);
    ck_assert_int_eq(bp_workers_start(&workers, &queue, WORKERS, memory_new, memory_free, NULL), 0);
    ck_assert_int_eq(memories, WORKERS);
    for (size_t i = 0; i < JOBS; i++) {
        jobs[i].job.run = count_run;
        jobs[i].left = &left;
        jobs[i].all_done = &all_done;
        push(&jobs[i].job);
    }
    while (sem_wait(&all_done))
        ;
    bp_job_queue_close(&queue);
    bp_workers_stop(&workers);
    ck_assert_int_eq(memories, 0);
    ck_assert_uint_eq(workers.n_busy, 0);
    for (size_t i = 0; i < JOBS; i++)
        ck_assert_int_eq(jobs[i].runs, 1);
    bp_job_queue_release(&queue);
    sem_destroy(&all_done);
}
END_TEST

static void *third_fails(void)
{
    return memories == 2 ? NULL : memory_new();
}

START_TEST(test_workers__that_cannot_all_start_leave_none_behind)
{
    struct bp_workers workers;
    struct bp_err err = {0};
    bp_job_queue_init(&queue, 1);
    ck_assert_int_eq(bp_workers_start(&workers, &queue, WORKERS, third_fails, memory_free, &err), -1);
    ck_assert_int_eq(err.code, BP_E_out_of_memory);
    ck_assert_int_eq(memories, 0);
    ck_assert_uint_eq(workers.n, 0);
    bp_job_queue_release(&queue);
}
END_TEST

Suite *suite_jobs(void)
{
    Suite *suite = suite_create("jobs");
    TCase *states = tcase_create("states"), *queues = tcase_create("queue"), *pools = tcase_create("workers");
    TCase *drains = tcase_create("drain");
    tcase_add_test(states, test_job__states_only_move_forward);
    tcase_add_test(states, test_job__of_two_that_race_one_wins);
    tcase_add_test(queues, test_queue__plans_go_before_the_rest_and_each_in_order);
    tcase_add_test(queues, test_queue__past_the_limit_takes_only_what_was_promised);
    tcase_add_test(queues, test_queue__what_was_taken_back_does_not_come_out);
    tcase_add_test(queues, test_queue__closed_gives_nothing_and_takes_nothing_but_keeps_what_it_has);
    tcase_add_test(queues, test_queue__says_when_to_come_again_by_what_left_it);
    tcase_add_test(drains, test_drain__what_is_not_known_yet_is_a_second);
    tcase_add_test(drains, test_drain__the_estimate_is_of_the_jobs_that_left);
    tcase_add_test(drains, test_drain__time_without_work_does_not_count);
    tcase_add_test(drains, test_drain__one_that_takes_long_raises_the_estimate);
    tcase_add_test(pools, test_workers__run_every_job_once);
    tcase_add_test(pools, test_workers__that_cannot_all_start_leave_none_behind);
    suite_add_tcase(suite, states);
    suite_add_tcase(suite, queues);
    suite_add_tcase(suite, drains);
    suite_add_tcase(suite, pools);
    return suite;
}
