/* The training block as a table of rows (docs/formulas.md, "Training block"). Row kinds first, then the rows in
 * dataflow order. Work and activations follow Calculon's layer rows; what is kept and what is done again follows
 * Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", sections 4 and 5; the
 * optimizer's state follows Rajbhandari et al., "ZeRO", section 3.1.
 */
#include "common/passes/block.h"

/* What building a row needs at hand. */
struct builder {
    struct bp_block *block;
    const struct bp_model *model;
    const struct bp_kind *kind; /* of the block */
    const struct bp_strategy *strategy;
    const struct bp_symbols *s;
    struct bp_calc calc;
};

static bp_u128 shard(struct builder *b, bp_u128 x, bool sharded)
{
    return bp_div_ceil(&b->calc, x, sharded ? b->s->dp : 1);
}

static struct bp_bytes elements(struct builder *b, bp_u128 n)
{
    return bp_bytes(&b->calc, bp_mul(&b->calc, n, b->s->e));
}

/* Adam over one row's share of P parameters: two fp32 moments, an fp32 master copy beside weights of fewer than four
 * bytes (ZeRO, section 3.1: K = 12 for mixed precision). */
static bp_u128 optimizer_state(struct builder *b, bp_u128 own)
{
    return bp_mul(&b->calc, own, b->s->e < 4 ? 12 : 8);
}

static void row_parameters(struct builder *b, struct bp_row *row, bp_u128 parameters)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    uint64_t zero = b->strategy->zero_stage;
    bp_u128 own = shard(b, parameters, zero >= 1), state = optimizer_state(b, own);
    row->parameters = bp_bytes(calc, parameters).n;

    bp_u128 read = bp_add(calc, bp_mul(calc, own, s->g), state);
    if (s->e >= 4)
        read = bp_add(calc, read, bp_mul(calc, own, s->e));
    row->optimizer = bp_row_work_bytes(calc, bp_mul(calc, 11, own), read, bp_add(calc, state, bp_mul(calc, own, s->e)));

    const struct {
        enum bp_memory_fact fact;
        bp_u128 bytes;
    } held[] = {
        {BP_MEMORY_WEIGHTS, bp_mul(calc, shard(b, parameters, zero >= 3), s->e)},
        {BP_MEMORY_GRADIENTS, bp_mul(calc, shard(b, parameters, zero >= 2), s->g)},
        {BP_MEMORY_OPTIMIZER, state},
    };
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        struct bp_bytes *fact = &b->block->memory.at[held[i].fact];
        *fact = bp_bytes_add(calc, *fact, bp_bytes(calc, held[i].bytes));
    }
}

/* Writes of a weight gradient are P elements of g bytes. */
static struct bp_row_work weight_gradient(struct builder *b, bp_u128 operations, bp_u128 read, bp_u128 parameters)
{
    return bp_row_work_bytes(&b->calc, operations, bp_mul(&b->calc, read, b->s->e),
                             bp_mul(&b->calc, parameters, b->s->g));
}

/* Row kinds. Each adds one row that reads `input` and returns it. */

static struct bp_row *add_row(struct builder *b, const char *name, enum bp_engine engine, uint32_t input)
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
static struct bp_row *add_fork(struct builder *b, const char *name, uint32_t input, bp_u128 n, bp_u128 users)
{
    struct bp_row *row = add_row(b, name, BP_ENGINE_VECTOR, input);
    struct bp_calc *calc = &b->calc;
    row->activation_gradient = bp_row_work(calc, bp_mul(calc, users - 1, n), bp_mul(calc, users, n), n, b->s->e);
    row->activation = elements(b, n);
    return row;
}

/* LayerNorm or RMSNorm of n elements in rows of `width`. */
static struct bp_row *add_norm(struct builder *b, const char *name, uint32_t input, bp_u128 n, bp_u128 width)
{
    static const struct {
        unsigned parameters, forward, activation_gradient, weight_gradient;
    } norms[] = {[BP_NORM_LAYERNORM] = {2, 9, 14, 7}, [BP_NORM_RMSNORM] = {1, 4, 8, 4}};
    struct bp_row *row = add_row(b, name, BP_ENGINE_VECTOR, input);
    struct bp_calc *calc = &b->calc;
    bp_u128 e = b->s->e, P = bp_mul(calc, norms[b->model->norm].parameters, width);
    row->forward = bp_row_work(calc, bp_mul(calc, norms[b->model->norm].forward, n), bp_add(calc, n, P), n, e);
    row->activation_gradient = bp_row_work(calc, bp_mul(calc, norms[b->model->norm].activation_gradient, n),
                                           bp_add(calc, bp_mul(calc, 2, n), width), n, e);
    row->weight_gradient =
        weight_gradient(b, bp_mul(calc, norms[b->model->norm].weight_gradient, n), bp_mul(calc, 2, n), P);
    row->activation = row->output = elements(b, n);
    row->operands = BP_NEEDS_INPUTS;
    row_parameters(b, row, P);
    row->parameter_shape = b->model->norm == BP_NORM_LAYERNORM
                               ? (struct bp_tensor_shape){2, {2, width}, {BP_AXIS_NONE, BP_AXIS_NONE}}
                               : (struct bp_tensor_shape){1, {width}, {BP_AXIS_NONE}};
    return row;
}

/* [m,n] x [n,k] is 2mnk operations; a bias adds its k columns to P and rides in the epilogue. `split` says which
 * dimension of the weight the tensor group divides: its columns (column-parallel) or its rows (row-parallel). */
enum split { SPLIT_COLUMNS, SPLIT_ROWS };

static struct bp_row *add_linear(struct builder *b, const char *name, uint32_t input, bp_u128 m, bp_u128 n, bp_u128 k,
                                 bool bias, enum split split)
{
    struct bp_row *row = add_row(b, name, BP_ENGINE_MATRIX, input);
    struct bp_calc *calc = &b->calc;
    bp_u128 e = b->s->e, t = b->s->t, mnk2 = BP_PROD(calc, 2, m, n, k);
    bp_u128 mn = bp_mul(calc, m, n), nk = bp_mul(calc, n, k), mk = bp_mul(calc, m, k);
    bp_u128 P = bp_add(calc, nk, bias ? k : 0);
    row->forward = bp_row_work(calc, mnk2, bp_add(calc, mn, P), mk, e);
    row->activation_gradient = bp_row_work(calc, mnk2, bp_add(calc, nk, mk), mn, e);
    row->weight_gradient = weight_gradient(b, mnk2, bp_add(calc, mn, mk), P);
    row->activation = elements(b, mn);
    row->output = elements(b, mk);
    row_parameters(b, row, P);
    bp_u128 rows = bp_add(calc, n, bias);
    row->parameter_shape =
        split == SPLIT_COLUMNS
            ? (struct bp_tensor_shape){2, {rows, bp_mul(calc, t, k)}, {BP_AXIS_NONE, BP_AXIS_TENSOR}}
            : (struct bp_tensor_shape){2, {bp_mul(calc, t, rows), k}, {BP_AXIS_TENSOR, BP_AXIS_NONE}};
    return row;
}

/* A batched product of two activations, W operations; `a` and `o` elements in and out. */
static struct bp_row *add_product(struct builder *b, const char *name, uint32_t left, uint32_t right, bp_u128 W,
                                  bp_u128 a, bp_u128 o)
{
    struct bp_row *row = add_row(b, name, BP_ENGINE_MATRIX, left);
    struct bp_calc *calc = &b->calc;
    bp_row_reads(row, right);
    row->forward = bp_row_work(calc, W, a, o, b->s->e);
    row->activation_gradient = bp_row_work(calc, bp_mul(calc, 2, W), bp_add(calc, a, o), a, b->s->e);
    row->activation = elements(b, a);
    row->output = elements(b, o);
    row->operands = BP_NEEDS_INPUTS;
    return row;
}

/* Rows whose forward is `f*n; r*n; n` and agrad `b*n; (r+1)*n; w*n`. */
static struct bp_row *add_elementwise(struct builder *b, const char *name, uint32_t input, bp_u128 n, unsigned forward,
                                      unsigned backward, unsigned operands_read)
{
    struct bp_row *row = add_row(b, name, BP_ENGINE_VECTOR, input);
    struct bp_calc *calc = &b->calc;
    bp_u128 in = bp_mul(calc, operands_read, n);
    row->forward = bp_row_work(calc, bp_mul(calc, forward, n), in, n, b->s->e);
    row->activation_gradient = bp_row_work(calc, bp_mul(calc, backward, n), bp_add(calc, in, n), in, b->s->e);
    row->activation = elements(b, in);
    row->output = elements(b, n);
    row->operands = BP_NEEDS_INPUTS;
    return row;
}

static struct bp_row *add_softmax(struct builder *b, const char *name, uint32_t input, bp_u128 n)
{
    struct bp_row *row = add_elementwise(b, name, input, n, 5, 8, 1);
    row->operands = BP_NEEDS_ITSELF;
    return row;
}

/* The mask is one byte an element. */
static struct bp_row *add_dropout(struct builder *b, const char *name, uint32_t input, bp_u128 n)
{
    struct bp_row *row = add_row(b, name, BP_ENGINE_VECTOR, input);
    struct bp_calc *calc = &b->calc;
    bp_u128 bytes = bp_mul(calc, n, b->s->e), with_mask = bp_add(calc, bytes, n);
    row->forward = bp_row_work_bytes(calc, n, bytes, with_mask);
    row->activation_gradient = bp_row_work_bytes(calc, n, with_mask, bytes);
    row->activation = bp_bytes(calc, n);
    row->output = elements(b, n);
    row->operands = BP_NEEDS_ITSELF;
    return row;
}

/* The gradient of a sum goes to both inputs as it is. */
static struct bp_row *add_residual(struct builder *b, const char *name, uint32_t branch, uint32_t skip, bp_u128 n)
{
    struct bp_row *row = add_row(b, name, BP_ENGINE_VECTOR, branch);
    bp_row_reads(row, skip);
    row->forward = bp_row_work(&b->calc, n, bp_mul(&b->calc, 2, n), n, b->s->e);
    row->activation = row->output = elements(b, n);
    row->keeps_activation = row->owns_activation = false;
    return row;
}

/* Megatron's f and g (plain: identity forward, all-reduce backward; conjugate the reverse) and their sequence-parallel
 * forms (Korthikanti et al., section 4.2.2): all-gather and reduce-scatter. */
enum side { PLAIN, CONJUGATE };

static uint32_t add_collective(struct builder *b, const char *name, uint32_t input, enum side side)
{
    static const struct {
        enum bp_collective forward, backward;
    } kinds[2][2] = {
        [false] = {[PLAIN] = {BP_COLLECTIVE_NONE, BP_COLLECTIVE_ALL_REDUCE},
                   [CONJUGATE] = {BP_COLLECTIVE_ALL_REDUCE, BP_COLLECTIVE_NONE}},
        [true] = {[PLAIN] = {BP_COLLECTIVE_ALL_GATHER, BP_COLLECTIVE_REDUCE_SCATTER},
                  [CONJUGATE] = {BP_COLLECTIVE_REDUCE_SCATTER, BP_COLLECTIVE_ALL_GATHER}},
    };
    const struct bp_symbols *s = b->s;
    if (s->t == 1)
        return input;
    bool sp = s->sequence_parallel;
    struct bp_row *row = add_row(b, name, BP_ENGINE_COLLECTIVE, input);
    row->forward = bp_row_collective(&b->calc, s, kinds[sp][side].forward);
    row->activation_gradient = bp_row_collective(&b->calc, s, kinds[sp][side].backward);
    row->activation = elements(b, sp ? s->Xs : side == CONJUGATE ? s->X : 0);
    row->output = elements(b, s->X);
    row->keeps_activation = side == PLAIN && s->gathers_again;
    if (side == PLAIN)
        row->recomputed = s->gathers_again;
    bool split_after = sp && side == CONJUGATE;
    row->output_shape = b->block->boundary;
    row->output_shape.sharding[1] = split_after ? BP_AXIS_TENSOR : BP_AXIS_NONE;
    return bp_block_last(b->block);
}

/* A tensor of one rank's [B, S, width], split over the tensor group along its last dimension. */
static struct bp_tensor_shape split_width(struct builder *b, bp_u128 width)
{
    return (struct bp_tensor_shape){3,
                                    {b->block->boundary.size[0], b->s->S, bp_mul(&b->calc, b->s->t, width)},
                                    {BP_AXIS_DATA, BP_AXIS_NONE, BP_AXIS_TENSOR}};
}

static struct bp_tensor_shape whole_hidden(struct builder *b)
{
    struct bp_tensor_shape shape = b->block->boundary;
    shape.sharding[1] = BP_AXIS_NONE;
    return shape;
}

/* Query, key and value from one gathered input, and their norms. */
struct heads {
    uint32_t query, key, value;
};

static struct heads add_projections(struct builder *b, uint32_t input)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bp_u128 BS = bp_mul(calc, s->B, s->S);
    const struct {
        const char *name;
        bp_u128 width;
    } projections[] = {{"attention.query", bp_mul(calc, s->h_l, s->d)},
                       {"attention.key", bp_mul(calc, s->k_l, s->d)},
                       {"attention.value", bp_mul(calc, s->k_l, s->d)}};
    uint32_t at[3];
    for (size_t i = 0; i < 3; i++) {
        struct bp_row *row =
            add_linear(b, projections[i].name, input, BS, s->H, projections[i].width, b->kind->qkv_bias, SPLIT_COLUMNS);
        row->keeps_activation = row->owns_activation = false;
        row->output_shape = split_width(b, projections[i].width);
        at[i] = bp_block_last(b->block);
    }
    static const char *const norms[] = {"attention.query_norm", "attention.key_norm"};
    for (size_t i = 0; b->kind->qk_norm && i < 2; i++) {
        struct bp_row *row = add_norm(b, norms[i], at[i], bp_mul(calc, BS, projections[i].width), s->d);
        row->output_shape = split_width(b, projections[i].width);
        at[i] = bp_block_last(b->block);
    }
    return (struct heads){at[0], at[1], at[2]};
}

/* Scores, softmax, dropout, context: what selective recomputation drops (Korthikanti et al., section 5). */
static uint32_t add_attention_core(struct builder *b, struct heads heads)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bool dropout = b->kind->attention_dropout, again = b->strategy->recompute != BP_RECOMPUTE_NONE;
    bp_u128 n = BP_PROD(calc, s->B, s->h_l, s->S, s->S), W = BP_PROD(calc, 2, n, s->d);
    bp_u128 BSd = BP_PROD(calc, s->B, s->S, s->d);
    struct bp_tensor_shape scores = {4,
                                     {b->block->boundary.size[0], bp_mul(calc, s->t, s->h_l), s->S, s->S},
                                     {BP_AXIS_DATA, BP_AXIS_TENSOR, BP_AXIS_NONE, BP_AXIS_NONE}};

    struct bp_row *row = add_product(b, "attention.scores", heads.query, heads.key, W,
                                     bp_mul(calc, BSd, bp_add(calc, s->h_l, s->k_l)), n);
    row->recomputed = again;
    row->keeps_output = !(again && dropout);
    row->output_shape = scores;

    row = add_softmax(b, "attention.softmax", bp_block_last(b->block), n);
    row->recomputed = again;
    row->keeps_activation = row->owns_activation = dropout;
    row->keeps_output = !again;
    row->output_shape = scores;

    if (dropout) {
        row = add_dropout(b, "attention.dropout", bp_block_last(b->block), n);
        row->recomputed = again;
        row->keeps_activation = !again;
        row->output_shape = scores;
    }
    row = add_product(b, "attention.context", bp_block_last(b->block), heads.value, W,
                      bp_add(calc, n, bp_mul(calc, BSd, s->k_l)), bp_mul(calc, BSd, s->h_l));
    row->output_shape = split_width(b, bp_mul(calc, s->h_l, s->d));
    return bp_block_last(b->block);
}

/* The end of either half: the conjugate collective, the dropout, the sum with what came past the half. */
static uint32_t add_half_end(struct builder *b, const char *const names[3], uint32_t input, uint32_t skip)
{
    input = add_collective(b, names[0], input, CONJUGATE);
    if (b->kind->hidden_dropout) {
        add_dropout(b, names[1], input, b->s->Xs)->output_shape = b->block->boundary;
        input = bp_block_last(b->block);
    }
    add_residual(b, names[2], input, skip, b->s->Xs)->output_shape = b->block->boundary;
    return bp_block_last(b->block);
}

static uint32_t add_attention(struct builder *b)
{
    static const char *const end[] = {"attention.output_collective", "attention.output_dropout", "attention.residual"};
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    add_fork(b, "attention.residual_fork", BP_BLOCK_INPUT, s->Xs, 2);
    uint32_t skip = bp_block_last(b->block);
    struct bp_row *row = add_norm(b, "attention.norm", skip, s->Xs, s->H);
    row->keeps_activation = row->owns_activation = false;
    row->output_shape = b->block->boundary;
    uint32_t input = add_collective(b, "attention.input_collective", bp_block_last(b->block), PLAIN);
    row = add_fork(b, "attention.qkv_fork", input, s->X, 3);
    row->keeps_activation = !s->gathers_again;
    struct heads heads = add_projections(b, bp_block_last(b->block));
    uint32_t context = add_attention_core(b, heads);
    row = add_linear(b, "attention.output", context, bp_mul(calc, s->B, s->S), bp_mul(calc, s->h_l, s->d), s->H,
                     b->kind->output_bias, SPLIT_ROWS);
    row->output_shape = whole_hidden(b);
    return add_half_end(b, end, bp_block_last(b->block), skip);
}

/* Up (and gate), activation: everything before the down projection. */
static uint32_t add_mlp_front(struct builder *b, uint32_t input)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bp_u128 BS = bp_mul(calc, s->B, s->S), F_l = bp_div(calc, s->F, s->t), n = bp_mul(calc, BS, F_l);
    bool bias = b->kind->mlp_bias;
    struct bp_row *row;
    if (s->gated) {
        row = add_fork(b, "mlp.gate_fork", input, s->X, 2);
        row->keeps_activation = !s->gathers_again;
        input = bp_block_last(b->block);
        row = add_linear(b, "mlp.gate", input, BS, s->H, F_l, bias, SPLIT_COLUMNS);
        row->keeps_activation = row->owns_activation = false;
        row->output_shape = split_width(b, F_l);
    }
    uint32_t gate = bp_block_last(b->block);
    row = add_linear(b, "mlp.up", input, BS, s->H, F_l, bias, SPLIT_COLUMNS);
    row->keeps_activation = !s->gated && !s->gathers_again;
    row->owns_activation = !s->gated;
    row->output_shape = split_width(b, F_l);

    uint32_t up = bp_block_last(b->block);
    static const struct {
        unsigned forward, backward, operands_read;
    } activations[] = {[BP_ACTIVATION_GELU] = {8, 13, 1},
                       [BP_ACTIVATION_RELU] = {1, 1, 1},
                       [BP_ACTIVATION_SWIGLU] = {9, 15, 2},
                       [BP_ACTIVATION_GEGLU] = {9, 15, 2}};
    const unsigned forward = activations[b->kind->activation].forward;
    row = add_elementwise(b, "mlp.activation", s->gated ? gate : up, n, forward,
                          activations[b->kind->activation].backward, activations[b->kind->activation].operands_read);
    if (s->gated)
        bp_row_reads(row, up);
    row->recomputed |= b->strategy->recompute_activation;
    row->output_shape = split_width(b, F_l);
    return bp_block_last(b->block);
}

static void add_mlp(struct builder *b, uint32_t input)
{
    static const char *const end[] = {"mlp.output_collective", "mlp.output_dropout", "mlp.residual"};
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    add_fork(b, "mlp.residual_fork", input, s->Xs, 2);
    uint32_t skip = bp_block_last(b->block);
    struct bp_row *row = add_norm(b, "mlp.norm", skip, s->Xs, s->H);
    row->keeps_activation = row->owns_activation = false;
    row->output_shape = b->block->boundary;
    input = add_collective(b, "mlp.input_collective", bp_block_last(b->block), PLAIN);
    input = add_mlp_front(b, input);
    row = add_linear(b, "mlp.down", input, bp_mul(calc, s->B, s->S), bp_div(calc, s->F, s->t), s->H, b->kind->mlp_bias,
                     SPLIT_ROWS);
    row->keeps_activation = !b->strategy->recompute_activation;
    row->output_shape = whole_hidden(b);
    add_half_end(b, end, bp_block_last(b->block), skip);
}

/* C_act = sum(A - O[O not kept] - A[A not kept]), every A first, since partial sums can dip below zero; full
 * recomputation keeps the block's input instead. */
static void sum_activations(struct builder *b)
{
    const struct bp_block *block = b->block;
    struct bp_calc *calc = &b->calc;
    bp_u128 all = 0, dropped = 0, working = 0;
    for (uint32_t i = 0; i < block->n_rows; i++) {
        const struct bp_row *row = &block->rows[i];
        all = bp_add(calc, all, row->activation.n);
        dropped =
            BP_SUM(calc, dropped, row->keeps_output ? 0 : row->output.n, row->keeps_activation ? 0 : row->activation.n);
        working = bp_add(calc, working, row->owns_activation ? row->activation.n : 0);
    }
    bool full = b->strategy->recompute == BP_RECOMPUTE_FULL;
    struct bp_bytes *memory = b->block->memory.at;
    memory[BP_MEMORY_STORED_ACTIVATIONS] = bp_bytes(calc, full ? 0 : bp_sub(calc, all, dropped));
    memory[BP_MEMORY_ACTIVATION_CHECKPOINT] = elements(b, full ? b->s->Xs : 0);
    memory[BP_MEMORY_WORKING_ACTIVATIONS] = bp_bytes(calc, working);
}

int bp_training_block(const struct bp_pass_input *input, struct bp_block *ret, struct bp_err *err)
{
    const struct bp_symbols *s = input->symbols;
    struct builder b = {.block = ret,
                        .model = &input->request->model,
                        .kind = &input->request->model.kinds[0],
                        .strategy = &input->request->strategy,
                        .s = s};
    *ret = (struct bp_block){
        .boundary = {3,
                     {bp_mul(&b.calc, s->dp, s->B), s->S, s->H},
                     {BP_AXIS_DATA, s->sequence_parallel ? BP_AXIS_TENSOR : BP_AXIS_NONE, BP_AXIS_NONE}},
        .forward_phase = BP_PHASE_FORWARD};
    add_mlp(&b, add_attention(&b));
    sum_activations(&b);
    return bp_calc_check(&b.calc, "/workload", "the work or memory of the block", err);
}
