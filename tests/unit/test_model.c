#include <check.h>
#include <stddef.h>
#include <string.h>

#include "common/model/model.h"
#include "tests/unit/reading.h"

/* A form without optional keys, and what a test adds before its closing brace. */
#define FORM                                                                                                           \
    "{'name': 'm', 'hidden_size': 64, 'num_hidden_layers': 3, 'num_attention_heads': 8, 'intermediate_size': 100, "    \
    "'vocab_size': 50, 'activation': 'gelu', 'norm': 'layernorm', 'position': 'none'"

static struct bp_problems problems;
static struct bp_arena arena;

static struct bp_model read_model(const char *text)
{
    struct bp_model model;
    bp_problems_release(&problems);
    json_t *value = json_of(text);
    struct bp_reader reader = bp_reader_of(value, "/at", &problems);
    bp_model_read(&reader, &arena, &model);
    json_decref(value);
    return model;
}

static struct bp_model valid_model(const char *text)
{
    struct bp_model model = read_model(text);
    ck_assert_str_eq(line_of(&problems), "");
    return model;
}

static const char *written(const struct bp_model *model, bool with_name)
{
    struct bp_buf buf = {0};
    struct bp_writer writer = {.out = &buf};
    bp_model_write(&writer, model, with_name);
    return canonical(&writer);
}

START_TEST(test_model__absent_keys_take_their_defaults)
{
    struct bp_model model = valid_model(FORM "}");
    ck_assert_str_eq(model.name, "m");
    ck_assert_uint_eq(model.kinds[0].num_key_value_heads, 8);
    ck_assert_uint_eq(model.kinds[0].head_dim, 8);
    ck_assert_uint_eq(model.max_position_embeddings, 0);
    const struct bp_kind *kind = &model.kinds[0];
    ck_assert(!kind->output_bias && !kind->qkv_bias && !kind->qk_norm && !model.tie_word_embeddings);
    ck_assert(!kind->hidden_dropout && !kind->attention_dropout && !model.embedding_dropout);
}
END_TEST

START_TEST(test_model__canonical_form_leaves_out_defaults)
{
    struct bp_model model = valid_model(FORM ", 'num_key_value_heads': 8, 'head_dim': 8, 'bias': false}");
    ck_assert_str_eq(written(&model, true),
                     "{'activation':'gelu','hidden_size':64,'intermediate_size':100,'name':'m','norm':'layernorm',"
                     "'num_attention_heads':8,'num_hidden_layers':3,'position':'none','vocab_size':50}");
    ck_assert_ptr_null(strstr(written(&model, false), "name"));
}
END_TEST

START_TEST(test_model__canonical_form_has_what_is_not_default)
{
    struct bp_model model = valid_model(
        "{'name': 'all', 'hidden_size': 64, 'num_hidden_layers': 3, 'num_attention_heads': 8, 'num_key_value_heads': 2,"
        " 'head_dim': 16, 'intermediate_size': 100, 'vocab_size': 50, 'max_position_embeddings': 7, "
        "'activation': 'geglu', 'norm': 'rmsnorm', 'position': 'learned', 'qkv_bias': true, 'qk_norm': true, "
        "'hidden_dropout': true, 'attention_dropout': true, 'embedding_dropout': true, 'tie_word_embeddings': true}");
    const char *text =
        "{'activation':'geglu','attention_dropout':true,'embedding_dropout':true,'head_dim':16,'hidden_dropout':true,"
        "'hidden_size':64,'intermediate_size':100,'max_position_embeddings':7,'name':'all','norm':'rmsnorm',"
        "'num_attention_heads':8,'num_hidden_layers':3,'num_key_value_heads':2,'position':'learned','qk_norm':true,"
        "'qkv_bias':true,'tie_word_embeddings':true,'vocab_size':50}";
    ck_assert_str_eq(written(&model, true), text);
    struct bp_model again = valid_model(text);
    ck_assert_str_eq(written(&again, true), text);
}
END_TEST

START_TEST(test_model__position_table_counts_only_when_learned)
{
    struct bp_model model = valid_model(
        "{'name': 'm', 'hidden_size': 64, 'num_hidden_layers': 3, 'num_attention_heads': 8, 'intermediate_size': 100, "
        "'vocab_size': 50, 'activation': 'gelu', 'norm': 'layernorm', 'position': 'rope', "
        "'max_position_embeddings': 99}");
    ck_assert_uint_eq(model.max_position_embeddings, 0);
    ck_assert_ptr_null(strstr(written(&model, true), "max_position"));
}
END_TEST

START_TEST(test_model__a_bias_everywhere_includes_query_key_and_value)
{
    struct bp_model both = valid_model(FORM ", 'bias': true, 'qkv_bias': true}");
    ck_assert(bp_kind_bias(&both.kinds[0]));
    ck_assert_ptr_null(strstr(written(&both, false), "qkv_bias"));
}
END_TEST

START_TEST(test_model__a_snapshot_has_no_name)
{
    struct bp_model model =
        valid_model("{'hidden_size': 64, 'num_hidden_layers': 3, 'num_attention_heads': 8, 'intermediate_size': 100, "
                    "'vocab_size': 50, 'activation': 'relu', 'norm': 'layernorm', 'position': 'none'}");
    ck_assert_str_eq(model.name, "");
    ck_assert_int_eq(model.kinds[0].activation, BP_ACTIVATION_RELU);
}
END_TEST

#define X32 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

static const struct {
    const char *form, *problems;
} refusals[] = {
    {"[]", "wrong_type /at"},
    {FORM ", 'experts': 2}", "unknown_key /at/experts"},
    {FORM ", 'bias': 1}", "wrong_type /at/bias"},
    {FORM ", 'qk_norm': null}", "wrong_type /at/qk_norm"},
    {FORM ", 'head_dim': 0}", "out_of_range /at/head_dim"},
    {FORM ", 'head_dim': 8.0}", "wrong_type /at/head_dim"},
    {FORM ", 'num_key_value_heads': 3}", "not_divisible /at/num_key_value_heads"},
    {FORM ", 'num_key_value_heads': 16}", "not_divisible /at/num_key_value_heads"},
    {FORM ", 'num_key_value_heads': '8'}", "wrong_type /at/num_key_value_heads"},
    {FORM ", 'max_position_embeddings': -1}", "out_of_range /at/max_position_embeddings"},
    {"{'name': '', 'hidden_size': 9007199254740992, 'num_hidden_layers': 0, 'num_attention_heads': -8, "
     "'intermediate_size': 1e3, 'vocab_size': true, 'activation': 'silu', 'norm': 1, 'position': 'rotary'}",
     "out_of_range /at/name, out_of_range /at/hidden_size, wrong_type /at/norm, out_of_range /at/num_hidden_layers, "
     "unknown_value /at/position, wrong_type /at/vocab_size, unknown_value /at/activation, "
     "wrong_type /at/intermediate_size, out_of_range /at/num_attention_heads"},
    {"{}", "missing_key /at/hidden_size, missing_key /at/norm, missing_key /at/num_hidden_layers, "
           "missing_key /at/position, missing_key /at/vocab_size, missing_key /at/activation, "
           "missing_key /at/num_attention_heads, missing_key /at/intermediate_size"},
    {"{'name': 'm', 'hidden_size': 65, 'num_hidden_layers': 3, 'num_attention_heads': 8, 'intermediate_size': 1, "
     "'vocab_size': 50, 'activation': 'gelu', 'norm': 'layernorm', 'position': 'learned'}",
     "missing_key /at/max_position_embeddings, not_divisible /at/num_attention_heads"},
    {"{'name': '" X32 X32 X32 X32 "', 'hidden_size': 64, 'num_hidden_layers': 3, 'num_attention_heads': 8, "
     "'intermediate_size': 1, 'vocab_size': 50, 'activation': 'gelu', 'norm': 'layernorm', 'position': 'none'}",
     "out_of_range /at/name"},
};

START_TEST(test_model__every_problem_is_named_where_it_is)
{
    read_model(refusals[_i].form);
    ck_assert_str_eq(line_of(&problems), refusals[_i].problems);
}
END_TEST

START_TEST(test_model__head_dim_may_be_other_than_the_quotient)
{
    struct bp_model model = valid_model(
        "{'name': 'm', 'hidden_size': 65, 'num_hidden_layers': 3, 'num_attention_heads': 8, 'head_dim': 8, "
        "'intermediate_size': 1, 'vocab_size': 50, 'activation': 'gelu', 'norm': 'layernorm', 'position': 'none'}");
    ck_assert_uint_eq(model.kinds[0].head_dim, 8);
    ck_assert_ptr_nonnull(strstr(written(&model, true), "'head_dim':8,"));
}
END_TEST

START_TEST(test_model__only_swiglu_and_geglu_are_gated)
{
    static const bool gated[] = {false, false, true, true};
    for (int i = 0; bp_activation_names[i]; i++)
        ck_assert_int_eq(bp_kind_gated(&(struct bp_kind){.activation = (enum bp_activation)i}), gated[i]);
}
END_TEST

/* By hand: H 64, F 100, L 3, V 50, h 8, d 8. Attention 4*64*64 = 16384, plain MLP 2*64*100 = 12800, two norms
 * 4*64 = 256; beside the blocks the embedding 3200, the final norm 128, the head 3200. */
static const struct {
    const char *added;
    uint64_t parameters;
} counts[] = {
    {"", 3 * (16384 + 12800 + 256) + 3200 + 128 + 3200},
    {", 'tie_word_embeddings': true", 3 * (16384 + 12800 + 256) + 3200 + 128},
    {", 'bias': true", 3 * (16384 + 12800 + 256 + 3 * 64 + 64 + 100 + 64) + 3200 + 128 + 3200},
    {", 'qkv_bias': true", 3 * (16384 + 12800 + 256 + 3 * 64) + 3200 + 128 + 3200},
    {", 'qk_norm': true", 3 * (16384 + 12800 + 256 + 4 * 8) + 3200 + 128 + 3200},
    {", 'num_key_value_heads': 2", 3 * (2 * 64 * 64 + 2 * 64 * 16 + 12800 + 256) + 3200 + 128 + 3200},
    {", 'head_dim': 16", 3 * (2 * 16384 + 12800 + 256) + 3200 + 128 + 3200},
    {", 'hidden_dropout': true", 3 * (16384 + 12800 + 256) + 3200 + 128 + 3200},
};

START_TEST(test_model__parameters_are_counted_exactly)
{
    char text[1024];
    bp_u128 parameters = 0;
    snprintf(text, sizeof text, "%s%s}", FORM, counts[_i].added);
    struct bp_model model = valid_model(text);
    ck_assert_int_eq(bp_model_parameters(&model, &parameters, NULL), 0);
    ck_assert(parameters == counts[_i].parameters);
}
END_TEST

START_TEST(test_model__a_gated_mlp_and_rmsnorm_are_counted_exactly)
{
    struct bp_model model = valid_model(
        "{'name': 'm', 'hidden_size': 64, 'num_hidden_layers': 3, 'num_attention_heads': 8, 'intermediate_size': 100, "
        "'vocab_size': 50, 'activation': 'swiglu', 'norm': 'rmsnorm', 'position': 'learned', "
        "'max_position_embeddings': 10, 'bias': true, 'qk_norm': true}");
    bp_u128 parameters = 0;
    ck_assert_int_eq(bp_model_parameters(&model, &parameters, NULL), 0);
    ck_assert(parameters == 3 * (16384 + 19200 + 128 + 2 * 8 + 4 * 64 + 2 * 100 + 64) + 2 * 3200 + 640 + 64);
}
END_TEST

START_TEST(test_model__too_many_parameters_are_an_overflow)
{
    struct bp_model model = {.hidden_size = BP_JSON_INT_MAX,
                             .num_hidden_layers = BP_JSON_INT_MAX,
                             .vocab_size = BP_JSON_INT_MAX,
                             .n_kinds = 1,
                             .kinds = {{.layers = BP_JSON_INT_MAX,
                                        .num_attention_heads = BP_JSON_INT_MAX,
                                        .num_key_value_heads = BP_JSON_INT_MAX,
                                        .head_dim = BP_JSON_INT_MAX,
                                        .intermediate_size = BP_JSON_INT_MAX}}};
    struct bp_err err = {0};
    bp_u128 parameters = 7;
    ck_assert_int_eq(bp_model_parameters(&model, &parameters, &err), -1);
    ck_assert_int_eq(err.code, BP_E_quantity_overflow);
    ck_assert(parameters == 7);
}
END_TEST

START_TEST(test_model__keys_and_values_are_cached_once_a_head)
{
    struct bp_model model = valid_model(FORM ", 'num_key_value_heads': 2, 'head_dim': 16}");
    struct bp_err err = {0};
    bp_u128 elements = 0;
    ck_assert_int_eq(bp_model_kv_elements(&model, &elements, NULL), 0);
    ck_assert(elements == 3 * 2 * 2 * 16);
    model.kinds[0].layers = model.kinds[0].num_key_value_heads = model.kinds[0].head_dim = UINT64_MAX;
    ck_assert_int_eq(bp_model_kv_elements(&model, &elements, &err), -1);
    ck_assert_int_eq(err.code, BP_E_quantity_overflow);
    ck_assert(elements == 3 * 2 * 2 * 16);
}
END_TEST

static void release(void)
{
    bp_problems_release(&problems);
    bp_arena_release(&arena);
}

Suite *suite_model(void)
{
    Suite *suite = suite_create("model");
    TCase *tcase = tcase_create("model");
    tcase_add_checked_fixture(tcase, NULL, release);
    tcase_add_test(tcase, test_model__absent_keys_take_their_defaults);
    tcase_add_test(tcase, test_model__canonical_form_leaves_out_defaults);
    tcase_add_test(tcase, test_model__canonical_form_has_what_is_not_default);
    tcase_add_test(tcase, test_model__position_table_counts_only_when_learned);
    tcase_add_test(tcase, test_model__a_bias_everywhere_includes_query_key_and_value);
    tcase_add_test(tcase, test_model__a_snapshot_has_no_name);
    tcase_add_loop_test(tcase, test_model__every_problem_is_named_where_it_is, 0, sizeof refusals / sizeof *refusals);
    tcase_add_test(tcase, test_model__head_dim_may_be_other_than_the_quotient);
    tcase_add_test(tcase, test_model__only_swiglu_and_geglu_are_gated);
    tcase_add_loop_test(tcase, test_model__parameters_are_counted_exactly, 0, sizeof counts / sizeof *counts);
    tcase_add_test(tcase, test_model__a_gated_mlp_and_rmsnorm_are_counted_exactly);
    tcase_add_test(tcase, test_model__too_many_parameters_are_an_overflow);
    tcase_add_test(tcase, test_model__keys_and_values_are_cached_once_a_head);
    suite_add_tcase(suite, tcase);
    return suite;
}
