/* From a portable plan to one rank's layout and commands: the part of both reference binders that is the same. Pure;
 * one arena, one thread.
 */
#ifndef BP_PASSES_BIND_H
#define BP_PASSES_BIND_H

#include "common/passes/pass.h"

/* Layout, devices, regions and commands; the target extension is the caller's to add. NULL: `err` has
 * quantity_overflow or out_of_memory. */
struct bp_concrete_ir *bp_bind(const struct bp_pass_input *input, const char *rule, struct bp_arena *arena,
                               struct bp_err *err);

/* The layout recurrence as laws. */
extern const struct bp_law_group bp_layout_laws;

#endif
