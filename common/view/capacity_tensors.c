/* The tensors of one rank's block of any kind, from its description. */
#include "common/view/capacity_run.h"

static void add(struct bp_capacity_kind *kind, struct bp_tensor tensor)
{
    if (tensor.n)
        kind->facts.tensors[kind->facts.n_tensors++] = tensor;
}

static void add_linear(struct bp_capacity_kind *kind, bp_u128 n, bp_u128 k, bool bias)
{
    add(kind, (struct bp_tensor){.copies = 1, .n = n, .k = k, .bias = bias, .linear = true});
}

static void add_vector(struct bp_capacity_kind *kind, bp_u128 n)
{
    add(kind, (struct bp_tensor){.copies = 1, .n = n});
}

/* Vectors of a norm: weight and bias, weight alone, none. */
static bp_u128 norm_vectors(const struct bp_model *model)
{
    if (model->norm_without_weight)
        return 0;
    return model->norm == BP_NORM_LAYERNORM && !model->norm_without_bias ? 2 : 1;
}

static void add_heads(struct bp_capacity_run *run, struct bp_capacity_kind *kind)
{
    const struct bp_symbols *s = &kind->s;
    struct bp_calc *calc = &run->calc;
    bp_u128 query = bp_mul(calc, s->h_l, s->d), key = bp_mul(calc, s->k_l, s->d);
    const bp_u128 widths[] = {query, key, key};
    for (size_t i = 0; i < 3; i++)
        add_linear(kind, s->H, widths[i], s->kind->qkv_bias);
    add_linear(kind, query, s->H, s->kind->output_bias);
}

/* Projections into latents are whole on every rank, those out of them are split by heads. */
static void add_latent(struct bp_capacity_run *run, struct bp_capacity_kind *kind)
{
    const struct bp_symbols *s = &kind->s;
    const struct bp_kind *shape = s->kind;
    struct bp_calc *calc = &run->calc;
    bp_u128 q = shape->q_lora_rank, kv = shape->kv_lora_rank, vectors = norm_vectors(&run->request->model);
    bp_u128 key = shape->qk_nope_head_dim + shape->qk_rope_head_dim, query = bp_mul(calc, s->h_l, key);
    if (q) {
        add_linear(kind, s->H, q, shape->qkv_bias);
        add_vector(kind, bp_mul(calc, vectors, q));
    }
    add_linear(kind, q ? q : s->H, query, !q && shape->qkv_bias);
    add_linear(kind, s->H, kv + shape->qk_rope_head_dim, shape->qkv_bias);
    add_vector(kind, bp_mul(calc, vectors, kv));
    add_linear(kind, kv, bp_mul(calc, s->h_l, shape->qk_nope_head_dim + shape->v_head_dim), false);
    add_linear(kind, bp_mul(calc, s->h_l, shape->v_head_dim), s->H, shape->output_bias);
}

static void add_norms(struct bp_capacity_run *run, struct bp_capacity_kind *kind)
{
    static const unsigned of_place[] = {[BP_NORM_PLACE_BEFORE] = 2,
                                        [BP_NORM_PLACE_AFTER] = 2,
                                        [BP_NORM_PLACE_AFTER_RESIDUAL] = 2,
                                        [BP_NORM_PLACE_AROUND] = 4,
                                        [BP_NORM_PLACE_SHARED] = 1};
    const struct bp_symbols *s = &kind->s;
    struct bp_calc *calc = &run->calc;
    bp_u128 vectors = norm_vectors(&run->request->model);
    bp_u128 head_vectors = s->kind->qk_norm_bias ? 2 : 1, query = 0, key = 0;
    for (unsigned i = 0; i < of_place[s->kind->norm_place]; i++)
        add_vector(kind, bp_mul(calc, vectors, s->H));
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
    add_vector(kind, bp_mul(calc, head_vectors, query));
    add_vector(kind, bp_mul(calc, head_vectors, key));
}

static void add_mlp(struct bp_capacity_kind *kind, bp_u128 copies, bp_u128 width, bool bias, bool expert)
{
    const struct bp_symbols *s = &kind->s;
    for (unsigned i = 0; i < (s->gated ? 2U : 1U); i++)
        add(kind, (struct bp_tensor){copies, s->H, width, bias, true, expert});
    add(kind, (struct bp_tensor){width ? copies : 0, width, s->H, bias, true, expert});
}

/* E/ep local experts, each F_e/etp wide: they divide by their own degrees and by those of the rest never. */
static void add_experts(struct bp_capacity_run *run, struct bp_capacity_kind *kind)
{
    const struct bp_symbols *s = &kind->s;
    const struct bp_kind *shape = s->kind;
    struct bp_calc *calc = &run->calc;
    add(kind, (struct bp_tensor){.copies = 1, .n = s->H, .k = s->E, .bias = shape->router_bias});
    if (shape->score_correction_bias)
        add_vector(kind, s->E);
    add_mlp(kind, bp_div(calc, s->E, s->ep), bp_div(calc, s->F_e, s->etp), shape->expert_bias, true);
    if (s->F_s)
        add_mlp(kind, 1, bp_div(calc, s->F_s, s->t), shape->mlp_bias, false);
    if (shape->shared_gate)
        add_linear(kind, s->H, 1, false);
}

void bp_capacity_find_tensors(struct bp_capacity_run *run, struct bp_capacity_kind *kind)
{
    const struct bp_symbols *s = &kind->s;
    kind->facts.n_tensors = 0;
    if (s->kind->attention == BP_ATTENTION_LATENT)
        add_latent(run, kind);
    else
        add_heads(run, kind);
    if (s->kind->sinks)
        add_vector(kind, s->h_l);
    add_norms(run, kind);
    if (s->E)
        add_experts(run, kind);
    else
        add_mlp(kind, 1, bp_div(&run->calc, s->F, s->t), s->kind->mlp_bias, false);
}
