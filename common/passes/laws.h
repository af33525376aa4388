/* What the laws of several passes ask of a snapshot. Pure; any thread. */
#ifndef BP_PASSES_LAWS_H
#define BP_PASSES_LAWS_H

#include "common/passes/pass.h"

#define BP_GROUP(rows)                                                                                                 \
    {                                                                                                                  \
        .at = rows, .n = sizeof rows / sizeof *rows                                                                    \
    }
/* Laws of a block. */
#define BP_BLOCK_GROUP(rows)                                                                                           \
    {                                                                                                                  \
        .at = rows, .n = sizeof rows / sizeof *rows, .each_block = true                                                \
    }

/* Laws are of the block at hand. What it does in one phase by some of its rows (names, NULL-terminated; NULL: all). */
bp_u128 bp_law_operations(const struct bp_gate *gate, struct bp_calc *calc, const char *const *rows,
                          enum bp_phase phase);

/* The same over one engine. */
bp_u128 bp_law_engine_operations(const struct bp_gate *gate, struct bp_calc *calc, enum bp_engine engine,
                                 enum bp_phase phase);

/* The sum of P over the rows of one rank's block. */
bp_u128 bp_law_parameters(const struct bp_gate *gate, struct bp_calc *calc);

/* A byte count of the block against a closed form. */
void bp_law_memory(struct bp_gate *gate, enum bp_memory_fact fact, const struct bp_calc *calc, bp_u128 expected);

/* Laws stated alike for training and inference: the payload of a collective and its reduction work. */
bool bp_law_is_of_block(const struct bp_gate *gate, const char *name); /* whether that is the block at hand */
bool bp_law_always(const struct bp_gate *gate);
bool bp_law_heads(const struct bp_gate *gate);       /* attention by heads */
bool bp_law_plain_heads(const struct bp_gate *gate); /* the same with k = h, d = H/h */
bool bp_law_dense_mlp(const struct bp_gate *gate);
bool bp_law_two_matrix_mlp(const struct bp_gate *gate);
bool bp_law_gated_mlp(const struct bp_gate *gate);
/* One norm with all its vectors before each branch, the branches one after the other, attention by heads whose scores
 * nothing is done to, norms of query and key by heads or none, a dense MLP, no context parallelism. */
bool bp_law_plain_block(const struct bp_gate *gate);
extern const struct bp_law_group bp_collective_laws;

/* The parameters of one rank's block, as laws: sum of P of a plain one, and of any one on a single rank, which the
 * description of the kind counts too. */
extern const struct bp_law_group bp_parameter_laws;

/* What other kinds of block have: laws_training_kinds.c, laws_inference_kinds.c. */
extern const struct bp_law_group bp_training_kind_laws, bp_inference_kind_laws;

#endif
