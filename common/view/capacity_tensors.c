/* The tensors of one rank's block of any kind, from its description. */
#include "common/view/capacity_run.h"

/* A block's tensors as they are found. */
struct finding {
    struct bp_calc *calc;
    const struct bp_model *model;
    const struct bp_symbols *s;
    struct bp_block_facts *facts;
};

static void add(struct finding *found, struct bp_tensor tensor)
{
    struct bp_calc *calc = found->calc;
    bp_u128 matrix = tensor.k ? bp_mul(calc, tensor.n, tensor.k) : tensor.n;
    tensor.elements = bp_mul(calc, tensor.copies, bp_add(calc, matrix, tensor.bias ? tensor.k : 0));
    if (tensor.n)
        found->facts->tensors[found->facts->n_tensors++] = tensor;
}

static void add_linear(struct finding *found, bp_u128 n, bp_u128 k, bool bias)
{
    add(found, (struct bp_tensor){.copies = 1, .n = n, .k = k, .bias = bias, .linear = true});
}

static void add_vector(struct finding *found, bp_u128 n)
{
    add(found, (struct bp_tensor){.copies = 1, .n = n});
}

/* Vectors of a norm: weight and bias, weight alone, none. */
static bp_u128 norm_vectors(const struct bp_model *model)
{
    if (model->norm_without_weight)
        return 0;
    return model->norm == BP_NORM_LAYERNORM && !model->norm_without_bias ? 2 : 1;
}

static void add_heads(struct finding *found)
{
    const struct bp_symbols *s = found->s;
    struct bp_calc *calc = found->calc;
    bp_u128 query = bp_mul(calc, s->h_l, s->d), key = bp_mul(calc, s->k_l, s->d);
    const bp_u128 widths[] = {query, key, key};
    for (size_t i = 0; i < 3; i++)
        add_linear(found, s->H, widths[i], s->kind->qkv_bias);
    add_linear(found, query, s->H, s->kind->output_bias);
}

/* Projections into latents are whole on every rank, those out of them are split by heads. */
static void add_latent(struct finding *found)
{
    const struct bp_symbols *s = found->s;
    const struct bp_kind *shape = s->kind;
    struct bp_calc *calc = found->calc;
    bp_u128 q = shape->q_lora_rank, kv = shape->kv_lora_rank, vectors = norm_vectors(found->model);
    bp_u128 key = shape->qk_nope_head_dim + shape->qk_rope_head_dim, query = bp_mul(calc, s->h_l, key);
    if (q) {
        add_linear(found, s->H, q, shape->qkv_bias);
        add_vector(found, bp_mul(calc, vectors, q));
    }
    add_linear(found, q ? q : s->H, query, false);
    add_linear(found, s->H, kv + shape->qk_rope_head_dim, shape->qkv_bias);
    add_vector(found, bp_mul(calc, vectors, kv));
    add_linear(found, kv, bp_mul(calc, s->h_l, shape->qk_nope_head_dim + shape->v_head_dim), false);
    add_linear(found, bp_mul(calc, s->h_l, shape->v_head_dim), s->H, shape->output_bias);
}

static void add_norms(struct finding *found)
{
    static const unsigned of_place[] = {[BP_NORM_PLACE_BEFORE] = 2,
                                        [BP_NORM_PLACE_AFTER] = 2,
                                        [BP_NORM_PLACE_AFTER_RESIDUAL] = 2,
                                        [BP_NORM_PLACE_AROUND] = 4,
                                        [BP_NORM_PLACE_SHARED] = 1};
    const struct bp_symbols *s = found->s;
    struct bp_calc *calc = found->calc;
    bp_u128 vectors = norm_vectors(found->model);
    bp_u128 head_vectors = s->kind->qk_norm_bias ? 2 : 1, query = 0, key = 0;
    for (unsigned i = 0; i < of_place[s->kind->norm_place]; i++)
        add_vector(found, bp_mul(calc, vectors, s->H));
    switch (s->kind->qk_norm) {
    case BP_QK_NORM_NONE:
    case BP_QK_NORM_WITHOUT_WEIGHT:
        break;
    case BP_QK_NORM_HEAD:
        query = key = s->d;
        break;
    case BP_QK_NORM_EACH_HEAD:
    case BP_QK_NORM_SPAN:
        query = bp_mul(calc, s->h_l, s->d);
        key = bp_mul(calc, s->k_l, s->d);
        break;
    }
    add_vector(found, bp_mul(calc, head_vectors, query));
    add_vector(found, bp_mul(calc, head_vectors, key));
}

static void add_mlp(struct finding *found, bp_u128 copies, bp_u128 width, bool bias, bool expert)
{
    const struct bp_symbols *s = found->s;
    for (unsigned i = 0; i < (s->gated ? 2U : 1U); i++)
        add(found, (struct bp_tensor){
                       .copies = copies, .n = s->H, .k = width, .bias = bias, .linear = true, .expert = expert});
    add(found,
        (struct bp_tensor){.copies = copies, .n = width, .k = s->H, .bias = bias, .linear = true, .expert = expert});
}

/* E/ep local experts, each F_e/etp wide: they divide by their own degrees and by those of the rest never. */
static void add_experts(struct finding *found)
{
    const struct bp_symbols *s = found->s;
    const struct bp_kind *shape = s->kind;
    struct bp_calc *calc = found->calc;
    add(found, (struct bp_tensor){.copies = 1, .n = s->H, .k = s->E, .bias = shape->router_bias});
    if (shape->score_correction_bias)
        add_vector(found, s->E);
    add_mlp(found, bp_div(calc, s->E, s->ep), bp_div(calc, s->F_e, s->etp), shape->expert_bias, true);
    if (s->F_s)
        add_mlp(found, 1, bp_div(calc, s->F_s, s->t), shape->mlp_bias, false);
    if (shape->shared_gate)
        add_linear(found, s->H, 1, false);
}

void bp_capacity_find_tensors(struct bp_capacity_run *run, const struct bp_capacity_kind *kind,
                              struct bp_block_facts *facts)
{
    const struct bp_symbols *s = &kind->s;
    struct finding found = {&run->calc, &run->request->model, s, facts};
    facts->n_tensors = 0;
    if (s->kind->attention == BP_ATTENTION_LATENT)
        add_latent(&found);
    else
        add_heads(&found);
    if (s->kind->sinks)
        add_vector(&found, s->h_l);
    add_norms(&found);
    if (s->E)
        add_experts(&found);
    else
        add_mlp(&found, 1, bp_div(&run->calc, s->F, s->t), s->kind->mlp_bias, false);
}
