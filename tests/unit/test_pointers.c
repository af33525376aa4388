/* Every problem names the key that has to change. Requests that say every key have each of their values put wrong in
 * turn, and all of them at once. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/request/job.h"
#include "tests/unit/reading.h"

static struct bp_arena arena;
static struct bp_problems problems;

#define KINDS                                                                                                          \
    "'model': {'transformer': {'name': 'm', 'hidden_size': 64, 'num_hidden_layers': 4, 'vocab_size': 50, "             \
    "'norm': 'layernorm', 'position': 'rope', 'max_position_embeddings': 128, 'tie_word_embeddings': false, "          \
    "'embedding_dropout': true, 'embedding_norm': true, 'final_norm_absent': false, 'final_soft_cap': true, "          \
    "'head_bias': true, 'norm_without_bias': false, 'norm_without_weight': false, 'kinds': [{'name': 'dense', "        \
    "'num_attention_heads': 8, 'num_key_value_heads': 4, 'head_dim': 8, 'rotary_dim': 8, 'activation': 'swiglu', "     \
    "'intermediate_size': 96, 'qk_norm': true, 'qk_norm_form': 'head', 'qk_norm_bias': true, 'sliding_window': 32, "   \
    "'chunked_attention': true, 'attention_soft_cap': true, 'bias': false, 'qkv_bias': true, 'output_bias': true, "    \
    "'mlp_bias': true, 'residual': 'sequential', 'norm_place': 'before', 'attention': 'heads', 'hidden_dropout': "     \
    "true, 'attention_dropout': true, 'attention_sinks': false, 'cross_attention': false}, {'name': 'expert', "        \
    "'num_attention_heads': 8, 'activation': 'gelu', 'num_experts': 8, 'experts_per_token': 2, "                       \
    "'expert_intermediate_size': 16, 'shared_expert_intermediate_size': 32, 'shared_expert_gate': true, "              \
    "'router_bias': true, 'expert_bias': true, 'score_correction_bias': true}], 'layers': [{'count': 1, 'kind': "      \
    "'dense'}, {'count': 3, 'kind': 'expert'}]}}"
#define LATENT                                                                                                         \
    "'model': {'transformer': {'name': 'l', 'hidden_size': 64, 'num_hidden_layers': 4, 'num_attention_heads': 8, "     \
    "'vocab_size': 50, 'activation': 'swiglu', 'intermediate_size': 96, 'norm': 'rmsnorm', 'position': 'rope', "       \
    "'attention': 'latent', 'q_lora_rank': 16, 'kv_lora_rank': 8, 'qk_nope_head_dim': 8, 'qk_rope_head_dim': 4, "      \
    "'v_head_dim': 8}}"
#define LEARNED                                                                                                        \
    "'model': {'transformer': {'name': 'o', 'hidden_size': 64, 'num_hidden_layers': 4, 'num_attention_heads': 8, "     \
    "'vocab_size': 50, 'activation': 'gelu', 'intermediate_size': 96, 'norm': 'layernorm', 'position': 'learned', "    \
    "'max_position_embeddings': 128, 'num_nextn_predict_layers': 1, 'word_embed_proj_dim': 32}}"
#define WORDS                                                                                                          \
    "'model': {'huggingface': {'model_type': 'opt', 'hidden_size': 64, 'num_hidden_layers': 4, 'ffn_dim': 96, "        \
    "'num_attention_heads': 8, 'vocab_size': 50, 'max_position_embeddings': 128, 'do_layer_norm_before': true}}"
#define TRAIN(kinds, more)                                                                                             \
    "'workload': {'mode': 'training', 'sequence_length': 64, 'micro_batch_size': 1, 'global_batch_size': 16, "         \
    "'dtype': 'bfloat16', 'gradient_dtype': 'float32'" kinds more "}"
#define SERVE(kinds, more)                                                                                             \
    "'workload': {'mode': 'inference', 'phase': 'prefill', 'batch_size': 4, 'context_length': 64, 'dtype': "           \
    "'bfloat16', 'kv_cache_dtype': 'float16'" kinds more "}"
#define BOTH ", 'block_kinds': ['dense', 'expert']"
#define EXPERTS "'expert_parallel': 2, 'expert_tensor_parallel': 1, "
#define TRAINING(more)                                                                                                 \
    "'strategy': {" more "'tensor_parallel': 2, 'pipeline_parallel': 2, 'data_parallel': 2, 'context_parallel': 2, "   \
    "'cp_comm': 'ring', 'sequence_parallel': true, 'recompute': 'selective', 'recompute_all_gather': true, "           \
    "'recompute_activation': true, 'pipeline_schedule': 'interleaved', 'virtual_stages': 2, 'zero_stage': 1, "         \
    "'pipeline_layers': [1, 1, 1, 1]}"
#define SERVING(more)                                                                                                  \
    "'strategy': {" more "'tensor_parallel': 2, 'pipeline_parallel': 2, 'replicas': 2, 'pipeline_layers': [2, 2]}"
#define BOUND ", 'target': {'kind': 'reference-queue'}, 'deployment': {'devices': 2, 'memory_bytes': 68719476736}"
#define JOB                                                                                                            \
    ", 'memory_bytes': 68719476736, 'reserve_bytes': 1, 'utilization_permille': 900, 'devices_per_node': 8, "          \
    "'conventions': {'attention': 'full', 'operations': 'model', 'attention_kernel': 'tiled', 'loss': 'in_place', "    \
    "'window_kv': 'full'}"

static const struct {
    bool job;
    const char *text;
} requests[] = {
    {false, "{" KINDS ", " TRAIN(BOTH, "") ", " TRAINING(EXPERTS) BOUND "}"},
    {false, "{" KINDS ", " SERVE(BOTH, "") ", " SERVING(EXPERTS) BOUND "}"},
    {false, "{" LATENT ", " SERVE("", "") ", " SERVING("") "}"},
    {false, "{" LEARNED ", " TRAIN("", "") ", " TRAINING("") "}"},
    {false, "{" WORDS ", " TRAIN("", "") ", " TRAINING("") "}"},
    {true, "{" KINDS ", " TRAIN(BOTH, ", 'imbalance_permille': 1001") ", " TRAINING(
               EXPERTS "'optimizer': 'adam', 'vocab_multiple': 2, ") JOB ", 'world_size': 16}"},
    {true, "{" KINDS ", " SERVE(BOTH, ", 'kv_block': 8, 'prefill_chunk': 32") ", " SERVING(
               EXPERTS "'vocab_multiple': 2, ") JOB ", 'world_size': 8}"},
};
enum { N_REQUESTS = sizeof requests / sizeof *requests };

static void read_request(const json_t *body, bool job)
{
    static struct bp_whole_job whole;
    struct bp_request request;
    struct bp_config config = {0};
    bp_problems_release(&problems);
    bp_arena_release(&arena);
    int result = job ? bp_whole_job_read(body, &arena, &problems, &whole, &config)
                     : bp_request_read(body, &arena, &problems, &request, &config);
    ck_assert_int_eq(result, 0);
}

/* ---- The values of a request ---- */

enum { PLACES_MAX = 256 };
struct place {
    char pointer[BP_POINTER_MAX];
    bool leaf; /* neither an object nor an array */
};

static void find_places(json_t *value, const char *pointer, struct place *places, size_t *n)
{
    const bool leaf = !json_is_object(value) && !json_is_array(value);
    if (*pointer) {
        ck_assert_uint_lt(*n, PLACES_MAX);
        snprintf(places[*n].pointer, sizeof places->pointer, "%s", pointer);
        places[(*n)++].leaf = leaf;
    }
    struct place inner;
    const char *key;
    json_t *member;
    size_t i;
    json_object_foreach(value, key, member) {
        snprintf(inner.pointer, sizeof inner.pointer, "%.200s/%s", pointer, key);
        find_places(member, inner.pointer, places, n);
    }
    json_array_foreach(value, i, member) {
        snprintf(inner.pointer, sizeof inner.pointer, "%.200s/%zu", pointer, i);
        find_places(member, inner.pointer, places, n);
    }
}

/* What is at a pointer; NULL for nothing. No key here needs escaping. */
static json_t *at(json_t *value, const char *pointer)
{
    while (value && *pointer == '/') {
        char step[BP_POINTER_MAX];
        size_t n = strcspn(pointer + 1, "/");
        snprintf(step, sizeof step, "%.*s", (int)n, pointer + 1);
        value = json_is_array(value) ? json_array_get(value, (size_t)strtoul(step, NULL, 10))
                                     : json_object_get(value, step);
        pointer += n + 1;
    }
    return value;
}

static json_t *holder_of(json_t *body, const char *pointer)
{
    char parent[BP_POINTER_MAX];
    snprintf(parent, sizeof parent, "%s", pointer);
    ck_assert_ptr_nonnull(strrchr(parent, '/'));
    *strrchr(parent, '/') = '\0';
    return at(body, parent);
}

static void put(json_t *body, const char *pointer, json_t *value)
{
    json_t *holder = holder_of(body, pointer);
    const char *key = strrchr(pointer, '/') + 1;
    int failed = json_is_array(holder) ? json_array_set(holder, (size_t)strtoul(key, NULL, 10), value)
                                       : json_object_set(holder, key, value);
    ck_assert_int_eq(failed, 0);
}

static bool are_alike(const json_t *a, const json_t *b)
{
    return json_typeof(a) == json_typeof(b) || (json_is_boolean(a) && json_is_boolean(b));
}

/* Each problem is of something that the request says, or that is missing of what it says; none is told twice. */
static void ck_pointers(json_t *body, const char *what)
{
    for (size_t i = 0; i < problems.n; i++) {
        const char *path = problems.at[i].path;
        bool missing = problems.at[i].code == BP_E_missing_key;
        ck_assert_msg(*path == '\0' || (missing ? json_is_object(holder_of(body, path)) : at(body, path) != NULL),
                      "%s: %s is not of the request", what, path);
        for (size_t j = 0; j < i; j++)
            ck_assert_msg(strcmp(problems.at[j].path, path) != 0 ||
                              strcmp(problems.at[j].message, problems.at[i].message) != 0,
                          "%s: %s is told twice", what, path);
    }
}

/* ---- The tests ---- */

START_TEST(test_pointers__requests_that_say_every_key_are_taken)
{
    json_t *body = json_of(requests[_i].text);
    read_request(body, requests[_i].job);
    ck_assert_str_eq(line_of(&problems), "");
    json_decref(body);
}
END_TEST

static const char wrong_values[] = "['nobody', 7, [], {}, true, 0, -1, 9007199254740992, 1.5, null]";

/* One value of another sort is one problem, at its place. One of the same sort may break a rule between values, which
 * is told where the rule says. */
static void ck_refusal(json_t *body, const char *pointer, const json_t *was, const json_t *now)
{
    char what[BP_POINTER_MAX + 64];
    char *text = json_dumps(now, JSON_ENCODE_ANY);
    snprintf(what, sizeof what, "%s: %s", pointer, text);
    free(text);
    ck_pointers(body, what);
    /* A public config says null for what it does not say. */
    if (are_alike(was, now) || (json_is_null(now) && strstr(pointer, "/huggingface/")))
        return;
    ck_assert_msg(problems.n == 1 && strcmp(problems.at[0].path, pointer) == 0, "%s is told as %s", what,
                  line_of(&problems));
}

START_TEST(test_pointers__a_wrong_value_is_told_where_it_is_and_nowhere_else)
{
    static struct place places[PLACES_MAX];
    size_t n = 0, i, j;
    json_t *body = json_of(requests[_i].text), *wrong = json_of(wrong_values), *value;
    find_places(body, "", places, &n);
    ck_assert_uint_gt(n, 20);
    for (i = 0; i < n; i++) {
        json_t *was = json_incref(at(body, places[i].pointer));
        json_array_foreach(wrong, j, value) {
            put(body, places[i].pointer, value);
            read_request(body, requests[_i].job);
            ck_refusal(body, places[i].pointer, was, value);
        }
        put(body, places[i].pointer, was);
        json_decref(was);
    }
    json_decref(body);
    json_decref(wrong);
}
END_TEST

START_TEST(test_pointers__all_that_is_wrong_is_told_at_once)
{
    static struct place places[PLACES_MAX];
    size_t n = 0, leaves = 0;
    json_t *body = json_of(requests[_i].text), *wrong = json_object();
    find_places(body, "", places, &n);
    for (size_t i = 0; i < n; i++)
        if (places[i].leaf)
            put(body, places[i].pointer, wrong);
    read_request(body, requests[_i].job);
    ck_pointers(body, "all");
    for (size_t i = 0; i < n; i++) {
        bool told = false;
        for (size_t j = 0; places[i].leaf && j < problems.n; j++)
            told |= problems.at[j].code == BP_E_wrong_type && strcmp(problems.at[j].path, places[i].pointer) == 0;
        leaves += places[i].leaf;
        /* Which keys there are in a public config depends on its model_type. */
        if (places[i].leaf && !strstr(places[i].pointer, "/huggingface/"))
            ck_assert_msg(told, "%s is not told", places[i].pointer);
    }
    ck_assert_uint_le(problems.n, leaves);
    json_decref(body);
    json_decref(wrong);
}
END_TEST

/* Rules between values, broken one by one: a change of the first request or of the job that trains. */
static const struct {
    size_t of;
    const char *pointer, *value, *problems;
} rules[] = {
    {0, "/strategy/expert_tensor_parallel", "16", "not_divisible /strategy/expert_tensor_parallel"},
    {0, "/strategy/expert_parallel", "4", ""},
    {0, "/strategy/expert_parallel", "8", ""},
    {0, "/strategy/expert_parallel", "3",
     "not_divisible /strategy/expert_parallel, not_divisible /strategy/expert_parallel"},
    {0, "/strategy/sequence_parallel", "false", "conflict /strategy/sequence_parallel"},
    {0, "/strategy/pipeline_schedule", "'none'",
     "conflict /strategy/pipeline_schedule, conflict /strategy/virtual_stages"},
    {0, "/strategy/pipeline_schedule", "'gpipe'", "conflict /strategy/virtual_stages"},
    {0, "/strategy/virtual_stages", "1", "conflict /strategy/pipeline_layers"},
    {0, "/strategy/pipeline_layers/1", "2", "conflict /strategy/pipeline_layers"},
    {0, "/strategy/tensor_parallel", "3",
     "not_divisible /strategy/tensor_parallel, not_divisible /strategy/tensor_parallel, "
     "not_divisible /strategy/tensor_parallel, not_divisible /strategy/tensor_parallel, "
     "not_divisible /strategy/tensor_parallel, "
     "not_divisible /workload/sequence_length, conflict /deployment/devices"},
    {0, "/strategy/data_parallel", "3", "not_divisible /workload/global_batch_size"},
    {0, "/workload/sequence_length", "62",
     "not_divisible /workload/sequence_length, not_divisible /workload/sequence_length"},
    {0, "/workload/block_kinds/1", "'sparse'", "unknown_value /workload/block_kinds/1"},
    {0, "/workload/block_kinds/0", "'a_name_longer_than_any_kind_of_block_has'",
     "unknown_value /workload/block_kinds/0"},
    {0, "/workload/micro_batch_size", "3", "not_divisible /workload/global_batch_size"},
    {0, "/workload/kv_cache_dtype", "'float8'", "conflict /workload/kv_cache_dtype"},
    {0, "/workload/phase", "'decode'", "unknown_key /workload/phase"},
    {0, "/deployment/devices", "1", "conflict /deployment/devices"},
    {0, "/model/transformer/kinds/0/num_key_value_heads", "3",
     "not_divisible /model/transformer/kinds/0/num_key_value_heads, not_divisible /strategy/tensor_parallel"},
    {0, "/model/transformer/kinds/1/experts_per_token", "9",
     "out_of_range /model/transformer/kinds/1/experts_per_token"},
    {0, "/model/transformer/kinds/1/name", "'dense'", "conflict /model/transformer/kinds/1/name"},
    {0, "/model/transformer/kinds/1/shared_expert_gate", "false", ""},
    {0, "/model/transformer/kinds/0/rotary_dim", "9", "out_of_range /model/transformer/kinds/0/rotary_dim"},
    {0, "/model/transformer/position", "'alibi'", "conflict /model/transformer/kinds/0/rotary_dim"},
    {0, "/model/transformer/layers/1/count", "4", "conflict /model/transformer/layers"},
    {0, "/model/transformer/layers/1/kind", "'dense'", "conflict /model/transformer/layers"},
    {0, "/model/transformer/kinds/0/attention_sinks", "true", "unsupported_feature /model"},
    {5, "/world_size", "17", "conflict /world_size"},
    {5, "/workload/dtype", "'float8'", "unsupported_feature /workload/dtype"},
    {5, "/workload/kv_block", "16", "conflict /workload/kv_block"},
    {5, "/target", "{'kind': 'reference-queue'}", "conflict /target"},
    {5, "/model/transformer/kinds/0/attention_sinks", "true", "unsupported_feature /model"},
    {5, "/model/transformer/kinds/0/qk_norm_form", "'span'", "unsupported_feature /strategy/tensor_parallel"},
    {6, "/strategy/expert_tensor_parallel", "16", "not_divisible /strategy/expert_tensor_parallel"},
    {6, "/strategy/context_parallel", "2", "conflict /strategy/context_parallel"},
    {6, "/strategy/optimizer", "'adam'", "conflict /strategy/optimizer"},
};

START_TEST(test_pointers__a_broken_rule_is_told_of_the_key_that_breaks_it)
{
    char text[256];
    snprintf(text, sizeof text, "[%s]", rules[_i].value);
    json_t *body = json_of(requests[rules[_i].of].text), *value = json_of(text);
    put(body, rules[_i].pointer, json_array_get(value, 0));
    read_request(body, requests[rules[_i].of].job);
    const char *line = line_of(&problems);
    ck_assert_msg(strcmp(line, rules[_i].problems) == 0, "%s: %s", rules[_i].pointer, line);
    json_decref(body);
    json_decref(value);
}
END_TEST

static void release(void)
{
    bp_problems_release(&problems);
    bp_arena_release(&arena);
}

Suite *suite_pointers(void);
Suite *suite_pointers(void)
{
    Suite *suite = suite_create("pointers");
    TCase *tcase = tcase_create("pointers");
    tcase_add_checked_fixture(tcase, NULL, release);
    tcase_add_loop_test(tcase, test_pointers__requests_that_say_every_key_are_taken, 0, N_REQUESTS);
    tcase_add_loop_test(tcase, test_pointers__a_wrong_value_is_told_where_it_is_and_nowhere_else, 0, N_REQUESTS);
    tcase_add_loop_test(tcase, test_pointers__all_that_is_wrong_is_told_at_once, 0, N_REQUESTS);
    tcase_add_loop_test(tcase, test_pointers__a_broken_rule_is_told_of_the_key_that_breaks_it, 0,
                        (int)(sizeof rules / sizeof *rules));
    suite_add_tcase(suite, tcase);
    return suite;
}
