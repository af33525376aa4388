/* The capacity view over the socket, and the commands that print it. */
#include <stdio.h>
#include <string.h>

#include "tests/api/command.h"
#include "tests/api/expect.h"
#include "tests/api/server.h"

/* The small request as a question whether it fits in so much memory. */
static json_t *fit_request(json_int_t memory)
{
    json_t *request = small_request();
    json_object_set_new(request, "memory_bytes", json_integer(memory));
    return request;
}

static struct reply post_fit(json_t *request)
{
    return http_post("/v1/fit", json_text(request));
}

START_TEST(test_capacity__a_fit_is_answered_and_nothing_is_kept)
{
    struct reply roomy = post_fit(fit_request(1 << 30)), tight = post_fit(fit_request(1 << 20));
    ck_assert_int_eq(roomy.status, 200);
    ck_assert_int_eq(tight.status, 200);
    ck_assert(json_is_true(at(roomy.json, "/fits_before_reserve")));
    ck_assert(json_is_false(at(tight.json, "/fits_before_reserve")));
    ck_assert(json_is_null(at(roomy.json, "/plan")) && json_is_null(at(roomy.json, "/portable")));
    ck_assert_int_eq(int_at(tight.json, "/total"), int_at(roomy.json, "/total"));
    ck_assert_int_eq(int_at(tight.json, "/shortfall"), int_at(tight.json, "/total") - (1 << 20));
    ck_assert_int_eq(server_count(&server, "SELECT (SELECT count(*) FROM plans) + (SELECT count(*) FROM jobs)"), 0);
    json_t *reserved = fit_request(1 << 30);
    set_at(reserved, "/reserve_bytes", json_integer(1));
    ck_assert(json_is_true(at(post_fit(reserved).json, "/fits")));
}
END_TEST

START_TEST(test_capacity__what_is_held_is_what_the_plan_s_rows_say)
{
    json_t *plan = plan_of(small_request(), 201);
    json_t *request = fit_request(1 << 30);
    set_at(request, "/conventions", json_pack("{s:s}", "attention_kernel", "unfused"));
    json_t *fit = post_fit(request).json;
    /* Four blocks alike on one stage. */
    ck_assert_int_eq(int_at(fit, "/stages/0/blocks_only/weights"), 4 * int_at(plan, "/facts/memory/weights"));
    ck_assert_int_eq(int_at(fit, "/stages/0/blocks_only/gradients"), 4 * int_at(plan, "/facts/memory/gradients"));
    ck_assert_int_eq(int_at(fit, "/stages/0/blocks_only/optimizer"), 4 * int_at(plan, "/facts/memory/optimizer"));
    ck_assert_int_eq(int_at(fit, "/stages/0/components/stored_activations"),
                     4 * int_at(plan, "/facts/memory/stored_activations"));
    ck_assert_str_eq(text_at(fit, "/parameters/total"), text_at(plan, "/model/parameters"));
}
END_TEST

START_TEST(test_capacity__of_a_stored_plan_names_what_it_came_from)
{
    json_t *plan = plan_of(small_request(), 201);
    const char *id = text_at(plan, "/id");
    struct reply bare = http_get("/v1/plans/%s/capacity", id);
    ck_assert_int_eq(bare.status, 200);
    ck_assert_str_eq(text_at(bare.json, "/plan"), id);
    ck_assert_str_eq(text_at(bare.json, "/portable"), digest_of(plan, "portable"));
    ck_assert(json_is_null(at(bare.json, "/memory_bytes")));
    static const char *const of_fitting[] = {"/fits",        "/fits_before_reserve", "/headroom",       "/shortfall",
                                             "/suggestions", "/fewest_devices",      "/fewest_strategy"};
    for (size_t i = 0; i < sizeof of_fitting / sizeof *of_fitting; i++)
        ck_assert(!has(bare.json, of_fitting[i]));
    json_t *fit = post_fit(fit_request(1 << 30)).json;
    expect_equal(at(bare.json, "/stages"), at(fit, "/stages"), "the stages");
    expect_equal(at(bare.json, "/operations"), at(fit, "/operations"), "the operations");
    /* A prefix names the plan as well. */
    ck_assert_str_eq(http_get("/v1/plans/%.16s/capacity", id).body, bare.body);
}
END_TEST

START_TEST(test_capacity__a_deployment_s_memory_is_what_it_is_held_to)
{
    json_t *plan = plan_of(with_target(small_request(), "reference-queue", 2, INT64_C(1) << 34), 201);
    json_t *answer = http_get("/v1/plans/%s/capacity", text_at(plan, "/id")).json;
    ck_assert_int_eq(int_at(answer, "/memory_bytes"), INT64_C(1) << 34);
    ck_assert(json_is_true(at(answer, "/fits_before_reserve")));
    ck_assert_int_eq(int_at(answer, "/headroom") + int_at(answer, "/total"), INT64_C(1) << 34);
}
END_TEST

START_TEST(test_capacity__a_plan_that_is_not_there_has_none)
{
    struct reply absent = http_get("/v1/plans/0123456789abcdef/capacity");
    expect_problem(&absent, 404, "not_found");
    struct reply query = http_get("/v1/plans/0123456789abcdef/capacity?unit=GB");
    expect_problem(&query, 400, "invalid_query");
    struct reply method = http_call(&(struct call){.method = "GET", .target = "/v1/fit"});
    expect_problem(&method, 405, "method_not_allowed");
}
END_TEST

/* A plan is of one block; the whole job would leave something out, or count what no one trains with. */
static const char *const uncounted[] = {
    "{\"model\": {\"huggingface\": {\"model_type\": \"opt\", \"hidden_size\": 64, \"num_hidden_layers\": 2, "
    "\"ffn_dim\": 96, "
    "\"num_attention_heads\": 4, \"vocab_size\": 50, \"max_position_embeddings\": 128, \"word_embed_proj_dim\": 32}}, "
    "\"workload\": {\"mode\": \"inference\", \"phase\": \"decode\", \"batch_size\": 1, \"context_length\": 16, "
    "\"dtype\": \"bfloat16\"}, \"strategy\": {}}",
    "{\"model\": {\"name\": \"gpt2\"}, \"workload\": {\"mode\": \"training\", \"sequence_length\": 64, "
    "\"micro_batch_size\": 1, "
    "\"global_batch_size\": 1, \"dtype\": \"float8\"}, \"strategy\": {}}",
};

START_TEST(test_capacity__no_number_is_told_of_a_plan_whose_job_has_no_account)
{
    json_t *plan = plan_of(json_of(uncounted[_i]), 201);
    struct reply refused = http_get("/v1/plans/%s/capacity", text_at(plan, "/id"));
    expect_problem(&refused, 422, "unsupported_feature");
}
END_TEST

START_TEST(test_capacity__a_refusal_names_every_problem)
{
    json_t *request = fit_request(0);
    set_at(request, "/strategy/tensor_parallel", json_integer(3));
    set_at(request, "/conventions", json_pack("{s:s}", "attention", "half"));
    set_at(request, "/target", json_pack("{s:s}", "kind", "reference-queue"));
    struct reply refused = post_fit(request);
    expect_problem(&refused, 422, "invalid_request");
    expect_error(&refused, "/memory_bytes", "out_of_range");
    expect_error(&refused, "/strategy/tensor_parallel", "not_divisible");
    expect_error(&refused, "/conventions/attention", "unknown_value");
    expect_error(&refused, "/target", "conflict");
    struct reply empty = http_post("/v1/fit", "");
    expect_problem(&empty, 400, "empty_body");
    struct reply broken = http_post("/v1/fit", "{\n \"model\": }");
    expect_problem(&broken, 400, "invalid_json");
    ck_assert_int_eq(int_at(broken.json, "/errors/0/line"), 2);
    struct reply text = http_call(&(struct call){
        .method = "POST", .target = "/v1/fit", .body = "{}", .n = 2, .headers = {"Content-Type: text/plain"}});
    expect_problem(&text, 415, "unsupported_media_type");
}
END_TEST

START_TEST(test_capacity__a_model_that_is_not_planned_is_held_or_counted)
{
    json_t *request = json_of("{\"model\": {\"name\": \"gpt-oss-120b\"}, \"workload\": {\"mode\": \"inference\", "
                              "\"phase\": \"decode\", \"batch_size\": 1, \"context_length\": 4096, \"dtype\": "
                              "\"bfloat16\"}, \"strategy\": {}, \"memory_bytes\": 85899345920}");
    struct reply served = post_fit(request);
    ck_assert_int_eq(served.status, 200);
    ck_assert_int_eq(int_at(served.json, "/stages/0/kinds/sliding_expert"), 18);
    set_at(request, "/model", json_pack("{s:s}", "name", "gpt-oss-120b"));
    set_at(request, "/workload",
           json_pack("{s:s, s:i, s:i, s:i, s:s}", "mode", "training", "sequence_length", 4096, "micro_batch_size", 1,
                     "global_batch_size", 1, "dtype", "bfloat16"));
    struct reply refused = post_fit(request);
    ck_assert_int_eq(refused.status, 422);
    ck_assert_str_eq(text_at(refused.json, "/model/parameters"), "116829156672");
}
END_TEST

START_TEST(test_capacity__many_at_once_are_all_answered)
{
    enum { CALLS = 32 };
    struct call calls[CALLS];
    struct reply replies[CALLS];
    const char *body = json_text(fit_request(1 << 20));
    for (size_t i = 0; i < CALLS; i++)
        calls[i] = (struct call){.method = "POST", .target = "/v1/fit", .body = body, .n = strlen(body)};
    http_call_together(calls, CALLS, replies);
    for (size_t i = 0; i < CALLS; i++) {
        ck_assert_int_eq(replies[i].status, 200);
        ck_assert_str_eq(replies[i].body, replies[0].body);
    }
    const char *metrics = http_get("/metrics").body;
    expect_text(metrics, "route=\"fitJob\"");
}
END_TEST

/* ---- The commands ---- */

START_TEST(test_capacity__blueprint_fit_says_by_its_status_whether_it_fits)
{
    struct run roomy = RUN("fit", request_file(fit_request(1 << 30)));
    expect_status(&roomy, 0);
    expect_text(roomy.out, "it fits, before any reserve");
    expect_text(roomy.out, "0 *");
    expect_text(roomy.out, "NCCL buffers");
    ck_assert_ptr_null(strchr(roomy.out, '#'));
    json_t *tight = fit_request(int_at(post_fit(fit_request(1 << 30)).json, "/total") - 1);
    json_t *answer = post_fit(tight).json;
    struct run short_of = RUN("fit", request_file(tight));
    expect_status(&short_of, 1);
    expect_text(short_of.out, "it does not fit, before any reserve");
    expect_text(short_of.out, "stored_activations");
    expect_text(short_of.out, "short");
    ck_assert_ptr_null(strstr(roomy.out, "short"));
    const char *changed = strrchr(text_at(answer, "/suggestions/0/changes/0/path"), '/') + 1;
    expect_text(short_of.out, changed);
    expect_text(short_of.out, "->");
    struct run raw = RUN("--json", "fit", request_file(tight));
    expect_status(&raw, 1);
    expect_equal(json_of(raw.out), answer, "the answer");
}
END_TEST

START_TEST(test_capacity__blueprint_fit_prints_gb_on_request)
{
    json_t *request = fit_request(INT64_C(1) << 30);
    struct run gb = RUN("fit", "--unit", "GB", request_file(request)), gib = RUN("fit", request_file(request));
    expect_text(gb.out, "1.074 GB");
    expect_text(gib.out, "1.000 GiB");
    struct run unknown = RUN("fit", "--unit", "TB", request_file(request));
    expect_status(&unknown, 2);
    struct run refused = RUN("fit", request_file(small_request()));
    expect_status(&refused, 4);
    expect_text(refused.err, "/memory_bytes");
}
END_TEST

START_TEST(test_capacity__a_terminal_shows_bars)
{
    const char *path = request_file(fit_request(1 << 30));
    struct run seen = run_on_terminal((const char *const[WORDS_MAX]){"--server", server.url, "fit", path});
    expect_status(&seen, 0);
    expect_text(seen.out, "####");
}
END_TEST

START_TEST(test_capacity__blueprint_capacity_prints_a_plan_s_job)
{
    const char *id = text_at(plan_of(small_request(), 201), "/id");
    struct run bare = RUN("capacity", id);
    expect_status(&bare, 0);
    expect_text(bare.out, id);
    expect_text(bare.out, "optimizer");
    ck_assert_ptr_null(strstr(bare.out, "fit"));
    const char *bound =
        text_at(plan_of(with_target(small_request(), "reference-queue", 2, INT64_C(1) << 34), 201), "/id");
    struct run held = RUN("capacity", "--unit", "GiB", bound);
    expect_status(&held, 0);
    expect_text(held.out, "16.000 GiB");
}
END_TEST

/* Without a server: it is not asked. */
START_TEST(test_capacity__blueprint_model_explains_a_config)
{
    struct run named = run((const char *const[WORDS_MAX]){"--server", "127.0.0.1:1", "model", "deepseek-v3"}, NULL);
    expect_status(&named, 0);
    static const char *const wanted[] = {"671026419200", "37552297472", "70272",        "DeepseekV3ForCausalLM",
                                         "expert",       "dense",       "/rope_scaling"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        expect_text(named.out, wanted[i]);
    static const char config[] = "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 2, "
                                 "\"num_attention_heads\": 4, \"vocab_size\": 100, \"intermediate_size\": 128, "
                                 "\"quirk\": 1}";
    struct run read = run((const char *const[WORDS_MAX]){"--json", "model", "-"}, config);
    expect_status(&read, 0);
    json_t *answer = json_of(read.out);
    ck_assert_str_eq(text_at(answer, "/family"), "llama");
    /* Two tables, two blocks of four H*H, three H*F and two norms, and the last norm. */
    ck_assert_str_eq(text_at(answer, "/parameters/total"), "95040");
    ck_assert_int_eq(int_at(answer, "/kv_bytes_per_token"), 2 * 2 * 4 * 16 * 2);
    ck_assert_str_eq(text_at(answer, "/ignored/0"), "/quirk");
    ck_assert_uint_eq(json_array_size(at(answer, "/refused")), 0);
}
END_TEST

START_TEST(test_capacity__blueprint_model_says_what_it_cannot_explain)
{
    struct run empty = run((const char *const[WORDS_MAX]){"model", "-"}, "{}");
    expect_status(&empty, 4);
    expect_text(empty.err, "/model_type");
    struct run broken = run((const char *const[WORDS_MAX]){"model", "-"}, "{\n,");
    expect_status(&broken, 4);
    expect_text(broken.err, "<stdin>:2:");
    struct run absent = RUN("model", "no-such-model");
    expect_status(&absent, 2);
    expect_text(absent.err, "no-such-model");
    expect_text(absent.err, "blueprint models");
    struct run other = run((const char *const[WORDS_MAX]){"model", "-"},
                           "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForSequenceClassification\"], "
                           "\"hidden_size\": 64, \"num_hidden_layers\": 2, \"vocab_size\": 100}");
    expect_status(&other, 4);
    expect_text(other.err, "/architectures");
}
END_TEST

Suite *suite_capacity(void);
Suite *suite_capacity(void)
{
    Suite *suite = suite_create("api capacity");
    TCase *tcase = server_tcase(suite, "capacity");
    tcase_add_test(tcase, test_capacity__a_fit_is_answered_and_nothing_is_kept);
    tcase_add_test(tcase, test_capacity__what_is_held_is_what_the_plan_s_rows_say);
    tcase_add_test(tcase, test_capacity__of_a_stored_plan_names_what_it_came_from);
    tcase_add_test(tcase, test_capacity__a_deployment_s_memory_is_what_it_is_held_to);
    tcase_add_test(tcase, test_capacity__a_plan_that_is_not_there_has_none);
    tcase_add_loop_test(tcase, test_capacity__no_number_is_told_of_a_plan_whose_job_has_no_account, 0, 2);
    tcase_add_test(tcase, test_capacity__a_refusal_names_every_problem);
    tcase_add_test(tcase, test_capacity__a_model_that_is_not_planned_is_held_or_counted);
    tcase_add_test(tcase, test_capacity__many_at_once_are_all_answered);
    tcase_add_test(tcase, test_capacity__blueprint_fit_says_by_its_status_whether_it_fits);
    tcase_add_test(tcase, test_capacity__blueprint_fit_prints_gb_on_request);
    if (terminals_exist())
        tcase_add_test(tcase, test_capacity__a_terminal_shows_bars);
    else
        fprintf(stderr, "there are no pseudo-terminals: what one shows is not tested\n");
    tcase_add_test(tcase, test_capacity__blueprint_capacity_prints_a_plan_s_job);
    tcase_add_test(tcase, test_capacity__blueprint_model_explains_a_config);
    tcase_add_test(tcase, test_capacity__blueprint_model_says_what_it_cannot_explain);
    return suite;
}
