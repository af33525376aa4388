/* The kinds of row that a training block is made of (formulas.md, "Training block", row kinds). Each function adds one
 * row that reads `input`, with its work in every phase and what it holds, and returns it; what is particular about the
 * row is then the caller's to set. Work and activations follow Calculon's layer rows; the optimizer's state follows
 * Rajbhandari et al., "ZeRO", section 3.1. Not for other modules than the training block's.
 */
#ifndef BP_PASSES_TRAINING_ROWS_H
#define BP_PASSES_TRAINING_ROWS_H

#include "common/passes/block.h"

/* What building a row needs at hand. */
struct bp_row_builder {
    struct bp_block *block;
    const struct bp_model *model;
    const struct bp_kind *kind; /* of the block */
    const struct bp_strategy *strategy;
    const struct bp_symbols *s;
    struct bp_calc calc;
};

/* Which dimension of a weight the tensor group divides: its columns (column-parallel), its rows (row-parallel), or
 * none, where every rank has all of it. */
enum bp_split { BP_SPLIT_COLUMNS, BP_SPLIT_ROWS, BP_SPLIT_NONE };

/* Megatron's f and g (plain: identity forward, all-reduce backward; conjugate the reverse) and their sequence-parallel
 * forms: all-gather and reduce-scatter (Korthikanti et al., section 4.2.2). */
enum bp_side { BP_PLAIN, BP_CONJUGATE };

struct bp_row *bp_rows_fork(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 n, bp_u128 users);
struct bp_row *bp_rows_norm(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 n, bp_u128 width);
struct bp_row *bp_rows_linear(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 m, bp_u128 n,
                              bp_u128 k, bool bias, enum bp_split split);
/* m token-expert pairs over `experts` local experts of n by k each. */
struct bp_row *bp_rows_expert_linear(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 m, bp_u128 n,
                                     bp_u128 k, bp_u128 experts, bool bias);
/* A batched product of two activations, W operations, `a` and `o` elements in and out. */
struct bp_row *bp_rows_product(struct bp_row_builder *b, const char *name, uint32_t left, uint32_t right, bp_u128 W,
                               bp_u128 a, bp_u128 o);
/* Forward `forward*n; r*n; n`, activation gradient `backward*n; (r+1)*n; r*n`, with r operands read. */
struct bp_row *bp_rows_elementwise(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 n,
                                   unsigned forward, unsigned backward, unsigned operands_read);
struct bp_row *bp_rows_softmax(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 n);
struct bp_row *bp_rows_dropout(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 n);
struct bp_row *bp_rows_residual(struct bp_row_builder *b, const char *name, uint32_t branch, uint32_t skip, bp_u128 n);
/* The activation of the MLP, of n elements; a gated one reads `gate` and `up`, a plain one `up`. */
struct bp_row *bp_rows_activation(struct bp_row_builder *b, const char *name, uint32_t gate, uint32_t up, bp_u128 n);

/* A boundary of the tensor group, `n` elements whole; nothing at t = 1. Its place, or `input`. */
uint32_t bp_rows_boundary(struct bp_row_builder *b, const char *name, uint32_t input, enum bp_side side, bp_u128 n);
/* A collective of the expert group: forward and backward kinds, `payload` elements, over `ranks`. */
struct bp_row *bp_rows_exchange(struct bp_row_builder *b, const char *name, uint32_t input, enum bp_collective forward,
                                enum bp_collective backward, bp_u128 payload, bp_u128 ranks);

/* The end of either half of a block: the conjugate boundary, the dropout, the sum with what came past the half. */
uint32_t bp_rows_half_end(struct bp_row_builder *b, const char *const names[3], uint32_t input, uint32_t skip);

struct bp_bytes bp_rows_elements(struct bp_row_builder *b, bp_u128 n); /* in bytes */

/* Global shapes: [dp*B, S, t*width] split along its last dimension; the boundary's, unsplit. */
struct bp_tensor_shape bp_rows_split_width(struct bp_row_builder *b, bp_u128 width);
struct bp_tensor_shape bp_rows_whole_hidden(struct bp_row_builder *b);

/* What attention multiplies, in elements of one rank: a score sums over `key` products and a context element weighs
 * values of `value`; a token has `queries`, `keys` and `values` elements in, and `contexts` out. */
struct bp_attention_widths {
    bp_u128 key, queries, keys, value, values, contexts;
};

struct bp_mlp_names {
    const char *gate_fork, *gate, *up, *activation, *down;
};

/* The parts of a block, by file: training_block.c ... */
uint32_t bp_training_half_begin(struct bp_row_builder *b, const char *fork, const char *norm, uint32_t input,
                                uint32_t *ret_skip);
uint32_t bp_training_attention_core(struct bp_row_builder *b, const struct bp_attention_widths *widths, uint32_t query,
                                    uint32_t key, uint32_t value);
uint32_t bp_training_attention_output(struct bp_row_builder *b, uint32_t context, bp_u128 width, uint32_t skip);
uint32_t bp_training_mlp(struct bp_row_builder *b, const struct bp_mlp_names *names, uint32_t input, bp_u128 width);
/* ... training_latent.c and training_experts.c. */
uint32_t bp_training_latent_attention(struct bp_row_builder *b);
void bp_training_experts(struct bp_row_builder *b, uint32_t input);

#endif
