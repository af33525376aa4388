/* The other resources: lists in pages, differences, passes, models, how the daemon is; and what is none. */
#include <string.h>

#include "tests/api/expect.h"
#include "tests/api/server.h"

enum { PLANS = 7 };

static json_t *request_number(int i)
{
    json_t *request = small_request();
    set_at(request, "/workload/sequence_length", json_integer(8 * (i + 1)));
    return request;
}

static json_t *inference_request(void)
{
    json_t *request = small_request();
    set_at(request, "/workload",
           json_pack("{s:s, s:s, s:i, s:i, s:s}", "mode", "inference", "phase", "decode", "batch_size", 2,
                     "context_length", 64, "dtype", "float16"));
    set_at(request, "/model/transformer/name", json_string("other"));
    return request;
}

/* The path and query of a Link header's next page. */
static const char *next_link(const struct reply *reply)
{
    const char *link = http_header(reply, "link");
    ck_assert_ptr_nonnull(link);
    const char *end = strchr(link, '>');
    ck_assert(link[0] == '<' && end);
    ck_assert_ptr_nonnull(strstr(end, "rel=\"next\""));
    return keep_text("%.*s", (int)(end - link - 1), link + 1);
}

START_TEST(test_resources__a_list_is_newest_first_in_pages_without_repeats)
{
    const char *ids[PLANS], *target = "/v1/plans?limit=3&mode=training";
    for (int i = 0; i < PLANS; i++)
        ids[i] = text_at(plan_of(request_number(i), 201), "/id");
    plan_of(inference_request(), 201);
    int n = PLANS;
    for (;;) {
        struct reply page = http_get("%s", target);
        ck_assert_int_eq(page.status, 200);
        size_t i;
        json_t *plan;
        json_array_foreach(at(page.json, "/plans"), i, plan) {
            ck_assert_str_eq(text_at(plan, "/id"), ids[--n]);
            ck_assert(!has(plan, "/derivations"));
            ck_assert_str_eq(text_at(plan, "/mode"), "training");
        }
        if (json_is_null(at(page.json, "/next"))) {
            ck_assert_ptr_null(http_header(&page, "link"));
            break;
        }
        ck_assert_uint_eq(json_array_size(at(page.json, "/plans")), 3);
        target = next_link(&page);
        ck_assert_ptr_nonnull(strstr(target, text_at(page.json, "/next")));
        /* What is stored meanwhile does not disturb a list begun before. */
        plan_of(request_number(100 + n), 201);
    }
    ck_assert_int_eq(n, 0);
}
END_TEST

START_TEST(test_resources__a_list_holds_what_its_filters_say)
{
    plan_of(request_number(0), 201);
    plan_of(request_number(1), 201);
    plan_of(inference_request(), 201);
    ck_assert_int_eq(post_plan(with_target(small_request(), "reference-slot", 2, 1)).status, 422);
    const struct {
        const char *query;
        size_t n;
    } cases[] = {
        {"", 4},
        {"?limit=500", 4},
        {"?limit=1", 1},
        {"?state=committed", 3},
        {"?state=rejected", 1},
        {"?state=failed", 0},
        {"?mode=inference", 1},
        {"?mode=training&state=rejected", 1},
        {"?model=other", 1},
        {"?model=small", 3},
        {"?model=none", 0},
        {"?model=small&mode=inference", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct reply reply = http_get("/v1/plans%s", cases[i].query);
        ck_assert_int_eq(reply.status, 200);
        ck_assert_msg(json_array_size(at(reply.json, "/plans")) == cases[i].n, "%s: %.1000s", cases[i].query,
                      reply.body);
    }
}
END_TEST

static const char *const bad_queries[] = {
    "/v1/plans?limit=0",    "/v1/plans?limit=501", "/v1/plans?limit=-1",
    "/v1/plans?limit=ten",  "/v1/plans?limit=",    "/v1/plans?limit=5&limit=6",
    "/v1/plans?state=done", "/v1/plans?mode=both", "/v1/plans?cursor=not-one-of-ours",
    "/v1/plans?colour=red", "/healthz?x=1",        "/v1/passes?x",
};

START_TEST(test_resources__a_bad_query_is_refused)
{
    struct reply reply = http_get("%s", bad_queries[_i]);
    expect_problem(&reply, 400, "invalid_query");
    /* It names the parameter. */
    const char *path = text_at(reply.json, "/errors/0/path"), *query = strchr(bad_queries[_i], '?') + 1;
    ck_assert_msg(path[0] == '/' && path[1] && strncmp(path + 1, query, strlen(path + 1)) == 0, "%s", path);
}
END_TEST

START_TEST(test_resources__several_bad_parameters_are_all_named)
{
    struct reply reply = http_get("/v1/plans?limit=0&state=done&mode=both");
    ck_assert_int_eq(reply.status, 400);
    ck_assert_uint_eq(json_array_size(at(reply.json, "/errors")), 3);
}
END_TEST

START_TEST(test_resources__a_difference_names_only_what_differs)
{
    json_t *a = plan_of(with_target(small_request(), "reference-queue", 2, INT64_C(1) << 34), 201);
    json_t *changed = small_request();
    set_at(changed, "/strategy/recompute", json_string("selective"));
    json_t *b = plan_of(changed, 201);
    struct reply same = http_get("/v1/plans/%s/diff/%s", text_at(a, "/id"), text_at(a, "/id"));
    ck_assert_int_eq(same.status, 200);
    ck_assert_uint_eq(json_array_size(at(same.json, "/request")), 0);
    ck_assert_uint_eq(json_array_size(at(same.json, "/facts")), 0);
    ck_assert_uint_eq(json_array_size(at(same.json, "/stages")), 4);

    struct reply diff = http_get("/v1/plans/%s/diff/%s", text_at(a, "/id"), text_at(b, "/id"));
    ck_assert_int_eq(diff.status, 200);
    static const bool expected[] = {true, false, false, false};
    for (size_t i = 0; i < 4; i++)
        ck_assert_int_eq(json_is_true(at(diff.json, keep_text("/stages/%zu/same", i))), expected[i]);
    ck_assert(json_is_null(at(diff.json, "/stages/3/b")));
    const char *requests = json_text(at(diff.json, "/request")), *facts = json_text(at(diff.json, "/facts"));
    ck_assert_ptr_nonnull(strstr(requests, "\"/strategy/recompute\""));
    ck_assert_ptr_nonnull(strstr(requests, "\"/target"));
    ck_assert_ptr_null(strstr(requests, "\"/workload"));
    ck_assert_ptr_nonnull(strstr(facts, "\"/memory/stored_activations\""));
    ck_assert_ptr_null(strstr(facts, "\"/memory/weights\""));
}
END_TEST

START_TEST(test_resources__every_pass_states_its_contract)
{
    static const char *const names[] = {"distribute-transformer-training",
                                        "distribute-transformer-inference",
                                        "plan-transformer-training",
                                        "plan-transformer-inference",
                                        "bind-reference-queue",
                                        "bind-reference-slot"};
    struct reply list = http_get("/v1/passes");
    ck_assert_int_eq(list.status, 200);
    ck_assert_uint_eq(json_array_size(at(list.json, "/passes")), 6);
    for (size_t i = 0; i < 6; i++) {
        struct reply pass = http_get("/v1/passes/%s", names[i]);
        ck_assert_int_eq(pass.status, 200);
        ck_assert_str_eq(text_at(list.json, keep_text("/passes/%zu/name", i)), names[i]);
        ck_assert_str_eq(text_at(pass.json, "/name"), names[i]);
        ck_assert_ptr_nonnull(strstr(text_at(pass.json, "/theory"), "\\["));
    }
}
END_TEST

START_TEST(test_resources__a_plan_records_every_check_of_its_passes)
{
    json_t *plan = plan_of(with_target(small_request(), "reference-queue", 2, INT64_C(1) << 34), 201), *derivation;
    size_t i, j, laws = 0;
    ck_assert_uint_eq(json_array_size(at(plan, "/derivations")), 3);
    json_array_foreach(at(plan, "/derivations"), i, derivation) {
        struct reply pass = http_get("/v1/passes/%s", text_at(derivation, "/pass"));
        json_t *checks = at(pass.json, "/checks"), *check, *evidence;
        expect_equal(at(derivation, "/revision"), at(pass.json, "/revision"), "revision");
        const char *records = json_text(at(derivation, "/evidence"));
        json_array_foreach(checks, j, check)
            ck_assert_ptr_nonnull(strstr(records, keep_text("\"%s\"", text_at(check, "/id"))));
        json_array_foreach(at(derivation, "/evidence"), j, evidence) {
            ck_assert_str_eq(text_at(evidence, "/verdict"), "holds");
            laws += strcmp(text_at(evidence, "/kind"), "law") == 0;
        }
    }
    ck_assert_uint_gt(laws, 4);
}
END_TEST

START_TEST(test_resources__every_model_of_the_catalogue_is_counted_and_planned_by_name)
{
    struct reply list = http_get("/v1/models");
    ck_assert_int_eq(list.status, 200);
    size_t i, n_planned = 0;
    json_t *model;
    json_array_foreach(at(list.json, "/models"), i, model) {
        const char *name = text_at(model, "/name");
        struct reply one = http_get("/v1/models/%s", name);
        ck_assert_int_eq(one.status, 200);
        json_t *request = inference_request();
        set_at(request, "/model", json_pack("{s:s}", "name", name));
        set_at(request, "/strategy/tensor_parallel", json_integer(1));
        struct reply plan = post_plan(request);
        /* One with a feature that is not modelled is counted all the same. */
        bool planned = plan.status == 201;
        ck_assert_msg(planned || (plan.status == 422 && strstr(plan.body, "unsupported_feature")), "%s: %d %.500s",
                      name, plan.status, plan.body);
        expect_equal(at(plan.json, "/model/parameters"), at(one.json, "/parameters"), name);
        n_planned += planned;
    }
    ck_assert_uint_ge(n_planned, 12);
}
END_TEST

static const char *const absent[] = {
    "/",
    "/v1",
    "/v1/",
    "/v2/plans",
    "/v1/plan",
    "/v1/passes/none",
    "/v1/models/none",
    "/v1/plans/0123456789abcdef",
    "/v1/snapshots/0123456789abcdef",
    "/v1/snapshots/0123456789abcdef/lineage",
    "/v1/plans/0123456789abcdef/diff/0123456789abcdef",
    "/v1/plans/0123456789abcdef/replays",
    "/healthz/",
    "/v1/plans/x/y/z/w/v/u/t",
    "/%76%31/nothing",
};

START_TEST(test_resources__what_is_not_there_is_not_found)
{
    struct reply reply = http_get("%s", absent[_i]);
    expect_problem(&reply, 404, "not_found");
}
END_TEST

static const struct {
    const char *method, *target, *allow;
} wrong_methods[] = {
    {"DELETE", "/v1/plans", "POST"},
    {"PUT", "/v1/plans", "GET"},
    {"POST", "/v1/passes", "GET"},
    {"POST", "/healthz", "GET"},
    {"PATCH", "/v1/plans/0123456789abcdef", "GET"},
    {"DELETE", "/v1/snapshots/0123456789abcdef", "GET"},
    {"GET", "/v1/plans", NULL},
};

START_TEST(test_resources__a_wrong_method_says_which_are_right)
{
    struct reply reply =
        http_call(&(struct call){.method = wrong_methods[_i].method, .target = wrong_methods[_i].target});
    if (!wrong_methods[_i].allow) {
        ck_assert_int_eq(reply.status, 200);
        return;
    }
    expect_problem(&reply, 405, "method_not_allowed");
    const char *allow = http_header(&reply, "allow");
    ck_assert_ptr_nonnull(allow);
    ck_assert_ptr_nonnull(strstr(allow, wrong_methods[_i].allow));
}
END_TEST

START_TEST(test_resources__the_daemon_says_how_it_is)
{
    ck_assert_str_eq(text_at(http_get("/healthz").json, "/status"), "ok");
    ck_assert_int_eq(http_get("/readyz").status, 200);
    plan_of(small_request(), 201);
    struct reply metrics = http_get("/metrics");
    static const char *const wanted[] = {"# HELP ",       "# TYPE ",        "blueprint_queue_depth 0",
                                         "createPlan",    "pass=\"model\"", "blueprint_store_bytes",
                                         "status=\"201\""};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        ck_assert_msg(strstr(metrics.body, wanted[i]), "/metrics lacks %s", wanted[i]);
}
END_TEST

START_TEST(test_resources__the_description_is_served_whole)
{
    struct reply reply = http_get("/openapi.json");
    ck_assert_int_eq(reply.status, 200);
    ck_assert_ptr_nonnull(strstr(text_at(reply.json, "/openapi"), "3.1"));
    /* It refers to nothing outside itself. */
    for (const char *ref = reply.body; (ref = strstr(ref, "\"$ref\":"));) {
        ref += strlen("\"$ref\":");
        ck_assert_msg(strncmp(ref, "\"#/", 3) == 0, "%.100s", ref);
    }
    /* Every route that it describes is one. */
    const char *path;
    json_t *item;
    json_object_foreach(at(reply.json, "/paths"), path, item) {
        struct reply options = http_call(&(struct call){.method = "DELETE", .target = path});
        ck_assert_msg(options.status == 405 || options.status == 400 ||
                          (options.status == 403 && strncmp(path, "/v1/admin/", 10) == 0),
                      "%s: %d", path, options.status);
    }
}
END_TEST

#define SMUGGLED "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

static const char *const bad_framing[] = {
    "GET /healthz HTTP/1.1\r\n\r\n", /* no Host */
    "POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    "POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n{}",
    "POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\n" SMUGGLED,
    "POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Length: 0x22\r\n\r\n" SMUGGLED,
    /* Folded over two lines (obs-fold): what follows would be a body to one reader and a request to another. */
    "POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n 34\r\n\r\n" SMUGGLED,
    "POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\t4\r\n\r\n" SMUGGLED,
    "POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Length:\n 34\r\n\r\n" SMUGGLED,
    "POST /v1/plans HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n chunked\r\n\r\n" SMUGGLED,
    "POST /v1/plans HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n chunked\r\nContent-Length: 34\r\n\r\n" SMUGGLED,
    "GARBAGE\r\n\r\n",
    "GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n",
};

START_TEST(test_resources__ambiguous_framing_is_refused)
{
    const char *answer = http_raw(bad_framing[_i], strlen(bad_framing[_i]), 2000);
    ck_assert_msg(*answer == '\0' || strncmp(answer, "HTTP/1.1 400", 12) == 0 ||
                      strncmp(answer, "HTTP/1.0 400", 12) == 0,
                  "%.300s", answer);
    /* And nothing that follows is taken for a request. */
    ck_assert_msg(!strstr(answer, "\"ok\""), "%.600s", answer);
    ck_assert_int_eq(http_get("/healthz").status, 200);
}
END_TEST

Suite *suite_resources(void)
{
    Suite *suite = suite_create("api resources");
    TCase *tcase = server_tcase(suite, "resources");
#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))
    tcase_add_test(tcase, test_resources__a_list_is_newest_first_in_pages_without_repeats);
    tcase_add_test(tcase, test_resources__a_list_holds_what_its_filters_say);
    tcase_add_loop_test(tcase, test_resources__a_bad_query_is_refused, 0, COUNT(bad_queries));
    tcase_add_test(tcase, test_resources__several_bad_parameters_are_all_named);
    tcase_add_test(tcase, test_resources__a_difference_names_only_what_differs);
    tcase_add_test(tcase, test_resources__every_pass_states_its_contract);
    tcase_add_test(tcase, test_resources__a_plan_records_every_check_of_its_passes);
    tcase_add_test(tcase, test_resources__every_model_of_the_catalogue_is_counted_and_planned_by_name);
    tcase_add_loop_test(tcase, test_resources__what_is_not_there_is_not_found, 0, COUNT(absent));
    tcase_add_loop_test(tcase, test_resources__a_wrong_method_says_which_are_right, 0, COUNT(wrong_methods));
    tcase_add_test(tcase, test_resources__the_daemon_says_how_it_is);
    tcase_add_test(tcase, test_resources__the_description_is_served_whole);
    tcase_add_loop_test(tcase, test_resources__ambiguous_framing_is_refused, 0, COUNT(bad_framing));
    return suite;
}
