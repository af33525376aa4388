/* kill -9 in the middle of a collection: what is pinned is whole, what went is gone, and the job goes on to its end.
 *
 * BP_COLLECT_ROUNDS: how many rounds; 5 unless set, 40 with BP_LONG. Each is on a database of its own rounds: what the
 * last one kept is there in the next. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/api/expect.h"
#include "tests/api/server.h"
#include "tests/fault/inspect.h"
#include "tests/fault/load.h"

enum { PLANS = 120, PIN_EVERY = 5, SETTLE_MS = 60000 };

static unsigned number_from(const char *variable, unsigned fallback)
{
    const char *text = getenv(variable);
    return text ? (unsigned)strtoul(text, NULL, 10) : fallback;
}

/* The id of the plan of that request, whatever becomes of it. */
static const char *post_number(unsigned long number)
{
    struct reply reply = http_post("/v1/plans", load_request(number));
    ck_assert_msg(reply.status == 201 || reply.status == 200 || reply.status == 422, "status %d", reply.status);
    return text_at(reply.json, reply.status == 422 ? "/plan" : "/id");
}

static json_t *wait_for_job(const char *id)
{
    for (int waited = 0; waited < SETTLE_MS; waited += 5) {
        struct reply reply = http_get("/v1/admin/collections/%s", id);
        ck_assert_int_eq(reply.status, 200);
        if (strcmp(text_at(reply.json, "/state"), "running") != 0)
            return reply.json;
        usleep(5000);
    }
    ck_abort_msg("the collection does not end");
}

/* Of a collection that was killed: how many plans it had taken by then. */
static long long kill_a_collection(unsigned us, const char **ret_job)
{
    long long before = server_count(&server, "SELECT count(*) FROM plans");
    struct reply begun = http_post("/v1/admin/collections", "{\"older_than_seconds\":0}");
    ck_assert_int_eq(begun.status, 202);
    *ret_job = text_at(begun.json, "/id");
    usleep(us);
    server_kill(&server);
    server_restart(&server, NULL);
    struct reply job = http_get("/v1/admin/collections/%s", *ret_job);
    ck_assert_int_eq(job.status, 200);
    return before - server_count(&server, "SELECT count(*) FROM plans");
}

static void one_round(unsigned long first, unsigned us, unsigned long *ret_in_the_middle)
{
    const char *ids[PLANS], *texts[PLANS], *job;
    for (unsigned i = 0; i < PLANS; i++) {
        ids[i] = post_number(first + i);
        if (i % PIN_EVERY == 0) {
            ck_assert_int_eq(
                http_call(&(struct call){.method = "PUT", .target = keep_text("/v1/admin/pins/%s", ids[i])}).status,
                200);
            texts[i] = http_get("/v1/plans/%s", ids[i]).body;
        }
    }
    long long taken = kill_a_collection(us, &job);
    *ret_in_the_middle += taken > 0 && taken < PLANS - PLANS / PIN_EVERY;
    ck_assert_str_eq(text_at(wait_for_job(job), "/state"), "done");
    for (unsigned i = 0; i < PLANS; i++) {
        struct reply reply = http_get("/v1/plans/%s", ids[i]);
        if (i % PIN_EVERY == 0)
            ck_assert_str_eq(reply.body, texts[i]);
        else
            expect_problem(&reply, 404, "not_found");
    }
    struct reply replay = http_post(keep_text("/v1/plans/%s/replays", ids[0]), NULL);
    ck_assert_str_eq(text_at(replay.json, "/verdict"), "identical");
    struct inspection inspection = inspect(server.database, NULL, 0);
    ck_assert_msg(inspection.n_faults == 0, "after %u us: %s", us, inspection.first);
    ck_assert_uint_ge(inspection.n_plans, PLANS / PIN_EVERY);
}

START_TEST(test_collect__a_crash_in_the_middle_loses_nothing_that_is_kept)
{
    const unsigned rounds = number_from("BP_COLLECT_ROUNDS", getenv("BP_LONG") ? 40 : 5);
    unsigned seed = number_from("BP_CRASH_SEED", (unsigned)time(NULL));
    unsigned long in_the_middle = 0;
    for (unsigned i = 0; i < rounds; i++) {
        one_round((unsigned long)i * PLANS, (unsigned)rand_r(&seed) % 30000, &in_the_middle);
        http_forget();
    }
    printf("check-crash: %u rounds of kill -9 in a collection, %lu of them between its first and its last plan; of %u "
           "plans that were pinned none was lost\n",
           rounds, in_the_middle, rounds * PLANS / PIN_EVERY);
    fflush(stdout);
}
END_TEST

Suite *suite_collect(void)
{
    Suite *suite = suite_create("collect");
    TCase *tcase = server_admin_tcase(suite, "collect");
    tcase_add_test(tcase, test_collect__a_crash_in_the_middle_loses_nothing_that_is_kept);
    return suite;
}
