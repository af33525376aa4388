/* One evaluation of the capacity view: what its files share. Not for others. */
#ifndef BP_VIEW_CAPACITY_RUN_H
#define BP_VIEW_CAPACITY_RUN_H

#include "common/view/capacity.h"

/* Model state of some tensors of one rank. */
struct bp_held {
    bp_u128 whole;                         /* elements before any data-parallel shard */
    bp_u128 own;                           /* elements whose optimizer state this rank has */
    bp_u128 weights, gradients, optimizer; /* bytes */
};

/* A tensor of one rank: `copies` of n rows by k columns (k = 0: a vector of n), with `bias` a vector of k each.
 * `linear` is of a linear that float8 quantises, `expert` of the local experts, which fewer ranks hold alike. */
struct bp_tensor {
    bp_u128 copies, n, k;
    bool bias, linear, expert;
    bp_u128 elements; /* all together */
};

enum { BP_TENSORS_MAX = 24 };

/* What one block of a kind has, per micro-batch where it is about activations. It does not depend on the pipeline or
 * on ZeRO. */
struct bp_block_facts {
    struct bp_tensor tensors[BP_TENSORS_MAX];
    uint32_t n_tensors;
    bp_u128 kept;   /* from forward to backward: stored activations, or the checkpoint under full recomputation */
    bp_u128 again;  /* what recomputation brings back for a moment */
    bp_u128 widest; /* the largest A + O of its rows */
};

/* Facts of the strategies that a search has met: when it is full, later ones go to the last places again, one for each
 * kind. */
enum { BP_MEMO_ENTRIES = 64 };
struct bp_capacity_memo {
    struct bp_memo_entry {
        uint32_t kind;
        uint64_t tensor_parallel, context_parallel, expert_parallel, expert_tensor_parallel, micro_batch_size;
        bool sequence_parallel, recompute_all_gather, recompute_activation;
        enum bp_recompute recompute;
        struct bp_block_facts facts;
    } entries[BP_MEMO_ENTRIES + BP_KINDS_MAX];
    size_t n;
};

/* One kind of block. */
struct bp_capacity_kind {
    struct bp_symbols s;
    const struct bp_block_facts *facts;
    struct bp_held held; /* by one block */
    uint64_t layers;     /* of the model that are of this kind; 0 where the request leaves them out */
};

/* One evaluation. */
struct bp_capacity_run {
    const struct bp_whole_job *job;
    const struct bp_request *request;
    struct bp_symbols s; /* what is the same for all kinds */
    struct bp_calc calc;
    struct bp_capacity_memo *memo;
    struct bp_capacity_kind kinds[BP_KINDS_MAX];
    uint32_t n_kinds;
    bool alike;                     /* every run has as many blocks, all of one kind */
    struct bp_held embedding, head; /* the ends of the model: of the first and the last stage */
    uint64_t micro_batches, p, v;
};

/* Blocks of each kind in one run, or in one stage (capacity.c). */
struct bp_kind_counts {
    uint64_t of[BP_KINDS_MAX], all;
};
struct bp_kind_counts bp_capacity_run_counts(const struct bp_capacity_run *run, uint64_t place);
struct bp_kind_counts bp_capacity_stage_counts(const struct bp_capacity_run *run, uint64_t stage);

uint32_t bp_capacity_kind_of(const struct bp_capacity_run *run, uint64_t layer);

/* ---- Model state (capacity_state.c) ---- */

/* Finds the tensors of a kind's block (capacity_tensors.c). */
void bp_capacity_find_tensors(struct bp_capacity_run *run, const struct bp_capacity_kind *kind,
                              struct bp_block_facts *facts);

/* What one block of each kind holds, and what the ends of the model hold. */
void bp_capacity_hold(struct bp_capacity_run *run);

/* A stage of so many blocks, and the ends it has. */
struct bp_held bp_capacity_stage_state(struct bp_capacity_run *run, uint64_t stage, const struct bp_kind_counts *counts,
                                       struct bp_held *ret_blocks_only);

/* Elements of the norm at an end of the model, 0 where there is none: the final norm, or the embedding's. */
bp_u128 bp_capacity_end_norm(struct bp_capacity_run *run, bool last);

/* ceil(V/t), V first rounded up to the vocabulary's multiple. */
bp_u128 bp_capacity_vocabulary_share(struct bp_capacity_run *run);

/* ---- Modes ---- */

/* The facts of one kind of block, and one stage of so many blocks: capacity_training.c, capacity_inference.c. */
int bp_capacity_training_facts(struct bp_capacity_run *run, const struct bp_capacity_kind *kind,
                               struct bp_block_facts *facts, struct bp_err *err);
void bp_capacity_training_stage(struct bp_capacity_run *run, uint64_t stage, const struct bp_kind_counts *counts,
                                struct bp_capacity_stage *ret);
void bp_capacity_inference_stage(struct bp_capacity_run *run, uint64_t stage, const struct bp_kind_counts *counts,
                                 struct bp_capacity_stage *ret);

/* Token-expert pairs that the busiest rank sends of so many tokens of a step of inference, in whole ones; its expert
 * tensor group has as many of each of its ranks, but where every rank routes all tokens. */
bp_u128 bp_capacity_own_pairs(struct bp_capacity_run *run, const struct bp_symbols *s, bp_u128 tokens);

/* Elements of the cache a token and a block of this kind on one rank. */
bp_u128 bp_capacity_kv_elements(struct bp_capacity_run *run, const struct bp_capacity_kind *kind);

/* ---- The whole step (capacity_step.c, capacity_operations.c) ---- */

int bp_capacity_step(struct bp_capacity_run *run, struct bp_capacity *answer, struct bp_err *err);
int bp_capacity_operations(struct bp_capacity_run *run, struct bp_capacity *answer, struct bp_err *err);

#endif
