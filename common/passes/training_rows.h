/* The kinds of row that a training block is made of (docs/formulas.md, "Training block", row kinds). Each function adds
 * one row that reads `input`, with its work in every phase and what it holds, and returns it; what is particular about
 * the row is then the caller's to set. Work and activations follow Calculon's layer rows; the optimizer's state follows
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

/* A batched product of two activations: W operations on `read` elements, of which `kept` are this rank's own. */
struct bp_product {
    bp_u128 W, read, kept, written;
};

/* A collective of another group than the tensor group: its kinds forward and backward, and its whole payload. */
struct bp_exchange {
    const char *name;
    enum bp_axis axis;
    enum bp_collective forward, backward;
    bp_u128 payload, ranks;
};

/* A row without work, which keeps and owns what it will be said to hold. */
struct bp_row *bp_rows_add(struct bp_row_builder *b, const char *name, enum bp_engine engine, uint32_t input);
struct bp_row *bp_rows_fork(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 n, bp_u128 users);
/* Of the model's sort; of query or key, `heads` of one rank. */
struct bp_row *bp_rows_norm(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 n, bp_u128 width);
struct bp_row *bp_rows_head_norm(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 n, bp_u128 heads);
struct bp_row *bp_rows_linear(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 m, bp_u128 n,
                              bp_u128 k, bool bias, enum bp_split split);
/* The rank's token-expert pairs over its local experts of n by k each, of which their tensor group divides the rows or
 * the columns. */
struct bp_row *bp_rows_expert_linear(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 n, bp_u128 k,
                                     enum bp_split split);
struct bp_row *bp_rows_product(struct bp_row_builder *b, const char *name, uint32_t left, uint32_t right,
                               const struct bp_product *product);
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
struct bp_row *bp_rows_exchange(struct bp_row_builder *b, const struct bp_exchange *exchange, uint32_t input);

struct bp_bytes bp_rows_elements(struct bp_row_builder *b, bp_u128 n); /* in bytes */

/* The row's A is another row's too, which keeps and owns it. */
void bp_row_shares(struct bp_row *row);

/* Global shapes: [B, S, t*width] of the data-parallel group, split along its last dimension; the boundary's, unsplit.
 */
struct bp_tensor_shape bp_rows_split_width(struct bp_row_builder *b, bp_u128 width);
struct bp_tensor_shape bp_rows_whole_hidden(struct bp_row_builder *b);

/* ---- Halves (training_block.c) ---- */

/* Gathers `input`. Where that is a fork, it holds the rank's part of the tensor. */
uint32_t bp_training_gather(struct bp_row_builder *b, const char *name, uint32_t input, bool is_fork);

/* Up (and gate), activation, down on a gathered input: a whole MLP of one rank's `width`. `held`: another row keeps
 * that input. */
struct bp_mlp_names {
    const char *gate_fork, *gate, *up, *activation, *down;
};
uint32_t bp_training_mlp(struct bp_row_builder *b, const struct bp_mlp_names *names, uint32_t input, bp_u128 width,
                         bool held);

/* ---- Attention (training_attention.c, training_latent.c) ---- */

/* What attention multiplies, in elements of one rank: a score sums over `key` products and a context element weighs
 * values of `value`; a token has `queries`, `keys` and `values` elements in, and `contexts` out. The rows that they
 * come from; keys come from two where a part of them has a row of its own. */
struct bp_attention_operands {
    bp_u128 key, queries, keys, value, values, contexts;
    uint32_t query_row, key_row, value_row, key_part_row;
};
uint32_t bp_training_attention_core(struct bp_row_builder *b, struct bp_attention_operands operands);

/* From the gathered or, latent, the rank's own input to the partial sums. `held`: another row keeps that input. */
uint32_t bp_training_heads_attention(struct bp_row_builder *b, uint32_t input, bool held);
uint32_t bp_training_latent_attention(struct bp_row_builder *b, uint32_t input);
uint32_t bp_training_attention_output(struct bp_row_builder *b, uint32_t context, bp_u128 width);

/* The MLP of experts, from the rank's own input to its own output (training_experts.c). */
uint32_t bp_training_experts(struct bp_row_builder *b, uint32_t input);

#endif
