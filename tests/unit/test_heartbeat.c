/* Who turns around and who does not: the rounds by a clock of our own, the real participants by making them hang. */
#include <check.h>
#include <string.h>
#include <time.h>

#include "daemon/heartbeat.h"
#include "tests/lib/service_fixture.h"

/* ---- Rounds ---- */

enum { INTERVAL = 1000 };

struct scripted {
    unsigned asked;
    bool answers;
};

static void note_asked(void *data)
{
    ((struct scripted *)data)->asked++;
}

static bool answers(void *data, uint64_t now_ns)
{
    (void)now_ns;
    return ((const struct scripted *)data)->answers;
}

static struct scripted scripted[3];
static const struct bp_participant participants[] = {{"first", note_asked, answers, &scripted[0]},
                                                     {"second", note_asked, answers, &scripted[1]},
                                                     {"third", note_asked, answers, &scripted[2]}};
static struct bp_heartbeat heartbeat;

static void set_up_rounds(void)
{
    for (size_t i = 0; i < 3; i++)
        scripted[i] = (struct scripted){.answers = true};
    heartbeat = (struct bp_heartbeat){.participants = participants, .n = 3, .interval_ns = INTERVAL};
}

/* How many rounds pass while the clock goes from one time to another by tens. */
static unsigned rounds(uint64_t from, uint64_t to)
{
    unsigned n = 0;
    for (uint64_t now = from; now < to; now += 10)
        n += bp_heartbeat_turn(&heartbeat, now);
    return n;
}

START_TEST(test_heartbeat__a_round_passes_each_interval_while_everyone_answers)
{
    ck_assert_uint_eq(rounds(INTERVAL, 11 * INTERVAL), 10);
    for (size_t i = 0; i < 3; i++)
        ck_assert_uint_eq(scripted[i].asked, 10);
    ck_assert_ptr_null(heartbeat.silent);
}
END_TEST

START_TEST(test_heartbeat__none_passes_while_one_is_stuck)
{
    ck_assert_uint_eq(rounds(INTERVAL, 3 * INTERVAL), 2);
    scripted[_i].answers = false;
    ck_assert_uint_eq(rounds(3 * INTERVAL, 500 * INTERVAL), 0);
    ck_assert_str_eq(heartbeat.silent, participants[_i].name);
    ck_assert_uint_eq(scripted[_i].asked, 3); /* one question is open, not five hundred */
    scripted[_i].answers = true;
    /* The one that was held up, and one each interval. */
    ck_assert_uint_eq(rounds(500 * INTERVAL, 510 * INTERVAL), 1 + 10);
    ck_assert_ptr_null(heartbeat.silent);
}
END_TEST

START_TEST(test_heartbeat__a_late_answer_counts_when_it_comes)
{
    scripted[1].answers = false;
    ck_assert(!bp_heartbeat_turn(&heartbeat, INTERVAL));
    ck_assert(!bp_heartbeat_turn(&heartbeat, 3 * INTERVAL / 2));
    scripted[1].answers = true;
    ck_assert(bp_heartbeat_turn(&heartbeat, 3 * INTERVAL / 2 + 1));
    ck_assert(!bp_heartbeat_turn(&heartbeat, 2 * INTERVAL - 1));
    ck_assert(bp_heartbeat_turn(&heartbeat, 2 * INTERVAL));
}
END_TEST

/* ---- Those who really take part ---- */

static struct service_fixture fixture;

static void set_up_service(void)
{
    service_fixture_init(&fixture, 4);
}

static void tear_down_service(void)
{
    service_fixture_release(&fixture);
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* Within a time that a busy machine keeps. */
static bool soon(bool (*holds)(void))
{
    for (int i = 0; i < 15000; i++, nap())
        if (holds())
            return true;
    return false;
}

static bool workers_get_on(void)
{
    return bp_service_gets_on(fixture.service, bp_clock_ns());
}

static bool writer_has_answered(void)
{
    return bp_store_has_answered(fixture.store.store);
}

/* Not for a while: what was asked had the time to turn around. */
static bool stays_silent(bool (*has_answered)(void))
{
    for (int i = 0; i < 100; i++, nap())
        if (has_answered())
            return false;
    return true;
}

START_TEST(test_heartbeat__idle_workers_turn_around_when_asked)
{
    for (int i = 0; i < 20; i++) {
        bp_service_ask(fixture.service);
        ck_assert(soon(workers_get_on));
    }
}
END_TEST

START_TEST(test_heartbeat__a_worker_has_its_time_for_a_step_and_no_more)
{
    uint64_t before = bp_clock_ns();
    service_fixture_block(&fixture);
    bp_service_ask(fixture.service);
    uint64_t after = bp_clock_ns();
    ck_assert(bp_service_gets_on(fixture.service, after));
    ck_assert(bp_service_gets_on(fixture.service, before + BP_STEP_NS - 1));
    ck_assert(!bp_service_gets_on(fixture.service, after + BP_STEP_NS));
    ck_assert(!bp_service_gets_on(fixture.service, after + 1000 * BP_STEP_NS));
    service_fixture_unblock(&fixture);
    ck_assert(soon(workers_get_on));
    bp_service_ask(fixture.service);
    ck_assert(soon(workers_get_on));
}
END_TEST

START_TEST(test_heartbeat__a_job_of_many_steps_gets_on)
{
    struct bp_worker worker = {.pool = NULL};
    struct bp_job_queue queue;
    struct bp_workers pool = {.queue = &queue, .at = &worker, .n = 1};
    bp_job_queue_init(&queue, 1);
    bp_worker_progress(&worker);
    uint64_t first = atomic_load(&worker.since);
    ck_assert(!bp_workers_get_on(&pool, first + BP_STEP_NS));
    nap();
    bp_worker_progress(&worker);
    ck_assert(bp_workers_get_on(&pool, first + BP_STEP_NS));
    bp_job_queue_release(&queue);
}
END_TEST

/* A unit whose callback keeps the writer. */
struct keeping {
    struct bp_store_unit unit;
    sem_t kept, let_go;
};

static void keep_writer(struct bp_store_unit *unit, const struct bp_err *err)
{
    struct keeping *keeping = unit->data;
    (void)err; /* there is no such job */
    sem_post(&keeping->kept);
    while (sem_wait(&keeping->let_go))
        ;
}

START_TEST(test_heartbeat__the_writer_answers_only_when_it_turns_around)
{
    static struct keeping keeping;
    struct bp_store_job_change change = {.id = digest_of_text("no such job"), .state = BP_STORE_JOB_RUNNING, .at = 1};
    bp_store_ask(fixture.store.store);
    ck_assert(soon(writer_has_answered));
    sem_init(&keeping.kept, 0, 0);
    sem_init(&keeping.let_go, 0, 0);
    keeping.unit = (struct bp_store_unit){.change = &change, .done = keep_writer, .data = &keeping};
    bp_store_submit(fixture.store.store, &keeping.unit);
    while (sem_wait(&keeping.kept))
        ;
    ck_assert(writer_has_answered()); /* before it was asked again */
    bp_store_ask(fixture.store.store);
    ck_assert(stays_silent(writer_has_answered));
    sem_post(&keeping.let_go);
    ck_assert(soon(writer_has_answered));
}
END_TEST

Suite *suite_heartbeat(void)
{
    Suite *suite = suite_create("heartbeat");
    TCase *logic = tcase_create("rounds"), *real = tcase_create("participants");
    tcase_add_checked_fixture(logic, set_up_rounds, NULL);
    tcase_add_test(logic, test_heartbeat__a_round_passes_each_interval_while_everyone_answers);
    tcase_add_loop_test(logic, test_heartbeat__none_passes_while_one_is_stuck, 0, 3);
    tcase_add_test(logic, test_heartbeat__a_late_answer_counts_when_it_comes);
    tcase_add_checked_fixture(real, set_up_service, tear_down_service);
    tcase_set_timeout(real, 120);
    tcase_add_test(real, test_heartbeat__idle_workers_turn_around_when_asked);
    tcase_add_test(real, test_heartbeat__a_worker_has_its_time_for_a_step_and_no_more);
    tcase_add_test(real, test_heartbeat__a_job_of_many_steps_gets_on);
    tcase_add_test(real, test_heartbeat__the_writer_answers_only_when_it_turns_around);
    suite_add_tcase(suite, logic);
    suite_add_tcase(suite, real);
    return suite;
}
