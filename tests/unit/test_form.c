/* What the transformer form says beyond one plain kind of block: each key good, bad and at its default. */
#include <check.h>
#include <dirent.h>
#include <string.h>

#include "common/model/config.h"
#include "tests/unit/form_fixture.h"
#include "tests/unit/reading.h"

static struct bp_arena arena;
static struct bp_problems problems;

static struct bp_model read_form(const char *base, const char *added)
{
    struct bp_model model;
    char text[4096];
    snprintf(text, sizeof text, "{%s%s}", base, added);
    json_t *value = json_of(text);
    struct bp_reader reader = bp_reader_of(value, "", &problems);
    bp_problems_release(&problems);
    bp_model_read(&reader, &arena, &model);
    json_decref(value);
    return model;
}

static struct bp_model valid_form(const char *base, const char *added)
{
    struct bp_model model = read_form(base, added);
    ck_assert_msg(bp_problems_none(&problems), "%s", line_of(&problems));
    return model;
}

static const char *written(const struct bp_model *model)
{
    struct bp_buf buf = {0};
    struct bp_writer writer = {.out = &buf};
    bp_model_write(&writer, model, false);
    const char *text = canonical(&writer);
    return bp_arena_strndup(&arena, text, strlen(text));
}

#define MODEL(norm, position)                                                                                          \
    "'name': 'm', 'hidden_size': 64, 'num_hidden_layers': 3, 'vocab_size': 50, 'norm': '" norm                         \
    "', 'position': '" position "'"
#define HEADS "'num_attention_heads': 8, 'activation': 'swiglu'"
#define DENSE MODEL("layernorm", "rope") ", " HEADS ", 'intermediate_size': 100"
#define PLAIN MODEL("rmsnorm", "none") ", " HEADS ", 'intermediate_size': 100"
#define OF_EXPERTS "'num_experts': 4, 'experts_per_token': 2, 'expert_intermediate_size': 10"
#define EXPERTS MODEL("rmsnorm", "rope") ", " HEADS ", " OF_EXPERTS
#define OF_LATENT                                                                                                      \
    "'attention': 'latent', 'kv_lora_rank': 16, 'qk_nope_head_dim': 4, 'qk_rope_head_dim': 2, 'v_head_dim': 6"
#define LATENT MODEL("rmsnorm", "rope") ", " HEADS ", 'intermediate_size': 100, " OF_LATENT

/* Keys that stay in the canonical form as they were given, and what of the model they are. */
#define IN_MODEL(member) offsetof(struct bp_model, member), sizeof((struct bp_model *)0)->member
#define IN_KIND(member) IN_MODEL(kinds[0].member)
static const struct {
    const char *base, *key, *value;
    size_t offset, size;
    uint64_t number;
} kept[] = {
    {DENSE, "sliding_window", "7", IN_KIND(window), 7},
    {DENSE, "rotary_dim", "0", IN_KIND(rotary_dim), 0},
    {DENSE, "rotary_dim", "3", IN_KIND(rotary_dim), 3},
    {DENSE, "qkv_bias", "true", IN_KIND(qkv_bias), 1},
    {DENSE, "output_bias", "true", IN_KIND(output_bias), 1},
    {DENSE, "mlp_bias", "true", IN_KIND(mlp_bias), 1},
    {DENSE, "attention_sinks", "true", IN_KIND(sinks), 1},
    {DENSE, "attention_soft_cap", "true", IN_KIND(soft_cap), 1},
    {DENSE, "cross_attention", "true", IN_KIND(cross_attention), 1},
    {DENSE, "residual", "'parallel'", IN_KIND(residual), BP_RESIDUAL_PARALLEL},
    {DENSE, "norm_place", "'after'", IN_KIND(norm_place), BP_NORM_PLACE_AFTER},
    {DENSE, "norm_place", "'after_residual'", IN_KIND(norm_place), BP_NORM_PLACE_AFTER_RESIDUAL},
    {DENSE, "norm_place", "'around'", IN_KIND(norm_place), BP_NORM_PLACE_AROUND},
    {DENSE ", 'residual': 'parallel'", "norm_place", "'shared'", IN_KIND(norm_place), BP_NORM_PLACE_SHARED},
    {DENSE, "qk_norm", "true", IN_KIND(qk_norm_bias), 1},
    {DENSE ", 'norm_without_bias': true", "qk_norm", "true", IN_KIND(qk_norm_bias), 0},
    {DENSE ", 'qk_norm': true", "qk_norm_form", "'each_head'", IN_KIND(qk_norm), BP_QK_NORM_EACH_HEAD},
    {DENSE ", 'qk_norm': true", "qk_norm_form", "'span'", IN_KIND(qk_norm), BP_QK_NORM_SPAN},
    {DENSE ", 'qk_norm': true", "qk_norm_form", "'without_weight'", IN_KIND(qk_norm), BP_QK_NORM_WITHOUT_WEIGHT},
    {DENSE ", 'qk_norm': true", "qk_norm_bias", "false", IN_KIND(qk_norm_bias), 0},
    {DENSE ", 'qk_norm': true, 'qk_norm_form': 'span'", "qk_norm_bias", "true", IN_KIND(qk_norm_bias), 1},
    {EXPERTS, "router_bias", "true", IN_KIND(router_bias), 1},
    {EXPERTS, "expert_bias", "true", IN_KIND(expert_bias), 1},
    {EXPERTS, "score_correction_bias", "true", IN_KIND(score_correction_bias), 1},
    {EXPERTS, "shared_expert_intermediate_size", "6", IN_KIND(shared_intermediate_size), 6},
    {EXPERTS ", 'shared_expert_intermediate_size': 6", "shared_expert_gate", "true", IN_KIND(shared_gate), 1},
    {EXPERTS ", 'shared_expert_intermediate_size': 6", "bias", "true", IN_KIND(mlp_bias), 1},
    {EXPERTS, "num_key_value_heads", "2", IN_KIND(num_key_value_heads), 2},
    {LATENT, "q_lora_rank", "12", IN_KIND(q_lora_rank), 12},
    {LATENT, "qkv_bias", "true", IN_KIND(qkv_bias), 1},
    {DENSE, "norm_without_bias", "true", IN_MODEL(norm_without_bias), 1},
    {DENSE, "norm_without_weight", "true", IN_MODEL(norm_without_weight), 1},
    {DENSE, "final_norm_absent", "true", IN_MODEL(final_norm_absent), 1},
    {DENSE, "embedding_norm", "true", IN_MODEL(embedding_norm), 1},
    {DENSE, "word_embed_proj_dim", "32", IN_MODEL(word_embed_proj_dim), 32},
    {DENSE, "head_bias", "true", IN_MODEL(head_bias), 1},
    {DENSE, "final_soft_cap", "true", IN_MODEL(final_soft_cap), 1},
    {DENSE, "num_nextn_predict_layers", "1", IN_MODEL(num_nextn_predict_layers), 1},
    {MODEL("layernorm", "alibi") ", " HEADS, "intermediate_size", "9", IN_MODEL(position), BP_POSITION_ALIBI},
};

START_TEST(test_form__what_is_said_is_kept)
{
    char added[128], canonical_member[128];
    snprintf(added, sizeof added, ", '%s': %s", kept[_i].key, kept[_i].value);
    snprintf(canonical_member, sizeof canonical_member, "'%s':%s", kept[_i].key, kept[_i].value);
    struct bp_model model = valid_form(kept[_i].base, added);
    uint64_t number = 0;
    memcpy(&number, (const char *)&model + kept[_i].offset, kept[_i].size); /* the low bytes come first */
    ck_assert_uint_eq(number, kept[_i].number);
    ck_assert_ptr_nonnull(strstr(written(&model), canonical_member));
    expect_form_says_it_all(&model, &arena);
}
END_TEST

/* What changes nothing, added to a base. */
static const struct {
    const char *base, *added;
} inert[] = {
    {DENSE, ", 'attention': 'heads', 'residual': 'sequential', 'norm_place': 'before', 'rotary_dim': 8"},
    {DENSE, ", 'chunked_attention': false, 'attention_sinks': false, 'attention_soft_cap': false"},
    {DENSE, ", 'output_bias': false, 'mlp_bias': false, 'cross_attention': false, 'qk_norm_bias': false"},
    {DENSE, ", 'router_bias': false, 'expert_bias': false, 'score_correction_bias': false"},
    {DENSE, ", 'shared_expert_gate': false, 'norm_without_bias': false, 'norm_without_weight': false"},
    {DENSE, ", 'final_norm_absent': false, 'embedding_norm': false, 'head_bias': false, 'final_soft_cap': false"},
    {DENSE, ", 'word_embed_proj_dim': 64"},
    {DENSE ", 'qk_norm': true", ", 'qk_norm_form': 'head', 'qk_norm_bias': true"},
    {DENSE ", 'bias': true", ", 'qkv_bias': true, 'output_bias': false, 'mlp_bias': true"},
    {DENSE ", 'norm_without_weight': true", ", 'norm_without_bias': true"},
    {PLAIN, ", 'norm_without_bias': true"},
    {PLAIN, ", 'rotary_dim': 0"},
    {EXPERTS, ", 'mlp_bias': true"},
};

START_TEST(test_form__what_changes_nothing_is_left_out)
{
    struct bp_model base = valid_form(inert[_i].base, ""), with = valid_form(inert[_i].base, inert[_i].added);
    ck_assert_str_eq(written(&with), written(&base));
}
END_TEST

START_TEST(test_form__three_biases_are_one)
{
    struct bp_model all = valid_form(DENSE, ", 'qkv_bias': true, 'output_bias': true, 'mlp_bias': true");
    struct bp_model bias = valid_form(DENSE, ", 'bias': true");
    ck_assert_str_eq(written(&all), written(&bias));
    struct bp_model routed = valid_form(EXPERTS, ", 'bias': true");
    ck_assert_ptr_nonnull(strstr(written(&routed), "'output_bias':true"));
    ck_assert_ptr_null(strstr(written(&routed), "'bias':true"));
}
END_TEST

/* H 64, h 8: what the class of DeepSeek has of these dimensions. */
START_TEST(test_form__latent_attention_has_its_own_head_sizes)
{
    struct bp_model model = valid_form(LATENT, "");
    const struct bp_kind *kind = &model.kinds[0];
    ck_assert(kind->num_key_value_heads == 8 && kind->head_dim == 6 && kind->rotary_dim == 2);
    ck_assert_uint_eq(kind->q_lora_rank, 0);
    expect_form_says_it_all(&model, &arena);
}
END_TEST

/* One kind is named by what it has; the name is in no key. */
static const struct {
    const char *base, *added, *name;
} names[] = {
    {DENSE, "", "dense"},
    {DENSE, ", 'sliding_window': 4", "sliding"},
    {DENSE, ", 'sliding_window': 4, 'chunked_attention': true", "chunked"},
    {EXPERTS, "", "expert"},
    {EXPERTS, ", 'sliding_window': 4", "sliding_expert"},
    {LATENT, "", "dense"},
};

START_TEST(test_form__one_kind_is_named_after_what_it_has)
{
    struct bp_model model = valid_form(names[_i].base, names[_i].added);
    ck_assert_str_eq(model.kinds[0].name, names[_i].name);
    expect_form_says_it_all(&model, &arena);
}
END_TEST

static const struct {
    const char *base, *added, *problems;
} refusals[] = {
    {DENSE, ", 'attention': 'linear'", "unknown_value /attention"},
    {DENSE, ", 'attention': 'linear', 'kv_lora_rank': 4", "unknown_value /attention"},
    {DENSE, ", 'attention': 'latent'",
     "missing_key /kv_lora_rank, missing_key /qk_nope_head_dim, missing_key /qk_rope_head_dim, "
     "missing_key /v_head_dim"},
    {DENSE, ", 'q_lora_rank': 4, 'v_head_dim': 4", "conflict /q_lora_rank, conflict /v_head_dim"},
    {LATENT, ", 'head_dim': 6, 'num_key_value_heads': 8, 'rotary_dim': 2, 'qk_norm': true",
     "conflict /num_key_value_heads, conflict /head_dim, conflict /rotary_dim, conflict /qk_norm"},
    {LATENT, ", 'q_lora_rank': 0", "out_of_range /q_lora_rank"},
    {DENSE, ", 'sliding_window': 0", "out_of_range /sliding_window"},
    {DENSE, ", 'chunked_attention': true", "conflict /chunked_attention"},
    {DENSE, ", 'chunked_attention': 8192", "wrong_type /chunked_attention"},
    {DENSE, ", 'rotary_dim': 9", "out_of_range /rotary_dim"},
    {DENSE, ", 'rotary_dim': -1", "out_of_range /rotary_dim"},
    {PLAIN, ", 'rotary_dim': 4", "conflict /rotary_dim"},
    {DENSE, ", 'qk_norm_form': 'span'", "conflict /qk_norm_form"},
    {DENSE, ", 'qk_norm_bias': true", "conflict /qk_norm_bias"},
    {DENSE, ", 'qk_norm': true, 'qk_norm_form': 'none'", "unknown_value /qk_norm_form"},
    {DENSE, ", 'qk_norm': 1, 'qk_norm_form': 'span'", "wrong_type /qk_norm"},
    {DENSE, ", 'qk_norm': true, 'qk_norm_form': 'without_weight', 'qk_norm_bias': true", "conflict /qk_norm_bias"},
    {PLAIN, ", 'qk_norm': true, 'qk_norm_bias': true", "conflict /qk_norm_bias"},
    {DENSE, ", 'output_bias': 1", "wrong_type /output_bias"},
    {DENSE, ", 'attention_sinks': 4", "wrong_type /attention_sinks"},
    {DENSE, ", 'attention_soft_cap': 50.0", "wrong_type /attention_soft_cap"},
    {DENSE, ", 'residual': 'both'", "unknown_value /residual"},
    {DENSE, ", 'norm_place': 'shared'", "conflict /norm_place"},
    {DENSE, ", 'norm_place': 'shared', 'residual': 'both'", "unknown_value /residual"},
    {DENSE, ", 'norm_place': 'around', 'residual': 'parallel'", "conflict /norm_place"},
    {DENSE, ", 'experts_per_token': 2", "conflict /experts_per_token"},
    {DENSE, ", 'expert_intermediate_size': 2", "conflict /expert_intermediate_size"},
    {DENSE, ", 'shared_expert_intermediate_size': 2, 'shared_expert_gate': true",
     "conflict /shared_expert_intermediate_size, conflict /shared_expert_gate"},
    {DENSE, ", 'router_bias': true, 'expert_bias': true, 'score_correction_bias': true",
     "conflict /router_bias, conflict /expert_bias, conflict /score_correction_bias"},
    {DENSE, ", " OF_EXPERTS, "conflict /intermediate_size"},
    {MODEL("rmsnorm", "rope") ", " HEADS, "", "missing_key /intermediate_size"},
    {MODEL("rmsnorm", "rope") ", " HEADS, ", 'num_experts': 4",
     "missing_key /experts_per_token, missing_key /expert_intermediate_size"},
    {MODEL("rmsnorm", "rope") ", " HEADS, ", 'num_experts': 4, 'experts_per_token': 5, 'expert_intermediate_size': 1",
     "out_of_range /experts_per_token"},
    {MODEL("rmsnorm", "rope") ", " HEADS, ", 'num_experts': 0, 'experts_per_token': 5, 'expert_intermediate_size': 1",
     "out_of_range /num_experts"},
    {EXPERTS, ", 'shared_expert_gate': true", "conflict /shared_expert_gate"},
    {DENSE, ", 'norm_without_bias': 0", "wrong_type /norm_without_bias"},
    {DENSE, ", 'word_embed_proj_dim': 0", "out_of_range /word_embed_proj_dim"},
    {DENSE, ", 'num_nextn_predict_layers': 0", "out_of_range /num_nextn_predict_layers"},
    {DENSE, ", 'window': 4, 'final_soft_capping': 1", "unknown_key /window, unknown_key /final_soft_capping"},
};

START_TEST(test_form__what_cannot_be_is_named_where_it_is)
{
    read_form(refusals[_i].base, refusals[_i].added);
    ck_assert_str_eq(line_of(&problems), refusals[_i].problems);
}
END_TEST

/* ---- Several kinds ---- */

#define TOP MODEL("rmsnorm", "rope")
#define DENSE_KIND "'name': 'dense', " HEADS ", 'intermediate_size': 100"
#define EXPERT_KIND "'name': 'expert', " HEADS ", " OF_EXPERTS
#define KINDS TOP ", 'kinds': [{" DENSE_KIND "}, {" EXPERT_KIND "}]"
#define RUN(n, name) "{'count': " #n ", 'kind': '" name "'}"
#define RUNS(runs) ", 'layers': [" runs "]"

START_TEST(test_form__kinds_and_their_layers_are_said_apart)
{
    struct bp_model model = valid_form(KINDS, RUNS(RUN(1, "dense") ", " RUN(2, "expert")));
    ck_assert_uint_eq(model.n_kinds, 2);
    ck_assert(model.kinds[0].layers == 1 && model.kinds[1].layers == 2);
    ck_assert_mem_eq(model.layer_kinds, "\0\1\1", 3);
    ck_assert_str_eq(written(&model),
                     "{'hidden_size':64,'kinds':[{'activation':'swiglu','intermediate_size':100,'name':'dense',"
                     "'num_attention_heads':8},{'activation':'swiglu','expert_intermediate_size':10,"
                     "'experts_per_token':2,'name':'expert','num_attention_heads':8,'num_experts':4}],'layers':[{"
                     "'count':1,'kind':'dense'},{'count':2,'kind':'expert'}],'norm':'rmsnorm','num_hidden_layers':3,"
                     "'position':'rope','vocab_size':50}");
    expect_form_says_it_all(&model, &arena);
}
END_TEST

START_TEST(test_form__runs_are_as_long_as_they_go_and_kinds_in_the_order_of_the_layers)
{
    struct bp_model said = valid_form(KINDS, RUNS(RUN(1, "expert") ", " RUN(1, "expert") ", " RUN(1, "dense")));
    struct bp_model ordered =
        valid_form(TOP ", 'kinds': [{" EXPERT_KIND "}, {" DENSE_KIND "}]", RUNS(RUN(2, "expert") ", " RUN(1, "dense")));
    ck_assert_str_eq(said.kinds[0].name, "expert");
    ck_assert_mem_eq(said.layer_kinds, "\0\0\1", 3);
    ck_assert_str_eq(written(&said), written(&ordered));
}
END_TEST

static const struct {
    const char *form, *problems;
} kind_refusals[] = {
    {KINDS, "missing_key /layers"},
    {TOP RUNS(RUN(3, "dense")), "missing_key /kinds"},
    {TOP ", 'kinds': {}" RUNS(RUN(3, "dense")), "wrong_type /kinds"},
    {TOP ", 'kinds': [{" DENSE_KIND "}]" RUNS(RUN(3, "dense")), "out_of_range /kinds"},
    {TOP ", 'kinds': [{" DENSE_KIND "}, 7]" RUNS(RUN(3, "dense")), "wrong_type /kinds/1"},
    {TOP ", 'kinds': [{" DENSE_KIND "}, {" DENSE_KIND "}]" RUNS(RUN(3, "dense")), "conflict /kinds/1/name"},
    {TOP ", 'kinds': [{" DENSE_KIND "}, {" HEADS ", 'intermediate_size': 1}]" RUNS(RUN(3, "dense")),
     "missing_key /kinds/1/name"},
    {TOP ", 'kinds': [{" DENSE_KIND "}, {'name': 'Big', " HEADS ", 'intermediate_size': 1}]" RUNS(RUN(3, "dense")),
     "out_of_range /kinds/1/name"},
    {TOP ", 'kinds': [{" DENSE_KIND "}, {'name': 'abcdefghijklmnopqrstuvwx', " HEADS
         ", 'intermediate_size': 1}]" RUNS(RUN(3, "dense")),
     "out_of_range /kinds/1/name"},
    {TOP ", 'kinds': [{" DENSE_KIND ", 'hidden_size': 4}, {" EXPERT_KIND
         ", 'rotary_dim': 9}]" RUNS(RUN(1, "dense") ", " RUN(2, "expert")),
     "unknown_key /kinds/0/hidden_size, out_of_range /kinds/1/rotary_dim"},
    {KINDS RUNS(RUN(1, "dense") ", " RUN(1, "expert")), "conflict /layers"},
    {KINDS RUNS(RUN(1, "dense") ", " RUN(3, "expert")), "conflict /layers"},
    {KINDS RUNS(RUN(3, "dense")), "conflict /layers"},
    {KINDS RUNS(RUN(1, "dense") ", " RUN(2, "sparse")), "unknown_value /layers/1/kind"},
    {KINDS RUNS(RUN(0, "dense") ", " RUN(3, "expert")), "out_of_range /layers/0/count"},
    {KINDS RUNS(RUN(4097, "dense") ", " RUN(2, "expert")), "out_of_range /layers/0/count"},
    {KINDS RUNS("{'kind': 'dense'}, {'count': 2}, {'count': 1, 'kind': 'expert', 'of': 1}, 7"),
     "missing_key /layers/0/count, missing_key /layers/1/kind, unknown_key /layers/2/of, wrong_type /layers/3"},
    {KINDS ", 'layers': []", "out_of_range /layers"},
    {KINDS ", 'num_attention_heads': 8, 'qk_norm': true" RUNS(RUN(1, "dense") ", " RUN(2, "expert")),
     "conflict /num_attention_heads, conflict /qk_norm"},
    {"'hidden_size': 64, 'num_hidden_layers': 4097, 'vocab_size': 9, 'norm': 'rmsnorm', 'position': 'rope', 'kinds': "
     "[{" DENSE_KIND "}, {" EXPERT_KIND "}]" RUNS(RUN(4096, "dense") ", " RUN(1, "expert")),
     "out_of_range /num_hidden_layers"},
};

START_TEST(test_form__kinds_and_layers_that_cannot_be_are_named_where_they_are)
{
    read_form(kind_refusals[_i].form, "");
    ck_assert_str_eq(line_of(&problems), kind_refusals[_i].problems);
}
END_TEST

/* ---- Public models ---- */

static void expect_config_round_trip(const json_t *model)
{
    struct bp_config config = {0};
    ck_assert_int_eq(bp_config_resolve(model, "", &arena, &problems, &config), 0);
    ck_assert(config.has_parameters);
    expect_form_says_it_all(&config.model, &arena);
}

START_TEST(test_form__says_all_of_every_public_model)
{
    DIR *directory = opendir("tests/models");
    size_t n = 0;
    ck_assert_ptr_nonnull(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[512];
        if (*entry->d_name == '.')
            continue;
        snprintf(path, sizeof path, "tests/models/%s", entry->d_name);
        json_t *file = json_of_file(path), *config = json_object_get(file, "config");
        json_t *model = config ? json_pack("{s:O}", "huggingface", config)
                               : json_pack("{s:O}", "transformer", json_object_get(file, "transformer"));
        expect_config_round_trip(model);
        json_decref(model);
        json_decref(file);
        n++;
    }
    closedir(directory);
    ck_assert_uint_ge(n, 19);
}
END_TEST

START_TEST(test_form__says_all_of_every_model_of_the_catalogue)
{
    for (size_t i = 0; i < bp_catalogue_n; i++) {
        json_t *model = json_pack("{s:s}", "name", bp_catalogue[i].name);
        expect_config_round_trip(model);
        json_decref(model);
    }
}
END_TEST

static void release(void)
{
    bp_problems_release(&problems);
    bp_arena_release(&arena);
}

#define LOOP(tcase, test, table) tcase_add_loop_test(tcase, test, 0, (int)(sizeof table / sizeof *table))

Suite *suite_form(void)
{
    Suite *suite = suite_create("form");
    TCase *tcase = tcase_create("form");
    tcase_add_checked_fixture(tcase, NULL, release);
    LOOP(tcase, test_form__what_is_said_is_kept, kept);
    LOOP(tcase, test_form__what_changes_nothing_is_left_out, inert);
    tcase_add_test(tcase, test_form__three_biases_are_one);
    tcase_add_test(tcase, test_form__latent_attention_has_its_own_head_sizes);
    LOOP(tcase, test_form__one_kind_is_named_after_what_it_has, names);
    LOOP(tcase, test_form__what_cannot_be_is_named_where_it_is, refusals);
    tcase_add_test(tcase, test_form__kinds_and_their_layers_are_said_apart);
    tcase_add_test(tcase, test_form__runs_are_as_long_as_they_go_and_kinds_in_the_order_of_the_layers);
    LOOP(tcase, test_form__kinds_and_layers_that_cannot_be_are_named_where_they_are, kind_refusals);
    tcase_add_test(tcase, test_form__says_all_of_every_public_model);
    tcase_add_test(tcase, test_form__says_all_of_every_model_of_the_catalogue);
    suite_add_tcase(suite, tcase);
    return suite;
}
