/* The kinds of row that an inference block is made of (docs/formulas.md, "Inference block"). Each function adds one row
 * that reads `input`, with its work, and returns it; widths and counts are of one rank. Not for other modules than the
 * inference block's.
 */
#ifndef BP_PASSES_INFERENCE_ROWS_H
#define BP_PASSES_INFERENCE_ROWS_H

#include "common/passes/block.h"

struct bp_inference_builder {
    struct bp_block *block;
    const struct bp_model *model;
    const struct bp_kind *kind; /* of the block */
    const struct bp_symbols *s;
    struct bp_calc calc;
    bp_u128 R;       /* replicas */
    bp_u128 bq;      /* query tokens */
    bp_u128 bc;      /* visible tokens */
    bp_u128 Y;       /* b*q*H */
    bp_u128 weights; /* sum of P */
    bool decode;
};

/* Elements read and written; those of the cache, which have a type of their own, apart. */
struct bp_inference_work {
    bp_u128 operations, read, write, cache_read, cache_write;
};
struct bp_row *bp_inference_add(struct bp_inference_builder *b, const char *name, enum bp_engine engine, uint32_t input,
                                const struct bp_inference_work *work);

/* Makes `parameters` of the row's, read beside what it reads otherwise. */
void bp_inference_parameters(struct bp_inference_builder *b, struct bp_row *row, bp_u128 parameters,
                             struct bp_tensor_shape shape);

/* A norm of the model's sort of n elements in rows of `width`. */
struct bp_row *bp_inference_norm(struct bp_inference_builder *b, const char *name, uint32_t input, bp_u128 n,
                                 bp_u128 width);
/* [m,n] x [n,k]; the tensor group divides the weight's columns, its rows, or nothing of it. */
enum bp_inference_split { BP_WHOLE, BP_BY_COLUMNS, BP_BY_ROWS };
struct bp_row *bp_inference_linear(struct bp_inference_builder *b, const char *name, uint32_t input, bp_u128 m,
                                   bp_u128 n, bp_u128 k, bool bias, enum bp_inference_split split);
struct bp_row *bp_inference_collective(struct bp_inference_builder *b, const char *name, uint32_t input,
                                       enum bp_axis axis, enum bp_collective kind, bp_u128 payload, bp_u128 ranks);
/* The activation of the MLP, of n elements; a gated one reads `gate` and `up`, a plain one `up`. */
struct bp_row *bp_inference_activation(struct bp_inference_builder *b, const char *name, uint32_t gate, uint32_t up,
                                       bp_u128 n);
/* Y of two inputs. */
uint32_t bp_inference_sum(struct bp_inference_builder *b, const char *name, uint32_t branch, uint32_t skip);
/* The sum over the tensor group, where there is one. */
uint32_t bp_inference_all_reduce(struct bp_inference_builder *b, const char *name, uint32_t input);

/* [R*b, q, t*width], split over the tensor group along the last dimension; unsplit, of `width`. */
struct bp_tensor_shape bp_inference_split_width(struct bp_inference_builder *b, bp_u128 width);
struct bp_tensor_shape bp_inference_whole_width(const struct bp_inference_builder *b, bp_u128 width);

/* A dense MLP of one rank's `width`, to the partial sums. */
struct bp_inference_mlp_names {
    const char *gate, *up, *activation, *down;
};
uint32_t bp_inference_mlp(struct bp_inference_builder *b, const struct bp_inference_mlp_names *names, uint32_t input,
                          bp_u128 width);

/* The core of attention of b*h_l*q*c scores on `work`, which lacks what is done to each score beside the products: the
 * softmax, a soft cap, a position bias, sinks. Its output is split by heads, `width` of one rank. */
struct bp_row *bp_inference_core(struct bp_inference_builder *b, uint32_t query, struct bp_inference_work work,
                                 bp_u128 width);
/* b*h_l*q*c. */
bp_u128 bp_inference_scores(struct bp_inference_builder *b);

/* The whole of attention up to its partial sums (inference_latent.c), and the MLP of experts up to `mlp.all_reduce`
 * (inference_experts.c): whether the sums are whole already goes to `ret_whole`. */
uint32_t bp_inference_latent_attention(struct bp_inference_builder *b, uint32_t input);
uint32_t bp_inference_experts(struct bp_inference_builder *b, uint32_t input, bool *ret_whole);

#endif
