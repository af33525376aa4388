/* One evaluation of the capacity view: what its files share. Not for others. */
#ifndef BP_VIEW_CAPACITY_RUN_H
#define BP_VIEW_CAPACITY_RUN_H

#include "common/view/capacity.h"

/* Model state of some tensors of one rank, and what a step or ZeRO needs of them for a moment. */
struct bp_held {
    bp_u128 whole;                         /* elements before any data-parallel shard */
    bp_u128 own;                           /* elements whose optimizer state this rank has */
    bp_u128 weights, gradients, optimizer; /* bytes */
};

/* A row's parameters on one rank: n rows of k columns (k = 0: a vector of n) and with `bias` a vector of k. */
struct bp_tensor {
    bp_u128 n, k;
    bool bias;
};

/* What the rows of one block say, per micro-batch where it is about activations. It does not depend on the pipeline, on
 * data parallelism or on ZeRO. */
struct bp_block_facts {
    struct bp_tensor tensors[BP_ROWS_MAX];
    uint32_t n_tensors;
    bp_u128 stored, checkpoint; /* kept from forward to backward */
    bp_u128 again;              /* what recomputation brings back for a moment */
    bp_u128 widest;             /* the largest A + O of its rows */
};

/* Facts of the strategies that a search has met. */
enum { BP_MEMO_ENTRIES = 64 };
struct bp_capacity_memo {
    struct bp_memo_entry {
        uint64_t tensor_parallel, micro_batch_size;
        bool sequence_parallel, recompute_all_gather, recompute_activation;
        enum bp_recompute recompute;
        struct bp_block_facts facts;
    } entries[BP_MEMO_ENTRIES];
    size_t n;
};

/* One evaluation. */
struct bp_capacity_run {
    const struct bp_job *job;
    const struct bp_request *request;
    struct bp_symbols s;
    struct bp_calc calc;
    struct bp_block_facts block;
    struct bp_held one_block, embedding, head; /* the ends are of the first and the last stage */
    uint64_t micro_batches, p, v;
};

/* ---- Model state (capacity_state.c) ---- */

/* Adds `times` of one to another. */
void bp_held_add(struct bp_capacity_run *run, struct bp_held *to, const struct bp_held *held, bp_u128 times);

/* Adds a row with parameters to the facts of the block. */
void bp_capacity_add_tensor(struct bp_capacity_run *run, const struct bp_row *row);

/* What one block holds, and what the first and the last stage hold beside blocks. */
void bp_capacity_hold(struct bp_capacity_run *run);

/* ceil(V/t), V first rounded up to the vocabulary's multiple. */
bp_u128 bp_capacity_vocabulary_share(struct bp_capacity_run *run);

/* ---- Stages ---- */

/* Blocks of a run, of a stage (capacity.c). */
uint64_t bp_capacity_run_blocks(const struct bp_capacity_run *run, uint64_t place);
uint64_t bp_capacity_stage_blocks(const struct bp_capacity_run *run, uint64_t stage);

/* The facts of one block, and one stage of them: capacity_training.c, capacity_inference.c. */
int bp_capacity_training_facts(struct bp_capacity_run *run, struct bp_err *err);
void bp_capacity_training_stage(struct bp_capacity_run *run, uint64_t stage, struct bp_capacity_stage *ret);
int bp_capacity_inference_facts(struct bp_capacity_run *run, struct bp_err *err);
void bp_capacity_inference_stage(struct bp_capacity_run *run, uint64_t stage, struct bp_capacity_stage *ret);

/* Operations and bytes on the wire of a whole step, and the answer's other totals (capacity_step.c). */
int bp_capacity_step(struct bp_capacity_run *run, struct bp_capacity *answer, struct bp_err *err);

#endif
