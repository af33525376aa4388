#include "common/passes/training_rows.h"

struct bp_bytes bp_rows_elements(struct bp_row_builder *b, bp_u128 n)
{
    return bp_bytes(&b->calc, bp_mul(&b->calc, n, b->s->e));
}

void bp_row_shares(struct bp_row *row)
{
    row->keeps_activation = row->owns_activation = false;
}

/* Adam over one row's share of P parameters: two fp32 moments, an fp32 master copy beside weights of fewer than four
 * bytes (ZeRO, section 3.1: K = 12 for mixed precision). */
static bp_u128 optimizer_state(struct bp_row_builder *b, bp_u128 own)
{
    return bp_mul(&b->calc, own, b->s->e < 4 ? 12 : 8);
}

/* `ranks` hold the same parameters, and share them from some ZeRO stage on: shard(P) = ceil(P / ranks). */
static void row_parameters(struct bp_row_builder *b, struct bp_row *row, bp_u128 parameters, bp_u128 ranks)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    uint64_t zero = b->strategy->zero_stage;
    bp_u128 shard = bp_div_ceil(calc, parameters, ranks), own = zero >= 1 ? shard : parameters;
    bp_u128 state = optimizer_state(b, own);
    row->parameters = bp_bytes(calc, parameters).n;

    bp_u128 read = bp_add(calc, bp_mul(calc, own, s->g), state);
    if (s->e >= 4)
        read = bp_add(calc, read, bp_mul(calc, own, s->e));
    row->optimizer = bp_row_work_bytes(calc, bp_mul(calc, 11, own), read, bp_add(calc, state, bp_mul(calc, own, s->e)));

    const struct {
        enum bp_memory_fact fact;
        bp_u128 bytes;
    } held[] = {
        {BP_MEMORY_WEIGHTS, bp_mul(calc, zero >= 3 ? shard : parameters, s->e)},
        {BP_MEMORY_GRADIENTS, bp_mul(calc, zero >= 2 ? shard : parameters, s->g)},
        {BP_MEMORY_OPTIMIZER, state},
    };
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        struct bp_bytes *fact = &b->block->memory.at[held[i].fact];
        *fact = bp_bytes_add(calc, *fact, bp_bytes(calc, held[i].bytes));
    }
}

/* Writes of a weight gradient are P elements of g bytes. */
static struct bp_row_work weight_gradient(struct bp_row_builder *b, bp_u128 operations, bp_u128 read,
                                          bp_u128 parameters)
{
    return bp_row_work_bytes(&b->calc, operations, bp_mul(&b->calc, read, b->s->e),
                             bp_mul(&b->calc, parameters, b->s->g));
}

/* Row kinds. Each adds one row that reads `input` and returns it. */

struct bp_row *bp_rows_add(struct bp_row_builder *b, const char *name, enum bp_engine engine, uint32_t input)
{
    struct bp_row *row = bp_block_add(b->block, name, engine);
    bp_row_reads(row, input);
    row->recomputed = b->strategy->recompute == BP_RECOMPUTE_FULL;
    row->keeps_activation = true;
    row->keeps_output = true;
    row->owns_activation = true;
    return row;
}

/* One tensor read by several: backward, their gradients are summed. */
struct bp_row *bp_rows_fork(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 n, bp_u128 users)
{
    struct bp_row *row = bp_rows_add(b, name, BP_ENGINE_VECTOR, input);
    struct bp_calc *calc = &b->calc;
    row->activation_gradient = bp_row_work(calc, bp_mul(calc, users - 1, n), bp_mul(calc, users, n), n, b->s->e);
    row->activation = bp_rows_elements(b, n);
    return row;
}

/* The weights of a norm on one rank: none, a scale, or a scale and a bias, each of `length`; the ranks along `axis`
 * have weights of their own. */
struct norm_weights {
    unsigned vectors;
    bp_u128 length;
    enum bp_axis axis;
};

/* LayerNorm or RMSNorm of n elements. */
static struct bp_row *norm(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 n,
                           const struct norm_weights *weights)
{
    static const struct {
        unsigned forward, activation_gradient, weight_gradient;
    } norms[] = {[BP_NORM_LAYERNORM] = {9, 14, 7}, [BP_NORM_RMSNORM] = {4, 8, 4}};
    struct bp_row *row = bp_rows_add(b, name, BP_ENGINE_VECTOR, input);
    struct bp_calc *calc = &b->calc;
    enum bp_norm sort = b->model->norm;
    bp_u128 e = b->s->e, n2 = bp_mul(calc, 2, n), P = bp_mul(calc, weights->vectors, weights->length);
    bp_u128 whole = bp_mul(calc, weights->length, weights->axis == BP_AXIS_TENSOR ? b->s->t : 1);
    row->forward = bp_row_work(calc, bp_mul(calc, norms[sort].forward, n), bp_add(calc, n, P), n, e);
    row->activation_gradient = bp_row_work(calc, bp_mul(calc, norms[sort].activation_gradient, n),
                                           bp_add(calc, n2, weights->vectors ? weights->length : 0), n, e);
    row->activation = row->output = bp_rows_elements(b, n);
    row->operands = BP_NEEDS_INPUTS;
    if (P == 0)
        return row;
    row->weight_gradient = weight_gradient(b, bp_mul(calc, norms[sort].weight_gradient, n), n2, P);
    row_parameters(b, row, P, b->s->dp);
    row->parameter_shape = weights->vectors == 2
                               ? (struct bp_tensor_shape){2, {2, whole}, {BP_AXIS_NONE, weights->axis}}
                               : (struct bp_tensor_shape){1, {whole}, {weights->axis}};
    return row;
}

struct bp_row *bp_rows_norm(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 n, bp_u128 width)
{
    const struct bp_model *model = b->model;
    bool bias = model->norm == BP_NORM_LAYERNORM && !model->norm_without_bias;
    const struct norm_weights weights = {model->norm_without_weight ? 0 : bias ? 2 : 1, width, BP_AXIS_NONE};
    return norm(b, name, input, n, &weights);
}

struct bp_row *bp_rows_head_norm(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 n, bp_u128 heads)
{
    const struct bp_kind *kind = b->kind;
    bp_u128 d = b->s->d, all = bp_mul(&b->calc, heads, d);
    unsigned vectors = kind->qk_norm_bias ? 2 : 1;
    const struct norm_weights weights[] = {[BP_QK_NORM_NONE] = {0, d, BP_AXIS_NONE},
                                           [BP_QK_NORM_HEAD] = {vectors, d, BP_AXIS_NONE},
                                           [BP_QK_NORM_EACH_HEAD] = {vectors, all, BP_AXIS_TENSOR},
                                           [BP_QK_NORM_SPAN] = {vectors, all, BP_AXIS_NONE},
                                           [BP_QK_NORM_WITHOUT_WEIGHT] = {0, d, BP_AXIS_NONE}};
    return norm(b, name, input, n, &weights[kind->qk_norm]);
}

/* [m,n] x [n,k] is 2mnk operations; a bias adds its k columns to P and rides in the epilogue. */
static struct bp_row *linear(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 m, bp_u128 n,
                             bp_u128 k, bp_u128 copies, bool bias)
{
    struct bp_row *row = bp_rows_add(b, name, BP_ENGINE_MATRIX, input);
    struct bp_calc *calc = &b->calc;
    bp_u128 e = b->s->e, mnk2 = BP_PROD(calc, 2, m, n, k);
    bp_u128 mn = bp_mul(calc, m, n), nk = BP_PROD(calc, copies, n, k), mk = bp_mul(calc, m, k);
    bp_u128 P = bp_add(calc, nk, bias ? bp_mul(calc, copies, k) : 0);
    row->forward = bp_row_work(calc, mnk2, bp_add(calc, mn, P), mk, e);
    row->activation_gradient = bp_row_work(calc, mnk2, bp_add(calc, nk, mk), mn, e);
    row->weight_gradient = weight_gradient(b, mnk2, bp_add(calc, mn, mk), P);
    row->activation = bp_rows_elements(b, mn);
    row->output = bp_rows_elements(b, mk);
    row->bias = bias;
    row->copies = (uint64_t)copies;
    return row;
}

struct bp_row *bp_rows_linear(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 m, bp_u128 n,
                              bp_u128 k, bool bias, enum bp_split split)
{
    struct bp_row *row = linear(b, name, input, m, n, k, 1, bias);
    struct bp_calc *calc = &b->calc;
    bp_u128 t = b->s->t, rows = bp_add(calc, n, bias);
    const struct bp_tensor_shape shapes[] = {
        [BP_SPLIT_COLUMNS] = {2, {rows, bp_mul(calc, t, k)}, {BP_AXIS_NONE, BP_AXIS_TENSOR}},
        [BP_SPLIT_ROWS] = {2, {bp_mul(calc, t, rows), k}, {BP_AXIS_TENSOR, BP_AXIS_NONE}},
        [BP_SPLIT_NONE] = {2, {rows, k}, {BP_AXIS_NONE, BP_AXIS_NONE}},
    };
    row->parameter_shape = shapes[split];
    row_parameters(b, row, bp_mul(calc, rows, k), b->s->dp);
    return row;
}

/* Each pair meets the weights of one expert, so that m pairs are 2mnk operations whatever the number of experts; the
 * weights of all of them are read. Expert parameters are replicated over fewer ranks than the rest. */
struct bp_row *bp_rows_expert_linear(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 n, bp_u128 k,
                                     enum bp_split split)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bool bias = b->kind->expert_bias;
    bp_u128 experts = bp_div(calc, s->E, s->ep), rows = bp_add(calc, n, bias);
    struct bp_row *row = linear(b, name, input, s->pairs, n, k, experts, bias);
    row->expert = true;
    row->parameter_shape = split == BP_SPLIT_COLUMNS
                               ? (struct bp_tensor_shape){3,
                                                          {s->E, rows, bp_mul(calc, k, s->etp)},
                                                          {BP_AXIS_EXPERT, BP_AXIS_NONE, BP_AXIS_EXPERT_TENSOR}}
                               : (struct bp_tensor_shape){3,
                                                          {s->E, bp_mul(calc, rows, s->etp), k},
                                                          {BP_AXIS_EXPERT, BP_AXIS_EXPERT_TENSOR, BP_AXIS_NONE}};
    row_parameters(b, row, BP_PROD(calc, experts, rows, k), s->expert_dp);
    return row;
}

struct bp_row *bp_rows_product(struct bp_row_builder *b, const char *name, uint32_t left, uint32_t right,
                               const struct bp_product *product)
{
    struct bp_row *row = bp_rows_add(b, name, BP_ENGINE_MATRIX, left);
    struct bp_calc *calc = &b->calc;
    bp_row_reads(row, right);
    row->forward = bp_row_work(calc, product->W, product->read, product->written, b->s->e);
    row->activation_gradient = bp_row_work(calc, bp_mul(calc, 2, product->W),
                                           bp_add(calc, product->read, product->written), product->read, b->s->e);
    row->activation = bp_rows_elements(b, product->kept);
    row->output = bp_rows_elements(b, product->written);
    row->operands = BP_NEEDS_INPUTS;
    return row;
}

/* Rows whose forward is `f*n; r*n; n` and agrad `b*n; (r+1)*n; w*n`. */
struct bp_row *bp_rows_elementwise(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 n,
                                   unsigned forward, unsigned backward, unsigned operands_read)
{
    struct bp_row *row = bp_rows_add(b, name, BP_ENGINE_VECTOR, input);
    struct bp_calc *calc = &b->calc;
    bp_u128 in = bp_mul(calc, operands_read, n);
    row->forward = bp_row_work(calc, bp_mul(calc, forward, n), in, n, b->s->e);
    row->activation_gradient = bp_row_work(calc, bp_mul(calc, backward, n), bp_add(calc, in, n), in, b->s->e);
    row->activation = bp_rows_elements(b, in);
    row->output = bp_rows_elements(b, n);
    row->operands = BP_NEEDS_INPUTS;
    return row;
}

struct bp_row *bp_rows_softmax(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 n)
{
    struct bp_row *row = bp_rows_elementwise(b, name, input, n, 5, 8, 1);
    row->operands = BP_NEEDS_ITSELF;
    return row;
}

/* The mask is one byte an element. */
struct bp_row *bp_rows_dropout(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 n)
{
    struct bp_row *row = bp_rows_add(b, name, BP_ENGINE_VECTOR, input);
    struct bp_calc *calc = &b->calc;
    bp_u128 bytes = bp_mul(calc, n, b->s->e), with_mask = bp_add(calc, bytes, n);
    row->forward = bp_row_work_bytes(calc, n, bytes, with_mask);
    row->activation_gradient = bp_row_work_bytes(calc, n, with_mask, bytes);
    row->activation = bp_bytes(calc, n);
    row->output = bp_rows_elements(b, n);
    row->operands = BP_NEEDS_ITSELF;
    return row;
}

/* The gradient of a sum goes to both inputs as it is. */
struct bp_row *bp_rows_residual(struct bp_row_builder *b, const char *name, uint32_t branch, uint32_t skip, bp_u128 n)
{
    struct bp_row *row = bp_rows_add(b, name, BP_ENGINE_VECTOR, branch);
    bp_row_reads(row, skip);
    row->forward = bp_row_work(&b->calc, n, bp_mul(&b->calc, 2, n), n, b->s->e);
    row->activation = row->output = bp_rows_elements(b, n);
    bp_row_shares(row);
    return row;
}

uint32_t bp_rows_boundary(struct bp_row_builder *b, const char *name, uint32_t input, enum bp_side side, bp_u128 n)
{
    static const struct {
        enum bp_collective forward, backward;
    } kinds[2][2] = {
        [false] = {[BP_PLAIN] = {BP_COLLECTIVE_NONE, BP_COLLECTIVE_ALL_REDUCE},
                   [BP_CONJUGATE] = {BP_COLLECTIVE_ALL_REDUCE, BP_COLLECTIVE_NONE}},
        [true] = {[BP_PLAIN] = {BP_COLLECTIVE_ALL_GATHER, BP_COLLECTIVE_REDUCE_SCATTER},
                  [BP_CONJUGATE] = {BP_COLLECTIVE_REDUCE_SCATTER, BP_COLLECTIVE_ALL_GATHER}},
    };
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    if (s->t == 1)
        return input;
    bool sp = s->sequence_parallel;
    struct bp_row *row = bp_rows_add(b, name, BP_ENGINE_COLLECTIVE, input);
    row->axis = BP_AXIS_TENSOR;
    row->forward = bp_row_collective(calc, s, kinds[sp][side].forward, n, s->t);
    row->activation_gradient = bp_row_collective(calc, s, kinds[sp][side].backward, n, s->t);
    row->activation = bp_rows_elements(b, sp ? bp_div(calc, n, s->t) : side == BP_CONJUGATE ? n : 0);
    row->output = bp_rows_elements(b, n);
    row->keeps_activation = side == BP_PLAIN && s->gathers_again;
    if (side == BP_PLAIN)
        row->recomputed = s->gathers_again;
    bool split_after = sp && side == BP_CONJUGATE;
    row->output_shape = b->block->boundary;
    row->output_shape.size[2] = bp_div(calc, n, bp_mul(calc, s->B, s->S));
    row->output_shape.sharding[1] = split_after ? BP_AXIS_TENSOR : BP_AXIS_NONE;
    return bp_block_last(b->block);
}

/* What is gathered comes from shares, what is scattered ends as shares; an all-to-all has none, and its elements need
 * not divide by its ranks. */
struct bp_row *bp_rows_exchange(struct bp_row_builder *b, const struct bp_exchange *exchange, uint32_t input)
{
    struct bp_row *row = bp_rows_add(b, exchange->name, BP_ENGINE_COLLECTIVE, input);
    struct bp_calc *calc = &b->calc;
    bool gathers = exchange->forward == BP_COLLECTIVE_ALL_GATHER;
    bool scatters = exchange->forward == BP_COLLECTIVE_REDUCE_SCATTER;
    bp_u128 whole = exchange->payload, share = gathers || scatters ? bp_div(calc, whole, exchange->ranks) : whole;
    row->axis = exchange->axis;
    row->forward = bp_row_collective(calc, b->s, exchange->forward, whole, exchange->ranks);
    row->activation_gradient = bp_row_collective(calc, b->s, exchange->backward, whole, exchange->ranks);
    row->activation = bp_rows_elements(b, gathers ? share : whole);
    row->output = bp_rows_elements(b, scatters ? share : whole);
    row->keeps_activation = false;
    return row;
}

/* What each activation does per element: forward, backward, operands read. */
struct bp_row *bp_rows_activation(struct bp_row_builder *b, const char *name, uint32_t gate, uint32_t up, bp_u128 n)
{
    static const struct {
        unsigned forward, backward, operands_read;
    } activations[] = {[BP_ACTIVATION_GELU] = {8, 13, 1},
                       [BP_ACTIVATION_RELU] = {1, 1, 1},
                       [BP_ACTIVATION_SWIGLU] = {9, 15, 2},
                       [BP_ACTIVATION_GEGLU] = {9, 15, 2}};
    unsigned forward = activations[b->kind->activation].forward, backward = activations[b->kind->activation].backward;
    unsigned operands_read = activations[b->kind->activation].operands_read;
    struct bp_row *row = bp_rows_elementwise(b, name, b->s->gated ? gate : up, n, forward, backward, operands_read);
    if (b->s->gated)
        bp_row_reads(row, up);
    row->recomputed |= b->strategy->recompute_activation;
    return row;
}

/* A tensor of one rank's [B, S, width], split over the tensor group along its last dimension. */
struct bp_tensor_shape bp_rows_split_width(struct bp_row_builder *b, bp_u128 width)
{
    return (struct bp_tensor_shape){3,
                                    {b->block->boundary.size[0], b->s->S, bp_mul(&b->calc, b->s->t, width)},
                                    {BP_AXIS_DATA, BP_AXIS_NONE, BP_AXIS_TENSOR}};
}

struct bp_tensor_shape bp_rows_whole_hidden(struct bp_row_builder *b)
{
    struct bp_tensor_shape shape = b->block->boundary;
    shape.sharding[1] = BP_AXIS_NONE;
    return shape;
}
