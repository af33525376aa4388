/* The importer families, the three forms of a model, the catalogue. Refusals are in test_config_refusals.c. */
#include <check.h>
#include <dirent.h>
#include <string.h>

#include "common/model/config.h"
#include "tests/unit/reading.h"

static struct bp_arena arena;
static struct bp_problems problems;

static struct bp_config imported(const json_t *value)
{
    struct bp_config config = {0};
    bp_problems_release(&problems);
    ck_assert_int_eq(bp_config_import(value, "/c", &arena, &problems, &config), 0);
    return config;
}

static struct bp_config import_text(const char *text)
{
    json_t *value = json_of(text);
    struct bp_config config = imported(value);
    json_decref(value);
    return config;
}

static const char *parameters_of(const struct bp_config *config)
{
    static char text[BP_U128_TEXT];
    if (!config->has_parameters)
        return "none";
    bp_u128_format(config->count.total, text);
    return text;
}

static const char *model_of(const struct bp_config *config)
{
    struct bp_buf buf = {0};
    struct bp_writer writer = {.out = &buf};
    bp_model_write(&writer, &config->model, true);
    return canonical(&writer);
}

static const char *joined(const char *const *list, size_t n)
{
    static char line[2048];
    line[0] = '\0';
    for (size_t i = 0; i < n; i++)
        snprintf(line + strlen(line), sizeof line - strlen(line), "%s%s", i ? " " : "", list[i]);
    return line;
}

/* Calls `visit` for each public config of tests/models; returns how many there were. */
static int each_published(void (*visit)(const char *name, const json_t *file))
{
    DIR *dir = opendir("tests/models");
    struct dirent *entry;
    int n = 0;
    ck_assert_ptr_nonnull(dir);
    while ((entry = readdir(dir))) {
        char path[512];
        if (!strstr(entry->d_name, ".json"))
            continue;
        snprintf(path, sizeof path, "tests/models/%s", entry->d_name);
        json_t *file = json_of_file(path);
        if (json_object_get(file, "config")) {
            visit(json_string_value(json_object_get(file, "name")), file);
            n++;
        }
        json_decref(file);
    }
    closedir(dir);
    return n;
}

static void expect_published_count(const char *name, const json_t *file)
{
    struct bp_config config = imported(json_object_get(file, "config"));
    ck_assert_msg(strcmp(parameters_of(&config), json_string_value(json_object_get(file, "parameters"))) == 0,
                  "%s has %s parameters", name, parameters_of(&config));
}

START_TEST(test_config__published_counts_come_out_exactly)
{
    ck_assert_int_eq(each_published(expect_published_count), 18);
}
END_TEST

static void expect_in_catalogue(const char *name, const json_t *file)
{
    const struct bp_catalogue_row *row = bp_catalogue_find(name);
    ck_assert_msg(row != NULL, "%s is not in the catalogue", name);
    json_t *form = json_of(row->form);
    ck_assert_msg(json_equal(json_object_get(form, "huggingface"), json_object_get(file, "config")), "%s", name);
    ck_assert_str_eq(row->published_parameters, json_string_value(json_object_get(file, "parameters")));
    json_decref(form);
}

START_TEST(test_config__the_catalogue_has_the_public_models_as_published)
{
    ck_assert_int_eq(each_published(expect_in_catalogue), 18);
    ck_assert_ptr_null(bp_catalogue_find("gpt-5"));
}
END_TEST

START_TEST(test_config__every_catalogue_row_is_counted_and_has_a_source)
{
    ck_assert_uint_ge(bp_catalogue_n, 15);
    for (size_t i = 0; i < bp_catalogue_n; i++) {
        const struct bp_catalogue_row *row = &bp_catalogue[i];
        struct bp_config config = {0};
        char text[256];
        ck_assert(i == 0 || strcmp(bp_catalogue[i - 1].name, row->name) < 0);
        ck_assert_uint_gt(strlen(row->source), 10);
        snprintf(text, sizeof text, "{'name': '%s'}", row->name);
        json_t *value = json_of(text);
        bp_problems_release(&problems);
        ck_assert_int_eq(bp_config_resolve(value, "/model", &arena, &problems, &config), 0);
        json_decref(value);
        ck_assert_str_eq(config.model.name, row->name);
        ck_assert_str_ne(parameters_of(&config), "none");
        if (row->published_parameters)
            ck_assert_str_eq(parameters_of(&config), row->published_parameters);
    }
}
END_TEST

/* The four models of the Megatron papers, whose counts follow from 12LH^2 + 4LH + (2V + S + 2)H without biases. */
static const struct {
    const char *name;
    uint64_t H, heads, L;
} megatron[] = {{"megatron-22b", 6144, 64, 48},
                {"gpt3-175b", 12288, 96, 96},
                {"turing-530b", 20480, 128, 105},
                {"megatron-1t", 25600, 160, 128}};

START_TEST(test_config__megatron_models_are_those_of_the_papers)
{
    struct bp_config config = {0};
    uint64_t H = megatron[_i].H, L = megatron[_i].L;
    json_t *form = json_of(bp_catalogue_find(megatron[_i].name)->form);
    ck_assert_int_eq(bp_config_resolve(form, "", &arena, &problems, &config), 0);
    json_decref(form);
    ck_assert_str_eq(line_of(&problems), "");
    const struct bp_model *model = &config.model;
    ck_assert(model->hidden_size == H && model->num_hidden_layers == L);
    const struct bp_kind *kind = &model->kinds[0];
    ck_assert(kind->num_attention_heads == megatron[_i].heads && kind->intermediate_size == 4 * H);
    ck_assert(kind->hidden_dropout && kind->attention_dropout && model->embedding_dropout && !kind->qkv_bias);
    ck_assert(config.count.total == 12 * L * H * H + 4 * L * H + (2 * 51200 + 2048 + 2) * H);
}
END_TEST

START_TEST(test_config__gpt3_is_the_shared_form)
{
    json_t *file = json_of_file("tests/models/gpt3-175b.json"), *form = json_of(bp_catalogue_find("gpt3-175b")->form);
    ck_assert(json_equal(json_object_get(file, "transformer"), json_object_get(form, "transformer")));
    json_decref(file);
    json_decref(form);
}
END_TEST

#define GPT2(H, L, h)                                                                                                  \
    "{'model_type': 'gpt2', 'n_embd': " #H ", 'n_layer': " #L ", 'n_head': " #h ", 'vocab_size': 50257}"
#define OPT(H, L, h, F, rest)                                                                                          \
    "{'model_type': 'opt', 'hidden_size': " #H ", 'num_hidden_layers': " #L ", 'num_attention_heads': " #h             \
    ", 'ffn_dim': " #F ", 'vocab_size': 50272" rest "}"
#define LLAMA(type, H, L, h, k, F, V, rest)                                                                            \
    "{'model_type': '" type "', 'hidden_size': " #H ", 'num_hidden_layers': " #L ", 'num_attention_heads': " #h        \
    ", 'num_key_value_heads': " #k ", 'intermediate_size': " #F ", 'vocab_size': " #V rest "}"

/* Counts as the models' cards and papers state them; the last ones by hand, for what they do not show. */
static const struct {
    const char *config, *parameters;
} counts[] = {
    {GPT2(1024, 24, 16), "354823168"},
    {GPT2(1280, 36, 20), "774030080"},
    {GPT2(1600, 48, 25), "1557611200"},
    {OPT(768, 12, 12, 3072, ), "125239296"},
    {OPT(1024, 24, 16, 4096, ", 'word_embed_proj_dim': 512, 'do_layer_norm_before': false"), "331196416"},
    {OPT(2048, 24, 32, 8192, ), "1315758080"},
    {OPT(4096, 32, 32, 16384, ), "6658473984"},
    {LLAMA("llama", 2048, 16, 32, 8, 8192, 128256, ", 'tie_word_embeddings': true"), "1235814400"},
    {LLAMA("llama", 3072, 28, 24, 8, 8192, 128256, ", 'tie_word_embeddings': true"), "3212749824"},
    {LLAMA("llama", 5120, 40, 40, 40, 13824, 32000, ), "13015864320"},
    {LLAMA("llama", 8192, 80, 64, 8, 28672, 32000, ), "68976648192"},
    {LLAMA("mistral", 5120, 40, 32, 8, 14336, 131072, ", 'head_dim': 128, 'sliding_window': null"), "12247782400"},
    {LLAMA("qwen2", 896, 24, 14, 2, 4864, 151936, ", 'tie_word_embeddings': true"), "494032768"},
    {LLAMA("qwen2", 1536, 28, 12, 2, 8960, 151936, ", 'tie_word_embeddings': true"), "1543714304"},
    {LLAMA("qwen3", 1024, 28, 16, 8, 3072, 151936, ", 'tie_word_embeddings': true"), "596049920"},
    /* OPT: H 8, L 2, F 32: 402176 embedding, 16400 positions, 872 a block, 16 final norm: 420336 with all. */
    {OPT(8, 2, 2, 32, ", 'enable_bias': false"), "420192"},
    {OPT(8, 2, 2, 32, ", 'tie_word_embeddings': false"), "822512"},
    {OPT(8, 2, 2, 32, ", 'tie_word_embeddings': false, 'word_embed_proj_dim': 4"), "420400"},
    {OPT(8, 2, 2, 32, ", '_remove_final_layer_norm': true"), "420320"},
    {OPT(8, 2, 2, 32, ", 'layer_norm_elementwise_affine': false"), "420256"},
    {OPT(8, 2, 2, 32, ", 'layer_norm_elementwise_affine': false, 'do_layer_norm_before': false"), "420256"},
    /* Llama: H 8, 2 heads of 4, F 16, V 10, L 2: 592 a block, 168 beside the blocks. */
    {LLAMA("llama", 8, 2, 2, 1, 16, 10, ), "1352"},
    {LLAMA("llama", 8, 2, 2, 1, 16, 10, ", 'attention_bias': true"), "1400"},
    {LLAMA("llama", 8, 2, 2, 1, 16, 10, ", 'mlp_bias': true"), "1432"},
    {LLAMA("llama", 8, 2, 2, 1, 16, 10, ", 'mlp_bias': true, 'attention_bias': true"), "1480"},
    {LLAMA("llama", 8, 2, 2, 1, 16, 10, ", 'mlp_bias': true, 'attention_bias': true, 'head_dim': 2"), "1272"},
    {LLAMA("qwen3", 8, 2, 2, 1, 16, 10, ", 'head_dim': 4, 'attention_bias': true"), "1416"},
};

START_TEST(test_config__counts_are_exact)
{
    struct bp_config config = import_text(counts[_i].config);
    ck_assert_str_eq(parameters_of(&config), counts[_i].parameters);
}
END_TEST

/* The Pythia suite's paper, Table 1: layers, width, heads, vocabulary, parameters. */
static const struct {
    unsigned L, H, h, V;
    const char *parameters;
} pythia[] = {
    {6, 512, 8, 50304, "70426624"},       {12, 768, 12, 50304, "162322944"},   {24, 1024, 16, 50304, "405334016"},
    {16, 2048, 8, 50304, "1011781632"},   {24, 2048, 16, 50304, "1414647808"}, {32, 2560, 32, 50304, "2775208960"},
    {36, 5120, 40, 50688, "11846072320"},
};

START_TEST(test_config__pythia_counts_are_exact)
{
    char text[512];
    snprintf(text, sizeof text,
             "{'model_type': 'gpt_neox', 'hidden_size': %u, 'num_hidden_layers': %u, 'num_attention_heads': %u, "
             "'intermediate_size': %u, 'vocab_size': %u}",
             pythia[_i].H, pythia[_i].L, pythia[_i].h, 4 * pythia[_i].H, pythia[_i].V);
    struct bp_config config = import_text(text);
    ck_assert_str_eq(parameters_of(&config), pythia[_i].parameters);
}
END_TEST

START_TEST(test_config__bias_of_neox_attention_is_counted_by_itself)
{
    struct bp_config with = import_text("{'model_type': 'gpt_neox', 'hidden_size': 64, 'num_hidden_layers': 3, "
                                        "'vocab_size': 9, 'intermediate_size': 100}");
    struct bp_config without = import_text("{'model_type': 'gpt_neox', 'hidden_size': 64, 'num_hidden_layers': 3, "
                                           "'vocab_size': 9, 'intermediate_size': 100, 'attention_bias': false}");
    ck_assert(with.has_parameters && without.has_parameters);
    ck_assert(with.count.total - without.count.total == 3 * 4 * 64);
}
END_TEST

START_TEST(test_config__cross_attention_of_gpt2_is_counted)
{
    struct bp_config plain = import_text("{'model_type': 'gpt2', 'n_embd': 24, 'n_layer': 3, 'vocab_size': 9}");
    struct bp_config cross = import_text("{'model_type': 'gpt2', 'n_embd': 24, 'n_layer': 3, 'vocab_size': 9, "
                                         "'add_cross_attention': true}");
    ck_assert(cross.count.total - plain.count.total == 3 * (4 * 24 * 24 + 6 * 24));
}
END_TEST

/* What each family is when its config says the least. */
static const struct {
    const char *config, *model, *assumed;
} defaults[] = {
    {"{'model_type': 'gpt2', 'n_embd': 24, 'n_layer': 2, 'vocab_size': 9}",
     "{'activation':'gelu','attention_dropout':true,'bias':true,'embedding_dropout':true,'hidden_dropout':true,"
     "'hidden_size':24,'intermediate_size':96,'max_position_embeddings':1024,'name':'gpt2','norm':'layernorm',"
     "'num_attention_heads':12,'num_hidden_layers':2,'position':'learned','tie_word_embeddings':true,'vocab_size':9}",
     "/activation_function /add_cross_attention /attn_pdrop /embd_pdrop /n_head /n_inner /n_positions /resid_pdrop "
     "/tie_word_embeddings"},
    {"{'model_type': 'opt', 'hidden_size': 24, 'num_hidden_layers': 2, 'vocab_size': 9}",
     "{'activation':'relu','bias':true,'hidden_dropout':true,'hidden_size':24,'intermediate_size':3072,"
     "'max_position_embeddings':2050,'name':'opt','norm':'layernorm','num_attention_heads':12,'num_hidden_layers':2,"
     "'position':'learned','tie_word_embeddings':true,'vocab_size':9}",
     "/_remove_final_layer_norm /activation_function /attention_dropout /do_layer_norm_before /dropout /enable_bias "
     "/ffn_dim /layer_norm_elementwise_affine /max_position_embeddings /num_attention_heads /tie_word_embeddings "
     "/word_embed_proj_dim"},
    {"{'model_type': 'gpt_neox', 'hidden_size': 128, 'num_hidden_layers': 2, 'vocab_size': 9, "
     "'use_parallel_residual': false, 'rotary_pct': 1}",
     "{'activation':'gelu','bias':true,'hidden_size':128,'intermediate_size':24576,'name':'gpt_neox',"
     "'norm':'layernorm','num_attention_heads':64,'num_hidden_layers':2,'position':'rope','vocab_size':9}",
     "/attention_bias /attention_dropout /hidden_act /hidden_dropout /intermediate_size /num_attention_heads "
     "/tie_word_embeddings"},
    {"{'model_type': 'llama', 'hidden_size': 128, 'num_hidden_layers': 2, 'vocab_size': 9}",
     "{'activation':'swiglu','hidden_size':128,'intermediate_size':11008,'name':'llama','norm':'rmsnorm',"
     "'num_attention_heads':32,'num_hidden_layers':2,'position':'rope','vocab_size':9}",
     "/attention_bias /attention_dropout /head_dim /hidden_act /intermediate_size /mlp_bias /num_attention_heads "
     "/num_key_value_heads /tie_word_embeddings"},
    {"{'model_type': 'mistral', 'hidden_size': 128, 'num_hidden_layers': 2, 'vocab_size': 9, 'sliding_window': null}",
     "{'activation':'swiglu','hidden_size':128,'intermediate_size':14336,'name':'mistral','norm':'rmsnorm',"
     "'num_attention_heads':32,'num_hidden_layers':2,'num_key_value_heads':8,'position':'rope','vocab_size':9}",
     "/attention_dropout /head_dim /hidden_act /intermediate_size /num_attention_heads /num_key_value_heads "
     "/tie_word_embeddings"},
    {"{'model_type': 'qwen2', 'hidden_size': 128, 'num_hidden_layers': 2, 'vocab_size': 9}",
     "{'activation':'swiglu','hidden_size':128,'intermediate_size':22016,'name':'qwen2','norm':'rmsnorm',"
     "'num_attention_heads':32,'num_hidden_layers':2,'position':'rope','qkv_bias':true,'vocab_size':9}",
     "/attention_dropout /head_dim /hidden_act /intermediate_size /num_attention_heads /num_key_value_heads "
     "/tie_word_embeddings /use_sliding_window"},
    {"{'model_type': 'qwen3', 'hidden_size': 128, 'num_hidden_layers': 2, 'vocab_size': 9}",
     "{'activation':'swiglu','head_dim':128,'hidden_size':128,'intermediate_size':22016,'name':'qwen3',"
     "'norm':'rmsnorm','num_attention_heads':32,'num_hidden_layers':2,'position':'rope','qk_norm':true,"
     "'vocab_size':9}",
     "/attention_bias /attention_dropout /head_dim /hidden_act /intermediate_size /num_attention_heads "
     "/num_key_value_heads /tie_word_embeddings /use_sliding_window"},
};

START_TEST(test_config__absent_keys_take_the_class_defaults_and_are_listed)
{
    struct bp_config config = import_text(defaults[_i].config);
    ck_assert_str_eq(line_of(&problems), "");
    ck_assert_str_eq(model_of(&config), defaults[_i].model);
    ck_assert_str_eq(joined(config.assumed, config.n_assumed), defaults[_i].assumed);
    ck_assert_uint_eq(config.n_ignored, 0);
    ck_assert_str_eq(config.family, config.model.name);
    ck_assert_uint_eq(config.position_offset, strcmp(config.family, "opt") == 0 ? 2 : 0);
}
END_TEST

/* What is said is taken, and changes the form. */
static const struct {
    const char *config, *part;
} said[] = {
    {"'model_type': 'gpt2', 'n_embd': 24, 'n_layer': 2, 'n_head': 3, 'n_inner': 7", "'intermediate_size':7,"},
    {"'model_type': 'gpt2', 'n_embd': 24, 'n_layer': 2, 'n_positions': 77", "'max_position_embeddings':77,"},
    {"'model_type': 'gpt2', 'n_embd': 24, 'n_layer': 2, 'activation_function': 'relu'", "{'activation':'relu',"},
    {"'model_type': 'gpt2', 'n_embd': 24, 'n_layer': 2, 'resid_pdrop': 0, 'attn_pdrop': 0.0, 'embd_pdrop': 0.0",
     "{'activation':'gelu','bias':true,'hidden_size':24,"},
    {"'model_type': 'gpt2', 'hidden_size': 24, 'num_hidden_layers': 2, 'num_attention_heads': 3, 'n_embd': 24, "
     "'max_position_embeddings': 5",
     "'max_position_embeddings':5,'name':'gpt2','norm':'layernorm','num_attention_heads':3,"},
    {"'model_type': 'opt', 'hidden_size': 24, 'num_hidden_layers': 2, 'max_position_embeddings': 77, "
     "'attention_dropout': 0.5",
     "'max_position_embeddings':79,"},
    {"'model_type': 'opt', 'hidden_size': 24, 'num_hidden_layers': 2, 'attention_dropout': 0.5, 'dropout': 0",
     "{'activation':'relu','attention_dropout':true,'bias':true,'hidden_size'"},
    {"'model_type': 'gpt_neox', 'hidden_size': 64, 'num_hidden_layers': 2, 'rotary_pct': 1.0, "
     "'use_parallel_residual': false, 'hidden_dropout': 0.1",
     "{'activation':'gelu','bias':true,'embedding_dropout':true,'hidden_dropout':true,"},
    {"'model_type': 'gpt_neox', 'hidden_size': 64, 'num_hidden_layers': 2, 'use_parallel_residual': false, "
     "'rope_parameters': {'partial_rotary_factor': 1.0}",
     "'position':'rope'"},
    {"'model_type': 'llama', 'hidden_size': 64, 'num_hidden_layers': 2, 'attention_bias': true, 'mlp_bias': true",
     "{'activation':'swiglu','bias':true,"},
    {"'model_type': 'llama', 'hidden_size': 64, 'num_hidden_layers': 2, 'hidden_act': 'gelu_pytorch_tanh'",
     "{'activation':'geglu',"},
    {"'model_type': 'llama', 'hidden_size': 64, 'num_hidden_layers': 2, 'head_dim': null, 'sliding_window': null",
     "'hidden_size':64,"},
    {"'model_type': 'mistral', 'hidden_size': 64, 'num_hidden_layers': 2, 'sliding_window': null, "
     "'num_key_value_heads': null",
     "'num_attention_heads':32,'num_hidden_layers':2,'position'"},
    {"'model_type': 'mistral', 'hidden_size': 64, 'num_hidden_layers': 2, 'use_sliding_window': false",
     "'num_key_value_heads':8,"},
    {"'model_type': 'qwen2', 'hidden_size': 64, 'num_hidden_layers': 2, 'use_sliding_window': true, "
     "'sliding_window': null",
     "'qkv_bias':true"},
    {"'model_type': 'qwen3', 'hidden_size': 64, 'num_hidden_layers': 2, 'head_dim': 2, 'layer_types': "
     "['full_attention', 'full_attention']",
     "{'activation':'swiglu','hidden_size':64,"},
};

START_TEST(test_config__what_is_said_is_taken)
{
    char text[1024];
    snprintf(text, sizeof text, "{%s, 'vocab_size': 9}", said[_i].config);
    struct bp_config config = import_text(text);
    ck_assert_str_eq(line_of(&problems), "");
    ck_assert_msg(strstr(model_of(&config), said[_i].part) != NULL, "%s", model_of(&config));
}
END_TEST

START_TEST(test_config__every_key_is_used_or_ignored)
{
    json_t *file = json_of_file("tests/models/llama-3.1-8b.json");
    struct bp_config config = imported(json_object_get(file, "config"));
    ck_assert_str_eq(joined(config.ignored, config.n_ignored),
                     "/bos_token_id /eos_token_id /initializer_range /max_position_embeddings /pretraining_tp "
                     "/rms_norm_eps /rope_scaling /rope_theta /torch_dtype /transformers_version /use_cache");
    ck_assert_str_eq(joined(config.assumed, config.n_assumed), "/head_dim");
    json_decref(file);
}
END_TEST

START_TEST(test_config__ignored_keys_are_pointers_into_the_config)
{
    struct bp_config config = import_text("{'a/b~c': 0.5, 'model_type': 'llama', 'hidden_size': 64, 'z': null, "
                                          "'num_hidden_layers': 2, 'vocab_size': 9, '_name_or_path': '/home/x', "
                                          "'num_local_experts': 0, 'quantization_config': null}");
    ck_assert_str_eq(line_of(&problems), "");
    ck_assert_str_eq(joined(config.ignored, config.n_ignored),
                     "/_name_or_path /a~1b~0c /num_local_experts /quantization_config /z");
}
END_TEST

static void release(void)
{
    bp_problems_release(&problems);
    bp_arena_release(&arena);
}

#define LOOP(tcase, test, table) tcase_add_loop_test(tcase, test, 0, (int)(sizeof table / sizeof *table))

Suite *suite_config(void)
{
    Suite *suite = suite_create("config");
    TCase *tcase = tcase_create("config");
    tcase_add_checked_fixture(tcase, NULL, release);
    tcase_add_test(tcase, test_config__published_counts_come_out_exactly);
    tcase_add_test(tcase, test_config__the_catalogue_has_the_public_models_as_published);
    tcase_add_test(tcase, test_config__every_catalogue_row_is_counted_and_has_a_source);
    LOOP(tcase, test_config__megatron_models_are_those_of_the_papers, megatron);
    tcase_add_test(tcase, test_config__gpt3_is_the_shared_form);
    LOOP(tcase, test_config__counts_are_exact, counts);
    LOOP(tcase, test_config__pythia_counts_are_exact, pythia);
    tcase_add_test(tcase, test_config__bias_of_neox_attention_is_counted_by_itself);
    tcase_add_test(tcase, test_config__cross_attention_of_gpt2_is_counted);
    LOOP(tcase, test_config__absent_keys_take_the_class_defaults_and_are_listed, defaults);
    LOOP(tcase, test_config__what_is_said_is_taken, said);
    tcase_add_test(tcase, test_config__every_key_is_used_or_ignored);
    tcase_add_test(tcase, test_config__ignored_keys_are_pointers_into_the_config);
    suite_add_tcase(suite, tcase);
    return suite;
}
