/* What the laws of several passes ask of a snapshot. Pure; any thread. */
#ifndef BP_PASSES_LAWS_H
#define BP_PASSES_LAWS_H

#include "common/passes/pass.h"

#define BP_GROUP(rows)                                                                                                 \
    {                                                                                                                  \
        rows, sizeof rows / sizeof *rows                                                                               \
    }

/* The operations that the rows (names, NULL-terminated; NULL: all rows) do in one phase of the distributed snapshot
 * under the gate. */
bp_u128 bp_law_operations(const struct bp_gate *gate, struct bp_calc *calc, const char *const *rows,
                          enum bp_phase phase);

/* The same over one engine. */
bp_u128 bp_law_engine_operations(const struct bp_gate *gate, struct bp_calc *calc, enum bp_engine engine,
                                 enum bp_phase phase);

/* The sum of P over the rows of one rank's block. */
bp_u128 bp_law_parameters(const struct bp_gate *gate, struct bp_calc *calc);

/* A byte count of the snapshot against a closed form. */
void bp_law_memory(struct bp_gate *gate, enum bp_memory_fact fact, const struct bp_calc *calc, bp_u128 expected);

/* Laws stated alike for training and inference: the payload of a collective and its reduction work. */
bool bp_law_has_tensor_group(const struct bp_gate *gate);
bool bp_law_two_matrix_mlp(const struct bp_gate *gate);
bool bp_law_gated_mlp(const struct bp_gate *gate);
bool bp_law_plain_heads(const struct bp_gate *gate);
bool bp_law_always(const struct bp_gate *gate);
extern const struct bp_law_group bp_collective_laws;

/* The parameters of one rank's block, as a law: sum of P. */
extern const struct bp_law_group bp_parameter_laws;

#endif
