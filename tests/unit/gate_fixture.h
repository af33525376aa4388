/* Plans derived by the real passes, and copies of their stages for a test to spoil. */
#ifndef BP_TESTS_UNIT_GATE_FIXTURE_H
#define BP_TESTS_UNIT_GATE_FIXTURE_H

#include "common/pipeline.h"

/* Requests that between them meet the condition of every law and exercise every check. */
enum plan_name {
    PLAIN,    /* training; plain heads, two-matrix MLP of 4H, everything kept, ZeRO 0; queues */
    SHARDED,  /* training; grouped heads, gated MLP, sequence parallel, selective, ZeRO 1; slots */
    FULL,     /* training; query/key norms, full recomputation; queues */
    PREFILL,  /* inference; plain heads, two-matrix MLP; queues */
    DECODE,   /* inference; grouped heads, gated MLP, query/key norms, rope; slots */
    LATENT,   /* training; dense and expert blocks of latent attention, shared experts, context parallel; queues */
    CAPPED,   /* training; sliding and global blocks with soft caps and norms around; one rank; queues */
    BESIDE,   /* training; attention and MLP side by side, alibi, context exchanged by heads; slots */
    EXPANDED, /* inference; prefill of latent attention, experts over other ranks; queues */
    ABSORBED, /* inference; decode of latent attention and experts on one rank; queues */
    WINDOWED, /* inference; decode within a window, sinks, all tokens routed on every rank; queues */
    ABREAST,  /* inference; attention and MLP side by side with a soft cap; slots */
    PLAN_NAME_N
};
extern const char *const plan_texts[PLAN_NAME_N]; /* with ' for " */

/* A committed plan with what its gates were given. */
struct plan {
    struct bp_arena arena;
    struct bp_request request;
    struct bp_symbols symbols[BP_KINDS_MAX]; /* of each planned block */
    uint32_t n_blocks;
    struct bp_outcome outcome;
};

/* Derives; aborts the test unless the plan ends in `state`. */
void plan_derive(struct plan *plan, const json_t *request, enum bp_plan_state state);
void plan_of(struct plan *plan, enum plan_name name);
void plan_release(struct plan *plan);

/* The gate of one stage over a copy that may be written to: decoded from the committed bytes into its own arena. */
struct spoiled {
    struct bp_arena arena;
    struct bp_request request;
    struct bp_problems findings;
    struct bp_gate gate;
    const struct bp_pass *pass; /* NULL for the model stage */
    struct bp_buf again;        /* what the second run of a pass gave */
    struct bp_model_ir *model;  /* one of these, by stage */
    struct bp_distributed_ir *distributed;
    struct bp_portable_ir *portable;
    struct bp_concrete_ir *concrete;
};
void spoiled_copy(struct spoiled *copy, const struct plan *plan, enum bp_stage stage);
void spoiled_release(struct spoiled *copy);

/* The checks that a gate runs on the stage, and the laws; evidence by id, NULL when it did not run. */
size_t spoiled_check(struct spoiled *copy, struct bp_evidence evidence[BP_EVIDENCE_MAX]);
size_t spoiled_hold_to_laws(struct spoiled *copy, struct bp_evidence evidence[BP_EVIDENCE_MAX]);
const struct bp_evidence *evidence_of(const struct bp_evidence *evidence, size_t n, const char *id);

/* The check groups of a pass, or of the model stage for NULL. */
const struct bp_check_group *const *groups_of(const struct bp_pass *pass, size_t *ret_n);

/* The place of what is named: a task, a row, a value's role, a buffer's role, the command or buffer bound from one.
 * Aborts the test when there is none. `source` is the portable stage for the concrete one. */
uint32_t place_of(const struct spoiled *copy, enum bp_entity_kind kind, const char *name);
uint32_t place_of_row(const struct spoiled *copy, const char *name);

/* A list in the copy's arena. */
struct bp_list list_of(struct spoiled *copy, uint32_t n, const uint32_t *at);

#endif
