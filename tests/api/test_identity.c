/* One request is one plan; a snapshot is its bytes; lineage and trace reach the model. */
#include <string.h>

#include "common/base/digest.h"
#include "tests/api/expect.h"
#include "tests/api/server.h"

enum { COPIES = 64 };

static json_t *targeted(void)
{
    return with_target(small_request(), "reference-queue", 2, INT64_C(1) << 34);
}

START_TEST(test_identity__the_same_request_again_is_the_stored_plan)
{
    json_t *first = plan_of(targeted(), 201), *second = plan_of(targeted(), 200);
    expect_equal(second, first, "the second answer");
    ck_assert_int_eq(server_count(&server, "SELECT count(*) FROM plans"), 1);
    ck_assert_int_eq(server_count(&server, "SELECT count(*) FROM snapshots"), 4);
    ck_assert_int_eq(server_metric("blueprint_plans_derived_total"), 1);
}
END_TEST

START_TEST(test_identity__spelling_defaults_spaces_and_order_do_not_matter)
{
    json_t *plan = plan_of(small_request(), 201);
    json_t *spelt = small_request();
    set_at(spelt, "/strategy/recompute", json_string("none"));
    set_at(spelt, "/strategy/data_parallel", json_integer(1));
    set_at(spelt, "/strategy/zero_stage", json_integer(3)); /* inert without data parallelism */
    set_at(spelt, "/workload/gradient_dtype", json_string("float32"));
    set_at(spelt, "/model/transformer/num_key_value_heads", json_integer(8));
    set_at(spelt, "/model/transformer/head_dim", json_integer(8));
    ck_assert_str_eq(text_at(plan_of(spelt, 200), "/id"), text_at(plan, "/id"));
    struct reply spaced = http_post("/v1/plans", keep_text(" \n\t%s\n ", json_text(small_request())));
    ck_assert_int_eq(spaced.status, 200);
    ck_assert_str_eq(text_at(spaced.json, "/id"), text_at(plan, "/id"));
}
END_TEST

START_TEST(test_identity__concurrent_copies_are_one_derivation)
{
    static struct call calls[COPIES];
    static struct reply replies[COPIES];
    const char *body = json_text(targeted());
    for (size_t i = 0; i < COPIES; i++)
        calls[i] = (struct call){.method = "POST", .target = "/v1/plans", .body = body, .n = strlen(body)};
    http_call_together(calls, COPIES, replies);
    int created = 0;
    for (size_t i = 0; i < COPIES; i++) {
        ck_assert_msg(replies[i].status == 200 || replies[i].status == 201, "status %d: %.500s", replies[i].status,
                      replies[i].body);
        created += replies[i].status == 201;
        ck_assert_str_eq(text_at(replies[i].json, "/state"), "committed");
        ck_assert_str_eq(text_at(replies[i].json, "/id"), text_at(replies[0].json, "/id"));
    }
    ck_assert_int_eq(created, 1);
    ck_assert_int_eq(server_metric("blueprint_plans_derived_total"), 1);
    ck_assert_int_eq(server_count(&server, "SELECT count(*) FROM plans"), 1);
    ck_assert_int_eq(server_count(&server, "SELECT count(*) FROM derivations"), 3);
}
END_TEST

START_TEST(test_identity__a_plan_answers_as_it_was_created)
{
    json_t *created = plan_of(targeted(), 201);
    struct reply got = http_get("/v1/plans/%s", text_at(created, "/id"));
    ck_assert_int_eq(got.status, 200);
    /* How the model was resolved is in the answer to a POST alone. */
    json_object_del(at(created, "/model"), "family");
    json_object_del(at(created, "/model"), "ignored");
    json_object_del(at(created, "/model"), "assumed");
    expect_equal(got.json, created, "the stored plan");
}
END_TEST

START_TEST(test_identity__a_new_plan_says_where_it_is)
{
    struct reply reply = post_plan(small_request());
    ck_assert_int_eq(reply.status, 201);
    const char *location = http_header(&reply, "location");
    ck_assert_ptr_nonnull(location);
    ck_assert_str_eq(location, keep_text("/v1/plans/%s", text_at(reply.json, "/id")));
    ck_assert_int_eq(http_get("%s", location).status, 200);
}
END_TEST

START_TEST(test_identity__a_snapshot_is_the_bytes_of_its_digest)
{
    json_t *plan = plan_of(targeted(), 201), *row;
    size_t i;
    ck_assert_uint_eq(json_array_size(at(plan, "/snapshots")), 4);
    json_array_foreach(at(plan, "/snapshots"), i, row) {
        const char *digest = text_at(row, "/digest");
        struct reply reply = http_get("/v1/snapshots/%s", digest);
        char text[BP_DIGEST_TEXT];
        struct bp_digest of_body;
        ck_assert_int_eq(reply.status, 200);
        bp_digest_of(reply.body, reply.n, &of_body);
        bp_digest_format(&of_body, text);
        ck_assert_str_eq(text, digest);
        ck_assert_int_eq(int_at(row, "/bytes"), (json_int_t)reply.n);
        ck_assert_str_eq(text_at(row, "/schema"), text_at(reply.json, "/schema"));
        ck_assert_str_eq(http_header(&reply, "etag"), keep_text("\"%s\"", digest));
        ck_assert_ptr_nonnull(strstr(http_header(&reply, "cache-control"), "immutable"));
    }
}
END_TEST

START_TEST(test_identity__a_snapshot_that_the_caller_has_is_not_sent_again)
{
    const char *digest = digest_of(plan_of(small_request(), 201), "portable");
    const char *target = keep_text("/v1/snapshots/%s", digest);
    const struct {
        const char *header;
        int status;
    } cases[] = {
        {keep_text("If-None-Match: \"%s\"", digest), 304},
        {keep_text("If-None-Match: \"other\", W/\"%s\"", digest), 304},
        {"If-None-Match: *", 304},
        {"If-None-Match: \"other\"", 200},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct reply reply = http_call(&(struct call){.method = "GET", .target = target, .headers = {cases[i].header}});
        ck_assert_msg(reply.status == cases[i].status, "%s: %d", cases[i].header, reply.status);
        ck_assert_uint_eq(reply.n == 0, cases[i].status == 304);
        ck_assert_str_eq(http_header(&reply, "etag"), keep_text("\"%s\"", digest));
    }
}
END_TEST

START_TEST(test_identity__head_is_get_without_the_body)
{
    const char *digest = digest_of(plan_of(small_request(), 201), "model");
    struct reply got = http_get("/v1/snapshots/%s", digest);
    struct reply head = http_call(&(struct call){.method = "HEAD", .target = keep_text("/v1/snapshots/%s", digest)});
    ck_assert_int_eq(head.status, 200);
    ck_assert_uint_eq(head.n, 0);
    ck_assert_str_eq(http_header(&head, "content-length"), keep_text("%zu", got.n));
    ck_assert_str_eq(http_header(&head, "etag"), http_header(&got, "etag"));
}
END_TEST

START_TEST(test_identity__lineage_of_the_concrete_stage_reaches_the_model)
{
    static const char *const stages[] = {"concrete", "portable", "distributed", "model"};
    json_t *plan = plan_of(targeted(), 201);
    struct reply up = http_get("/v1/snapshots/%s/lineage", digest_of(plan, "concrete"));
    ck_assert_int_eq(up.status, 200);
    ck_assert_uint_eq(json_array_size(at(up.json, "/nodes")), 4);
    ck_assert_uint_eq(json_array_size(at(up.json, "/edges")), 3);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_str_eq(text_at(up.json, keep_text("/nodes/%zu/stage", i)), stages[i]);
        ck_assert_str_eq(text_at(up.json, keep_text("/nodes/%zu/digest", i)), digest_of(plan, stages[i]));
    }
    for (size_t i = 0; i < 3; i++) {
        json_t *edge = at(up.json, keep_text("/edges/%zu", i));
        json_t *derivation = at(plan, keep_text("/derivations/%zu", 2 - i));
        expect_equal(at(edge, "/source"), at(derivation, "/source"), "source");
        expect_equal(at(edge, "/target"), at(derivation, "/target"), "target");
        expect_equal(at(edge, "/pass"), at(derivation, "/pass"), "pass");
        expect_equal(at(edge, "/revision"), at(derivation, "/revision"), "revision");
    }
    struct reply down = http_get("/v1/snapshots/%s/lineage?direction=descendants", digest_of(plan, "model"));
    ck_assert_uint_eq(json_array_size(at(down.json, "/nodes")), 4);
    ck_assert_str_eq(text_at(down.json, "/nodes/0/stage"), "model");
}
END_TEST

START_TEST(test_identity__lineage_comes_in_pages)
{
    json_t *plan = plan_of(targeted(), 201);
    const char *digest = digest_of(plan, "concrete"), *cursor = "";
    size_t n = 0, edges = 0;
    for (;;) {
        struct reply page = http_get("/v1/snapshots/%s/lineage?limit=1&cursor=%s", digest, cursor);
        ck_assert_int_eq(page.status, 200);
        ck_assert_uint_eq(json_array_size(at(page.json, "/nodes")), 1);
        n++;
        edges += json_array_size(at(page.json, "/edges"));
        if (json_is_null(at(page.json, "/next")))
            break;
        cursor = text_at(page.json, "/next");
        ck_assert_uint_lt(n, 5);
    }
    ck_assert_uint_eq(n, 4);
    ck_assert_uint_eq(edges, 3);
}
END_TEST

/* The entity's chain ends in the model stage, one stage a step, each source the next entity. */
static void expect_trace(json_t *plan, const char *entity, size_t n_steps, const char *last_kind)
{
    static const char *const stages[] = {"concrete", "portable", "distributed", "model"};
    struct reply reply = http_get("/v1/plans/%s/trace/%s", text_at(plan, "/id"), entity);
    ck_assert_msg(reply.status == 200, "%s: %d %.500s", entity, reply.status, reply.body);
    ck_assert_str_eq(text_at(reply.json, "/entity"), entity);
    json_t *chain = at(reply.json, "/chain");
    ck_assert_uint_eq(json_array_size(chain), n_steps);
    ck_assert_str_eq(text_at(chain, "/0/entity"), entity);
    for (size_t i = 0; i < n_steps; i++) {
        json_t *step = json_array_get(chain, i);
        const char *stage = stages[4 - n_steps + i];
        ck_assert_str_eq(text_at(step, "/stage"), stage);
        ck_assert_str_eq(text_at(step, "/digest"), digest_of(plan, stage));
        ck_assert_ptr_nonnull(strstr(text_at(step, "/entity"), text_at(step, "/kind")));
        if (i + 1 < n_steps)
            ck_assert_str_ne(text_at(step, "/rule"), "");
    }
    ck_assert_str_eq(text_at(json_array_get(chain, n_steps - 1), "/kind"), last_kind);
}

START_TEST(test_identity__a_trace_of_every_command_reaches_the_model_operation)
{
    json_t *plan = plan_of(targeted(), 201), *entity;
    size_t i;
    json_array_foreach(at(snapshot_of(plan, "concrete"), "/commands"), i, entity)
        expect_trace(plan, text_at(entity, "/id"), 4, "operation");
    json_array_foreach(at(snapshot_of(plan, "portable"), "/tasks"), i, entity)
        expect_trace(plan, text_at(entity, "/id"), 3, "operation");
    expect_trace(plan, text_at(snapshot_of(plan, "distributed"), "/values/0/id"), 2, "value");
    expect_trace(plan, text_at(snapshot_of(plan, "model"), "/operations/0/id"), 1, "operation");
    json_array_foreach(at(snapshot_of(plan, "concrete"), "/buffers"), i, entity) {
        struct reply reply = http_get("/v1/plans/%s/trace/%s", text_at(plan, "/id"), text_at(entity, "/id"));
        ck_assert_int_eq(reply.status, 200);
        json_t *chain = at(reply.json, "/chain");
        ck_assert_str_eq(text_at(json_array_get(chain, json_array_size(chain) - 1), "/stage"), "model");
    }
}
END_TEST

START_TEST(test_identity__a_trace_of_what_is_not_there_is_refused)
{
    const char *plan = text_at(plan_of(small_request(), 201), "/id");
    struct reply absent = http_get("/v1/plans/%s/trace/command:00000000000000000000000000000000", plan);
    struct reply garbled = http_get("/v1/plans/%s/trace/command:zz", plan);
    expect_problem(&absent, 404, "not_found");
    expect_problem(&garbled, 400, "invalid_id");
}
END_TEST

START_TEST(test_identity__prefixes_name_what_they_begin)
{
    json_t *plan = plan_of(small_request(), 201);
    const char *id = text_at(plan, "/id"), *digest = digest_of(plan, "model");
    const char *const targets[] = {
        keep_text("/v1/plans/%.15s", id),
        keep_text("/v1/plans/%.8s", id + 7),
        keep_text("/v1/plans/%.40s", id),
        keep_text("/v1/snapshots/%.15s", digest),
        keep_text("/v1/snapshots/%.8s/lineage", digest + 7),
        keep_text("/v1/plans/%.8s/replays", id + 7),
        keep_text("/v1/plans/%.8s/diff/%.20s", id + 7, id),
    };
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        struct reply reply = http_get("%s", targets[i]);
        ck_assert_msg(reply.status == 200, "%s: %d", targets[i], reply.status);
    }
    const char *const malformed[] = {"1234567",   "sha256:1234567",       "ABCDEF0123",        "sha256:",
                                     "xyzxyzxyz", "md5:0123456789abcdef", keep_text("%s0", id)};
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        struct reply reply = http_get("/v1/plans/%s", malformed[i]);
        expect_problem(&reply, 400, "invalid_id");
    }
    char other[9] = "00000000";
    other[0] = id[7] == '0' ? '1' : '0';
    struct reply missing = http_get("/v1/plans/%s", other);
    expect_problem(&missing, 404, "not_found");
}
END_TEST

/* Two ids that begin alike are made in the database: none of ours would for a long time. */
START_TEST(test_identity__an_ambiguous_prefix_names_the_candidates)
{
    const char *id = text_at(plan_of(small_request(), 201), "/id");
    server_stop(&server);
    server_sql(&server,
               "INSERT INTO plans SELECT seq + 1, CAST(substr(id, 1, 20) || zeroblob(12) AS BLOB), state, created_at,"
               " committed_at, model, parameters, mode, facts, diagnostics, request FROM plans");
    server_restart(&server, NULL);
    struct reply reply = http_get("/v1/plans/%.20s", id);
    expect_problem(&reply, 409, "ambiguous_prefix");
    ck_assert_uint_eq(json_array_size(at(reply.json, "/candidates")), 2);
    ck_assert_int_eq(http_get("/v1/plans/%s", id).status, 200);
}
END_TEST

START_TEST(test_identity__what_changes_changes_only_the_stages_it_enters)
{
    json_t *plan = plan_of(targeted(), 201);
    json_t *memory = plan_of(with_target(small_request(), "reference-queue", 2, (INT64_C(1) << 34) + 1), 201);
    json_t *strategy = targeted();
    set_at(strategy, "/strategy/recompute", json_string("full"));
    strategy = plan_of(strategy, 201);
    json_t *label = targeted();
    set_at(label, "/model/transformer/name", json_string("another label"));
    label = plan_of(label, 201);
    static const char *const stages[] = {"model", "distributed", "portable", "concrete"};
    for (size_t i = 0; i < 4; i++) {
        const char *digest = digest_of(plan, stages[i]);
        ck_assert_int_eq(strcmp(digest, digest_of(memory, stages[i])) == 0, i < 3);
        ck_assert_int_eq(strcmp(digest, digest_of(strategy, stages[i])) == 0, i < 1);
        ck_assert_str_eq(digest, digest_of(label, stages[i]));
    }
    ck_assert_str_ne(text_at(label, "/id"), text_at(plan, "/id"));
}
END_TEST

Suite *suite_identity(void)
{
    Suite *suite = suite_create("api identity");
    TCase *tcase = server_tcase(suite, "identity");
    tcase_add_test(tcase, test_identity__the_same_request_again_is_the_stored_plan);
    tcase_add_test(tcase, test_identity__spelling_defaults_spaces_and_order_do_not_matter);
    tcase_add_test(tcase, test_identity__concurrent_copies_are_one_derivation);
    tcase_add_test(tcase, test_identity__a_plan_answers_as_it_was_created);
    tcase_add_test(tcase, test_identity__a_new_plan_says_where_it_is);
    tcase_add_test(tcase, test_identity__a_snapshot_is_the_bytes_of_its_digest);
    tcase_add_test(tcase, test_identity__a_snapshot_that_the_caller_has_is_not_sent_again);
    tcase_add_test(tcase, test_identity__head_is_get_without_the_body);
    tcase_add_test(tcase, test_identity__lineage_of_the_concrete_stage_reaches_the_model);
    tcase_add_test(tcase, test_identity__lineage_comes_in_pages);
    tcase_add_test(tcase, test_identity__a_trace_of_every_command_reaches_the_model_operation);
    tcase_add_test(tcase, test_identity__a_trace_of_what_is_not_there_is_refused);
    tcase_add_test(tcase, test_identity__prefixes_name_what_they_begin);
    tcase_add_test(tcase, test_identity__an_ambiguous_prefix_names_the_candidates);
    tcase_add_test(tcase, test_identity__what_changes_changes_only_the_stages_it_enters);
    return suite;
}
