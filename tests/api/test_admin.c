/* What operates the daemon beside backups: collections with pins, and replays of the whole history. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#include "common/base/digest.h"
#include "tests/api/command.h"
#include "tests/api/expect.h"
#include "tests/api/server.h"

enum { PLANS = 8, LOOKS_MAX = 100000 };

static json_t *numbered(unsigned number)
{
    json_t *request = with_target(small_request(), "reference-queue", 2, INT64_C(1) << 40);
    set_at(request, "/workload/sequence_length", json_integer(64 * (1 + (json_int_t)number)));
    return request;
}

/* The same model, distribution and portable stage on another target: all but the last snapshot are shared. */
static json_t *elsewhere(unsigned number)
{
    json_t *request = numbered(number);
    set_at(request, "/target/kind", json_string("reference-slot"));
    return request;
}

static const char *hex_of(const char *digest)
{
    return digest + strlen("sha256:");
}

/* As if it had finished that long ago. */
static void age(const char *const *ids, size_t n, long long seconds)
{
    server_stop(&server);
    for (size_t i = 0; i < n; i++)
        server_sql(&server, keep_text("UPDATE plans SET committed_at = committed_at - %lld * 1000000 WHERE id = x'%s'",
                                      seconds, hex_of(ids[i])));
    server_restart(&server, NULL);
}

static json_t *begin(const char *target, const char *body)
{
    struct reply reply = http_post(target, body);
    ck_assert_msg(reply.status == 202, "status %d: %.500s", reply.status, reply.body);
    ck_assert_str_eq(http_header(&reply, "location"), keep_text("%s/%s", target, text_at(reply.json, "/id")));
    return reply.json;
}

static json_t *wait_until_over(const char *target, const char *id)
{
    for (int looks = 0; looks < LOOKS_MAX; looks++) {
        struct reply reply = http_get("%s/%s", target, id);
        ck_assert_int_eq(reply.status, 200);
        const char *state = text_at(reply.json, "/state");
        if (strcmp(state, "queued") != 0 && strcmp(state, "running") != 0)
            return reply.json;
        usleep(2000);
    }
    ck_abort_msg("%s does not end", id);
}

static json_t *done(const char *target, const char *body)
{
    json_t *over = wait_until_over(target, text_at(begin(target, body), "/id"));
    ck_assert_str_eq(text_at(over, "/state"), "done");
    return over;
}

static void pin(const char *method, const char *id, int status)
{
    struct reply reply = http_call(&(struct call){.method = method, .target = keep_text("/v1/admin/pins/%s", id)});
    ck_assert_msg(reply.status == status, "status %d: %.300s", reply.status, reply.body);
}

/* What must hold of the file whatever was taken out of it. */
static void expect_sound(void)
{
    static const char *const arguments[] = {"--verify", NULL};
    ck_assert_int_eq(server_refuses(server.database, keep_text("%s/verify", server.directory), arguments), 0);
}

static const char every_age[] = "{\"older_than_seconds\":0}";

/* ---- Collections ---- */

START_TEST(test_admin__a_collection_takes_old_plans_and_what_nobody_else_needs)
{
    const char *ids[2];
    json_t *old = plan_of(numbered(0), 201), *sibling = plan_of(elsewhere(0), 201), *other = plan_of(numbered(1), 201);
    ids[0] = text_at(old, "/id");
    ids[1] = text_at(other, "/id");
    ck_assert_int_eq(http_post(keep_text("/v1/plans/%s/replays", ids[0]), NULL).status, 201);
    ck_assert_int_eq(http_post(keep_text("/v1/plans/%s/replays", text_at(sibling, "/id")), NULL).status, 201);
    age(ids, 2, 3600);
    json_t *kept = http_get("/v1/plans/%s", text_at(sibling, "/id")).json;
    json_t *job = done("/v1/admin/collections", "{\"older_than_seconds\":600}");
    ck_assert_int_eq(int_at(job, "/plans"), 2);
    ck_assert_int_eq(int_at(job, "/removed/plans"), 2);
    /* Of the first its concrete snapshot, of the other all but the model. */
    ck_assert_int_eq(int_at(job, "/removed/snapshots"), 4);
    ck_assert_int_eq(int_at(job, "/removed/derivations"), 4);
    ck_assert_int_eq(int_at(job, "/removed/replays"), 1);
    ck_assert_int_gt(int_at(job, "/removed/bytes"), 0);
    for (size_t i = 0; i < 2; i++) {
        struct reply gone = http_get("/v1/plans/%s", ids[i]);
        expect_problem(&gone, 404, "not_found");
    }
    struct reply snapshot = http_get("/v1/snapshots/%s", digest_of(old, "concrete"));
    expect_problem(&snapshot, 404, "not_found");
    ck_assert_int_eq(http_get("/v1/snapshots/%s", digest_of(old, "portable")).status, 200);
    expect_equal(http_get("/v1/plans/%s", text_at(sibling, "/id")).json, kept, "the plan that stays");
    ck_assert_str_eq(
        text_at(http_post(keep_text("/v1/plans/%s/replays", text_at(sibling, "/id")), NULL).json, "/verdict"),
        "identical");
    expect_sound();
    /* Asked for again, it is derived anew and is the same plan. */
    json_t *again = plan_of(numbered(0), 201);
    ck_assert_str_eq(text_at(again, "/id"), ids[0]);
    expect_equal(at(again, "/snapshots"), at(old, "/snapshots"), "the snapshots");
    expect_equal(at(again, "/derivations"), at(old, "/derivations"), "the derivations");
    expect_sound();
}
END_TEST

START_TEST(test_admin__answers_kept_for_repeats_forget_what_was_taken)
{
    json_t *plan = plan_of(numbered(0), 201);
    plan_of(numbered(0), 200);
    plan_of(numbered(0), 200);
    const char *digest = digest_of(plan, "concrete"), *etag = keep_text("If-None-Match: \"%s\"", digest);
    const struct call conditional = {
        .method = "GET", .target = keep_text("/v1/snapshots/%s", digest), .headers = {etag}};
    ck_assert_int_eq(http_get("/v1/snapshots/%s", digest).status, 200);
    ck_assert_int_eq(http_call(&conditional).status, 304);
    done("/v1/admin/collections", every_age);
    struct reply gone = http_call(&conditional);
    expect_problem(&gone, 404, "not_found");
    struct reply plan_gone = http_get("/v1/plans/%s", text_at(plan, "/id"));
    expect_problem(&plan_gone, 404, "not_found");
    ck_assert_str_eq(text_at(plan_of(numbered(0), 201), "/id"), text_at(plan, "/id"));
}
END_TEST

START_TEST(test_admin__a_dry_run_says_what_would_go_and_takes_nothing)
{
    for (unsigned i = 0; i < 3; i++)
        plan_of(numbered(i), 201);
    plan_of(elsewhere(0), 201);
    pin("PUT", text_at(plan_of(numbered(2), 200), "/id"), 200);
    json_t *dry = done("/v1/admin/collections", "{\"older_than_seconds\":0,\"dry_run\":true}");
    ck_assert(json_is_true(at(dry, "/dry_run")));
    ck_assert_int_eq(server_count(&server, "SELECT count(*) FROM plans"), 4);
    json_t *job = done("/v1/admin/collections", every_age);
    static const char *const keys[] = {"plans", "snapshots", "derivations", "replays", "bytes"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        expect_equal(at(dry, keep_text("/removed/%s", keys[i])), at(job, keep_text("/removed/%s", keys[i])), keys[i]);
    expect_equal(at(dry, "/plans"), at(job, "/plans"), "older plans");
    ck_assert_int_eq(int_at(job, "/removed/plans"), 3);
}
END_TEST

START_TEST(test_admin__a_pinned_plan_stays_with_all_that_it_needs)
{
    json_t *kept = plan_of(numbered(0), 201), *gone = plan_of(elsewhere(0), 201);
    pin("PUT", text_at(kept, "/id"), 200);
    pin("PUT", keep_text("%.19s", text_at(kept, "/id")), 200); /* again, by a prefix */
    struct reply pins = http_get("/v1/admin/pins");
    ck_assert_uint_eq(json_array_size(at(pins.json, "/pins")), 1);
    expect_equal(at(pins.json, "/pins/0/plan"), at(kept, "/id"), "the pin");
    kept = http_get("/v1/plans/%s", text_at(kept, "/id")).json;
    done("/v1/admin/collections", every_age);
    expect_equal(http_get("/v1/plans/%s", text_at(kept, "/id")).json, kept, "the plan that is pinned");
    for (size_t i = 0; i < 4; i++)
        ck_assert_int_eq(http_get("/v1/snapshots/%s", text_at(kept, keep_text("/snapshots/%zu/digest", i))).status,
                         200);
    struct reply taken = http_get("/v1/plans/%s", text_at(gone, "/id"));
    expect_problem(&taken, 404, "not_found");
    pin("DELETE", text_at(kept, "/id"), 204);
    pin("DELETE", text_at(kept, "/id"), 404);
    done("/v1/admin/collections", every_age);
    ck_assert_int_eq(server_count(&server,
                                  "SELECT (SELECT count(*) FROM plans) + (SELECT count(*) FROM snapshots) + "
                                  "(SELECT count(*) FROM derivations) + (SELECT count(*) FROM edges) + "
                                  "(SELECT count(*) FROM evidence) + (SELECT count(*) FROM snapshot_evidence)"),
                     0);
    pin("PUT", "0123456789abcdef", 404);
}
END_TEST

START_TEST(test_admin__a_plan_accepted_for_later_goes_with_its_job)
{
    const char *body = json_text(numbered(0));
    struct reply accepted = http_call(&(struct call){.method = "POST",
                                                     .target = "/v1/plans",
                                                     .body = body,
                                                     .n = strlen(body),
                                                     .headers = {"Prefer: respond-async"}});
    ck_assert_int_eq(accepted.status, 202);
    while (server_count(&server, "SELECT count(*) FROM jobs WHERE state = 'done'") == 0)
        usleep(1000);
    json_t *job = done("/v1/admin/collections", every_age);
    ck_assert_int_eq(int_at(job, "/removed/jobs"), 1);
    struct reply gone = http_get("/v1/plans/%s", text_at(accepted.json, "/id"));
    expect_problem(&gone, 404, "not_found");
}
END_TEST

START_TEST(test_admin__what_is_no_request_is_refused)
{
    static const struct {
        const char *target, *body, *code;
        int status;
    } rows[] = {
        {"/v1/admin/collections", "{}", "missing_key", 400},
        {"/v1/admin/collections", "{\"older_than_seconds\":-1}", "out_of_range", 422},
        {"/v1/admin/collections", "{\"older_than_seconds\":\"1\"}", "wrong_type", 400},
        {"/v1/admin/collections", "{\"older_than_seconds\":1,\"dry\":true}", "unknown_key", 400},
        {"/v1/admin/collections", "[]", "wrong_type", 400},
        {"/v1/admin/collections", "{", "invalid_json", 400},
        {"/v1/admin/collections", "", "empty_body", 400},
        {"/v1/admin/replays", "{\"since\":\"yesterday\"}", "out_of_range", 422},
        {"/v1/admin/replays", "{\"since\":\"2026-02-30\"}", "out_of_range", 422},
        {"/v1/admin/replays", "{\"since\":1}", "wrong_type", 400},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct reply reply = http_post(rows[i].target, rows[i].body);
        expect_problem(&reply, rows[i].status, rows[i].code);
    }
    struct reply none = http_get("/v1/admin/collections/0123456789");
    expect_problem(&none, 404, "not_found");
    json_t *job = done("/v1/admin/replays", "{}");
    struct reply other = http_get("/v1/admin/collections/%s", text_at(job, "/id"));
    expect_problem(&other, 404, "not_found");
    ck_assert_int_eq(server_count(&server, "SELECT count(*) FROM jobs"), 1);
}
END_TEST

START_TEST(test_admin__the_client_collects_and_pins)
{
    json_t *kept = plan_of(numbered(0), 201);
    plan_of(numbered(1), 201);
    struct run pinned = RUN_ADMIN("pin", text_at(kept, "/id"));
    expect_status(&pinned, 0);
    struct run listed = RUN_ADMIN("pins");
    expect_text(listed.out, text_at(kept, "/id"));
    struct run dry = RUN_ADMIN("gc", "--older-than", "0s", "--dry-run");
    expect_status(&dry, 0);
    expect_text(dry.out, "would go\nplans        1\n");
    struct run collected = RUN_ADMIN("gc", "--older-than=0s");
    expect_status(&collected, 0);
    expect_text(collected.out, "removed\nplans        1\n");
    expect_text(RUN_ADMIN("gc", "--older-than", "3d").out, "older plans  0\n");
    struct run unpinned = RUN_ADMIN("unpin", text_at(kept, "/id"));
    expect_status(&unpinned, 0);
    struct run absent = RUN_ADMIN("unpin", text_at(kept, "/id"));
    expect_status(&absent, 4);
    static const char *const ages[] = {"", "3", "d", "3y", "3dd", "-3d", "99999999999d"};
    for (size_t i = 0; i < sizeof ages / sizeof *ages; i++) {
        struct run refused = RUN_ADMIN("gc", keep_text("--older-than=%s", ages[i]));
        expect_status(&refused, 2);
    }
    struct run ageless = RUN_ADMIN("gc");
    expect_status(&ageless, 2);
}
END_TEST

/* ---- Replays of the history ---- */

START_TEST(test_admin__a_history_that_comes_out_again_is_identical)
{
    for (unsigned i = 0; i < PLANS; i++)
        plan_of(numbered(i), 201);
    ck_assert_int_eq(post_plan(with_target(small_request(), "reference-queue", 2, 16)).status, 422);
    json_t *job = done("/v1/admin/replays", "{}");
    ck_assert_int_eq(int_at(job, "/plans"), PLANS + 1);
    ck_assert_int_eq(int_at(job, "/checked"), PLANS + 1);
    ck_assert_int_eq(int_at(job, "/identical"), PLANS + 1);
    ck_assert_uint_eq(json_array_size(at(job, "/groups")), 0);
    ck_assert(json_is_null(at(job, "/since")));
    struct run all = RUN_ADMIN("replay-all", "--wait");
    expect_status(&all, 0);
    expect_text(all.out, keep_text("identical    %d\ndivergent    0\n", PLANS + 1));
    struct run shown = RUN_ADMIN("replay-all", text_at(job, "/id"));
    expect_status(&shown, 0);
    expect_text(shown.out, text_at(job, "/id"));
}
END_TEST

/* Puts another canonical text in a snapshot's place, with its digest, as an older revision of the pass would have left
 * it. */
static void put_other_bytes(const char *digest, const char *from, const char *to)
{
    struct reply now = http_get("/v1/snapshots/%s", digest);
    ck_assert_int_eq(now.status, 200);
    const char *place = strstr(now.body, from);
    ck_assert_ptr_nonnull(place);
    const char *text = keep_text("%.*s%s%s", (int)(place - now.body), now.body, to, place + strlen(from));
    struct bp_digest other;
    char packed[1 << 18], hex[2 * sizeof packed + 1], digest_text[BP_DIGEST_TEXT];
    size_t n = ZSTD_compress(packed, sizeof packed, text, strlen(text), 1);
    ck_assert(!ZSTD_isError(n));
    bp_hex((const uint8_t *)packed, n, hex);
    bp_digest_of(text, strlen(text), &other);
    bp_digest_format(&other, digest_text);
    server_stop(&server);
    server_sql(&server, keep_text("UPDATE snapshots SET digest = x'%s', bytes = %zu, data = x'%s' WHERE digest = x'%s'",
                                  hex_of(digest_text), strlen(text), hex, hex_of(digest)));
}

START_TEST(test_admin__plans_that_come_out_otherwise_are_reported_by_pass_and_check)
{
    json_t *plans[PLANS];
    for (unsigned i = 0; i < PLANS; i++)
        plans[i] = plan_of(numbered(i), 201);
    /* The portable stage of two, and the distributed one of a third, as other revisions made them. */
    put_other_bytes(digest_of(plans[1], "portable"), "\"alignment_bytes\":16", "\"alignment_bytes\":32");
    server_restart(&server, NULL);
    put_other_bytes(digest_of(plans[2], "portable"), "\"alignment_bytes\":16", "\"alignment_bytes\":32");
    server_restart(&server, NULL);
    put_other_bytes(digest_of(plans[5], "distributed"), "\"layer\":\"", "\"layer\":\"old_");
    static const char of[] = "SELECT d.seq FROM derivations AS d JOIN plan_derivations AS pd ON pd.derivation = d.seq "
                             "JOIN plans AS p ON p.seq = pd.plan WHERE pd.position = %d AND p.id IN (x'%s', x'%s')";
    const char *portable = keep_text(of, 1, hex_of(text_at(plans[1], "/id")), hex_of(text_at(plans[2], "/id")));
    const char *distributed = keep_text(of, 0, hex_of(text_at(plans[5], "/id")), hex_of(text_at(plans[5], "/id")));
    server_sql(&server, keep_text("UPDATE derivations SET revision = 1 WHERE seq IN (%s)", portable));
    server_sql(
        &server,
        keep_text(
            "UPDATE evidence SET compared = compared + 1 WHERE check_id = 'portable.storage' AND derivation IN (%s)",
            portable));
    server_sql(&server,
               keep_text("DELETE FROM evidence WHERE check_id = 'law.qkv' AND derivation IN (%s)", distributed));
    server_restart(&server, NULL);

    json_t *job = done("/v1/admin/replays", "{}");
    ck_assert_int_eq(int_at(job, "/checked"), PLANS);
    ck_assert_int_eq(int_at(job, "/divergent"), 3);
    ck_assert_int_eq(int_at(job, "/identical"), PLANS - 3);
    ck_assert_msg(json_array_size(at(job, "/groups")) == 2, "%s", json_text(job));
    ck_assert_str_eq(text_at(job, "/groups/0/pass"), "plan-transformer-training");
    ck_assert_int_eq(int_at(job, "/groups/0/revision"), 1);
    ck_assert_int_ge(int_at(job, "/groups/0/current_revision"), 2);
    ck_assert_str_eq(text_at(job, "/groups/0/check"), "portable.storage");
    ck_assert_int_eq(int_at(job, "/groups/0/plans"), 2);
    ck_assert_str_eq(text_at(job, "/groups/1/pass"), "distribute-transformer-training");
    ck_assert_str_eq(text_at(job, "/groups/1/check"), "law.qkv");
    ck_assert_int_eq(int_at(job, "/groups/1/plans"), 1);

    struct reply list = http_get("/v1/admin/replays/%s/divergences?limit=2", text_at(job, "/id"));
    ck_assert_uint_eq(json_array_size(at(list.json, "/divergences")), 2);
    expect_equal(at(list.json, "/divergences/0/plan"), at(plans[1], "/id"), "the first");
    ck_assert_str_eq(text_at(list.json, "/divergences/0/stage"), "portable");
    ck_assert_str_eq(text_at(list.json, "/divergences/0/state_now"), "committed");
    expect_text(text_at(list.json, "/divergences/0/first_difference"), "/alignment_bytes");
    ck_assert_int_eq(int_at(list.json, "/divergences/0/checks/0/stored/compared"),
                     int_at(list.json, "/divergences/0/checks/0/now/compared") + 1);
    struct reply rest = http_get("/v1/admin/replays/%s/divergences?limit=2&cursor=%s", text_at(job, "/id"),
                                 text_at(list.json, "/next"));
    ck_assert_uint_eq(json_array_size(at(rest.json, "/divergences")), 1);
    expect_equal(at(rest.json, "/divergences/0/plan"), at(plans[5], "/id"), "the last");
    ck_assert(json_is_null(at(rest.json, "/divergences/0/checks/0/stored")));
    ck_assert(json_is_null(at(rest.json, "/next")));

    struct run report = RUN_ADMIN("replay-all", "--wait");
    expect_status(&report, 1);
    expect_text(report.out, "divergent    3\n");
    expect_text(report.out, "plan-transformer-training, revision 1\n");
    for (unsigned i = 0; i < PLANS; i++)
        ck_assert_int_eq(strstr(report.out, text_at(plans[i], "/id")) != NULL, i == 1 || i == 2 || i == 5);
}
END_TEST

START_TEST(test_admin__plans_that_would_end_otherwise_are_reported)
{
    json_t *plan = plan_of(numbered(0), 201);
    struct reply rejected = post_plan(with_target(small_request(), "reference-queue", 2, 16));
    const char *id = text_at(rejected.json, "/plan");
    server_stop(&server);
    server_sql(&server,
               keep_text("UPDATE plans SET request = json_set(request, '$.deployment.memory_bytes', 1099511627776)"
                         " WHERE id = x'%s'",
                         hex_of(id)));
    server_sql(&server, keep_text("UPDATE plans SET request = json_set(request, '$.deployment.memory_bytes', 16)"
                                  " WHERE id = x'%s'",
                                  hex_of(text_at(plan, "/id"))));
    server_restart(&server, NULL);
    json_t *job = done("/v1/admin/replays", "{}");
    ck_assert_int_eq(int_at(job, "/divergent"), 2);
    struct reply list = http_get("/v1/admin/replays/%s/divergences", text_at(job, "/id"));
    ck_assert_str_eq(text_at(list.json, "/divergences/0/state"), "committed");
    ck_assert_str_eq(text_at(list.json, "/divergences/0/state_now"), "rejected");
    ck_assert_str_eq(text_at(list.json, "/divergences/0/code"), "capacity_exceeded");
    ck_assert_str_eq(text_at(list.json, "/divergences/0/pass"), "bind-reference-queue");
    ck_assert_str_eq(text_at(list.json, "/divergences/1/state"), "rejected");
    ck_assert_str_eq(text_at(list.json, "/divergences/1/state_now"), "committed");
    ck_assert_str_eq(text_at(list.json, "/divergences/1/stage"), "concrete");
}
END_TEST

START_TEST(test_admin__what_is_damaged_is_reported_and_the_rest_is_looked_at)
{
    json_t *plan = plan_of(numbered(0), 201), *other = plan_of(numbered(1), 201), *third = plan_of(numbered(2), 201);
    server_stop(&server);
    server_sql(&server, keep_text("UPDATE snapshots SET data = zeroblob(9) WHERE digest = x'%s'",
                                  hex_of(digest_of(plan, "portable"))));
    server_sql(&server, keep_text("UPDATE plans SET request = '{}' WHERE id = x'%s'", hex_of(text_at(other, "/id"))));
    server_sql(&server,
               "UPDATE derivations SET pass = 'forgotten-pass' WHERE seq = (SELECT max(seq) FROM derivations)");
    server_restart(&server, NULL);
    json_t *job = done("/v1/admin/replays", "{}");
    ck_assert_int_eq(int_at(job, "/divergent"), 3);
    struct reply list = http_get("/v1/admin/replays/%s/divergences", text_at(job, "/id"));
    ck_assert_str_eq(text_at(list.json, "/divergences/0/code"), "snapshot_corrupt");
    ck_assert(json_is_null(at(list.json, "/divergences/1/state_now")));
    expect_equal(at(list.json, "/divergences/2/plan"), at(third, "/id"), "of the pass that is not there");
    ck_assert_str_eq(text_at(list.json, "/divergences/2/pass"), "forgotten-pass");
    ck_assert(json_is_null(at(list.json, "/divergences/2/current_revision")));
}
END_TEST

START_TEST(test_admin__since_leaves_out_what_finished_before)
{
    const char *ids[] = {text_at(plan_of(numbered(0), 201), "/id")};
    plan_of(numbered(1), 201);
    age(ids, 1, 10 * 86400);
    long long then = server_count(&server, "SELECT max(committed_at) / 1000000 - 86400 FROM plans");
    char text[32];
    time_t seconds = (time_t)then;
    struct tm utc;
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &utc));
    json_t *job = done("/v1/admin/replays", keep_text("{\"since\":\"%s\"}", text));
    ck_assert_int_eq(int_at(job, "/plans"), 1);
    ck_assert_int_eq(int_at(job, "/checked"), 1);
    struct run all = RUN_ADMIN("replay-all", "--wait", "--since", keep_text("%.10s", text));
    expect_text(all.out, "checked      1\n");
}
END_TEST

/* ---- Going on ---- */

START_TEST(test_admin__a_job_that_is_on_disk_goes_on_after_a_restart)
{
    for (unsigned i = 0; i < PLANS; i++)
        plan_of(numbered(i), 201);
    json_t *job = begin("/v1/admin/replays", "{}");
    wait_until_over("/v1/admin/replays", text_at(job, "/id"));
    server_stop(&server);
    /* As a crash would have left it after its third plan. */
    server_sql(&server,
               "UPDATE jobs SET state = 'running', attempts = 1, position = (SELECT committed_at || ' ' || seq "
               "FROM plans ORDER BY committed_at, seq LIMIT 1 OFFSET 2)");
    server_sql(&server, "UPDATE job_tallies SET n = 3 WHERE name IN ('checked', 'identical')");
    server_restart(&server, NULL);
    json_t *over = wait_until_over("/v1/admin/replays", text_at(job, "/id"));
    ck_assert_str_eq(text_at(over, "/state"), "done");
    ck_assert_int_eq(int_at(over, "/plans"), PLANS);
    ck_assert_int_eq(int_at(over, "/checked"), PLANS);
    ck_assert_int_eq(int_at(over, "/identical"), PLANS);
}
END_TEST

START_TEST(test_admin__a_job_of_other_passes_begins_anew_under_its_own_id)
{
    plan_of(numbered(0), 201);
    json_t *job = done("/v1/admin/replays", "{}");
    server_stop(&server);
    server_sql(&server, "UPDATE jobs SET state = 'running', attempts = 1, passes = replace(passes, '\"revision\":2', "
                        "'\"revision\":1')");
    server_restart(&server, NULL);
    json_t *old = wait_until_over("/v1/admin/replays", text_at(job, "/id"));
    ck_assert_str_eq(text_at(old, "/state"), "superseded");
    json_t *over = wait_until_over("/v1/admin/replays", text_at(old, "/superseded_by"));
    ck_assert_str_eq(text_at(over, "/state"), "done");
    ck_assert_int_eq(int_at(over, "/checked"), 1);
    struct run followed = RUN_ADMIN("replay-all", "--wait", text_at(job, "/id"));
    expect_text(followed.out, text_at(over, "/id"));
}
END_TEST

START_TEST(test_admin__a_job_that_comes_no_further_is_given_up)
{
    plan_of(numbered(0), 201);
    json_t *job = done("/v1/admin/replays", "{}");
    server_stop(&server);
    server_sql(&server, "UPDATE jobs SET state = 'running', attempts = 2");
    server_restart(&server, NULL);
    json_t *over = wait_until_over("/v1/admin/replays", text_at(job, "/id"));
    ck_assert_str_eq(text_at(over, "/state"), "failed");
    ck_assert(server_logged(&server, "a job is given up"));
    ck_assert_str_eq(text_at(over, "/problem/message"), "it was begun twice and came no further");
    struct run shown = RUN_ADMIN("replay-all", text_at(job, "/id"));
    expect_status(&shown, 1);
    expect_text(shown.out, "because      it was begun twice and came no further\n");
    struct run listed = RUN_ADMIN("jobs");
    expect_status(&listed, 0);
    expect_text(listed.out, "it was begun twice");
}
END_TEST

/* ---- Jobs whose ids nobody wrote down ---- */

START_TEST(test_admin__jobs_are_listed_last_first_in_pages)
{
    static const char *const bodies[] = {"{\"older_than_seconds\":3600}", "{\"older_than_seconds\":0,\"dry_run\":true}",
                                         "{\"since\":\"2020-01-01\"}"};
    static const char *const targets[] = {"/v1/admin/collections", "/v1/admin/collections", "/v1/admin/replays"};
    const char *ids[3], *cursor = "";
    plan_of(numbered(0), 201);
    plan_of(numbered(1), 201);
    for (size_t i = 0; i < 3; i++)
        ids[i] = text_at(done(targets[2 - i], bodies[2 - i]), "/id");
    for (size_t i = 3; i-- > 0;) {
        struct reply page = http_get("/v1/admin/jobs?limit=1%s%s", *cursor ? "&cursor=" : "", cursor);
        ck_assert_int_eq(page.status, 200);
        ck_assert_uint_eq(json_array_size(at(page.json, "/jobs")), 1);
        ck_assert_str_eq(text_at(page.json, "/jobs/0/id"), ids[i]);
        ck_assert_int_eq(http_get("/v1/admin/%s/%s", text_at(page.json, "/jobs/0/kind"), ids[i]).status, 200);
        ck_assert_str_eq(text_at(page.json, "/jobs/0/state"), "done");
        /* The replays looked at both plans, a dry run counted both, the collection found none that old. */
        ck_assert_int_eq(int_at(page.json, "/jobs/0/done"), i < 2 ? 2 : 0);
        ck_assert_int_eq(int_at(page.json, "/jobs/0/plans"), i < 2 ? 2 : 0);
        ck_assert_int_eq(json_is_string(at(page.json, "/next")), i > 0);
        cursor = i > 0 ? text_at(page.json, "/next") : "";
    }
    struct reply all = http_get("/v1/admin/jobs");
    ck_assert_int_eq(int_at(all.json, "/jobs/0/request/older_than_seconds"), 3600);
    ck_assert_str_eq(text_at(all.json, "/jobs/2/request/since"), "2020-01-01T00:00:00.000000Z");
    struct reply wrong = http_get("/v1/admin/jobs?cursor=elsewhere");
    expect_problem(&wrong, 400, "invalid_query");
    struct run first = RUN_ADMIN("jobs", "--limit", "1");
    expect_text(first.out, "older than 3600 s");
    expect_text(first.out, "more: --cursor ");
}
END_TEST

static long long ended(const char *kind, const char *outcome)
{
    return server_metric(keep_text("blueprint_long_jobs_ended_total{kind=\"%s\",outcome=\"%s\"}", kind, outcome));
}

START_TEST(test_admin__metrics_count_what_jobs_did_and_how_they_ended)
{
    const char *kept = text_at(plan_of(numbered(0), 201), "/id");
    plan_of(numbered(1), 201);
    plan_of(numbered(2), 201);
    pin("PUT", kept, 200);
    done("/v1/admin/replays", "{}");
    ck_assert_int_eq(server_metric("blueprint_history_replays_total{verdict=\"identical\"}"), 3);
    ck_assert_int_eq(ended("history_replay", "done"), 1);
    done("/v1/admin/collections", "{\"older_than_seconds\":0,\"dry_run\":true}");
    ck_assert_int_eq(server_metric("blueprint_plans_collected_total"), 0);
    done("/v1/admin/collections", every_age);
    ck_assert_int_eq(server_metric("blueprint_plans_collected_total"), 2);
    ck_assert_int_eq(ended("collection", "done"), 2);
    server_stop(&server);
    server_sql(&server, "UPDATE jobs SET state = 'running', attempts = 2");
    server_sql(&server, "UPDATE snapshots SET data = zeroblob(9) WHERE stage = 'portable'");
    server_restart(&server, NULL);
    for (int looks = 0; looks < LOOKS_MAX && ended("collection", "failed") == 0; looks++)
        usleep(2000);
    ck_assert_int_eq(ended("collection", "failed"), 1);
    done("/v1/admin/replays", "{}");
    ck_assert_int_eq(server_metric("blueprint_history_replays_total{verdict=\"divergent\"}"), 1);
}
END_TEST

Suite *suite_admin(void)
{
    const TTest *const tests[] = {
        test_admin__a_collection_takes_old_plans_and_what_nobody_else_needs,
        test_admin__answers_kept_for_repeats_forget_what_was_taken,
        test_admin__a_dry_run_says_what_would_go_and_takes_nothing,
        test_admin__a_pinned_plan_stays_with_all_that_it_needs,
        test_admin__a_plan_accepted_for_later_goes_with_its_job,
        test_admin__what_is_no_request_is_refused,
        test_admin__the_client_collects_and_pins,
        test_admin__a_history_that_comes_out_again_is_identical,
        test_admin__plans_that_come_out_otherwise_are_reported_by_pass_and_check,
        test_admin__plans_that_would_end_otherwise_are_reported,
        test_admin__what_is_damaged_is_reported_and_the_rest_is_looked_at,
        test_admin__since_leaves_out_what_finished_before,
        test_admin__a_job_that_is_on_disk_goes_on_after_a_restart,
        test_admin__a_job_of_other_passes_begins_anew_under_its_own_id,
        test_admin__a_job_that_comes_no_further_is_given_up,
        test_admin__jobs_are_listed_last_first_in_pages,
        test_admin__metrics_count_what_jobs_did_and_how_they_ended,
    };
    Suite *suite = suite_create("admin");
    TCase *tcase = server_admin_tcase(suite, "admin");
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(tcase, tests[i]);
    return suite;
}
