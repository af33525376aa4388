#include "common/request/symbols.h"

static void bind_training(const struct bp_workload *workload, const struct bp_strategy *strategy,
                          struct bp_symbols *symbols)
{
    symbols->B = workload->micro_batch_size;
    symbols->S = workload->sequence_length;
    symbols->g = bp_dtype_bytes(workload->gradient_dtype);
    symbols->dp = strategy->data_parallel;
    symbols->sequence_parallel = strategy->sequence_parallel && strategy->tensor_parallel > 1;
    symbols->gathers_again =
        symbols->sequence_parallel && (strategy->recompute == BP_RECOMPUTE_FULL || strategy->recompute_all_gather);
}

static void bind_inference(const struct bp_workload *workload, struct bp_symbols *symbols)
{
    symbols->b = symbols->B = workload->batch_size;
    symbols->c = workload->context_length;
    symbols->q = symbols->S = workload->phase == BP_PREFILL ? workload->context_length : 1;
    symbols->dp = 1;
}

int bp_symbols_of(const struct bp_model *model, const struct bp_workload *workload, const struct bp_strategy *strategy,
                  struct bp_symbols *ret, struct bp_err *err)
{
    struct bp_calc calc = {0};
    const struct bp_kind *kind = &model->kinds[0];
    struct bp_symbols symbols = {
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
        bind_training(workload, strategy, &symbols);
    else
        bind_inference(workload, &symbols);
    symbols.h_l = bp_div(&calc, symbols.h, symbols.t);
    symbols.k_l = symbols.k > symbols.t ? bp_div(&calc, symbols.k, symbols.t) : 1;
    symbols.X = BP_PROD(&calc, symbols.B, symbols.S, symbols.H);
    symbols.Xs = symbols.sequence_parallel ? bp_div(&calc, symbols.X, symbols.t) : symbols.X;
    symbols.heads_are_plain = symbols.k == symbols.h && symbols.d * symbols.h == symbols.H;
    if (bp_calc_check(&calc, "/workload", "the number of elements of an activation", err))
        return -1;
    *ret = symbols;
    return 0;
}
