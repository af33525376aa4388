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
struct bp_row *bp_rows_exchange(struct bp_row_builder *b, const char *name, uint32_t input,
                                enum bp_collective forward, enum bp_collective backward, bp_u128 payload,
                                bp_u128 ranks);

/* The end of either half of a block: the conjugate boundary, the dropout, the sum with what came past the half. */
uint32_t bp_rows_half_end(struct bp_row_builder *b, const char *const names[3], uint32_t input, uint32_t skip);

struct bp_bytes bp_rows_elements(struct bp_row_builder *b, bp_u128 n); /* in bytes */

/* Global shapes: [dp*B, S, t*width] split along its last dimension; the boundary's, unsplit. */
struct bp_tensor_shape bp_rows_split_width(struct bp_row_builder *b, bp_u128 width);
struct bp_tensor_shape bp_rows_whole_hidden(struct bp_row_builder *b);

/* The halves of a block. Each reads the block's input or what attention made of it, and returns the place of its last
 * row. Attention: by heads here in training_block.c, latent in training_latent.c; the MLP dense in training_block.c, of
 * experts in training_experts.c. */
uint32_t bp_training_attention_core(struct bp_row_builder *b, uint32_t query, uint32_t key, uint32_t value,
                                    bp_u128 key_width, bp_u128 keys, bp_u128 value_width, bp_u128 values);
uint32_t bp_training_latent_attention(struct bp_row_builder *b);
uint32_t bp_training_gated_front(struct bp_row_builder *b, const char *const names[4], uint32_t input, bp_u128 width);
void bp_training_experts(struct bp_row_builder *b, uint32_t input);

#endif
