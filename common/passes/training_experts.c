/* The MLP of experts (Shazeer et al., "Outrageously Large Neural Networks"; Lepikhin et al., "GShard"; the parallel
 * form of Megatron-Core's token dispatcher): a router, tokens copied for their experts, an exchange of token-expert
 * pairs, the local experts, the way back, and beside them the experts that every token takes. Exact under balanced
 * routing: each rank gets N = BS*K*etp/t pairs. Probabilities scale inside the activation, so that no expert's output
 * is kept.
 */
#include "common/passes/training_rows.h"

/* The boundary's shape with another width. */
static struct bp_tensor_shape own_shape(const struct bp_row_builder *b, bp_u128 width)
{
    struct bp_tensor_shape shape = b->block->boundary;
    shape.size[2] = width;
    return shape;
}

/* Whole weights on every rank, for its own tokens, which `input` holds. */
static void add_token_linear(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 width, bool bias)
{
    const struct bp_symbols *s = b->s;
    struct bp_row *row = bp_rows_linear(b, name, input, s->own_tokens, s->H, width, bias, BP_SPLIT_NONE);
    bp_row_shares(row);
    row->output_shape = own_shape(b, width);
}

/* The router on the rank's own tokens: logits, softmax, the K best, whose gradient goes back to where they were. */
static uint32_t add_router(struct bp_row_builder *b, uint32_t input)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bp_u128 n = bp_mul(calc, s->own_tokens, s->E), chosen = bp_mul(calc, s->own_tokens, s->K);
    add_token_linear(b, "moe.router", input, s->E, b->kind->router_bias);
    bp_rows_softmax(b, "moe.router_softmax", bp_block_last(b->block), n)->output_shape = own_shape(b, s->E);
    struct bp_row *row = bp_rows_add(b, "moe.top_k", BP_ENGINE_VECTOR, bp_block_last(b->block));
    row->forward = bp_row_work(calc, n, n, chosen, s->e);
    row->activation_gradient = bp_row_work(calc, chosen, bp_mul(calc, 2, chosen), n, s->e);
    row->activation = row->output = bp_rows_elements(b, chosen);
    row->operands = BP_NEEDS_ITSELF;
    row->output_shape = own_shape(b, s->K);
    return bp_block_last(b->block);
}

/* Pairs before they are exchanged, on the ranks of the tensor group; between the exchanges, on those of the experts,
 * by expert, and by expert and part of it. */
static struct bp_tensor_shape routed_shape(struct bp_row_builder *b)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bp_u128 split = s->sequence_parallel ? s->t : 1;
    return (struct bp_tensor_shape){3,
                                    {b->strategy->data_parallel, bp_mul(calc, split, s->own_pairs), s->H},
                                    {BP_AXIS_DATA, s->sequence_parallel ? BP_AXIS_TENSOR : BP_AXIS_NONE, BP_AXIS_NONE}};
}

static struct bp_tensor_shape exchanged_shape(struct bp_row_builder *b)
{
    const struct bp_symbols *s = b->s;
    return (struct bp_tensor_shape){3,
                                    {bp_mul(&b->calc, s->ep, s->own_pairs), s->etp, s->H},
                                    {BP_AXIS_EXPERT, BP_AXIS_EXPERT_TENSOR, BP_AXIS_NONE}};
}

static struct bp_tensor_shape expert_shape(struct bp_row_builder *b, bp_u128 width, enum bp_axis axis)
{
    const struct bp_symbols *s = b->s;
    return (struct bp_tensor_shape){2, {bp_mul(&b->calc, s->ep, s->pairs), width}, {BP_AXIS_EXPERT, axis}};
}

/* A copy of each token for each of its experts; backward the copies' gradients are summed, and the choice says where
 * they belong. Nothing is kept: the experts hold the copies. */
static uint32_t add_permutation(struct bp_row_builder *b, uint32_t input, uint32_t chosen)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bp_u128 own = bp_mul(calc, s->own_pairs, s->H), choice = bp_mul(calc, s->own_tokens, s->K);
    bp_u128 read = bp_add(calc, s->Xs, choice);
    struct bp_row *row = bp_rows_add(b, "moe.permute", BP_ENGINE_VECTOR, input);
    bp_row_reads(row, chosen);
    row->forward = bp_row_work(calc, 0, read, own, s->e);
    row->activation_gradient =
        bp_row_work(calc, bp_mul(calc, bp_sub(calc, s->K, 1), s->Xs), bp_add(calc, own, choice), read, s->e);
    row->output = bp_rows_elements(b, own);
    row->operands = BP_NEEDS_LAST_INPUT;
    row->output_shape = routed_shape(b);
    return bp_block_last(b->block);
}

static uint32_t add_sum_of_pairs(struct bp_row_builder *b, uint32_t input)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bp_u128 own = bp_mul(calc, s->own_pairs, s->H);
    struct bp_row *row = bp_rows_add(b, "moe.unpermute", BP_ENGINE_VECTOR, input);
    row->forward = bp_row_work(calc, bp_mul(calc, bp_sub(calc, s->K, 1), s->Xs), own, s->Xs, s->e);
    row->activation_gradient = bp_row_work(calc, 0, s->Xs, own, s->e);
    row->output = bp_rows_elements(b, s->Xs);
    row->output_shape = b->block->boundary;
    return bp_block_last(b->block);
}

/* Gate, up, activation, down over the pairs; each weight is E/ep experts of this rank, F_e/etp wide. */
static uint32_t add_expert_mlp(struct bp_row_builder *b, uint32_t input)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bp_u128 width = bp_div(calc, s->F_e, s->etp);
    struct bp_tensor_shape wide = expert_shape(b, s->F_e, BP_AXIS_EXPERT_TENSOR);
    struct bp_row *row;
    if (s->gated) {
        bp_rows_fork(b, "moe.gate_fork", input, bp_mul(calc, s->pairs, s->H), 2);
        input = bp_block_last(b->block);
        row = bp_rows_expert_linear(b, "moe.gate", input, s->H, width, BP_SPLIT_COLUMNS);
        bp_row_shares(row);
        row->output_shape = wide;
    }
    uint32_t gate = bp_block_last(b->block);
    row = bp_rows_expert_linear(b, "moe.up", input, s->H, width, BP_SPLIT_COLUMNS);
    if (s->gated)
        bp_row_shares(row);
    row->output_shape = wide;
    bp_rows_activation(b, "moe.activation", gate, bp_block_last(b->block), bp_mul(calc, s->pairs, width))
        ->output_shape = wide;
    row = bp_rows_expert_linear(b, "moe.down", bp_block_last(b->block), width, s->H, BP_SPLIT_ROWS);
    row->keeps_activation = !b->strategy->recompute_activation;
    row->output_shape = expert_shape(b, s->H, BP_AXIS_NONE);
    return bp_block_last(b->block);
}

static uint32_t add_exchange(struct bp_row_builder *b, const char *name, uint32_t input, struct bp_tensor_shape shape)
{
    const struct bp_symbols *s = b->s;
    const struct bp_exchange exchange = {
        name,  BP_AXIS_EXPERT, BP_COLLECTIVE_ALL_TO_ALL, BP_COLLECTIVE_ALL_TO_ALL, bp_mul(&b->calc, s->own_pairs, s->H),
        s->ep,
    };
    if (s->ep == 1)
        return input;
    bp_rows_exchange(b, &exchange, input)->output_shape = shape;
    return bp_block_last(b->block);
}

static uint32_t add_expert_boundary(struct bp_row_builder *b, const char *name, uint32_t input, enum bp_side side)
{
    static const enum bp_collective kinds[] = {
        [BP_PLAIN] = BP_COLLECTIVE_ALL_GATHER, [BP_CONJUGATE] = BP_COLLECTIVE_REDUCE_SCATTER};
    const struct bp_symbols *s = b->s;
    const struct bp_exchange exchange = {name,
                                         BP_AXIS_EXPERT_TENSOR,
                                         kinds[side],
                                         kinds[side == BP_PLAIN ? BP_CONJUGATE : BP_PLAIN],
                                         bp_mul(&b->calc, s->pairs, s->H),
                                         s->etp};
    if (s->etp == 1)
        return input;
    bp_rows_exchange(b, &exchange, input)->output_shape =
        side == BP_PLAIN ? expert_shape(b, s->H, BP_AXIS_NONE) : exchanged_shape(b);
    return bp_block_last(b->block);
}

/* The experts that every token takes: a dense MLP of their own width, added to what the others gave. */
static uint32_t add_shared(struct bp_row_builder *b, uint32_t input, uint32_t routed)
{
    static const struct bp_mlp_names names = {"shared.gate_fork", "shared.gate", "shared.up", "shared.activation",
                                              "shared.down"};
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    uint32_t gathered = bp_training_gather(b, "shared.input_collective", input, true);
    uint32_t output = bp_training_mlp(b, &names, gathered, bp_div(calc, s->F_s, s->t), !s->sequence_parallel);
    output = bp_rows_boundary(b, "shared.output_collective", output, BP_CONJUGATE, s->X);
    if (b->kind->shared_gate) {
        bp_u128 both = bp_add(calc, s->Xs, s->own_tokens);
        add_token_linear(b, "shared.scale", input, 1, false);
        struct bp_row *row = bp_rows_add(b, "shared.scaling", BP_ENGINE_VECTOR, output);
        bp_row_reads(row, bp_block_last(b->block) - 1);
        row->forward = bp_row_work(calc, s->Xs, both, s->Xs, s->e);
        row->activation_gradient = bp_row_work(calc, bp_mul(calc, 2, s->Xs), bp_add(calc, both, s->Xs), both, s->e);
        row->activation = bp_rows_elements(b, both);
        row->output = bp_rows_elements(b, s->Xs);
        row->operands = BP_NEEDS_INPUTS;
        row->output_shape = b->block->boundary;
        output = bp_block_last(b->block);
    }
    bp_rows_residual(b, "shared.add", output, routed, s->Xs)->output_shape = b->block->boundary;
    return bp_block_last(b->block);
}

uint32_t bp_training_experts(struct bp_row_builder *b, uint32_t input)
{
    const struct bp_symbols *s = b->s;
    unsigned users = 2 + (s->F_s ? 1U : 0U) + (s->F_s && b->kind->shared_gate ? 1U : 0U);
    bp_rows_fork(b, "moe.fork", input, s->Xs, users);
    input = bp_block_last(b->block);
    uint32_t pairs = add_permutation(b, input, add_router(b, input));
    pairs = add_exchange(b, "moe.dispatch", pairs, exchanged_shape(b));
    pairs = add_expert_boundary(b, "moe.gather", pairs, BP_PLAIN);
    pairs = add_expert_mlp(b, pairs);
    pairs = add_expert_boundary(b, "moe.scatter", pairs, BP_CONJUGATE);
    pairs = add_exchange(b, "moe.combine", pairs, routed_shape(b));
    uint32_t output = add_sum_of_pairs(b, pairs);
    return s->F_s ? add_shared(b, input, output) : output;
}
