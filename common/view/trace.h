/* From an entity of a plan back to the model: the chain of what each came from. Pure; any thread. */
#ifndef BP_VIEW_TRACE_H
#define BP_VIEW_TRACE_H

#include "common/gate/gate.h"

struct bp_trace_link {
    enum bp_stage stage;
    struct bp_digest digest; /* of the snapshot that has it */
    struct bp_id id;
    const char *name; /* a task's, an operation's; the role of a value or buffer; borrowed from the snapshots */
    const char *rule; /* that made it; NULL in the model stage, and for a region, which comes from the deployment */
};

/* A plan's snapshots by stage, the first `n` of them. */
struct bp_trace_plan {
    struct bp_ir ir[BP_STAGE_N];
    struct bp_digest digest[BP_STAGE_N];
    size_t n;
};

/* `entity` is an id, or a prefix of one with at least 8 hex digits, with or without the kind. The chain follows the
 * first source of each entity: the entity first, the model's operation or value last. -1: invalid_id, not_found,
 * ambiguous_prefix (the message names the candidates), structure_violated when a lineage leads nowhere. */
int bp_trace(const struct bp_trace_plan *plan, const char *entity, struct bp_trace_link ret[BP_STAGE_N], size_t *ret_n,
             struct bp_err *err);

/* {entity, chain: [{stage, digest, entity, kind, name, rule}]}; the writer must be of `any_order`. */
void bp_trace_write(struct bp_writer *writer, const struct bp_trace_link *chain, size_t n);

#endif
