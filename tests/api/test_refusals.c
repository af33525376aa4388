/* Bad requests: the right status, code and pointer (or line and column), all problems at once, and a daemon unharmed.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "tests/api/expect.h"
#include "tests/api/server.h"

static void expect_unharmed(void)
{
    ck_assert_int_eq(http_get("/healthz").status, 200);
    ck_assert_int_eq(server_count(&server, "SELECT count(*) FROM plans"), 0);
    plan_of(small_request(), 201);
}

/* --- values: a member of the small request replaced by a JSON text */

static const struct value_case {
    const char *pointer, *value;
    int status;
    const char *code, *path;
} value_cases[] = {
    /* wrong types */
    {"/workload/sequence_length", "\"32\"", 400, "wrong_type", "/workload/sequence_length"},
    {"/workload/sequence_length", "32.0", 400, "wrong_type", "/workload/sequence_length"},
    {"/workload/sequence_length", "1e3", 400, "wrong_type", "/workload/sequence_length"},
    {"/workload/sequence_length", "null", 400, "wrong_type", "/workload/sequence_length"},
    {"/workload/sequence_length", "[32]", 400, "wrong_type", "/workload/sequence_length"},
    {"/workload/dtype", "16", 400, "wrong_type", "/workload/dtype"},
    {"/strategy/sequence_parallel", "1", 400, "wrong_type", "/strategy/sequence_parallel"},
    {"/strategy", "[]", 400, "wrong_type", "/strategy"},
    {"/workload", "\"training\"", 400, "wrong_type", "/workload"},
    {"/model", "7", 400, "wrong_type", "/model"},
    {"/model/transformer/bias", "\"no\"", 400, "wrong_type", "/model/transformer/bias"},
    {"/model/transformer/attention_sinks", "4", 400, "wrong_type", "/model/transformer/attention_sinks"},
    {"/model/transformer/kinds", "{}", 400, "wrong_type", "/model/transformer/kinds"},
    {"/target", "\"reference-queue\"", 400, "wrong_type", "/target"},
    /* unknown keys */
    {"/colour", "1", 400, "unknown_key", "/colour"},
    {"/workload/batch", "1", 400, "unknown_key", "/workload/batch"},
    {"/workload/batch_size", "1", 400, "unknown_key", "/workload/batch_size"},
    {"/strategy/replicas", "1", 400, "unknown_key", "/strategy/replicas"},
    {"/model/transformer/hidden", "1", 400, "unknown_key", "/model/transformer/hidden"},
    {"/strategy/context", "2", 400, "unknown_key", "/strategy/context"},
    {"/strategy/a~1b", "1", 400, "unknown_key", "/strategy/a~01b"},
    /* values that are not known */
    {"/workload/dtype", "\"float64\"", 422, "unknown_value", "/workload/dtype"},
    {"/strategy/recompute", "\"some\"", 422, "unknown_value", "/strategy/recompute"},
    {"/strategy/pipeline_schedule", "\"zigzag\"", 422, "unknown_value", "/strategy/pipeline_schedule"},
    {"/model/transformer/activation", "\"tanh\"", 422, "unknown_value", "/model/transformer/activation"},
    {"/model/transformer/attention", "\"linear\"", 422, "unknown_value", "/model/transformer/attention"},
    {"/model/transformer/norm_place", "\"within\"", 422, "unknown_value", "/model/transformer/norm_place"},
    {"/model", "{\"name\": \"no-such-model\"}", 422, "unknown_model", "/model/name"},
    {"/model", "{\"huggingface\": {\"model_type\": \"no_such_type\"}}", 422, "unknown_model_type",
     "/model/huggingface/model_type"},
    {"/strategy/cp_comm", "\"tree\"", 422, "unknown_value", "/strategy/cp_comm"},
    {"/workload/block_kinds", "[\"expert\"]", 422, "unknown_value", "/workload/block_kinds/0"},
    {"/workload/block_kinds", "\"dense\"", 400, "wrong_type", "/workload/block_kinds"},
    /* ranges */
    {"/workload/block_kinds", "[]", 422, "out_of_range", "/workload/block_kinds"},
    {"/strategy/context_parallel", "0", 422, "out_of_range", "/strategy/context_parallel"},
    {"/strategy/expert_parallel", "0", 422, "out_of_range", "/strategy/expert_parallel"},
    {"/workload/sequence_length", "0", 422, "out_of_range", "/workload/sequence_length"},
    {"/workload/sequence_length", "-1", 422, "out_of_range", "/workload/sequence_length"},
    {"/workload/sequence_length", "9007199254740992", 422, "out_of_range", "/workload/sequence_length"},
    {"/workload/sequence_length", "9223372036854775807", 422, "out_of_range", "/workload/sequence_length"},
    {"/strategy/tensor_parallel", "0", 422, "out_of_range", "/strategy/tensor_parallel"},
    {"/strategy/tensor_parallel", "-2", 422, "out_of_range", "/strategy/tensor_parallel"},
    {"/strategy/zero_stage", "4", 422, "out_of_range", "/strategy/zero_stage"},
    {"/strategy/pipeline_parallel", "0", 422, "out_of_range", "/strategy/pipeline_parallel"},
    {"/model/transformer/hidden_size", "0", 422, "out_of_range", "/model/transformer/hidden_size"},
    {"/model/transformer/sliding_window", "0", 422, "out_of_range", "/model/transformer/sliding_window"},
    /* divisibility */
    {"/model/transformer/num_key_value_heads", "3", 422, "not_divisible", "/model/transformer/num_key_value_heads"},
    {"/workload/global_batch_size", "9", 422, "not_divisible", "/workload/global_batch_size"},
    {"/strategy/pipeline_parallel", "3", 422, "not_divisible", "/strategy/pipeline_parallel"},
    /* what does not fit together */
    {"/model/transformer/num_experts", "4", 400, "missing_key", "/model/transformer/experts_per_token"},
    {"/model/transformer/experts_per_token", "4", 422, "conflict", "/model/transformer/experts_per_token"},
    {"/model/transformer/attention", "\"latent\"", 400, "missing_key", "/model/transformer/kv_lora_rank"},
    {"/model/transformer/kv_lora_rank", "4", 422, "conflict", "/model/transformer/kv_lora_rank"},
    {"/model/transformer/chunked_attention", "true", 422, "conflict", "/model/transformer/chunked_attention"},
    {"/model/transformer/qk_norm_form", "\"span\"", 422, "conflict", "/model/transformer/qk_norm_form"},
    {"/model/transformer/layers", "[]", 400, "missing_key", "/model/transformer/kinds"},
    {"/deployment", "{\"devices\": 2, \"memory_bytes\": 1000}", 422, "conflict", "/deployment"},
    {"/strategy/virtual_stages", "2", 422, "conflict", "/strategy/virtual_stages"},
    {"/target", "{\"kind\": \"reference-queue\"}", 400, "missing_key", "/deployment"},
};

START_TEST(test_refusals__a_bad_value_is_named_by_its_pointer)
{
    const struct value_case *row = &value_cases[_i];
    json_t *request = small_request();
    const char *written = "@@value@@";
    /* The text of the value goes in as it is, so that 1e3 stays 1e3. `~1` in a pointer's last part is literal here. */
    set_at(request, row->pointer, json_string(written));
    const char *text = json_text(request), *place = strstr(text, "\"@@value@@\"");
    const char *body = keep_text("%.*s%s%s", (int)(place - text), text, row->value, place + strlen(written) + 2);
    struct reply reply = http_post("/v1/plans", body);
    ck_assert_msg(reply.status == row->status, "%s = %s: status %d, expected %d: %.800s", row->pointer, row->value,
                  reply.status, row->status, reply.body);
    expect_error(&reply, row->path, row->code);
    if (json_array_size(at(reply.json, "/errors")) == 1)
        expect_problem(&reply, row->status, row->code);
    ck_assert_ptr_null(json_object_get(reply.json, "plan"));
    expect_unharmed();
}
END_TEST

static const char *const required_keys[] = {
    "/model",
    "/workload",
    "/workload/mode",
    "/workload/dtype",
    "/workload/sequence_length",
    "/workload/micro_batch_size",
    "/workload/global_batch_size",
    "/model/transformer/name",
    "/model/transformer/hidden_size",
    "/model/transformer/num_hidden_layers",
    "/model/transformer/num_attention_heads",
    "/model/transformer/intermediate_size",
    "/model/transformer/vocab_size",
    "/model/transformer/activation",
    "/model/transformer/norm",
    "/model/transformer/position",
};

START_TEST(test_refusals__a_missing_key_is_named)
{
    const char *pointer = required_keys[_i], *key = strrchr(pointer, '/');
    json_t *request = small_request();
    json_object_del(at(request, keep_text("%.*s", (int)(key - pointer), pointer)), key + 1);
    struct reply reply = post_plan(request);
    ck_assert_int_eq(reply.status, 400);
    expect_error(&reply, pointer, "missing_key");
    expect_unharmed();
}
END_TEST

/* --- texts that are no request */

static const struct text_case {
    const char *body;
    const char *code;
    int line, column; /* 0: not checked */
} text_cases[] = {
    {"", "empty_body", 1, 1},
    {" \r\n\t", "empty_body", 1, 1},
    {"{", "invalid_json", 1, 0},
    {"{\"model\":\n  nul}", "invalid_json", 2, 0},
    {"{\"a\": NaN}", "invalid_json", 1, 0},
    {"{\"a\": Infinity}", "invalid_json", 1, 0},
    {"{\"a\": 01}", "invalid_json", 1, 0},
    {"{\"a\": 1,}", "invalid_json", 1, 0},
    {"{\"a\": 1} x", "invalid_json", 1, 0},
    {"{'a': 1}", "invalid_json", 1, 0},
    {"{\"a\": \"\xff\"}", "invalid_json", 1, 0},
    {"{\"a\": \"\\ud800\"}", "invalid_json", 1, 0},
    {"\xef\xbb\xbf{}", "invalid_json", 1, 0},
    {"{\"model\": {\"name\": \"gpt2\"}, \"model\": {\"name\": \"gpt2\"}}", "duplicate_key", 1, 0},
    {"{\"a\": {\"b\": 1,\n \"b\": 2}}", "duplicate_key", 2, 0},
};

START_TEST(test_refusals__a_text_that_does_not_parse_is_named_by_line_and_column)
{
    const struct text_case *row = &text_cases[_i];
    struct reply reply = http_post("/v1/plans", row->body);
    expect_problem(&reply, 400, row->code);
    json_t *error = expect_error(&reply, "", row->code);
    ck_assert_uint_eq(json_array_size(at(reply.json, "/errors")), 1);
    ck_assert_int_eq(int_at(error, "/line"), row->line);
    ck_assert_int_ge(int_at(error, "/column"), 1);
    if (row->column)
        ck_assert_int_eq(int_at(error, "/column"), row->column);
    expect_unharmed();
}
END_TEST

START_TEST(test_refusals__a_number_past_64_bits_is_out_of_range)
{
    const char *body = json_text(small_request()), *key = strstr(body, "\"sequence_length\"");
    ck_assert_ptr_nonnull(key);
    const char *value = strchr(key, ':') + 1, *rest = value + strspn(value, " 0123456789");
    struct reply reply =
        http_post("/v1/plans", keep_text("%.*s 123456789012345678901234567890%s", (int)(value - body), body, rest));
    expect_problem(&reply, 422, "out_of_range");
    expect_error(&reply, "/workload/sequence_length", "out_of_range");
    expect_unharmed();
}
END_TEST

static const char *const not_objects[] = {"[]", "7", "null", "true", "\"plan\""};

START_TEST(test_refusals__a_body_that_is_no_object_is_refused)
{
    struct reply reply = http_post("/v1/plans", not_objects[_i]);
    ck_assert_int_eq(reply.status, 400);
    expect_error(&reply, "", "wrong_type");
    expect_unharmed();
}
END_TEST

static char *repeated(const char *text, size_t n)
{
    char *whole = malloc(n * strlen(text) + 1);
    ck_assert_ptr_nonnull(whole);
    *whole = '\0';
    for (char *end = whole; n; n--)
        end = stpcpy(end, text);
    return whole;
}

START_TEST(test_refusals__deep_nesting_is_refused_before_it_is_followed)
{
    static const char *const brackets[] = {"[", "{\"a\":"};
    char *body = repeated(brackets[_i], 100000);
    struct reply reply = http_post("/v1/plans", body);
    free(body);
    expect_problem(&reply, 400, "too_deep");
    json_t *error = expect_error(&reply, "", "too_deep");
    ck_assert_int_eq(int_at(error, "/line"), 1);
    ck_assert_int_gt(int_at(error, "/column"), 64);
    expect_unharmed();
}
END_TEST

/* A megabyte of the shortest values would keep the HTTP thread from everybody for a quarter of a second. */
START_TEST(test_refusals__a_text_of_many_values_is_refused_before_it_is_parsed)
{
    static const char *const targets[] = {"/v1/plans", "/v1/fit"};
    char *values = repeated("[],", 340000);
    struct reply reply = http_post(targets[_i], keep_text("[%s0]", values));
    free(values);
    expect_problem(&reply, 400, "too_many_values");
    ck_assert_int_eq(int_at(expect_error(&reply, "", "too_many_values"), "/line"), 1);
    expect_unharmed();
}
END_TEST

START_TEST(test_refusals__a_body_of_two_megabytes_is_too_large)
{
    char *body = repeated(" ", 2 * 1024 * 1024);
    struct reply reply = http_post("/v1/plans", body);
    free(body);
    expect_problem(&reply, 413, "body_too_large");
    expect_unharmed();
}
END_TEST

START_TEST(test_refusals__a_chunked_body_of_two_megabytes_is_too_large)
{
    struct bp_buf request = {0};
    static char piece[65536];
    memset(piece, ' ', sizeof piece);
    bp_buf_addf(&request, "POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                          "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 32; i++) {
        bp_buf_addf(&request, "%zx\r\n", sizeof piece);
        bp_buf_add(&request, piece, sizeof piece);
        bp_buf_addstr(&request, "\r\n");
    }
    bp_buf_addstr(&request, "0\r\n\r\n");
    const char *answer = http_raw(request.data, request.len, 2000);
    bp_buf_release(&request);
    ck_assert_msg(strncmp(answer, "HTTP/1.1 413", 12) == 0 || *answer == '\0', "%.300s", answer);
    expect_unharmed();
}
END_TEST

static const char *const wrong_types[] = {"Content-Type: text/plain",
                                          "Content-Type: application/x-www-form-urlencoded",
                                          "Content-Type: application/jsonp",
                                          "Content-Type:",
                                          "Content-Type: application/json; charset=utf-16",
                                          "Content-Type: application/json; charset=\"latin1\"",
                                          "Content-Type: application/json charset=utf-8",
                                          "Content-Encoding: gzip"};

START_TEST(test_refusals__a_body_that_is_not_called_json_is_refused)
{
    const char *body = json_text(small_request());
    struct reply reply = http_call(&(struct call){
        .method = "POST", .target = "/v1/plans", .body = body, .n = strlen(body), .headers = {wrong_types[_i]}});
    expect_problem(&reply, 415, "unsupported_media_type");
    expect_unharmed();
}
END_TEST

START_TEST(test_refusals__json_with_a_charset_is_json)
{
    const char *body = json_text(small_request());
    struct reply reply = http_call(&(struct call){.method = "POST",
                                                  .target = "/v1/plans",
                                                  .body = body,
                                                  .n = strlen(body),
                                                  .headers = {"Content-Type: Application/JSON; charset=utf-8"}});
    ck_assert_int_eq(reply.status, 201);
}
END_TEST

/* --- several at once */

START_TEST(test_refusals__every_problem_is_named_at_once)
{
    json_t *request = small_request();
    set_at(request, "/strategy/tensor_parallel", json_integer(3)); /* divides no dimension */
    set_at(request, "/strategy/sequence_parallel", json_true());
    set_at(request, "/workload/global_batch_size", json_integer(7));
    set_at(request, "/strategy/pipeline_parallel", json_integer(3));
    struct reply reply = post_plan(request);
    expect_problem(&reply, 422, "invalid_request");
    expect_error(&reply, "/strategy/tensor_parallel", "not_divisible");
    expect_error(&reply, "/workload/sequence_length", "not_divisible");
    expect_error(&reply, "/workload/global_batch_size", "not_divisible");
    expect_error(&reply, "/strategy/pipeline_parallel", "not_divisible");
    size_t i, n = 0;
    json_t *error;
    json_array_foreach(at(reply.json, "/errors"), i, error)
        n += strcmp(text_at(error, "/path"), "/strategy/tensor_parallel") == 0;
    ck_assert_uint_eq(n, 4); /* hidden size, MLP, heads, key/value heads */

    set_at(request, "/workload/dtype", json_integer(3));
    set_at(request, "/colour", json_string("red"));
    struct reply mixed = post_plan(request);
    expect_problem(&mixed, 400, "invalid_request");
    expect_error(&mixed, "/workload/dtype", "wrong_type");
    expect_error(&mixed, "/colour", "unknown_key");
    expect_error(&mixed, "/workload/global_batch_size", "not_divisible");
    expect_unharmed();
}
END_TEST

START_TEST(test_refusals__a_degree_that_does_not_divide_the_heads)
{
    json_t *request = small_request();
    set_at(request, "/model/transformer/hidden_size", json_integer(96));
    set_at(request, "/model/transformer/intermediate_size", json_integer(384));
    set_at(request, "/model/transformer/num_attention_heads", json_integer(8));
    set_at(request, "/strategy/tensor_parallel", json_integer(16));
    struct reply reply = post_plan(request);
    expect_problem(&reply, 422, "not_divisible");
    ck_assert_uint_eq(json_array_size(at(reply.json, "/errors")), 1);
    ck_assert_ptr_nonnull(strstr(text_at(reply.json, "/errors/0/message"), "num_attention_heads 8"));
}
END_TEST

START_TEST(test_refusals__a_feature_that_is_not_modelled_is_counted_and_refused)
{
    json_t *config = json_of("{\"model\": {\"huggingface\": {\"model_type\": \"mistral\", \"hidden_size\": 4096,"
                             " \"clip_qkv\": 8,"
                             " \"num_hidden_layers\": 32, \"vocab_size\": 32000, \"intermediate_size\": 14336,"
                             " \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"sliding_window\": 4096}},"
                             " \"workload\": {\"mode\": \"inference\", \"phase\": \"decode\", \"batch_size\": 1,"
                             " \"context_length\": 1024, \"dtype\": \"float16\"}, \"strategy\": {}}");
    struct reply reply = post_plan(config);
    expect_problem(&reply, 422, "unsupported_feature");
    expect_error(&reply, "/model/huggingface/clip_qkv", "unsupported_feature");
    ck_assert_str_eq(text_at(reply.json, "/model/family"), "mistral");
    ck_assert_str_eq(text_at(reply.json, "/model/parameters"), "7241732096");
    expect_unharmed();
}
END_TEST

START_TEST(test_refusals__a_config_as_published_is_planned)
{
    json_t *config = json_of("{\"model\": {\"huggingface\": {\"model_type\": \"llama\", \"hidden_size\": 4096,"
                             " \"num_hidden_layers\": 32, \"vocab_size\": 128256, \"intermediate_size\": 14336,"
                             " \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"hidden_act\": \"silu\","
                             " \"rope_theta\": 500000.0, \"torch_dtype\": \"bfloat16\"}},"
                             " \"workload\": {\"mode\": \"inference\", \"phase\": \"decode\", \"batch_size\": 1,"
                             " \"context_length\": 1024, \"dtype\": \"float16\"}, \"strategy\": {}}");
    json_t *plan = plan_of(config, 201);
    ck_assert_str_eq(text_at(plan, "/model/parameters"), "8030261248");
    ck_assert_str_eq(text_at(plan, "/model/family"), "llama");
    ck_assert_str_eq(text_at(plan, "/model/name"), "llama");
    ck_assert_ptr_nonnull(strstr(json_text(at(plan, "/model/ignored")), "rope_theta"));
    ck_assert_ptr_nonnull(strstr(json_text(at(plan, "/model/assumed")), "tie_word_embeddings"));
}
END_TEST

Suite *suite_refusals(void)
{
    Suite *suite = suite_create("api refusals");
    TCase *tcase = server_tcase(suite, "refusals");
#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))
    tcase_add_loop_test(tcase, test_refusals__a_bad_value_is_named_by_its_pointer, 0, COUNT(value_cases));
    tcase_add_loop_test(tcase, test_refusals__a_missing_key_is_named, 0, COUNT(required_keys));
    tcase_add_loop_test(tcase, test_refusals__a_text_that_does_not_parse_is_named_by_line_and_column, 0,
                        COUNT(text_cases));
    tcase_add_test(tcase, test_refusals__a_number_past_64_bits_is_out_of_range);
    tcase_add_loop_test(tcase, test_refusals__a_body_that_is_no_object_is_refused, 0, COUNT(not_objects));
    tcase_add_loop_test(tcase, test_refusals__deep_nesting_is_refused_before_it_is_followed, 0, 2);
    tcase_add_loop_test(tcase, test_refusals__a_text_of_many_values_is_refused_before_it_is_parsed, 0, 2);
    tcase_add_test(tcase, test_refusals__a_body_of_two_megabytes_is_too_large);
    tcase_add_test(tcase, test_refusals__a_chunked_body_of_two_megabytes_is_too_large);
    tcase_add_loop_test(tcase, test_refusals__a_body_that_is_not_called_json_is_refused, 0, COUNT(wrong_types));
    tcase_add_test(tcase, test_refusals__json_with_a_charset_is_json);
    tcase_add_test(tcase, test_refusals__every_problem_is_named_at_once);
    tcase_add_test(tcase, test_refusals__a_degree_that_does_not_divide_the_heads);
    tcase_add_test(tcase, test_refusals__a_feature_that_is_not_modelled_is_counted_and_refused);
    tcase_add_test(tcase, test_refusals__a_config_as_published_is_planned);
    return suite;
}
