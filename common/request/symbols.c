#include "common/request/symbols.h"

#include <string.h>

static void bind_training(const struct bp_workload *workload, const struct bp_strategy *strategy, struct bp_calc *calc,
                          struct bp_symbols *symbols)
{
    symbols->B = workload->micro_batch_size;
    symbols->S_c = workload->sequence_length;
    symbols->cp = strategy->context_parallel;
    symbols->S = bp_div(calc, symbols->S_c, symbols->cp);
    symbols->g = bp_dtype_bytes(workload->gradient_dtype);
    symbols->dp = bp_mul(calc, strategy->data_parallel, strategy->context_parallel);
    symbols->sequence_parallel = strategy->sequence_parallel && strategy->tensor_parallel > 1;
    symbols->gathers_again =
        symbols->sequence_parallel && (strategy->recompute == BP_RECOMPUTE_FULL || strategy->recompute_all_gather);
}

static void bind_inference(const struct bp_workload *workload, struct bp_symbols *symbols)
{
    uint64_t c = workload->context_length, window = symbols->kind->window;
    bool decode = workload->phase == BP_DECODE;
    symbols->b = symbols->B = workload->batch_size;
    symbols->c = decode && window && window < c ? window : c;
    symbols->q = symbols->S = decode ? 1 : c;
    symbols->S_c = symbols->c;
    symbols->e_kv = bp_dtype_bytes(workload->kv_cache_dtype);
    symbols->dp = symbols->cp = 1;
}

/* What a step routes. Without expert parallelism each rank sends every token to its part of every expert; otherwise the
 * tensor group deals the tokens out, which a batch that does not divide does not allow. */
static void bind_inference_pairs(struct bp_calc *calc, struct bp_symbols *symbols)
{
    bp_u128 tokens = bp_mul(calc, symbols->b, symbols->q);
    symbols->routes_all = symbols->ep == 1 && symbols->etp == symbols->t;
    if (!symbols->routes_all && (symbols->t == 0 || tokens % symbols->t != 0))
        return;
    symbols->own_tokens = symbols->routes_all ? tokens : tokens / symbols->t;
    symbols->own_pairs = bp_mul(calc, symbols->own_tokens, symbols->K);
    symbols->pairs = bp_mul(calc, symbols->own_pairs, symbols->routes_all ? 1 : symbols->etp);
}

/* Experts live on a grid of their own: etp*ep of the group's t*cp*dp ranks hold one copy of all of them. */
static void bind_experts(const struct bp_kind *kind, const struct bp_strategy *strategy, struct bp_calc *calc,
                         struct bp_symbols *symbols)
{
    symbols->E = kind->num_experts;
    symbols->K = kind->experts_per_token;
    symbols->F_e = kind->expert_intermediate_size;
    symbols->F_s = kind->shared_intermediate_size;
    symbols->ep = strategy->expert_parallel;
    symbols->etp = strategy->expert_tensor_parallel;
    symbols->expert_dp = 1;
    if (kind->num_experts == 0)
        return;
    if (symbols->c) {
        bind_inference_pairs(calc, symbols);
        return;
    }
    symbols->expert_dp = bp_div(calc, bp_mul(calc, symbols->t, symbols->dp), bp_mul(calc, symbols->ep, symbols->etp));
    symbols->own_tokens = bp_div(calc, symbols->Xs, symbols->H);
    symbols->own_pairs = bp_mul(calc, symbols->own_tokens, symbols->K);
    symbols->pairs = bp_div(calc, BP_PROD(calc, symbols->B, symbols->S, symbols->K, symbols->etp), symbols->t);
}

int bp_symbols_of(const struct bp_model *model, uint32_t kind_place, const struct bp_workload *workload,
                  const struct bp_strategy *strategy, struct bp_symbols *ret, struct bp_err *err)
{
    struct bp_calc calc = {0};
    const struct bp_kind *kind = &model->kinds[kind_place];
    struct bp_symbols symbols = {
        .kind = kind,
        .H = model->hidden_size,
        .F = kind->intermediate_size,
        .h = kind->num_attention_heads,
        .k = kind->num_key_value_heads,
        .d = kind->head_dim,
        .t = strategy->tensor_parallel,
        .e = bp_dtype_bytes(workload->dtype),
        .gated = bp_kind_gated(kind),
    };
    if (workload->mode == BP_MODE_TRAINING)
        bind_training(workload, strategy, &calc, &symbols);
    else
        bind_inference(workload, &symbols);
    symbols.h_l = bp_div(&calc, symbols.h, symbols.t);
    symbols.k_l = symbols.k > symbols.t ? bp_div(&calc, symbols.k, symbols.t) : 1;
    symbols.X = BP_PROD(&calc, symbols.B, symbols.S, symbols.H);
    symbols.Xs = symbols.sequence_parallel ? bp_div(&calc, symbols.X, symbols.t) : symbols.X;
    bind_experts(kind, strategy, &calc, &symbols);
    symbols.heads_are_plain = symbols.k == symbols.h && symbols.d * symbols.h == symbols.H;
    if (bp_calc_check(&calc, "/workload", "the number of elements of an activation", err))
        return -1;
    *ret = symbols;
    return 0;
}

static bool is_planned(const struct bp_workload *workload, const struct bp_kind *kind)
{
    for (uint32_t i = 0; i < workload->n_block_kinds; i++)
        if (strcmp(workload->block_kinds[i], kind->name) == 0)
            return true;
    return workload->n_block_kinds == 0;
}

int bp_symbols_of_blocks(const struct bp_request *request, struct bp_symbols ret[BP_KINDS_MAX], uint32_t *ret_n,
                         struct bp_err *err)
{
    const struct bp_model *model = &request->model;
    uint32_t n = 0;
    for (uint32_t i = 0; i < model->n_kinds; i++)
        if (is_planned(&request->workload, &model->kinds[i]) &&
            bp_symbols_of(model, i, &request->workload, &request->strategy, &ret[n++], err) < 0)
            return -1;
    *ret_n = n;
    return 0;
}
