/* Fingerprints and plan ids: they change exactly when what they identify does. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/request/request.h"
#include "tests/unit/reading.h"

#define FORM(name)                                                                                                     \
    "{'transformer': {'name': '" name "', 'hidden_size': 64, 'num_hidden_layers': 12, 'num_attention_heads': 8, "      \
    "'intermediate_size': 96, 'vocab_size': 50, 'activation': 'relu', 'norm': 'layernorm', 'position': 'none'}}"
#define TRAINING                                                                                                       \
    "{'mode': 'training', 'sequence_length': 128, 'micro_batch_size': 2, 'global_batch_size': 24, "                    \
    "'dtype': 'bfloat16'}"
#define REQUEST(model, workload, strategy, rest)                                                                       \
    "{'model': " model ", 'workload': " workload ", 'strategy': " strategy rest "}"
#define TARGET(kind, devices)                                                                                          \
    ", 'target': {'kind': '" kind "'}, 'deployment': {'devices': " devices ", 'memory_bytes': 9}"

static struct bp_arena arena;
static struct bp_problems problems;

static struct bp_request valid(const char *text)
{
    struct bp_request request = {0};
    struct bp_config config = {0};
    json_t *body = json_of(text);
    ck_assert_int_eq(bp_request_read(body, &arena, &problems, &request, &config), 0);
    ck_assert_msg(problems.n == 0, "%s", line_of(&problems));
    json_decref(body);
    return request;
}

static struct bp_fingerprints fingerprints_of(const char *text)
{
    struct bp_request request = valid(text);
    struct bp_fingerprints fingerprints = {0};
    ck_assert_int_eq(bp_request_fingerprints(&request, &fingerprints, NULL), 0);
    return fingerprints;
}

static struct bp_digest id_of(const char *text, unsigned revision)
{
    struct bp_request request = valid(text);
    const struct bp_pass_revision passes[] = {{"distribute-transformer-training", 1},
                                              {"plan-transformer-training", revision}};
    struct bp_digest id = {{0}};
    ck_assert_int_eq(bp_plan_id(&request, passes, 2, &id, NULL), 0);
    return id;
}

/* The digest of a text in which ' stands for ". */
static struct bp_digest digest_of(const char *text)
{
    struct bp_digest digest;
    char *copy = strdup(text);
    for (char *c = copy; *c; c++)
        if (*c == '\'')
            *c = '"';
    bp_digest_of(copy, strlen(copy), &digest);
    free(copy);
    return digest;
}

#define BASE REQUEST(FORM("m"), TRAINING, "{'data_parallel': 2}", TARGET("reference-queue", "4"))

START_TEST(test_identity__a_fingerprint_is_the_digest_of_the_canonical_form)
{
    struct bp_fingerprints got = fingerprints_of(BASE);
    const struct {
        const struct bp_digest *digest;
        const char *text;
    } rows[] = {
        {&got.transformer,
         "{'activation':'relu','hidden_size':64,'intermediate_size':96,'norm':'layernorm','num_attention_heads':8,"
         "'num_hidden_layers':12,'position':'none','vocab_size':50}"},
        {&got.workload, "{'dtype':'bfloat16','global_batch_size':24,'micro_batch_size':2,'mode':'training',"
                        "'sequence_length':128}"},
        {&got.strategy, "{'data_parallel':2}"},
        {&got.distribution, "{'strategy':{'data_parallel':2},'workload':{'dtype':'bfloat16','global_batch_size':24,"
                            "'micro_batch_size':2,'mode':'training','sequence_length':128}}"},
        {&got.target, "{'kind':'reference-queue'}"},
        {&got.deployment, "{'devices':4,'memory_bytes':9}"},
        {&got.binding, "{'deployment':{'devices':4,'memory_bytes':9},'target':{'kind':'reference-queue'}}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bp_digest expected = digest_of(rows[i].text);
        ck_assert_msg(bp_digest_equal(rows[i].digest, &expected), "%s", rows[i].text);
    }
}
END_TEST

/* From outside: printf %s '{"kind":"reference-queue"}' | sha256sum */
START_TEST(test_identity__a_fingerprint_is_sha256)
{
    struct bp_fingerprints got = fingerprints_of(BASE);
    char text[BP_DIGEST_TEXT];
    bp_digest_format(&got.target, text);
    ck_assert_str_eq(text, "sha256:c415b944b6074d60a01c61f0634a499534b227ed79a0737677164b9599c89494");
}
END_TEST

START_TEST(test_identity__without_a_target_its_fingerprints_are_zero)
{
    struct bp_fingerprints got = fingerprints_of(REQUEST(FORM("m"), TRAINING, "{}", ));
    static const struct bp_digest zero;
    ck_assert(bp_digest_equal(&got.target, &zero) && bp_digest_equal(&got.deployment, &zero));
    ck_assert(bp_digest_equal(&got.binding, &zero) && !bp_digest_equal(&got.distribution, &zero));
}
END_TEST

/* A request beside BASE, and which of its fingerprints (transformer, workload, strategy, distribution, target,
 * deployment, binding) and whether its id (last) are other than BASE's. */
static const struct {
    const char *request, *changed;
} changes[] = {
    {BASE, "........"},
    {REQUEST(FORM("other"), TRAINING, "{'data_parallel': 2}", TARGET("reference-queue", "4")), ".......x"},
    {REQUEST(
         "{'transformer': {'name': 'm', 'hidden_size': 64, 'num_hidden_layers': 12, 'num_attention_heads': 8, "
         "'intermediate_size': 96, 'vocab_size': 51, 'activation': 'relu', 'norm': 'layernorm', 'position': 'none'}}",
         TRAINING, "{'data_parallel': 2}", TARGET("reference-queue", "4")),
     "x......x"},
    {REQUEST(FORM("m"), TRAINING, "{'data_parallel': 2, 'recompute': 'full'}", TARGET("reference-queue", "4")),
     "..xx...x"},
    {REQUEST(FORM("m"), TRAINING, "{'data_parallel': 2, 'sequence_parallel': true, 'virtual_stages': 1}",
             TARGET("reference-queue", "4")),
     "........"},
    {REQUEST(FORM("m"),
             "{'mode': 'training', 'sequence_length': 128, 'micro_batch_size': 2, 'global_batch_size': 24, "
             "'dtype': 'bfloat16', 'gradient_dtype': 'float32'}",
             "{'data_parallel': 2}", TARGET("reference-queue", "4")),
     "........"},
    {REQUEST(FORM("m"),
             "{'mode': 'training', 'sequence_length': 128, 'micro_batch_size': 2, 'global_batch_size': 24, "
             "'dtype': 'bfloat16', 'gradient_dtype': 'bfloat16'}",
             "{'data_parallel': 2}", TARGET("reference-queue", "4")),
     ".x.x...x"},
    {REQUEST(FORM("m"), TRAINING, "{'data_parallel': 2}", TARGET("reference-slot", "4")), "....x.xx"},
    {REQUEST(FORM("m"), TRAINING, "{'data_parallel': 2}", TARGET("reference-queue", "5")), ".....xxx"},
};

START_TEST(test_identity__only_what_changed_is_another)
{
    struct bp_fingerprints a = fingerprints_of(BASE), b = fingerprints_of(changes[_i].request);
    struct bp_digest a_id = id_of(BASE, 1), b_id = id_of(changes[_i].request, 1);
    const struct bp_digest *pairs[][2] = {
        {&a.transformer, &b.transformer}, {&a.workload, &b.workload},
        {&a.strategy, &b.strategy},       {&a.distribution, &b.distribution},
        {&a.target, &b.target},           {&a.deployment, &b.deployment},
        {&a.binding, &b.binding},         {&a_id, &b_id},
    };
    char changed[9] = {0};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        changed[i] = bp_digest_equal(pairs[i][0], pairs[i][1]) ? '.' : 'x';
    ck_assert_str_eq(changed, changes[_i].changed);
}
END_TEST

START_TEST(test_identity__a_plan_id_is_the_digest_of_passes_and_request)
{
    struct bp_digest got = id_of(REQUEST(FORM("m"), TRAINING, "{}", ), 2);
    struct bp_digest expected = digest_of(
        "{'passes':[{'name':'distribute-transformer-training','revision':1},{'name':'plan-transformer-training',"
        "'revision':2}],'request':{'model':{'transformer':{'activation':'relu','hidden_size':64,"
        "'intermediate_size':96,'name':'m','norm':'layernorm','num_attention_heads':8,'num_hidden_layers':12,"
        "'position':'none','vocab_size':50}},'strategy':{},'workload':{'dtype':'bfloat16','global_batch_size':24,"
        "'micro_batch_size':2,'mode':'training','sequence_length':128}}}");
    ck_assert(bp_digest_equal(&got, &expected));
}
END_TEST

START_TEST(test_identity__a_revised_pass_makes_another_plan)
{
    struct bp_digest first = id_of(BASE, 1), second = id_of(BASE, 2);
    ck_assert(!bp_digest_equal(&first, &second));
}
END_TEST

/* The same model in its three forms; the config and the form written out by hand. */
static const struct {
    const char *name, *huggingface, *transformer;
} same[] = {
    {"gpt2", "{'model_type': 'gpt2', 'n_embd': 768, 'n_layer': 12, 'vocab_size': 50257, 'summary_type': 'cls_index'}",
     "{'name': 'gpt2', 'hidden_size': 768, 'num_hidden_layers': 12, 'num_attention_heads': 12, "
     "'intermediate_size': 3072, 'vocab_size': 50257, 'max_position_embeddings': 1024, 'activation': 'gelu', "
     "'norm': 'layernorm', 'position': 'learned', 'bias': true, 'hidden_dropout': true, 'attention_dropout': true, "
     "'embedding_dropout': true, 'tie_word_embeddings': true}"},
    {"llama-3.1-8b",
     "{'model_type': 'llama', 'hidden_size': 4096, 'num_hidden_layers': 32, 'vocab_size': 128256, "
     "'num_key_value_heads': 8, 'intermediate_size': 14336}",
     "{'name': 'llama-3.1-8b', 'hidden_size': 4096, 'num_hidden_layers': 32, 'num_attention_heads': 32, "
     "'num_key_value_heads': 8, 'head_dim': 128, 'intermediate_size': 14336, 'vocab_size': 128256, "
     "'activation': 'swiglu', 'norm': 'rmsnorm', 'position': 'rope', 'max_position_embeddings': 131072}"},
    {"qwen2-7b",
     "{'model_type': 'qwen2', 'hidden_size': 3584, 'num_hidden_layers': 28, 'vocab_size': 152064, "
     "'num_attention_heads': 28, 'num_key_value_heads': 4, 'intermediate_size': 18944}",
     "{'name': 'qwen2-7b', 'hidden_size': 3584, 'num_hidden_layers': 28, 'num_attention_heads': 28, "
     "'num_key_value_heads': 4, 'intermediate_size': 18944, 'vocab_size': 152064, 'activation': 'swiglu', "
     "'norm': 'rmsnorm', 'position': 'rope', 'qkv_bias': true}"},
    {"qwen3-4b",
     "{'model_type': 'qwen3', 'hidden_size': 2560, 'num_hidden_layers': 36, 'vocab_size': 151936, "
     "'num_key_value_heads': 8, 'intermediate_size': 9728, 'tie_word_embeddings': true, 'rope_theta': 1e6}",
     "{'name': 'qwen3-4b', 'hidden_size': 2560, 'num_hidden_layers': 36, 'num_attention_heads': 32, "
     "'num_key_value_heads': 8, 'head_dim': 128, 'intermediate_size': 9728, 'vocab_size': 151936, "
     "'activation': 'swiglu', 'norm': 'rmsnorm', 'position': 'rope', 'qk_norm': true, 'tie_word_embeddings': true}"},
};

START_TEST(test_identity__the_forms_of_a_model_are_the_same_but_for_the_label)
{
    const char *forms[] = {same[_i].name, same[_i].huggingface, same[_i].transformer};
    static const char *const patterns[] = {"{'name': '%s'}", "{'huggingface': %s}", "{'transformer': %s}"};
    struct bp_fingerprints fingerprints[3];
    struct bp_digest ids[3];
    for (size_t i = 0; i < 3; i++) {
        char model[1024], text[2048];
        int n = snprintf(model, sizeof model, "%.*s%s%s", (int)(strstr(patterns[i], "%s") - patterns[i]), patterns[i],
                         forms[i], strstr(patterns[i], "%s") + 2);
        ck_assert_int_lt(n, (int)sizeof model);
        snprintf(text, sizeof text, "{'model': %s, 'workload': " TRAINING ", 'strategy': {}}", model);
        fingerprints[i] = fingerprints_of(text);
        ids[i] = id_of(text, 1);
        ck_assert_mem_eq(&fingerprints[i], &fingerprints[0], sizeof *fingerprints);
    }
    ck_assert(bp_digest_equal(&ids[0], &ids[2]));
    ck_assert_int_eq(bp_digest_equal(&ids[0], &ids[1]), strcmp(same[_i].name, "gpt2") == 0);
}
END_TEST

/* A plan is replayed from its canonical request, so that must read as the same request: the same bytes, the same
 * fingerprints. */
/* Of a whole job, which takes every model. */
static struct bp_request valid_job(const char *text)
{
    struct bp_request request = {0};
    struct bp_strategy said;
    struct bp_config config = {0};
    json_t *body = json_of(text);
    ck_assert_int_eq(bp_request_read_for_job(body, &arena, &problems, &request, &said, &config), 0);
    ck_assert_msg(problems.n == 0, "%s", line_of(&problems));
    json_decref(body);
    return request;
}

static void expect_to_read_back(const char *model, unsigned length, unsigned tensor_parallel)
{
    char text[1024], *first, *second;
    snprintf(text, sizeof text,
             "{'model': %s, 'workload': {'mode': 'training', 'sequence_length': %u, 'micro_batch_size': 2, "
             "'global_batch_size': 24, 'dtype': 'float16'}, 'strategy': {'tensor_parallel': %u, "
             "'sequence_parallel': true, 'recompute_all_gather': false}}",
             model, length, tensor_parallel);
    struct bp_request request = valid_job(text);
    struct bp_buf buf = {0}, again = {0};
    struct bp_writer writer = {.out = &buf}, rewriter = {.out = &again};
    bp_request_write(&writer, &request);
    first = strdup(canonical(&writer));
    struct bp_request reread = valid_job(first);
    bp_request_write(&rewriter, &reread);
    second = strdup(canonical(&rewriter));
    ck_assert_str_eq(first, second);
    struct bp_fingerprints a, b;
    ck_assert_int_eq(bp_request_fingerprints(&request, &a, NULL), 0);
    ck_assert_int_eq(bp_request_fingerprints(&reread, &b, NULL), 0);
    ck_assert_mem_eq(&a, &b, sizeof a);
    bp_u128 count_a = 0, count_b = 1;
    ck_assert_int_eq(bp_model_parameters(&request.model, &count_a, NULL), 0);
    ck_assert_int_eq(bp_model_parameters(&reread.model, &count_b, NULL), 0);
    ck_assert(count_a == count_b);
    free(first);
    free(second);
}

START_TEST(test_identity__a_normalised_request_reads_back_as_itself)
{
    for (size_t i = 0; i < bp_catalogue_n; i++) {
        char model[128];
        struct bp_config config;
        json_t *form = json_of(bp_catalogue[i].form);
        bp_problems_release(&problems);
        ck_assert_int_eq(bp_config_resolve(form, "", &arena, &problems, &config), 0);
        json_decref(form);
        ck_assert_msg(bp_problems_none(&problems), "%s", line_of(&problems));
        snprintf(model, sizeof model, "{'name': '%s'}", bp_catalogue[i].name);
        expect_to_read_back(model, 1024, config.model.kinds[0].num_attention_heads % 2 ? 1 : 2);
    }
    expect_to_read_back("{'huggingface': {'model_type': 'opt', 'hidden_size': 24, 'num_hidden_layers': 2, "
                        "'vocab_size': 9}}",
                        2048, 2);
    expect_to_read_back("{'huggingface': {'model_type': 'llama', 'hidden_size': 64, 'num_hidden_layers': 2, "
                        "'vocab_size': 9, 'head_dim': 6, 'attention_bias': true, 'mlp_bias': true}}",
                        64, 2);
    expect_to_read_back("{'huggingface': {'model_type': 'gpt_neox', 'hidden_size': 64, 'num_hidden_layers': 2, "
                        "'vocab_size': 9, 'rotary_pct': 1, 'use_parallel_residual': false, 'hidden_dropout': 0.1}}",
                        64, 2);
}
END_TEST

static void release(void)
{
    bp_problems_release(&problems);
    bp_arena_release(&arena);
}

#define LOOP(tcase, test, table) tcase_add_loop_test(tcase, test, 0, (int)(sizeof table / sizeof *table))

Suite *suite_identity(void)
{
    Suite *suite = suite_create("identity");
    TCase *tcase = tcase_create("identity");
    tcase_add_checked_fixture(tcase, NULL, release);
    tcase_add_test(tcase, test_identity__a_fingerprint_is_the_digest_of_the_canonical_form);
    tcase_add_test(tcase, test_identity__a_fingerprint_is_sha256);
    tcase_add_test(tcase, test_identity__without_a_target_its_fingerprints_are_zero);
    LOOP(tcase, test_identity__only_what_changed_is_another, changes);
    tcase_add_test(tcase, test_identity__a_plan_id_is_the_digest_of_passes_and_request);
    tcase_add_test(tcase, test_identity__a_revised_pass_makes_another_plan);
    LOOP(tcase, test_identity__the_forms_of_a_model_are_the_same_but_for_the_label, same);
    tcase_add_test(tcase, test_identity__a_normalised_request_reads_back_as_itself);
    suite_add_tcase(suite, tcase);
    return suite;
}
