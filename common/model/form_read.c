/* Reading the transformer form. What cannot be read stays 0, so that no later check blames another key for it. */
#include <string.h>

#include "common/model/form.h"

/* One object of the form being read: the model's, or one of its kinds'. */
struct reading {
    struct bp_reader reader;
    const struct bp_model *model; /* as far as it is known: all but its kinds */
    struct bp_kind *kind;
    bool knows_position;
};

static bool has(const struct reading *in, const char *key)
{
    return bp_reader_get(&in->reader, key, false) != NULL;
}

/* The keys that have no function of their own, of one scope, into the struct of that scope. */
static void read_plain(const struct bp_reader *reader, unsigned scope, void *whole)
{
    for (size_t i = 0; i < bp_form_keys_n; i++) {
        const struct bp_form_key *key = &bp_form_keys[i];
        void *at = (char *)whole + key->offset;
        uint64_t size;
        int word;
        if (key->scope != scope)
            continue;
        switch (key->sort) {
        case BP_FORM_SIZE:
        case BP_FORM_SIZE_OR_NONE:
            bp_reader_get(reader, key->key, key->sort == BP_FORM_SIZE);
            size = bp_reader_uint(reader, key->key, 1, BP_JSON_INT_MAX, 0);
            memcpy(at, &size, sizeof size);
            break;
        case BP_FORM_FLAG:
            *(bool *)at = bp_reader_bool(reader, key->key, false);
            break;
        case BP_FORM_WORD:
            word = bp_reader_enum(reader, key->key, key->words, key->usual);
            memcpy(at, &word, sizeof word);
            break;
        case BP_FORM_OWN:
            break;
        }
    }
}

/* Whether a word could be read, so that what it says may be held against other keys. */
static bool said(const struct reading *in, const char *key, const char *word)
{
    const json_t *value = bp_reader_get(&in->reader, key, false);
    return !value || (json_is_string(value) && strcmp(json_string_value(value), word) == 0);
}

/* Keys that say something which the kind does not have; a flag that is false says nothing. */
static void refuse_keys(const struct reading *in, const char *const *keys, const char *why)
{
    for (; *keys; keys++)
        if (has(in, *keys) && !json_is_false(bp_reader_get(&in->reader, *keys, false)))
            bp_reader_problem(&in->reader, BP_E_conflict, *keys, "%s", why);
}

static void require_keys(const struct reading *in, const char *const *keys)
{
    for (; *keys; keys++)
        bp_reader_get(&in->reader, *keys, true);
}

static const char *const latent_keys[] = {"kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", NULL};

static void read_heads(const struct reading *in)
{
    static const char *const of_latent[] = {"q_lora_rank", NULL};
    struct bp_kind *kind = in->kind;
    uint64_t heads = kind->num_attention_heads, hidden = in->model->hidden_size;
    if (said(in, "attention", bp_attention_names[BP_ATTENTION_HEADS])) {
        refuse_keys(in, of_latent, "is of latent attention");
        refuse_keys(in, latent_keys, "is of latent attention");
    }
    uint64_t kv_heads = bp_reader_uint(&in->reader, "num_key_value_heads", 1, BP_JSON_INT_MAX, heads);
    if (kv_heads && heads % kv_heads != 0)
        bp_reader_problem(&in->reader, BP_E_not_divisible, "num_key_value_heads",
                          "num_attention_heads %llu is not divisible by num_key_value_heads %llu",
                          (unsigned long long)heads, (unsigned long long)kv_heads);
    kind->num_key_value_heads = kv_heads;
    if (has(in, "head_dim"))
        kind->head_dim = bp_reader_uint(&in->reader, "head_dim", 1, BP_JSON_INT_MAX, 0);
    else if (heads && hidden % heads != 0)
        bp_reader_problem(&in->reader, BP_E_not_divisible, "num_attention_heads",
                          "hidden_size %llu is not divisible by num_attention_heads %llu, and head_dim is not given",
                          (unsigned long long)hidden, (unsigned long long)heads);
    else if (heads)
        kind->head_dim = hidden / heads;
}

/* Every head has its own key and value, and sizes that follow from the latents'. */
static void read_latent(const struct reading *in)
{
    static const char *const of_heads[] = {"num_key_value_heads", "head_dim", "rotary_dim", "qk_norm", NULL};
    struct bp_kind *kind = in->kind;
    require_keys(in, latent_keys);
    refuse_keys(in, of_heads, "follows from the dimensions of latent attention");
    kind->num_key_value_heads = kind->num_attention_heads;
    kind->head_dim = kind->qk_nope_head_dim + kind->qk_rope_head_dim;
}

static void read_rotary_dim(const struct reading *in)
{
    static const char key[] = "rotary_dim";
    struct bp_kind *kind = in->kind;
    kind->rotary_dim = bp_form_usual_rotary_dim(in->model, kind);
    if (kind->attention == BP_ATTENTION_LATENT || !has(in, key))
        return;
    kind->rotary_dim = bp_reader_uint(&in->reader, key, 0, BP_JSON_INT_MAX, kind->rotary_dim);
    if (kind->rotary_dim && in->model->position != BP_POSITION_ROPE && in->knows_position)
        bp_reader_problem(&in->reader, BP_E_conflict, key, "nothing rotates where positions are not rope");
    else if (kind->head_dim && kind->rotary_dim > kind->head_dim)
        bp_reader_problem(&in->reader, BP_E_out_of_range, key, "a head has %llu elements",
                          (unsigned long long)kind->head_dim);
}

static void read_qk_norm(const struct reading *in)
{
    static const char form_key[] = "qk_norm_form", bias_key[] = "qk_norm_bias";
    static const char *const of_norm[] = {form_key, bias_key, NULL};
    struct bp_kind *kind = in->kind;
    const json_t *value = bp_reader_get(&in->reader, "qk_norm", false);
    bool bias_is_said = has(in, bias_key), bias = bp_reader_bool(&in->reader, bias_key, false);
    int form = bp_reader_enum(&in->reader, form_key, bp_qk_norm_names + 1, 0);
    if (bp_reader_bool(&in->reader, "qk_norm", false))
        kind->qk_norm = BP_QK_NORM_HEAD + (enum bp_qk_norm)form;
    else if (!value || json_is_false(value))
        refuse_keys(in, of_norm, "there is no norm of query and key without qk_norm");
    kind->qk_norm_bias = bias_is_said ? bias : bp_form_usual_qk_norm_bias(in->model, kind);
    if (bias && kind->qk_norm == BP_QK_NORM_WITHOUT_WEIGHT)
        bp_reader_problem(&in->reader, BP_E_conflict, bias_key, "a norm without weights has no bias");
    else if (bias && kind->qk_norm && in->model->norm == BP_NORM_RMSNORM)
        bp_reader_problem(&in->reader, BP_E_conflict, bias_key, "an RMSNorm has no bias");
}

static void read_attention(const struct reading *in)
{
    struct bp_kind *kind = in->kind;
    if (kind->attention == BP_ATTENTION_LATENT)
        read_latent(in);
    else
        read_heads(in);
    read_rotary_dim(in);
    if (kind->attention != BP_ATTENTION_LATENT)
        read_qk_norm(in);
    if (kind->chunked && !has(in, "sliding_window"))
        bp_reader_problem(&in->reader, BP_E_conflict, "chunked_attention", "the size of a chunk is sliding_window");
}

static void read_mlp(const struct reading *in)
{
    static const char *const of_experts[] = {"experts_per_token", "expert_intermediate_size", NULL};
    static const char *const of_routing[] = {"shared_expert_intermediate_size",
                                             "shared_expert_gate",
                                             "router_bias",
                                             "expert_bias",
                                             "score_correction_bias",
                                             NULL};
    static const char *const of_dense[] = {"intermediate_size", NULL};
    struct bp_kind *kind = in->kind;
    if (!has(in, "num_experts")) {
        require_keys(in, of_dense);
        refuse_keys(in, of_experts, "there are no experts without num_experts");
        refuse_keys(in, of_routing, "there are no experts without num_experts");
        return;
    }
    require_keys(in, of_experts);
    refuse_keys(in, of_dense, "the MLP is of experts");
    kind->intermediate_size = 0;
    if (kind->num_experts && kind->experts_per_token > kind->num_experts)
        bp_reader_problem(&in->reader, BP_E_out_of_range, "experts_per_token", "there are %llu experts",
                          (unsigned long long)kind->num_experts);
    if (!kind->shared_gate)
        return;
    kind->shared_gate = kind->shared_intermediate_size > 0;
    if (!has(in, "shared_expert_intermediate_size"))
        bp_reader_problem(&in->reader, BP_E_conflict, "shared_expert_gate", "there are no shared experts");
}

/* `bias` is of every linear but the experts', and the MLP's is of nothing where all of it is routed. */
static void read_biases(const struct reading *in)
{
    struct bp_kind *kind = in->kind;
    bool all = bp_reader_bool(&in->reader, "bias", false);
    kind->qkv_bias = bp_reader_bool(&in->reader, "qkv_bias", false) || all;
    kind->output_bias = bp_reader_bool(&in->reader, "output_bias", false) || all;
    kind->mlp_bias = bp_reader_bool(&in->reader, "mlp_bias", false) || all;
    if (has(in, "num_experts") && !kind->shared_intermediate_size)
        kind->mlp_bias = false;
}

/* A norm before both branches, and branches that both read the block's input, need each other, but for two norms. */
static void check_branches(const struct reading *in)
{
    const struct bp_kind *kind = in->kind;
    bool parallel = kind->residual == BP_RESIDUAL_PARALLEL, shared = kind->norm_place == BP_NORM_PLACE_SHARED;
    if (shared && !parallel && said(in, "residual", bp_residual_names[BP_RESIDUAL_SEQUENTIAL]))
        bp_reader_problem(&in->reader, BP_E_conflict, "norm_place",
                          "one norm before both branches needs the parallel residual");
    if (parallel && !shared && kind->norm_place != BP_NORM_PLACE_BEFORE)
        bp_reader_problem(&in->reader, BP_E_conflict, "norm_place",
                          "branches of the parallel residual have norms before them");
}

static void read_kind(const struct reading *in)
{
    read_plain(&in->reader, BP_FORM_KIND, in->kind);
    read_attention(in);
    read_mlp(in);
    read_biases(in);
    check_branches(in);
}

/* ---- Several kinds ---- */

static struct bp_reader item_reader(const struct bp_reader *reader, const char *key, const json_t *item, size_t at)
{
    char array[BP_POINTER_MAX], pointer[BP_POINTER_MAX + 24];
    bp_reader_pointer(reader, key, array);
    snprintf(pointer, sizeof pointer, "%s/%zu", array, at);
    pointer[BP_POINTER_MAX - 1] = '\0';
    return bp_reader_of(item, pointer, reader->problems);
}

static uint32_t kind_named(const struct bp_model *model, uint32_t n, const char *name)
{
    uint32_t at = 0;
    while (at < n && strcmp(model->kinds[at].name, name) != 0)
        at++;
    return at;
}

static void read_kind_name(const struct bp_reader *reader, const struct bp_model *model, uint32_t place,
                           struct bp_kind *kind)
{
    const char *name = bp_reader_string(reader, "name", true);
    size_t n = name ? strlen(name) : 0;
    if (!name)
        return;
    if (n == 0 || n >= BP_KIND_NAME_MAX || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != n)
        bp_reader_problem(reader, BP_E_out_of_range, "name", "must have 1 to %d small letters, digits and underscores",
                          BP_KIND_NAME_MAX - 1);
    else if (kind_named(model, place, name) < place)
        bp_reader_problem(reader, BP_E_conflict, "name", "another kind has this name");
    else
        memcpy(kind->name, name, n + 1);
}

static void refuse_unknown(const struct bp_reader *reader, unsigned scopes)
{
    const char *known[128];
    size_t n = 0;
    for (size_t i = 0; i < bp_form_keys_n; i++)
        if (bp_form_keys[i].scope & scopes)
            known[n++] = bp_form_keys[i].key;
    known[n] = NULL;
    bp_reader_refuse_unknown(reader, known);
}

static const json_t *array_of(const struct bp_reader *reader, const char *key, size_t least, size_t most)
{
    const json_t *array = bp_reader_get(reader, key, true);
    size_t n = json_array_size(array);
    if (array && !json_is_array(array))
        bp_reader_problem(reader, BP_E_wrong_type, key, "must be an array");
    else if (array && (n < least || n > most))
        bp_reader_problem(reader, BP_E_out_of_range, key, "must have %zu to %zu members", least, most);
    return n >= least && n <= most ? array : NULL;
}

static bool knows_position(const struct bp_reader *reader)
{
    char pointer[BP_POINTER_MAX];
    bp_reader_pointer(reader, "position", pointer);
    return !bp_problems_unread(reader->problems, pointer);
}

static void read_kinds(const struct bp_reader *reader, struct bp_model *model)
{
    const json_t *kinds = array_of(reader, "kinds", 2, BP_KINDS_MAX);
    size_t i;
    json_t *item;
    json_array_foreach(kinds, i, item) {
        struct bp_kind *kind = &model->kinds[i];
        struct reading in = {item_reader(reader, "kinds", item, i), model, kind, knows_position(reader)};
        if (!in.reader.object)
            continue;
        refuse_unknown(&in.reader, BP_FORM_KIND | BP_FORM_KIND_NAME);
        read_kind_name(&in.reader, model, (uint32_t)i, kind);
        read_kind(&in);
    }
    model->n_kinds = (uint32_t)json_array_size(kinds);
}

/* Whether there are kinds, and each has a name that could be read. */
static bool knows_names(const struct bp_model *model)
{
    bool knows = model->n_kinds > 0;
    for (uint32_t i = 0; i < model->n_kinds; i++)
        knows &= model->kinds[i].name[0] != '\0';
    return knows;
}

/* One run of layers: how many, and the place of their kind; n_kinds where it is none. */
static uint64_t read_run(const struct bp_reader *run, const struct bp_model *model, uint32_t *ret_kind)
{
    static const char *const known[] = {"count", "kind", NULL};
    bp_reader_refuse_unknown(run, known);
    uint64_t n = bp_reader_uint_required(run, "count", 1, BP_LAYERS_MAX);
    const char *name = bp_reader_string(run, "kind", true);
    *ret_kind = name ? kind_named(model, model->n_kinds, name) : model->n_kinds;
    if (name && *ret_kind == model->n_kinds && knows_names(model))
        bp_reader_problem(run, BP_E_unknown_value, "kind", "no kind has this name");
    return n;
}

/* Kinds stand in the order in which the layers first have them. */
static void order_kinds(const struct bp_reader *reader, struct bp_model *model, uint8_t *layers)
{
    struct bp_kind ordered[BP_KINDS_MAX];
    uint8_t place[BP_KINDS_MAX];
    uint32_t n = 0;
    memset(place, BP_KINDS_MAX, sizeof place);
    for (uint64_t i = 0; i < model->num_hidden_layers; i++) {
        uint8_t from = layers[i];
        if (place[from] == BP_KINDS_MAX) {
            place[from] = (uint8_t)n;
            ordered[n++] = model->kinds[from];
        }
        layers[i] = place[from];
        ordered[layers[i]].layers++;
    }
    for (uint32_t i = 0; i < model->n_kinds; i++)
        if (place[i] == BP_KINDS_MAX)
            bp_reader_problem(reader, BP_E_conflict, "layers", "no layer is of the kind %s", model->kinds[i].name);
    memcpy(model->kinds, ordered, n * sizeof *ordered);
}

/* Nothing is held against kinds that could not be read: `before` is how many problems there were without them. */
static void read_layers(const struct bp_reader *reader, struct bp_arena *arena, size_t before, struct bp_model *model)
{
    static const char key[] = "layers", total_key[] = "num_hidden_layers";
    const json_t *runs = array_of(reader, key, 1, BP_LAYERS_MAX);
    uint64_t layers = model->num_hidden_layers, sum = 0;
    if (layers > BP_LAYERS_MAX) {
        bp_reader_problem(reader, BP_E_out_of_range, total_key, "layers of several kinds may be at most %d",
                          BP_LAYERS_MAX);
        layers = 0;
    }
    uint8_t *kinds = bp_arena_array(arena, layers + 1, 1); /* of none, where their number could not be read */
    if (!kinds) {
        reader->problems->out_of_memory = true;
        return;
    }
    size_t i;
    json_t *item;
    json_array_foreach(runs, i, item) {
        struct bp_reader run = item_reader(reader, key, item, i);
        uint32_t kind = model->n_kinds;
        uint64_t n = run.object ? read_run(&run, model, &kind) : 0;
        if (kind < model->n_kinds && n <= layers && sum <= layers - n)
            memset(kinds + sum, (int)kind, n);
        sum += n;
    }
    if (reader->problems->n == before && runs && layers && sum != layers)
        bp_reader_problem(reader, BP_E_conflict, key, "the runs add up to %llu layers, the model has %llu",
                          (unsigned long long)sum, (unsigned long long)layers);
    if (reader->problems->n == before && runs && layers) {
        order_kinds(reader, model, kinds);
        model->layer_kinds = kinds;
    }
}

/* What is of a kind is not said of the model as well. */
static void refuse_keys_of_kinds(const struct bp_reader *reader)
{
    for (size_t i = 0; i < bp_form_keys_n; i++)
        if (bp_form_keys[i].scope == BP_FORM_KIND && bp_reader_get(reader, bp_form_keys[i].key, false))
            bp_reader_problem(reader, BP_E_conflict, bp_form_keys[i].key, "is said of each of the kinds");
}

/* ---- The model ---- */

static void read_name(const struct bp_reader *reader, struct bp_model *model)
{
    const char *name = bp_reader_string(reader, "name", false);
    if (!name)
        return;
    size_t n = strlen(name);
    if (n == 0 || n >= BP_MODEL_NAME_MAX)
        bp_reader_problem(reader, BP_E_out_of_range, "name", "must have 1 to %d bytes", BP_MODEL_NAME_MAX - 1);
    else
        memcpy(model->name, name, n + 1);
}

static void read_positions(const struct bp_reader *reader, struct bp_model *model)
{
    static const char key[] = "max_position_embeddings";
    const char *position = json_string_value(bp_reader_get(reader, "position", false));
    bool learned = position && strcmp(position, bp_position_names[BP_POSITION_LEARNED]) == 0;
    bp_reader_get(reader, key, learned);
    uint64_t rows = bp_reader_uint(reader, key, 1, BP_JSON_INT_MAX, 0);
    model->max_position_embeddings = learned ? rows : 0;
}

/* What changes nothing is as if it were not said. */
static void drop_inert(struct bp_model *model)
{
    if (model->norm == BP_NORM_RMSNORM || model->norm_without_weight)
        model->norm_without_bias = false;
    if (model->word_embed_proj_dim == model->hidden_size)
        model->word_embed_proj_dim = 0;
}

void bp_model_read(const struct bp_reader *reader, struct bp_arena *arena, struct bp_model *ret)
{
    struct bp_model model = {.n_kinds = 1};
    bool several = bp_reader_get(reader, "kinds", false) || bp_reader_get(reader, "layers", false);
    refuse_unknown(reader, BP_FORM_MODEL | BP_FORM_KIND | BP_FORM_LABEL);
    read_name(reader, &model);
    read_plain(reader, BP_FORM_MODEL, &model);
    read_positions(reader, &model);
    drop_inert(&model);
    if (several) {
        const size_t before = reader->problems->n;
        refuse_keys_of_kinds(reader);
        read_kinds(reader, &model);
        read_layers(reader, arena, before, &model);
    } else {
        read_kind(&(struct reading){*reader, &model, &model.kinds[0], knows_position(reader)});
        model.kinds[0].layers = model.num_hidden_layers;
        bp_model_name_kinds(&model);
    }
    *ret = model;
}
