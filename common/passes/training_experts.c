/* The MLP of experts (Shazeer et al., "Outrageously Large Neural Networks"; Lepikhin et al., "GShard"; the parallel
 * form of Megatron-Core's token dispatcher): a router, an exchange of token-expert pairs, the local experts, the
 * exchange back, and beside them the experts that every token takes. Exact under balanced routing: each rank gets N =
 * BS*K*etp/t pairs. Probabilities scale inside the activation, so that no expert's output is kept.
 */
#include "common/passes/training_rows.h"

/* The router on the rank's own tokens: logits, softmax, the K best. */
static uint32_t add_router(struct bp_row_builder *b, uint32_t input)
{
    const struct bp_symbols *s = b->s;
    const struct bp_kind *kind = b->kind;
    struct bp_calc *calc = &b->calc;
    bp_u128 tokens = bp_div(calc, s->Xs, s->H), n = bp_mul(calc, tokens, s->E), chosen = bp_mul(calc, tokens, s->K);
    struct bp_tensor_shape shape = b->block->boundary;
    shape.size[2] = s->E;
    struct bp_row *row = bp_rows_linear(b, "moe.router", input, tokens, s->H, s->E, kind->router_bias, BP_SPLIT_NONE);
    row->keeps_activation = row->owns_activation = false;
    row->output_shape = shape;
    bp_rows_softmax(b, "moe.router_softmax", bp_block_last(b->block), n)->output_shape = shape;
    row = bp_rows_elementwise(b, "moe.top_k", bp_block_last(b->block), n, 1, 1, 1);
    row->forward = bp_row_work(calc, n, n, chosen, s->e);
    row->activation_gradient = bp_row_work(calc, chosen, chosen, n, s->e);
    row->activation = row->output = bp_rows_elements(b, chosen);
    row->operands = BP_NEEDS_ITSELF;
    shape.size[2] = s->K;
    row->output_shape = shape;
    return bp_block_last(b->block);
}

/* A tensor of `width` elements a pair: [pairs of the expert group, width]. */
static struct bp_tensor_shape pairs_shape(struct bp_row_builder *b, bp_u128 pairs, bp_u128 width)
{
    return (struct bp_tensor_shape){2,
                                    {bp_mul(&b->calc, pairs, b->s->ep), bp_mul(&b->calc, width, b->s->etp)},
                                    {BP_AXIS_EXPERT, BP_AXIS_EXPERT_TENSOR}};
}

/* Gate, up, activation, down over the pairs; each weight is E/ep experts of this rank, F_e/etp wide. */
static uint32_t add_expert_mlp(struct bp_row_builder *b, uint32_t input)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bp_u128 N = s->pairs, experts = bp_div(calc, s->E, s->ep), width = bp_div(calc, s->F_e, s->etp);
    bool bias = b->kind->expert_bias;
    struct bp_row *row;
    if (s->gated) {
        bp_rows_fork(b, "moe.gate_fork", input, bp_mul(calc, N, s->H), 2);
        input = bp_block_last(b->block);
        row = bp_rows_expert_linear(b, "moe.gate", input, N, s->H, width, experts, bias);
        row->keeps_activation = row->owns_activation = false;
        row->output_shape = pairs_shape(b, N, width);
    }
    uint32_t gate = bp_block_last(b->block);
    row = bp_rows_expert_linear(b, "moe.up", input, N, s->H, width, experts, bias);
    row->keeps_activation = row->owns_activation = !s->gated;
    row->output_shape = pairs_shape(b, N, width);
    bp_rows_activation(b, "moe.activation", gate, bp_block_last(b->block), bp_mul(calc, N, width))->output_shape =
        pairs_shape(b, N, width);
    row = bp_rows_expert_linear(b, "moe.down", bp_block_last(b->block), N, width, s->H, experts, bias);
    row->keeps_activation = !b->strategy->recompute_activation;
    row->output_shape = pairs_shape(b, N, s->H);
    return bp_block_last(b->block);
}

/* Pairs go to their experts' ranks and come back: all-to-alls of BS*K*H/t elements; within an expert's tensor group an
 * all-gather before and a reduce-scatter after. */
static uint32_t add_experts(struct bp_row_builder *b, uint32_t input, uint32_t chosen)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bp_u128 gathered = bp_mul(calc, s->pairs, s->H), own = bp_div(calc, gathered, s->etp);
    struct bp_row *row =
        bp_rows_exchange(b, "moe.dispatch", input, BP_COLLECTIVE_ALL_TO_ALL, BP_COLLECTIVE_ALL_TO_ALL, own, s->ep);
    bp_row_reads(row, chosen);
    row->output_shape = pairs_shape(b, s->pairs, s->H);
    if (s->etp > 1)
        bp_rows_exchange(b, "moe.gather", bp_block_last(b->block), BP_COLLECTIVE_ALL_GATHER,
                         BP_COLLECTIVE_REDUCE_SCATTER, gathered, s->etp)
            ->output_shape = pairs_shape(b, s->pairs, s->H);
    uint32_t output = add_expert_mlp(b, bp_block_last(b->block));
    if (s->etp > 1) {
        bp_rows_exchange(b, "moe.scatter", output, BP_COLLECTIVE_REDUCE_SCATTER, BP_COLLECTIVE_ALL_GATHER, gathered,
                         s->etp)
            ->output_shape = pairs_shape(b, s->pairs, s->H);
        output = bp_block_last(b->block);
    }
    bp_rows_exchange(b, "moe.combine", output, BP_COLLECTIVE_ALL_TO_ALL, BP_COLLECTIVE_ALL_TO_ALL, own, s->ep)
        ->output_shape = b->block->boundary;
    return bp_block_last(b->block);
}

/* The experts that every token takes: a dense MLP of their own width, added to what the others gave. */
static uint32_t add_shared(struct bp_row_builder *b, uint32_t input, uint32_t routed)
{
    static const struct bp_mlp_names names = {"shared.gate_fork", "shared.gate", "shared.up", "shared.activation",
                                              "shared.down"};
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    uint32_t gathered = bp_rows_boundary(b, "shared.input_collective", input, BP_PLAIN, s->X);
    uint32_t output = bp_training_mlp(b, &names, gathered, bp_div(calc, s->F_s, s->t));
    output = bp_rows_boundary(b, "shared.output_collective", output, BP_CONJUGATE, s->X);
    if (b->kind->shared_gate) {
        struct bp_row *row =
            bp_rows_linear(b, "shared.scale", input, bp_div(calc, s->Xs, s->H), s->H, 1, false, BP_SPLIT_NONE);
        row->keeps_activation = row->owns_activation = false;
        row->output_shape = b->block->boundary;
        row->output_shape.size[2] = 1;
        uint32_t scale = bp_block_last(b->block);
        row = bp_rows_elementwise(b, "shared.scaling", output, s->Xs, 1, 2, 1);
        bp_row_reads(row, scale);
        row->output_shape = b->block->boundary;
        output = bp_block_last(b->block);
    }
    bp_rows_residual(b, "shared.add", output, routed, s->Xs)->output_shape = b->block->boundary;
    return bp_block_last(b->block);
}

void bp_training_experts(struct bp_row_builder *b, uint32_t input)
{
    const struct bp_symbols *s = b->s;
    uint32_t skip;
    input = bp_training_half_begin(b, "mlp.residual_fork", "mlp.norm", input, &skip);
    bp_rows_fork(b, "moe.fork", input, s->Xs, s->F_s ? (b->kind->shared_gate ? 4 : 3) : 2);
    input = bp_block_last(b->block);
    uint32_t output = add_experts(b, input, add_router(b, input));
    if (s->F_s)
        output = add_shared(b, input, output);
    if (b->kind->hidden_dropout) {
        bp_rows_dropout(b, "mlp.output_dropout", output, s->Xs)->output_shape = b->block->boundary;
        output = bp_block_last(b->block);
    }
    bp_rows_residual(b, "mlp.residual", output, skip, s->Xs)->output_shape = b->block->boundary;
}
