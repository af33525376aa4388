#include "common/passes/training_rows.h"

struct bp_bytes bp_rows_elements(struct bp_row_builder *b, bp_u128 n)
{
    return bp_bytes(&b->calc, bp_mul(&b->calc, n, b->s->e));
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

static struct bp_row *bp_rows_add(struct bp_row_builder *b, const char *name, enum bp_engine engine, uint32_t input)
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

/* LayerNorm or RMSNorm of n elements in rows of `width`. */
struct bp_row *bp_rows_norm(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 n, bp_u128 width)
{
    static const struct {
        unsigned parameters, forward, activation_gradient, weight_gradient;
    } norms[] = {[BP_NORM_LAYERNORM] = {2, 9, 14, 7}, [BP_NORM_RMSNORM] = {1, 4, 8, 4}};
    struct bp_row *row = bp_rows_add(b, name, BP_ENGINE_VECTOR, input);
    struct bp_calc *calc = &b->calc;
    bp_u128 e = b->s->e, P = bp_mul(calc, norms[b->model->norm].parameters, width);
    row->forward = bp_row_work(calc, bp_mul(calc, norms[b->model->norm].forward, n), bp_add(calc, n, P), n, e);
    row->activation_gradient = bp_row_work(calc, bp_mul(calc, norms[b->model->norm].activation_gradient, n),
                                           bp_add(calc, bp_mul(calc, 2, n), width), n, e);
    row->weight_gradient =
        weight_gradient(b, bp_mul(calc, norms[b->model->norm].weight_gradient, n), bp_mul(calc, 2, n), P);
    row->activation = row->output = bp_rows_elements(b, n);
    row->operands = BP_NEEDS_INPUTS;
    row_parameters(b, row, P, b->s->dp);
    row->parameter_shape = b->model->norm == BP_NORM_LAYERNORM
                               ? (struct bp_tensor_shape){2, {2, width}, {BP_AXIS_NONE, BP_AXIS_NONE}}
                               : (struct bp_tensor_shape){1, {width}, {BP_AXIS_NONE}};
    return row;
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
struct bp_row *bp_rows_expert_linear(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 m, bp_u128 n,
                                     bp_u128 k, bp_u128 experts, bool bias)
{
    struct bp_row *row = linear(b, name, input, m, n, k, experts, bias);
    struct bp_calc *calc = &b->calc;
    bp_u128 rows = bp_add(calc, n, bias);
    row->expert = true;
    row->parameter_shape = (struct bp_tensor_shape){3,
                                                    {bp_mul(calc, experts, b->s->ep), rows, bp_mul(calc, k, b->s->etp)},
                                                    {BP_AXIS_EXPERT, BP_AXIS_NONE, BP_AXIS_EXPERT_TENSOR}};
    row_parameters(b, row, BP_PROD(calc, experts, rows, k), b->s->expert_dp);
    return row;
}

/* A batched product of two activations, W operations; `a` and `o` elements in and out. */
struct bp_row *bp_rows_product(struct bp_row_builder *b, const char *name, uint32_t left, uint32_t right, bp_u128 W,
                               bp_u128 a, bp_u128 o)
{
    struct bp_row *row = bp_rows_add(b, name, BP_ENGINE_MATRIX, left);
    struct bp_calc *calc = &b->calc;
    bp_row_reads(row, right);
    row->forward = bp_row_work(calc, W, a, o, b->s->e);
    row->activation_gradient = bp_row_work(calc, bp_mul(calc, 2, W), bp_add(calc, a, o), a, b->s->e);
    row->activation = bp_rows_elements(b, a);
    row->output = bp_rows_elements(b, o);
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
    row->keeps_activation = row->owns_activation = false;
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

struct bp_row *bp_rows_exchange(struct bp_row_builder *b, const char *name, uint32_t input, enum bp_collective forward,
                                enum bp_collective backward, bp_u128 payload, bp_u128 ranks)
{
    struct bp_row *row = bp_rows_add(b, name, BP_ENGINE_COLLECTIVE, input);
    row->forward = bp_row_collective(&b->calc, b->s, forward, payload, ranks);
    row->activation_gradient = bp_row_collective(&b->calc, b->s, backward, payload, ranks);
    row->activation = row->output = bp_rows_elements(b, payload);
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

uint32_t bp_rows_half_end(struct bp_row_builder *b, const char *const names[3], uint32_t input, uint32_t skip)
{
    input = bp_rows_boundary(b, names[0], input, BP_CONJUGATE, b->s->X);
    if (b->kind->hidden_dropout) {
        bp_rows_dropout(b, names[1], input, b->s->Xs)->output_shape = b->block->boundary;
        input = bp_block_last(b->block);
    }
    bp_rows_residual(b, names[2], input, skip, b->s->Xs)->output_shape = b->block->boundary;
    return bp_block_last(b->block);
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
