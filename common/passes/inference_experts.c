/* The MLP of experts in inference (docs/formulas.md, "Experts"). Without expert parallelism every rank of the tensor
 * group has all tokens and a part of every expert, and the sums are the group's, as of a dense MLP; otherwise the group
 * deals the tokens out, and token-expert pairs go to their experts' ranks and come back. Exact under balanced routing.
 */
#include "common/passes/inference_rows.h"

/* A tensor of `rows` by `width` on each rank of the tensor group when it deals the tokens out, the same on all when
 * every rank routes all. */
static struct bp_tensor_shape routed_shape(struct bp_inference_builder *b, bp_u128 rows, bp_u128 width)
{
    bool all = b->s->routes_all;
    return (struct bp_tensor_shape){3,
                                    {b->R, bp_mul(&b->calc, rows, all ? 1 : b->s->t), width},
                                    {BP_AXIS_REPLICA, all ? BP_AXIS_NONE : BP_AXIS_TENSOR, BP_AXIS_NONE}};
}

static struct bp_tensor_shape exchanged_shape(struct bp_inference_builder *b)
{
    const struct bp_symbols *s = b->s;
    return (struct bp_tensor_shape){3,
                                    {bp_mul(&b->calc, s->ep, s->own_pairs), s->etp, s->H},
                                    {BP_AXIS_EXPERT, BP_AXIS_EXPERT_TENSOR, BP_AXIS_NONE}};
}

static struct bp_tensor_shape expert_shape(struct bp_inference_builder *b, bp_u128 width, enum bp_axis axis)
{
    return (struct bp_tensor_shape){2, {bp_mul(&b->calc, b->s->ep, b->s->pairs), width}, {BP_AXIS_EXPERT, axis}};
}

static void add_vector(struct bp_inference_builder *b, const char *name, uint32_t input,
                       const struct bp_inference_work *work, struct bp_tensor_shape shape)
{
    bp_inference_add(b, name, BP_ENGINE_VECTOR, input, work)->output_shape = shape;
}

/* Logits of each token's experts, their softmax, the K best. */
static uint32_t add_router(struct bp_inference_builder *b, uint32_t input)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bp_u128 n = bp_mul(calc, s->own_tokens, s->E);
    const struct bp_inference_work softmax = {.operations = bp_mul(calc, 5, n), .read = n, .write = n};
    const struct bp_inference_work top_k = {.operations = n, .read = n, .write = s->own_pairs};
    bp_inference_linear(b, "moe.router", input, s->own_tokens, s->H, s->E, b->kind->router_bias, BP_WHOLE)
        ->output_shape = routed_shape(b, s->own_tokens, s->E);
    add_vector(b, "moe.router_softmax", bp_block_last(b->block), &softmax, routed_shape(b, s->own_tokens, s->E));
    add_vector(b, "moe.top_k", bp_block_last(b->block), &top_k, routed_shape(b, s->own_tokens, s->K));
    return bp_block_last(b->block);
}

static uint32_t add_permutation(struct bp_inference_builder *b, uint32_t input, uint32_t chosen)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    const struct bp_inference_work work = {.read = bp_add(calc, bp_mul(calc, s->own_tokens, s->H), s->own_pairs),
                                           .write = bp_mul(calc, s->own_pairs, s->H)};
    add_vector(b, "moe.permute", input, &work, routed_shape(b, s->own_pairs, s->H));
    bp_row_reads(&b->block->rows[bp_block_last(b->block)], chosen);
    return bp_block_last(b->block);
}

static uint32_t add_sum_of_pairs(struct bp_inference_builder *b, uint32_t input)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bp_u128 own = bp_mul(calc, s->own_tokens, s->H);
    const struct bp_inference_work work = {
        .operations = bp_mul(calc, bp_sub(calc, s->K, 1), own), .read = bp_mul(calc, s->own_pairs, s->H), .write = own};
    add_vector(b, "moe.unpermute", input, &work, routed_shape(b, s->own_tokens, s->H));
    return bp_block_last(b->block);
}

/* The rank's pairs through its local experts, of n by k each on it: all their weights are read. */
static uint32_t add_expert_linear(struct bp_inference_builder *b, const char *name, uint32_t input, bp_u128 n,
                                  bp_u128 k, enum bp_inference_split split)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bool columns = split == BP_BY_COLUMNS;
    bp_u128 rows = bp_add(calc, n, b->kind->expert_bias), experts = bp_div(calc, s->E, s->ep);
    const struct bp_inference_work work = {.operations = BP_PROD(calc, 2, s->pairs, n, k),
                                           .read = bp_mul(calc, s->pairs, n),
                                           .write = bp_mul(calc, s->pairs, k)};
    struct bp_row *row = bp_inference_add(b, name, BP_ENGINE_MATRIX, input, &work);
    bp_inference_parameters(b, row, BP_PROD(calc, experts, rows, k),
                            columns ? (struct bp_tensor_shape){3,
                                                               {s->E, rows, bp_mul(calc, k, s->etp)},
                                                               {BP_AXIS_EXPERT, BP_AXIS_NONE, BP_AXIS_EXPERT_TENSOR}}
                                    : (struct bp_tensor_shape){3,
                                                               {s->E, bp_mul(calc, rows, s->etp), k},
                                                               {BP_AXIS_EXPERT, BP_AXIS_EXPERT_TENSOR, BP_AXIS_NONE}});
    row->expert = true;
    row->output_shape = columns ? expert_shape(b, s->F_e, BP_AXIS_EXPERT_TENSOR) : expert_shape(b, k, BP_AXIS_NONE);
    return bp_block_last(b->block);
}

static uint32_t add_expert_mlp(struct bp_inference_builder *b, uint32_t input)
{
    const struct bp_symbols *s = b->s;
    bp_u128 width = bp_div(&b->calc, s->F_e, s->etp);
    uint32_t gate = s->gated ? add_expert_linear(b, "moe.gate", input, s->H, width, BP_BY_COLUMNS) : input;
    uint32_t up = add_expert_linear(b, "moe.up", input, s->H, width, BP_BY_COLUMNS);
    bp_inference_activation(b, "moe.activation", gate, up, bp_mul(&b->calc, s->pairs, width))->output_shape =
        expert_shape(b, s->F_e, BP_AXIS_EXPERT_TENSOR);
    return add_expert_linear(b, "moe.down", bp_block_last(b->block), width, s->H, BP_BY_ROWS);
}

static uint32_t add_exchange(struct bp_inference_builder *b, const char *name, uint32_t input,
                             struct bp_tensor_shape shape)
{
    const struct bp_symbols *s = b->s;
    if (s->ep == 1)
        return input;
    bp_inference_collective(b, name, input, BP_AXIS_EXPERT, BP_COLLECTIVE_ALL_TO_ALL,
                            bp_mul(&b->calc, s->own_pairs, s->H), s->ep)
        ->output_shape = shape;
    return bp_block_last(b->block);
}

static uint32_t add_expert_boundary(struct bp_inference_builder *b, const char *name, uint32_t input,
                                    enum bp_collective kind, struct bp_tensor_shape shape)
{
    const struct bp_symbols *s = b->s;
    if (s->routes_all || s->etp == 1)
        return input;
    bp_inference_collective(b, name, input, BP_AXIS_EXPERT_TENSOR, kind, bp_mul(&b->calc, s->pairs, s->H), s->etp)
        ->output_shape = shape;
    return bp_block_last(b->block);
}

/* What the experts of each token give. Dealt out tokens are whole sums, and are gathered again. */
static uint32_t add_routed(struct bp_inference_builder *b, uint32_t input)
{
    const struct bp_symbols *s = b->s;
    uint32_t pairs = add_permutation(b, input, add_router(b, input));
    pairs = add_exchange(b, "moe.dispatch", pairs, exchanged_shape(b));
    pairs = add_expert_boundary(b, "moe.gather", pairs, BP_COLLECTIVE_ALL_GATHER, expert_shape(b, s->H, BP_AXIS_NONE));
    pairs = add_expert_mlp(b, pairs);
    pairs = add_expert_boundary(b, "moe.scatter", pairs, BP_COLLECTIVE_REDUCE_SCATTER, exchanged_shape(b));
    pairs = add_exchange(b, "moe.combine", pairs, routed_shape(b, s->own_pairs, s->H));
    uint32_t output = add_sum_of_pairs(b, pairs);
    if (s->routes_all || s->t == 1)
        return output;
    bp_inference_collective(b, "moe.output_collective", output, BP_AXIS_TENSOR, BP_COLLECTIVE_ALL_GATHER, b->Y, s->t);
    return bp_block_last(b->block);
}

/* The experts that every token takes, scaled where they have a gate, added to what the others gave. */
static uint32_t add_shared(struct bp_inference_builder *b, uint32_t input, uint32_t routed)
{
    static const struct bp_inference_mlp_names names = {"shared.gate", "shared.up", "shared.activation", "shared.down"};
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    uint32_t output = bp_inference_mlp(b, &names, input, bp_div(calc, s->F_s, s->t));
    if (!s->routes_all)
        output = bp_inference_all_reduce(b, "shared.all_reduce", output);
    if (b->kind->shared_gate) {
        bp_inference_linear(b, "shared.scale", input, b->bq, s->H, 1, false, BP_WHOLE);
        uint32_t scale = bp_block_last(b->block);
        const struct bp_inference_work work = {.operations = b->Y, .read = bp_add(calc, b->Y, b->bq), .write = b->Y};
        add_vector(b, "shared.scaling", output, &work, b->block->boundary);
        output = bp_block_last(b->block);
        bp_row_reads(&b->block->rows[output], scale);
    }
    return bp_inference_sum(b, "shared.add", output, routed);
}

uint32_t bp_inference_experts(struct bp_inference_builder *b, uint32_t input, bool *ret_whole)
{
    uint32_t output = add_routed(b, input);
    *ret_whole = !b->s->routes_all;
    return b->s->F_s ? add_shared(b, input, output) : output;
}
