/* What a model's checkpoint holds and what its KV cache will, counted from the description. */
#include "common/model/model.h"

const char *const bp_component_names[] = {"embedding", "positions", "attention", "mlp", "experts",
                                          "router",    "norms",     "head",      NULL};

/* A tally in progress. `idle` are the routed experts that a token does not take. */
struct tally {
    const struct bp_model *model;
    struct bp_calc calc;
    bp_u128 components[BP_COMPONENT_N], idle;
};

static void put(struct tally *tally, enum bp_component component, bp_u128 parameters)
{
    tally->components[component] = bp_add(&tally->calc, tally->components[component], parameters);
}

/* n norms of `width`, of the model's sort. */
static void put_norms(struct tally *tally, bp_u128 n, bp_u128 width)
{
    const struct bp_model *model = tally->model;
    bool bias = model->norm == BP_NORM_LAYERNORM && !model->norm_without_bias;
    if (!model->norm_without_weight)
        put(tally, BP_COMPONENT_NORMS, BP_PROD(&tally->calc, n, bias ? 2 : 1, width));
}

static bp_u128 linear(struct bp_calc *calc, bp_u128 in, bp_u128 out, bool bias)
{
    return bp_add(calc, bp_mul(calc, in, out), bias ? out : 0);
}

static bp_u128 heads_attention(struct bp_calc *calc, bp_u128 H, const struct bp_kind *kind)
{
    bp_u128 query = bp_mul(calc, kind->num_attention_heads, kind->head_dim);
    bp_u128 key = bp_mul(calc, kind->num_key_value_heads, kind->head_dim);
    return BP_SUM(calc, linear(calc, H, BP_SUM(calc, query, key, key), kind->qkv_bias),
                  linear(calc, query, H, kind->output_bias));
}

/* The biases of latent attention are those of the projections into the latents and out of the block. */
static bp_u128 latent_attention(struct bp_calc *calc, bp_u128 H, const struct bp_kind *kind)
{
    bp_u128 h = kind->num_attention_heads, q = kind->q_lora_rank, kv = kind->kv_lora_rank;
    bp_u128 query = bp_mul(calc, h, bp_add(calc, kind->qk_nope_head_dim, kind->qk_rope_head_dim));
    bp_u128 expanded = bp_mul(calc, h, bp_add(calc, kind->qk_nope_head_dim, kind->v_head_dim));
    bp_u128 queries =
        q ? bp_add(calc, linear(calc, H, q, kind->qkv_bias), bp_mul(calc, q, query)) : bp_mul(calc, H, query);
    return BP_SUM(calc, queries, linear(calc, H, bp_add(calc, kv, kind->qk_rope_head_dim), kind->qkv_bias),
                  bp_mul(calc, kv, expanded), linear(calc, bp_mul(calc, h, kind->v_head_dim), H, kind->output_bias));
}

static void put_attention(struct tally *tally, const struct bp_kind *kind)
{
    struct bp_calc *calc = &tally->calc;
    bp_u128 H = tally->model->hidden_size, sinks = kind->sinks ? kind->num_attention_heads : 0;
    bp_u128 one =
        kind->attention == BP_ATTENTION_LATENT ? latent_attention(calc, H, kind) : heads_attention(calc, H, kind);
    put(tally, BP_COMPONENT_ATTENTION, BP_SUM(calc, one, kind->cross_attention ? one : 0, sinks));
}

static void put_block_norms(struct tally *tally, const struct bp_kind *kind)
{
    static const unsigned of_place[] = {[BP_NORM_PLACE_BEFORE] = 2,
                                        [BP_NORM_PLACE_AFTER] = 2,
                                        [BP_NORM_PLACE_AFTER_RESIDUAL] = 2,
                                        [BP_NORM_PLACE_AROUND] = 4,
                                        [BP_NORM_PLACE_SHARED] = 1};
    struct bp_calc *calc = &tally->calc;
    bp_u128 heads = bp_add(calc, kind->num_attention_heads, kind->num_key_value_heads), d = kind->head_dim;
    bp_u128 qk = 0;
    if (kind->qk_norm == BP_QK_NORM_HEAD)
        qk = bp_mul(calc, 2, d);
    else if (kind->qk_norm == BP_QK_NORM_EACH_HEAD || kind->qk_norm == BP_QK_NORM_SPAN)
        qk = bp_mul(calc, heads, d);
    put_norms(tally, of_place[kind->norm_place] + (kind->cross_attention ? 1U : 0U), tally->model->hidden_size);
    put(tally, BP_COMPONENT_NORMS, bp_mul(calc, kind->qk_norm_bias ? 2 : 1, qk));
    put_norms(tally, 1, bp_add(calc, kind->q_lora_rank, kind->kv_lora_rank));
}

static bp_u128 mlp(struct tally *tally, const struct bp_kind *kind, bp_u128 width, bool bias)
{
    struct bp_calc *calc = &tally->calc;
    bp_u128 H = tally->model->hidden_size, up = bp_mul(calc, bp_kind_gated(kind) ? 2 : 1, width);
    return bp_add(calc, linear(calc, H, up, bias), linear(calc, width, H, bias));
}

static void put_experts(struct tally *tally, const struct bp_kind *kind)
{
    struct bp_calc *calc = &tally->calc;
    bp_u128 H = tally->model->hidden_size, E = kind->num_experts;
    bp_u128 one = mlp(tally, kind, kind->expert_intermediate_size, kind->expert_bias);
    put(tally, BP_COMPONENT_EXPERTS, bp_mul(calc, E, one));
    tally->idle = bp_add(calc, tally->idle, bp_mul(calc, bp_sub(calc, E, kind->experts_per_token), one));
    if (kind->shared_intermediate_size)
        put(tally, BP_COMPONENT_EXPERTS, mlp(tally, kind, kind->shared_intermediate_size, kind->mlp_bias));
    put(tally, BP_COMPONENT_ROUTER,
        BP_SUM(calc, linear(calc, H, E, kind->router_bias), kind->score_correction_bias ? E : 0,
               kind->shared_gate ? H : 0));
}

static struct tally tally_block(const struct bp_model *model, const struct bp_kind *kind)
{
    struct tally tally = {.model = model};
    put_attention(&tally, kind);
    put_block_norms(&tally, kind);
    if (kind->num_experts)
        put_experts(&tally, kind);
    else
        put(&tally, BP_COMPONENT_MLP, mlp(&tally, kind, kind->intermediate_size, kind->mlp_bias));
    return tally;
}

static void put_blocks(struct tally *tally, const struct bp_kind *kind, bp_u128 blocks)
{
    struct tally block = tally_block(tally->model, kind);
    for (int i = 0; i < BP_COMPONENT_N; i++)
        put(tally, (enum bp_component)i, bp_mul(&tally->calc, blocks, block.components[i]));
    tally->idle = bp_add(&tally->calc, tally->idle, bp_mul(&tally->calc, blocks, block.idle));
    tally->calc.overflow |= block.calc.overflow;
}

static bp_u128 embedding_table(struct tally *tally)
{
    const struct bp_model *model = tally->model;
    bp_u128 width = model->word_embed_proj_dim ? model->word_embed_proj_dim : model->hidden_size;
    return bp_mul(&tally->calc, model->vocab_size, width);
}

/* A layer that predicts the token after the next: a block as the last one's, the norms of what it reads (the embedding
 * and the hidden state), the projection of both to the hidden size, a norm before its head, and its own copies of the
 * embedding and the head, which checkpoints hold. */
static void put_next_token_layers(struct tally *tally)
{
    const struct bp_model *model = tally->model;
    struct bp_calc *calc = &tally->calc;
    bp_u128 H = model->hidden_size, n = model->num_nextn_predict_layers;
    if (!n)
        return;
    uint32_t last = model->layer_kinds ? model->layer_kinds[model->num_hidden_layers - 1] : 0;
    bp_u128 tables = bp_mul(calc, n, embedding_table(tally));
    put_blocks(tally, &model->kinds[last], n);
    put_norms(tally, bp_mul(calc, 3, n), H);
    put(tally, BP_COMPONENT_EMBEDDING, tables);
    put(tally, BP_COMPONENT_HEAD, bp_add(calc, BP_PROD(calc, 2, n, H, H), tables));
}

static void put_around_blocks(struct tally *tally)
{
    const struct bp_model *model = tally->model;
    struct bp_calc *calc = &tally->calc;
    bp_u128 H = model->hidden_size, table = embedding_table(tally);
    bp_u128 projection = bp_mul(calc, model->word_embed_proj_dim, H);
    put(tally, BP_COMPONENT_EMBEDDING, bp_add(calc, table, projection));
    put(tally, BP_COMPONENT_POSITIONS, bp_mul(calc, model->max_position_embeddings, H));
    put_norms(tally, (model->embedding_norm ? 1U : 0U) + (model->final_norm_absent ? 0U : 1U), H);
    put(tally, BP_COMPONENT_HEAD,
        BP_SUM(calc, model->tie_word_embeddings ? 0 : table, projection, model->head_bias ? model->vocab_size : 0));
}

static int finish(struct tally *tally, bp_u128 lookup, struct bp_parameter_count *ret, struct bp_err *err)
{
    struct bp_parameter_count count = {.total = bp_sum(&tally->calc, tally->components, BP_COMPONENT_N)};
    for (int i = 0; i < BP_COMPONENT_N; i++)
        count.components[i] = tally->components[i];
    count.active = bp_sub(&tally->calc, count.total, tally->idle);
    count.active_without_embedding = bp_sub(&tally->calc, count.active, lookup);
    if (bp_calc_check(&tally->calc, "", "the number of parameters", err))
        return -1;
    *ret = count;
    return 0;
}

int bp_model_count(const struct bp_model *model, struct bp_parameter_count *ret, struct bp_err *err)
{
    struct tally tally = {.model = model};
    for (uint32_t i = 0; i < model->n_kinds; i++)
        put_blocks(&tally, &model->kinds[i], model->kinds[i].layers);
    put_next_token_layers(&tally);
    put_around_blocks(&tally);
    bp_u128 lookups = (model->tie_word_embeddings ? 0U : 1U) + (bp_u128)model->num_nextn_predict_layers;
    return finish(&tally, bp_mul(&tally.calc, lookups, embedding_table(&tally)), ret, err);
}

int bp_kind_count(const struct bp_model *model, const struct bp_kind *kind, struct bp_parameter_count *ret,
                  struct bp_err *err)
{
    struct tally tally = tally_block(model, kind);
    return finish(&tally, 0, ret, err);
}

int bp_model_parameters(const struct bp_model *model, bp_u128 *ret, struct bp_err *err)
{
    struct bp_parameter_count count;
    if (bp_model_count(model, &count, err))
        return -1;
    *ret = count.total;
    return 0;
}

int bp_model_kv_elements(const struct bp_model *model, bp_u128 *ret, struct bp_err *err)
{
    struct bp_calc calc = {0};
    bp_u128 total = 0;
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        const struct bp_kind *kind = &model->kinds[i];
        bp_u128 token = kind->attention == BP_ATTENTION_LATENT
                            ? bp_add(&calc, kind->kv_lora_rank, kind->qk_rope_head_dim)
                            : BP_PROD(&calc, 2, kind->num_key_value_heads, kind->head_dim);
        total = bp_add(&calc, total, bp_mul(&calc, kind->layers, token));
    }
    if (bp_calc_check(&calc, "", "the size of the KV cache", err))
        return -1;
    *ret = total;
    return 0;
}
