/* Models with several kinds of block: one snapshot of a program each, over HTTP and by the client. */
#include <stdlib.h>
#include <string.h>

#include "tests/api/command.h"
#include "tests/api/expect.h"
#include "tests/api/server.h"

/* A dense layer, then four of experts; latent attention, so that decode and prefill have forms of their own. */
static json_t *latent_request(const char *workload, const char *strategy)
{
    return json_of(
        keep_text("{\"model\": {\"huggingface\": {\"model_type\": \"deepseek_v3\", \"hidden_size\": 64,"
                  " \"intermediate_size\": 128, \"num_hidden_layers\": 5, \"num_attention_heads\": 8,"
                  " \"num_key_value_heads\": 8, \"vocab_size\": 1000, \"hidden_act\": \"silu\", \"q_lora_rank\": 24,"
                  " \"kv_lora_rank\": 16, \"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 4, \"v_head_dim\": 8,"
                  " \"n_routed_experts\": 8, \"n_shared_experts\": 1, \"num_experts_per_tok\": 2,"
                  " \"moe_intermediate_size\": 32, \"first_k_dense_replace\": 1}},"
                  " \"workload\": %s, \"strategy\": %s}",
                  workload, strategy));
}

#define LENGTHS "\"sequence_length\": 32, \"micro_batch_size\": 2, \"global_batch_size\": 16, \"dtype\": \"bfloat16\""

static json_t *training(void)
{
    return latent_request("{\"mode\": \"training\", " LENGTHS "}",
                          "{\"tensor_parallel\": 2, \"data_parallel\": 4, \"sequence_parallel\": true,"
                          " \"expert_parallel\": 4, \"expert_tensor_parallel\": 2, \"zero_stage\": 1}");
}

static json_t *serving(const char *phase)
{
    return latent_request(keep_text("{\"mode\": \"inference\", \"phase\": \"%s\", \"batch_size\": 4,"
                                    " \"context_length\": 64, \"dtype\": \"bfloat16\"}",
                                    phase),
                          "{\"tensor_parallel\": 2, \"replicas\": 2, \"expert_parallel\": 4,"
                          " \"expert_tensor_parallel\": 1}");
}

/* Layers with a window and without one by turns, soft caps, four norms. */
static json_t *windowed(const char *cache)
{
    return json_of(
        keep_text("{\"model\": {\"huggingface\": {\"model_type\": \"gemma2\", \"hidden_size\": 64,"
                  " \"intermediate_size\": 128, \"num_hidden_layers\": 4, \"num_attention_heads\": 8,"
                  " \"num_key_value_heads\": 4, \"head_dim\": 16, \"vocab_size\": 1000, \"sliding_window\": 16}},"
                  " \"workload\": {\"mode\": \"inference\", \"phase\": \"decode\", \"batch_size\": 4,"
                  " \"context_length\": 64, \"dtype\": \"bfloat16\", \"kv_cache_dtype\": \"%s\"},"
                  " \"strategy\": {}}",
                  cache));
}

static json_t *only(json_t *request, const char *kind)
{
    json_t *copy = keep_json(json_deep_copy(request));
    set_at(copy, "/workload/block_kinds", json_pack("[s]", kind));
    return copy;
}

/* ---- The programs ---- */

static const char *const numbers[] = {"tasks", "read_bytes", "write_bytes", "message_bytes"};

static long long operations_at(json_t *facts, const char *pointer)
{
    return atoll(text_at(facts, pointer));
}

static void expect_sums(json_t *facts)
{
    json_t *block, *bytes;
    const char *name, *role;
    long long operations = 0;
    json_object_foreach(at(facts, "/by_block"), name, block)
        operations += operations_at(block, "/operations");
    ck_assert_int_gt(operations, 0);
    ck_assert_int_eq(operations_at(facts, "/operations"), operations);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        json_int_t sum = 0;
        json_object_foreach(at(facts, "/by_block"), name, block)
            sum += int_at(block, keep_text("/%s", numbers[i]));
        ck_assert_int_eq(int_at(facts, keep_text("/%s", numbers[i])), sum);
    }
    json_object_foreach(at(facts, "/memory"), role, bytes) {
        json_int_t sum = 0;
        json_object_foreach(at(facts, "/by_block"), name, block)
            sum += int_at(block, keep_text("/memory/%s", role));
        ck_assert_int_eq(json_integer_value(bytes), sum);
    }
}

START_TEST(test_kinds__a_plan_has_a_program_of_every_kind_and_their_sums)
{
    json_t *const requests[] = {training(), serving("prefill"), serving("decode"), windowed("bfloat16")};
    json_t *plan = plan_of(requests[_i], 201), *facts = at(plan, "/facts"), *block;
    json_t *distributed = snapshot_of(plan, "distributed");
    size_t i;
    ck_assert_str_eq(text_at(facts, "/scope"), "one block of each kind, one rank");
    ck_assert_uint_eq(json_object_size(at(facts, "/by_block")), 2);
    expect_sums(facts);
    json_array_foreach(at(distributed, "/blocks"), i, block) {
        json_t *fact = at(facts, keep_text("/by_block/%s", text_at(block, "/name")));
        expect_equal(at(fact, "/layers"), at(block, "/layers"), "layers");
        expect_equal(at(fact, "/memory"), at(block, "/memory"), "memory");
    }
    ck_assert_uint_eq(i, 2);
}
END_TEST

START_TEST(test_kinds__tasks_stand_by_their_block_and_wait_for_no_other)
{
    json_t *plan = plan_of(training(), 201), *task, *dependency;
    static const char *const stages[] = {"distributed", "portable"};
    for (size_t s = 0; s < 2; s++) {
        json_t *blocks = keep_json(json_object());
        const char *last = "";
        size_t i, j, changes = 0;
        json_array_foreach(at(snapshot_of(plan, stages[s]), "/tasks"), i, task) {
            const char *block = text_at(task, "/block");
            changes += strcmp(block, last) != 0;
            last = block;
            json_object_set(blocks, text_at(task, "/id"), at(task, "/block"));
            json_array_foreach(at(task, "/dependencies"), j, dependency)
                ck_assert_str_eq(text_at(blocks, keep_text("/%s", json_string_value(dependency))), block);
        }
        ck_assert_uint_eq(changes, 2);
        ck_assert_str_eq(last, "expert");
    }
}
END_TEST

/* The task of that block and name. */
static json_t *task_of(json_t *distributed, const char *block, const char *name)
{
    size_t i;
    json_t *task;
    json_array_foreach(at(distributed, "/tasks"), i, task)
        if (strcmp(text_at(task, "/block"), block) == 0 && strcmp(text_at(task, "/name"), name) == 0)
            return task;
    ck_abort_msg("%s has no task %s", block, name);
}

START_TEST(test_kinds__pairs_are_priced_and_a_decode_step_sees_its_window)
{
    json_t *trained = snapshot_of(plan_of(training(), 201), "distributed");
    /* 64 tokens, two experts each, over one expert-tensor group of two: 2 * 128 pairs * 64 * 32/2. */
    ck_assert_str_eq(text_at(task_of(trained, "expert", "moe.up.forward"), "/work/operations"), "262144");
    ck_assert_str_eq(text_at(task_of(trained, "expert", "moe.dispatch.forward.all_to_all"), "/body/axis"), "expert");
    ck_assert_int_eq(int_at(task_of(trained, "expert", "moe.dispatch.forward.all_to_all"), "/work/message_bytes"),
                     64 * 2 * 64 * 2 / 2);
    json_t *plan = plan_of(windowed("bfloat16"), 201), *half = plan_of(windowed("float8"), 201);
    json_int_t all = INT64_C(2) * 4 * 64 * 4 * 16 * 2;
    ck_assert_int_eq(int_at(plan, "/facts/by_block/global/memory/kv_cache"), all);
    ck_assert_int_eq(int_at(plan, "/facts/by_block/sliding/memory/kv_cache"), all / 4);
    ck_assert_int_eq(int_at(half, "/facts/by_block/global/memory/kv_cache"), all / 2);
    ck_assert_int_eq(int_at(half, "/facts/by_block/sliding/memory/kv_cache"), all / 8);
    static const char *const forms[][2] = {{"prefill", "expanded"}, {"decode", "absorbed"}};
    for (size_t i = 0; i < 2; i++)
        ck_assert_str_eq(
            text_at(snapshot_of(plan_of(serving(forms[i][0]), 201), "distributed"), "/conventions/latent_attention"),
            forms[i][1]);
}
END_TEST

/* ---- Across the stages ---- */

START_TEST(test_kinds__what_is_of_a_block_traces_to_the_model_within_it)
{
    json_t *plan = plan_of(with_target(training(), "reference-queue", 2, INT64_C(1) << 34), 201), *task;
    json_t *commands = at(snapshot_of(plan, "concrete"), "/commands"), *portable = snapshot_of(plan, "portable");
    json_t *distributed = snapshot_of(plan, "distributed");
    size_t n = json_array_size(commands), i, seen = 0;
    ck_assert_uint_eq(n, json_array_size(at(portable, "/tasks")));
    json_t *blocks = keep_json(json_object());
    json_array_foreach(at(distributed, "/tasks"), i, task)
        json_object_set(blocks, text_at(task, "/id"), at(task, "/block"));
    static const char *const stages[] = {"concrete", "portable", "distributed", "model"};
    const size_t places[] = {0, n - 1};
    for (size_t p = 0; p < 2; p++) {
        struct reply reply = http_get("/v1/plans/%s/trace/%s", text_at(plan, "/id"),
                                      text_at(json_array_get(commands, places[p]), "/id"));
        ck_assert_int_eq(reply.status, 200);
        ck_assert_uint_eq(json_array_size(at(reply.json, "/chain")), 4);
        for (size_t s = 0; s < 4; s++)
            ck_assert_str_eq(text_at(reply.json, keep_text("/chain/%zu/stage", s)), stages[s]);
        const char *block = text_at(blocks, keep_text("/%s", text_at(reply.json, "/chain/2/entity")));
        ck_assert_str_eq(block, text_at(at(portable, keep_text("/tasks/%zu", places[p])), "/block"));
        seen += strcmp(block, p ? "expert" : "dense") == 0;
    }
    ck_assert_uint_eq(seen, 2);
}
END_TEST

START_TEST(test_kinds__the_layout_holds_the_buffers_of_every_block)
{
    static const char *const kinds[] = {"reference-queue", "reference-slot"};
    json_t *plan = plan_of(with_target(training(), kinds[_i], 2, INT64_C(1) << 34), 201), *buffer;
    json_t *portable = at(snapshot_of(plan, "portable"), "/buffers");
    json_t *laid = at(snapshot_of(plan, "concrete"), "/buffers");
    json_int_t end = 0, experts = 0;
    size_t i;
    ck_assert_uint_eq(json_array_size(laid), json_array_size(portable));
    json_array_foreach(laid, i, buffer) {
        json_t *source = json_array_get(portable, i);
        ck_assert_str_eq(text_at(buffer, "/source"), text_at(source, "/id"));
        ck_assert_int_eq(int_at(buffer, "/size_bytes"), int_at(source, "/size_bytes"));
        ck_assert_int_ge(int_at(buffer, "/offset_bytes"), end);
        ck_assert_int_lt(int_at(buffer, "/offset_bytes"), end + 16);
        end = int_at(buffer, "/offset_bytes") + int_at(buffer, "/size_bytes");
        experts += strcmp(text_at(source, "/block"), "expert") == 0;
    }
    ck_assert_int_eq(experts, (json_int_t)json_array_size(portable) / 2);
    /* What holds one block's buffers and not all is too small for both. */
    struct reply refused = post_plan(with_target(training(), kinds[_i], 2, end - 1));
    expect_problem(&refused, 422, "capacity_exceeded");
    plan_of(with_target(only(training(), "expert"), kinds[_i], 2, end - 1), 201);
}
END_TEST

START_TEST(test_kinds__replays_come_out_identical)
{
    json_t *const requests[] = {training(), serving("prefill"), serving("decode"), windowed("float8")};
    json_t *plan = plan_of(with_target(requests[_i], "reference-slot", 4, INT64_C(1) << 34), 201), *row;
    struct reply replay = http_post(keep_text("/v1/plans/%s/replays", text_at(plan, "/id")), NULL);
    size_t i;
    ck_assert_int_eq(replay.status, 201);
    ck_assert_str_eq(text_at(replay.json, "/verdict"), "identical");
    ck_assert_uint_eq(json_array_size(at(replay.json, "/stages")), 4);
    json_array_foreach(at(replay.json, "/stages"), i, row)
        ck_assert_str_eq(text_at(row, "/actual"), digest_of(plan, text_at(row, "/stage")));
}
END_TEST

/* ---- Naming the kinds ---- */

/* The member of diff's list with that path. */
static json_t *difference_at(json_t *list, const char *path)
{
    size_t i;
    json_t *difference;
    json_array_foreach(list, i, difference)
        if (strcmp(text_at(difference, "/path"), path) == 0)
            return difference;
    ck_abort_msg("no difference at %s in %.1000s", path, json_text(list));
}

START_TEST(test_kinds__naming_one_plans_it_alone_and_a_diff_says_what_went)
{
    json_t *all = plan_of(training(), 201), *one = plan_of(only(training(), "expert"), 201);
    ck_assert_str_eq(text_at(one, "/facts/scope"), "one block, one rank");
    ck_assert(!has(one, "/facts/by_block"));
    expect_equal(at(one, "/facts/memory"), at(all, "/facts/by_block/expert/memory"), "the block's memory");
    ck_assert_str_eq(text_at(one, "/facts/operations"), text_at(all, "/facts/by_block/expert/operations"));
    ck_assert_str_eq(digest_of(one, "model"), digest_of(all, "model"));
    struct reply diff = http_get("/v1/plans/%s/diff/%s", text_at(all, "/id"), text_at(one, "/id"));
    ck_assert_int_eq(diff.status, 200);
    json_t *named = difference_at(at(diff.json, "/request"), "/workload/block_kinds/0");
    ck_assert(json_is_null(at(named, "/a")));
    ck_assert_str_eq(text_at(named, "/b"), "expert");
    json_t *gone = difference_at(at(diff.json, "/facts"), "/by_block/dense/layers");
    ck_assert_int_eq(int_at(gone, "/a"), 1);
    ck_assert(json_is_null(at(gone, "/b")));
    ck_assert_str_ne(text_at(plan_of(only(training(), "dense"), 201), "/id"), text_at(one, "/id"));
}
END_TEST

START_TEST(test_kinds__naming_all_in_any_order_is_the_same_plan)
{
    json_t *all = plan_of(training(), 201), *named = training();
    set_at(named, "/workload/block_kinds", json_pack("[s, s]", "expert", "dense"));
    ck_assert_str_eq(text_at(plan_of(named, 200), "/id"), text_at(all, "/id"));
}
END_TEST

START_TEST(test_kinds__what_cannot_be_meant_is_refused_where_it_stands)
{
    static const struct {
        const char *path, *json;
        int status;
        const char *code, *at;
    } cases[] = {
        {"/workload/block_kinds", "[\"dense\", \"sliding\"]", 422, "unknown_value", "/workload/block_kinds/1"},
        {"/workload/block_kinds", "[]", 422, "out_of_range", "/workload/block_kinds"},
        {"/workload/block_kinds", "[1]", 400, "wrong_type", "/workload/block_kinds/0"},
        {"/strategy/expert_parallel", "3", 422, "invalid_request", "/strategy/expert_parallel"},
        {"/strategy/sequence_parallel", "false", 422, "conflict", "/strategy/sequence_parallel"},
        {"/workload/kv_cache_dtype", "\"float8\"", 422, "conflict", "/workload/kv_cache_dtype"},
    };
    json_t *request = training();
    set_at(request, cases[_i].path, json_incref(json_of(cases[_i].json)));
    struct reply reply = post_plan(request);
    expect_problem(&reply, cases[_i].status, cases[_i].code);
    const char *code = strcmp(cases[_i].code, "invalid_request") ? cases[_i].code : "not_divisible";
    expect_error(&reply, cases[_i].at, code);
    ck_assert_int_eq(server_count(&server, "SELECT count(*) FROM plans"), 0);
}
END_TEST

START_TEST(test_kinds__what_has_no_rows_is_refused_with_its_count)
{
    json_t *request =
        json_of("{\"model\": {\"name\": \"gpt-oss-120b\"}, \"workload\": {\"mode\": \"training\", " LENGTHS
                "}, \"strategy\": {}}");
    struct reply reply = post_plan(request);
    expect_problem(&reply, 422, "unsupported_feature");
    expect_error(&reply, "/model", "unsupported_feature");
    ck_assert_str_eq(text_at(reply.json, "/model/parameters"), "116829156672");
    set_at(request, "/workload",
           json_pack("{s:s, s:s, s:i, s:i, s:s}", "mode", "inference", "phase", "decode", "batch_size", 1,
                     "context_length", 4096, "dtype", "bfloat16"));
    json_t *plan = plan_of(request, 201);
    ck_assert_int_eq(int_at(plan, "/facts/by_block/sliding_expert/memory/kv_cache") * 32,
                     int_at(plan, "/facts/by_block/global_expert/memory/kv_cache"));
}
END_TEST

/* ---- Context parallelism, and the transformer form ---- */

START_TEST(test_kinds__a_rank_has_its_share_of_the_context)
{
    json_t *request = training();
    set_at(request, "/strategy/context_parallel", json_integer(2));
    json_t *ring = plan_of(request, 201), *task = task_of(snapshot_of(ring, "distributed"), "dense",
                                                          "attention.context_collective.forward.all_gather");
    ck_assert_str_eq(text_at(task, "/body/axis"), "context");
    /* 64 tokens of keys and values, 4 heads of 8 + 4 + 8, two bytes. */
    ck_assert_int_eq(int_at(task, "/work/message_bytes"), 64 * 4 * 20 * 2);
    set_at(request, "/strategy/cp_comm", json_string("a2a"));
    json_t *exchanged = snapshot_of(plan_of(request, 201), "distributed");
    task_of(exchanged, "dense", "attention.context_exchange.forward.all_to_all");
    task_of(exchanged, "expert", "attention.context_return.forward.all_to_all");
    ck_assert_str_eq(
        text_at(task_of(exchanged, "dense", "attention.scores.forward"), "/work/operations"),
        text_at(task_of(snapshot_of(ring, "distributed"), "dense", "attention.scores.forward"), "/work/operations"));
}
END_TEST

START_TEST(test_kinds__the_form_spells_kinds_out_and_says_them_back)
{
    json_t *request = training();
    json_t *imported = plan_of(request, 201);
    json_t *form = keep_json(json_deep_copy(at(snapshot_of(imported, "model"), "/operations/0/model")));
    ck_assert_str_eq(text_at(form, "/kinds/1/name"), "expert");
    ck_assert_int_eq(int_at(form, "/layers/1/count"), 4);
    set_at(form, "/name", json_string("spelled out"));
    set_at(request, "/model", json_pack("{s:O}", "transformer", form));
    json_t *spelled = plan_of(request, 201);
    ck_assert_str_ne(text_at(spelled, "/id"), text_at(imported, "/id"));
    ck_assert_str_eq(digest_of(spelled, "portable"), digest_of(imported, "portable"));
}
END_TEST

/* ---- The client ---- */

START_TEST(test_kinds__the_client_prints_every_block)
{
    json_t *request = with_target(training(), "reference-queue", 2, INT64_C(1) << 34), *plan = plan_of(request, 201);
    struct run made = RUN("plan", request_file(request));
    expect_status(&made, 0);
    expect_text(made.out, "one block of each kind, one rank");
    static const char *const kinds[] = {"dense", "expert"};
    for (size_t i = 0; i < 2; i++) {
        json_t *block = at(plan, keep_text("/facts/by_block/%s", kinds[i]));
        expect_text(made.out, keep_text("block %s", kinds[i]));
        expect_text(made.out, text_at(block, "/operations"));
        expect_text(made.out, keep_text("%lld", (long long)int_at(block, "/memory/optimizer")));
    }
    struct run distributed = RUN("show", text_at(plan, "/id"), "--stage", "distributed");
    expect_status(&distributed, 0);
    expect_text(distributed.out, "expert       4");
    expect_text(distributed.out,
                keep_text("%lld", (long long)int_at(plan, "/facts/by_block/expert/memory/working_activations")));
    struct run model = RUN("show", text_at(plan, "/id"), "--stage", "model");
    expect_status(&model, 0);
    expect_text(model.out, "experts_per_token");
    expect_text(model.out, "     4  expert");
    ck_assert_ptr_null(strstr(model.out, "\"kv_lora_rank\"")); /* no cell of JSON */
}
END_TEST

START_TEST(test_kinds__the_client_traces_replays_and_compares)
{
    json_t *plan = plan_of(with_target(serving("decode"), "reference-queue", 4, INT64_C(1) << 34), 201);
    json_t *one = plan_of(with_target(only(serving("decode"), "dense"), "reference-queue", 4, INT64_C(1) << 34), 201);
    json_t *commands = at(snapshot_of(plan, "concrete"), "/commands");
    struct run trace =
        RUN("trace", text_at(plan, "/id"), text_at(json_array_get(commands, json_array_size(commands) - 1), "/id"));
    expect_status(&trace, 0);
    expect_text(trace.out, "mlp.residual");
    expect_text(trace.out, "transformer.decoder_inference");
    struct run replay = RUN("replay", text_at(plan, "/id"));
    expect_status(&replay, 0);
    expect_text(replay.out, "verdict      identical");
    struct run diff = RUN("diff", text_at(plan, "/id"), text_at(one, "/id"));
    expect_status(&diff, 0);
    expect_text(diff.out, "/workload/block_kinds");
    expect_text(diff.out, "/by_block/expert/memory/kv_cache");
}
END_TEST

Suite *suite_kinds(void)
{
    Suite *suite = suite_create("api kinds");
    TCase *tcase = server_tcase(suite, "kinds");
    tcase_add_loop_test(tcase, test_kinds__a_plan_has_a_program_of_every_kind_and_their_sums, 0, 4);
    tcase_add_test(tcase, test_kinds__tasks_stand_by_their_block_and_wait_for_no_other);
    tcase_add_test(tcase, test_kinds__pairs_are_priced_and_a_decode_step_sees_its_window);
    tcase_add_test(tcase, test_kinds__what_is_of_a_block_traces_to_the_model_within_it);
    tcase_add_loop_test(tcase, test_kinds__the_layout_holds_the_buffers_of_every_block, 0, 2);
    tcase_add_loop_test(tcase, test_kinds__replays_come_out_identical, 0, 4);
    tcase_add_test(tcase, test_kinds__naming_one_plans_it_alone_and_a_diff_says_what_went);
    tcase_add_test(tcase, test_kinds__naming_all_in_any_order_is_the_same_plan);
    tcase_add_loop_test(tcase, test_kinds__what_cannot_be_meant_is_refused_where_it_stands, 0, 6);
    tcase_add_test(tcase, test_kinds__what_has_no_rows_is_refused_with_its_count);
    tcase_add_test(tcase, test_kinds__a_rank_has_its_share_of_the_context);
    tcase_add_test(tcase, test_kinds__the_form_spells_kinds_out_and_says_them_back);
    tcase_add_test(tcase, test_kinds__the_client_prints_every_block);
    tcase_add_test(tcase, test_kinds__the_client_traces_replays_and_compares);
    return suite;
}
