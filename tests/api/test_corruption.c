/* Stored bytes that were altered are found by whoever reads them and by replay, and are never served as good. */
#include <stdio.h>
#include <string.h>
#include <zstd.h>

#include "common/base/buf.h"
#include "common/base/digest.h"
#include "tests/api/expect.h"
#include "tests/api/server.h"

static const char *const stages[] = {"model", "distributed", "portable", "concrete"};

static json_t *targeted(void)
{
    return with_target(small_request(), "reference-queue", 2, INT64_C(1) << 34);
}

/* Replays the plan; the reply's verdict is `verdict`. */
static json_t *replay_of(json_t *plan, const char *verdict)
{
    struct reply reply = http_post(keep_text("/v1/plans/%s/replays", text_at(plan, "/id")), NULL);
    ck_assert_msg(reply.status == 201, "status %d: %.800s", reply.status, reply.body);
    ck_assert_msg(strcmp(text_at(reply.json, "/verdict"), verdict) == 0, "%.2000s", reply.body);
    ck_assert_str_eq(text_at(reply.json, "/plan"), text_at(plan, "/id"));
    return reply.json;
}

static void expect_stage(json_t *replay, size_t i, json_t *plan, bool identical)
{
    json_t *stage = at(replay, keep_text("/stages/%zu", i));
    ck_assert_str_eq(text_at(stage, "/stage"), stages[i]);
    ck_assert_str_eq(text_at(stage, "/expected"), digest_of(plan, stages[i]));
    ck_assert_int_eq(json_is_true(at(stage, "/identical")), identical);
    if (identical) {
        expect_equal(at(stage, "/actual"), at(stage, "/expected"), "the digest that came out");
        ck_assert(json_is_null(at(stage, "/first_difference")));
        ck_assert(json_is_null(at(stage, "/code")));
    }
}

START_TEST(test_corruption__a_replay_of_what_was_not_altered_is_identical)
{
    json_t *plan = plan_of(targeted(), 201), *replay = replay_of(plan, "identical");
    ck_assert_uint_eq(json_array_size(at(replay, "/stages")), 4);
    for (size_t i = 0; i < 4; i++)
        expect_stage(replay, i, plan, true);
    ck_assert(json_is_null(at(replay, "/stages/0/pass")));
    ck_assert_str_eq(text_at(replay, "/stages/3/pass"), "bind-reference-queue");
    ck_assert_int_ge(int_at(replay, "/stages/3/revision"), 1);
    expect_equal(at(replay, "/stages/3/revision"), at(replay, "/stages/3/current_revision"), "revision");

    struct reply stored = http_get("/v1/replays/%s", text_at(replay, "/id"));
    ck_assert_int_eq(stored.status, 200);
    expect_equal(stored.json, replay, "the stored replay");
    json_t *second = replay_of(plan, "identical");
    struct reply list = http_get("/v1/plans/%s/replays", text_at(plan, "/id"));
    ck_assert_uint_eq(json_array_size(at(list.json, "/replays")), 2);
    expect_equal(at(list.json, "/replays/0/id"), at(second, "/id"), "the newest first");
    expect_equal(at(list.json, "/replays/1/id"), at(replay, "/id"), "the oldest last");
}
END_TEST

START_TEST(test_corruption__a_replay_of_no_plan_is_refused)
{
    struct reply reply = http_post("/v1/plans/0123456789/replays", NULL);
    expect_problem(&reply, 404, "not_found");
    struct reply absent = http_get("/v1/replays/0123456789");
    expect_problem(&absent, 404, "not_found");
}
END_TEST

/* A rejected plan derived something too: what committed is derived again, and its refusal is. */
START_TEST(test_corruption__a_rejected_plan_can_be_replayed)
{
    struct reply refused = post_plan(with_target(small_request(), "reference-queue", 2, 16));
    expect_problem(&refused, 422, "capacity_exceeded");
    struct reply plan = http_get("/v1/plans/%s", text_at(refused.json, "/plan"));
    json_t *replay = replay_of(plan.json, "identical");
    ck_assert_uint_eq(json_array_size(at(replay, "/stages")), 3);
}
END_TEST

static const char *hex_of(const char *digest)
{
    return digest + strlen("sha256:");
}

static void expect_found(json_t *plan, size_t stage)
{
    const char *digest = digest_of(plan, stages[stage]);
    server_restart(&server, NULL);
    struct reply read = http_get("/v1/snapshots/%s", digest);
    expect_problem(&read, 500, "snapshot_corrupt");
    /* What was not altered is served. */
    const char *other = digest_of(plan, stages[(stage + 1) % 4]);
    ck_assert_int_eq(http_get("/v1/snapshots/%s", other).status, 200);
    ck_assert_int_eq(http_get("/v1/snapshots/%s/lineage", digest).status, 200);

    json_t *replay = replay_of(plan, "divergent");
    ck_assert_uint_eq(json_array_size(at(replay, "/stages")), 4);
    for (size_t i = 0; i < 4; i++)
        expect_stage(replay, i, plan, i != stage);
    json_t *found = at(replay, keep_text("/stages/%zu", stage));
    ck_assert_msg(!json_is_null(at(found, "/first_difference")) || json_is_string(at(found, "/code")), "%s",
                  json_text(found));
    struct reply stored = http_get("/v1/replays/%s", text_at(replay, "/id"));
    expect_equal(stored.json, replay, "the stored verdict");
    /* Who operates it learns of both. */
    ck_assert_int_eq(server_metric("blueprint_snapshots_corrupt_total"), 2);
    ck_assert(server_logged(&server, keep_text("\"a stored snapshot is corrupt\",\"digest\":\"%s\"", digest)));
}

/* The exit status of a look at the database from outside. */
static int verify(void)
{
    static const char *const arguments[] = {"--verify", NULL};
    return server_refuses(server.database, keep_text("%s/verify", server.directory), arguments);
}

START_TEST(test_corruption__what_was_not_altered_verifies_while_it_is_served)
{
    plan_of(targeted(), 201);
    ck_assert_int_eq(verify(), 0);
}
END_TEST

START_TEST(test_corruption__a_file_that_is_not_there_does_not_verify)
{
    static const char *const arguments[] = {"--verify", NULL};
    struct server other = server;
    snprintf(other.log, sizeof other.log, "%s/verify", server.directory);
    ck_assert_int_eq(server_refuses(keep_text("%s/absent.db", server.directory), other.log, arguments), 1);
    ck_assert(server_logged(&other, "No such file"));
}
END_TEST

START_TEST(test_corruption__a_flipped_byte_of_the_stored_form_is_found)
{
    size_t stage = (size_t)_i / 3;
    json_t *plan = plan_of(targeted(), 201);
    const char *hex = hex_of(digest_of(plan, stages[stage]));
    server_stop(&server);
    /* The middle byte, the last, and one of the frame's head. */
    const char *const places[] = {"length(data) / 2", "length(data)", "6"};
    const char *place = places[_i % 3];
    server_sql(&server, keep_text("UPDATE snapshots SET data = CAST(substr(data, 1, %s - 1) ||"
                                  " CASE WHEN substr(data, %s, 1) = x'5a' THEN x'a5' ELSE x'5a' END ||"
                                  " substr(data, %s + 1) AS BLOB) WHERE digest = x'%s'",
                                  place, place, place, hex));
    ck_assert_int_eq(verify(), 1);
    expect_found(plan, stage);
}
END_TEST

/* Bytes that unpack and are of the right length, but say something else. */
static void alter_snapshot(const char *digest, const char *bytes, size_t n)
{
    struct bp_buf sql = {0};
    size_t bound = ZSTD_compressBound(n);
    unsigned char *packed = (unsigned char *)keep_text("%*s", (int)bound, "");
    size_t size = ZSTD_compress(packed, bound, bytes, n, 1);
    ck_assert(!ZSTD_isError(size));
    bp_buf_addstr(&sql, "UPDATE snapshots SET data = x'");
    for (size_t i = 0; i < size; i++)
        bp_buf_addf(&sql, "%02x", packed[i]);
    bp_buf_addf(&sql, "' WHERE digest = x'%s'", hex_of(digest));
    server_sql(&server, bp_buf_string(&sql));
    bp_buf_release(&sql);
}

START_TEST(test_corruption__a_changed_number_is_found_and_named)
{
    size_t stage = 1 + (size_t)_i;
    json_t *plan = plan_of(targeted(), 201);
    struct reply snapshot = http_get("/v1/snapshots/%s", digest_of(plan, stages[stage]));
    char *bytes = keep_text("%s", snapshot.body);
    const char *const keys[] = {"", "\"message_bytes\":", "\"size_bytes\":", "\"offset_bytes\":"};
    char *digit = strstr(bytes, keys[stage]);
    ck_assert_ptr_nonnull(digit);
    digit += strlen(keys[stage]);
    /* Another digit: the text keeps its length and stays JSON. */
    *digit = *digit == '9' ? '8' : (char)(*digit + 1);
    server_stop(&server);
    alter_snapshot(digest_of(plan, stages[stage]), bytes, snapshot.n);
    expect_found(plan, stage);
}
END_TEST

START_TEST(test_corruption__a_trace_does_not_read_altered_bytes)
{
    json_t *plan = plan_of(targeted(), 201);
    const char *command = text_at(snapshot_of(plan, "concrete"), "/commands/3/id");
    server_stop(&server);
    server_sql(&server, keep_text("UPDATE snapshots SET data = zeroblob(length(data)) WHERE digest = x'%s'",
                                  hex_of(digest_of(plan, "portable"))));
    server_restart(&server, NULL);
    struct reply reply = http_get("/v1/plans/%s/trace/%s", text_at(plan, "/id"), command);
    expect_problem(&reply, 500, "snapshot_corrupt");
}
END_TEST

Suite *suite_corruption(void)
{
    Suite *suite = suite_create("api corruption");
    TCase *tcase = server_tcase(suite, "corruption");
    tcase_add_test(tcase, test_corruption__a_replay_of_what_was_not_altered_is_identical);
    tcase_add_test(tcase, test_corruption__a_replay_of_no_plan_is_refused);
    tcase_add_test(tcase, test_corruption__a_rejected_plan_can_be_replayed);
    tcase_add_test(tcase, test_corruption__what_was_not_altered_verifies_while_it_is_served);
    tcase_add_test(tcase, test_corruption__a_file_that_is_not_there_does_not_verify);
    tcase_add_loop_test(tcase, test_corruption__a_flipped_byte_of_the_stored_form_is_found, 0, 12);
    tcase_add_loop_test(tcase, test_corruption__a_changed_number_is_found_and_named, 0, 3);
    tcase_add_test(tcase, test_corruption__a_trace_does_not_read_altered_bytes);
    return suite;
}
