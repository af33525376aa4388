/* The facts of a plan: what one block of each planned kind does and needs on one rank, summed from the portable tasks.
 * Pure; any thread. */
#ifndef BP_VIEW_FACTS_H
#define BP_VIEW_FACTS_H

#include "common/ir/distributed_ir.h"
#include "common/ir/portable_ir.h"

struct bp_sum {
    uint64_t tasks;
    struct bp_work work;
};

struct bp_block_sum {
    const char *name; /* of the kind, as in the snapshot */
    uint64_t layers;  /* blocks of it that the model has */
    struct bp_sum sum;
    struct bp_memory memory;
};

struct bp_facts {
    struct bp_sum all, by_phase[BP_PHASE_N], by_engine[BP_ENGINE_N];
    struct bp_block_sum by_block[BP_KINDS_MAX];
    uint32_t n_blocks;
    struct bp_memory memory;
    enum bp_mode mode;
};

/* -1 with quantity_overflow when a total of bytes passes 2^53 - 1. */
int bp_facts_of(const struct bp_distributed_ir *distributed, const struct bp_portable_ir *portable,
                struct bp_facts *ret, struct bp_err *err);

/* The `facts` object of api.md, in its order of keys, so the writer must be of `any_order`. Phases and engines without
 * a task are left out, and `by_block` where there is one block alone. */
void bp_facts_write(struct bp_writer *writer, const struct bp_facts *facts);

#endif
