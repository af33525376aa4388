/* Plans in flight, as those see them who do not wait for one. */
#include <check.h>
#include <string.h>
#include <time.h>

#include "tests/lib/service_fixture.h"

static struct service_fixture fixture;
enum { QUEUE = 4 };

static void set_up(void)
{
    service_fixture_init(&fixture, QUEUE);
}

static void tear_down(void)
{
    service_fixture_release(&fixture);
}

/* Has a plan accepted, and gives its id. */
static void accept(unsigned sequence_length, char ret_id[BP_DIGEST_TEXT])
{
    struct client client;
    client_post(&fixture, &client, request_text(sequence_length, 0), true);
    client_wait(&client);
    ck_assert_int_eq(client.answer->status, 202);
    memcpy(ret_id, answer_text(client.answer, "id"), BP_DIGEST_TEXT);
    client_done(&client);
}

static void wait_until_committed(const char *id)
{
    bool committed = false;
    for (int i = 0; i < 2000 && !committed; i++) {
        struct bp_answer *answer = bp_service_plan_get(fixture.service, id);
        committed = strcmp(answer_text(answer, "state"), "committed") == 0;
        bp_answer_unref(answer);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    ck_assert(committed);
}

static struct bp_answer *list(const struct bp_plan_query *query)
{
    char next[BP_STORE_CURSOR_TEXT];
    return bp_service_plan_list(fixture.service, query, next);
}

/* How many plans a list has. */
static size_t listed(const struct bp_answer *answer)
{
    json_t *json = json_loadb(answer->body, answer->n, 0, NULL);
    ck_assert_int_eq(answer->status, 200);
    size_t n = json_array_size(json_object_get(json, "plans"));
    json_decref(json);
    return n;
}

/* Trace, diff and replay of the plan are refused, at once. */
static void expect_not_ready(const char *id)
{
    struct bp_waiter waiter = {0};
    struct bp_answer *answers[] = {
        bp_service_trace(fixture.service, id, "task:00000000", &waiter),
        bp_service_diff(fixture.service, id, id, &waiter),
        bp_service_replay_create(fixture.service, id, &waiter),
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        ck_assert_ptr_nonnull(answers[i]);
        ck_assert_int_eq(answers[i]->status, 409);
        ck_assert_str_eq(answer_text(answers[i], "code"), "not_ready");
        bp_answer_unref(answers[i]);
    }
}

START_TEST(test_in_flight__plans_are_listed_newest_first_when_asked_for)
{
    struct client clients[3];
    char ids[3][BP_DIGEST_TEXT], none[BP_DIGEST_TEXT];
    accept(512, none);
    wait_until_committed(none);
    service_fixture_block(&fixture);
    for (unsigned i = 0; i < 3; i++) {
        client_post(&fixture, &clients[i], request_text(1024 + 8 * i, 0), i != 1); /* the middle one is waited for */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    for (unsigned i = 0; i < 3; i += 2)
        client_wait(&clients[i]);
    memcpy(ids[0], answer_text(clients[0].answer, "id"), BP_DIGEST_TEXT);
    memcpy(ids[2], answer_text(clients[2].answer, "id"), BP_DIGEST_TEXT);
    struct bp_plan_query query = {.state = BP_PLAN_QUEUED, .limit = 10};
    struct bp_answer *all = list(&query), *one = bp_service_plan_get(fixture.service, ids[0]);
    ck_assert_uint_eq(listed(all), 3);
    ck_assert(!answer_has(all, none));
    const char *newest = memmem(all->body, all->n, ids[2], strlen(ids[2]));
    const char *oldest = memmem(all->body, all->n, one->body, one->n); /* the row is what a GET gives */
    ck_assert(newest && oldest && newest < oldest);
    bp_answer_unref(all);
    bp_answer_unref(one);
    query.limit = 1;
    all = list(&query);
    ck_assert(listed(all) == 1 && answer_has(all, ids[2]));
    bp_answer_unref(all);
    const struct bp_plan_query others[] = {{.state = BP_PLAN_RUNNING, .limit = 10},
                                           {.state = BP_PLAN_QUEUED, .limit = 10, .model = "gpt2"},
                                           {.state = BP_PLAN_QUEUED, .limit = 10, .mode = "inference"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        all = list(&others[i]);
        ck_assert_uint_eq(listed(all), 0);
        bp_answer_unref(all);
    }
    query.cursor = "p1";
    all = list(&query);
    ck_assert_int_eq(all->status, 400);
    ck_assert(answer_has(all, "\"path\":\"/cursor\""));
    bp_answer_unref(all);
    service_fixture_unblock(&fixture);
    client_wait(&clients[1]);
    for (unsigned i = 0; i < 3; i++)
        client_done(&clients[i]);
}
END_TEST

/* The store knows of work that no claim stands for: it waits for the next start. */
START_TEST(test_in_flight__a_job_that_waits_on_disk_is_listed)
{
    char id[BP_DIGEST_TEXT];
    accept(1024, id);
    wait_until_committed(id);
    store_fixture_sql(&fixture.store,
                      "PRAGMA foreign_keys = OFF; DELETE FROM plans; UPDATE jobs SET state = 'running'");
    struct bp_plan_query query = {.state = BP_PLAN_RUNNING, .limit = 10};
    struct bp_answer *all = list(&query);
    ck_assert(listed(all) == 1 && answer_has(all, id));
    bp_answer_unref(all);
    expect_not_ready(id);
}
END_TEST

START_TEST(test_in_flight__what_needs_a_finished_plan_is_told_to_wait)
{
    char id[BP_DIGEST_TEXT], next[BP_STORE_CURSOR_TEXT];
    service_fixture_block(&fixture);
    accept(1024, id);
    expect_not_ready(id);
    struct bp_answer *replays = bp_service_replay_list(fixture.service, id, 10, NULL, next);
    ck_assert_int_eq(replays->status, 200);
    bp_answer_unref(replays);
    service_fixture_unblock(&fixture);
}
END_TEST

static void wait_for_row(const char *sql)
{
    for (int i = 0; i < 2000 && store_fixture_int(&fixture.store, sql) == 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    ck_assert_int_eq(store_fixture_int(&fixture.store, sql), 1);
}

START_TEST(test_patience__once_lost_the_answer_is_that_it_is_accepted)
{
    struct client client;
    char id[BP_DIGEST_TEXT];
    service_fixture_block(&fixture);
    client_post_patiently(&fixture, &client, request_text(1024, 0));
    ck_assert(client.waits);
    wait_for_row("SELECT count(*) FROM jobs");
    ck_assert(!client_was_woken(&client));
    /* The writer marks the claim after its commit. */
    struct bp_answer *answer = bp_service_lose_patience(fixture.service, &client.waiter);
    if (answer)
        client_take(&client, answer);
    client_wait(&client);
    ck_assert_int_eq(client.answer->status, 202);
    ck_assert_str_eq(client.answer->applied, "respond-async");
    ck_assert(!bp_service_leave(fixture.service, &client.waiter));
    memcpy(id, answer_text(client.answer, "id"), BP_DIGEST_TEXT);
    client_done(&client);
    service_fixture_unblock(&fixture);
    wait_until_committed(id);
}
END_TEST

START_TEST(test_patience__that_lasts_gets_the_plan)
{
    struct client client;
    client_post_patiently(&fixture, &client, request_text(1024, 0));
    client_wait(&client);
    ck_assert_int_eq(client.answer->status, 201);
    ck_assert_str_eq(client.answer->applied, "");
    client_done(&client);
    wait_for_row("SELECT count(*) FROM jobs WHERE state = 'done'");
}
END_TEST

/* What is not on disk cannot be answered 202: who joined it waits on. */
START_TEST(test_patience__lost_on_a_plan_that_is_not_durable_waits_for_it)
{
    struct client first, second;
    service_fixture_block(&fixture);
    client_post(&fixture, &first, request_text(1024, 0), false);
    client_post_patiently(&fixture, &second, request_text(1024, 0));
    ck_assert_ptr_null(bp_service_lose_patience(fixture.service, &second.waiter));
    ck_assert(!client_was_woken(&second));
    service_fixture_unblock(&fixture);
    client_wait(&first);
    client_wait(&second);
    ck_assert_int_eq(first.answer->status, 201);
    ck_assert_int_eq(second.answer->status, 200);
    ck_assert_ptr_null(bp_service_lose_patience(fixture.service, &second.waiter));
    client_done(&first);
    client_done(&second);
    ck_assert_int_eq(store_fixture_int(&fixture.store, "SELECT count(*) FROM jobs"), 0);
}
END_TEST

Suite *suite_service_flight(void)
{
    Suite *suite = suite_create("service flight");
    TCase *cases = tcase_create("flight");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, test_in_flight__plans_are_listed_newest_first_when_asked_for);
    tcase_add_test(cases, test_in_flight__a_job_that_waits_on_disk_is_listed);
    tcase_add_test(cases, test_in_flight__what_needs_a_finished_plan_is_told_to_wait);
    tcase_add_test(cases, test_patience__once_lost_the_answer_is_that_it_is_accepted);
    tcase_add_test(cases, test_patience__that_lasts_gets_the_plan);
    tcase_add_test(cases, test_patience__lost_on_a_plan_that_is_not_durable_waits_for_it);
    suite_add_tcase(suite, cases);
    return suite;
}
