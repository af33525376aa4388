/* The capacity view: what each rank holds for the whole job, and whether it fits (job.md).
 *
 * It answers from the same rows as the passes, block by block, stage by stage. It is derived and rebuildable, never
 * part of a snapshot; its conventions are chosen by the caller and stamped on the answer. Byte counts are of one rank,
 * exact, at most 2^53 - 1. Pure; any thread.
 */
#ifndef BP_VIEW_CAPACITY_H
#define BP_VIEW_CAPACITY_H

#include "common/passes/block.h"
#include "common/request/job.h"

/* Rises when a rule changes what a number comes out as. */
enum { BP_CAPACITY_REVISION = 3 };

/* What a rank holds, in the order in which an answer lists it: suffix, name, whether in training, in inference. */
#define BP_HOLDINGS                                                                                                    \
    BP_HOLDING(WEIGHTS, "weights", true, true)                                                                         \
    BP_HOLDING(GRADIENTS, "gradients", true, false)                                                                    \
    BP_HOLDING(OPTIMIZER, "optimizer", true, false)                                                                    \
    BP_HOLDING(STORED_ACTIVATIONS, "stored_activations", true, false)                                                  \
    BP_HOLDING(ACTIVATION_CHECKPOINTS, "activation_checkpoints", true, false)                                          \
    BP_HOLDING(EMBEDDING_ACTIVATIONS, "embedding_activations", true, false)                                            \
    BP_HOLDING(HEAD_ACTIVATIONS, "head_activations", true, false)                                                      \
    BP_HOLDING(TRANSIENT, "transient", true, false)                                                                    \
    BP_HOLDING(KV_CACHE, "kv_cache", false, true)                                                                      \
    BP_HOLDING(WORKSPACE, "workspace", false, true)                                                                    \
    BP_HOLDING(BOUNDARY, "boundary", false, true)                                                                      \
    BP_HOLDING(LOGITS, "logits", false, true)
#define BP_HOLDING(suffix, name, training, inference) BP_HOLDING_##suffix,
enum bp_holding { BP_HOLDINGS BP_HOLDING_N };
#undef BP_HOLDING
extern const char *const bp_holding_names[];
bool bp_holding_in(enum bp_holding component, enum bp_mode mode);

/* One pipeline stage. In training its first three holdings are the model state. */
struct bp_capacity_stage {
    uint64_t in_flight; /* micro-batches, or chunk passes when interleaved, whose activations are held at the peak */
    struct bp_bytes holdings[BP_HOLDING_N];
    struct bp_bytes blocks_only[3]; /* weights, gradients, optimizer state of its blocks alone */
    struct bp_bytes total;
};

/* Operations of the whole job: as executed, and without recomputation, replicated heads and padding. */
struct bp_job_operations {
    bp_u128 hardware, model;
};

/* Bytes that a rank sends, by what for; ring algorithms. */
struct bp_wire {
    struct bp_bytes tensor, pipeline, data, expert, context;
};

struct bp_capacity {
    struct bp_capacity_stage *stages;
    uint64_t n_stages, binding_stage; /* the lowest on a tie */
    struct bp_bytes total;            /* of the binding stage */
    struct bp_bytes available;        /* memory_bytes * utilization_permille / 1000 - reserve_bytes, rounded down */
    bool fits;                        /* total <= available; true when no memory was named */
    struct bp_bytes headroom, shortfall;
    struct bp_job_operations per_step, per_token;
    bool has_per_token;                     /* the operations of a step divide evenly by its tokens */
    struct bp_wire wire;                    /* sent by one rank of the binding stage, per step */
    struct bp_bytes kv_per_token;           /* the whole model, each head once; inference in the cache's dtype */
    uint64_t kv_tokens_that_fit, max_batch; /* inference with a memory named */
};

/* Keeps what does not change between the strategies of one job. One memo, one model, one workload but for its batches,
 * one thread. NULL when memory ran out. */
struct bp_capacity_memo;
struct bp_capacity_memo *bp_capacity_memo_new(struct bp_arena *arena);

/* -1: unsupported_feature (bp_whole_job_check), quantity_overflow, not_divisible (an interleaved schedule whose
 * micro-batches do not fill its stages), out_of_range (more stages or runs of blocks than are looked at),
 * out_of_memory, internal. */
int bp_capacity_of(const struct bp_whole_job *job, struct bp_capacity_memo *memo, struct bp_arena *arena,
                   struct bp_capacity *ret, struct bp_err *err);

/* The total of the binding stage alone, for a search that asks for many strategies of one job; or, when some stage
 * holds more than `most`, that of the first such stage. */
int bp_capacity_total(const struct bp_whole_job *job, struct bp_capacity_memo *memo, uint64_t most,
                      struct bp_bytes *ret, struct bp_err *err);

#endif
