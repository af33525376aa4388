/* From distributed tasks to a portable plan: the part of both plan passes that is the same. It estimates nothing: every
 * work vector is copied, resources are projections of it, buffers carry the memory facts. Pure; one arena, one thread.
 */
#ifndef BP_PASSES_PORTABLE_BLOCK_H
#define BP_PASSES_PORTABLE_BLOCK_H

#include "common/passes/pass.h"

/* -1: quantity_overflow, out_of_memory. */
int bp_portable_block(const struct bp_pass_input *input, const char *rule, struct bp_arena *arena, struct bp_ir *ret,
                      struct bp_err *err);

/* Every unit of work of the source is in the target and no more: the sums of F, R, W and M per phase, and
 * Q_compute = F, Q_memory = R + W, Q_network = M task by task. */
extern const struct bp_law_group bp_conservation_laws;

#endif
