/* The ordered list of passes: run, verify, encode, digest; and the same again, for replay.
 *
 * A stage commits when its pass ran and its gate found nothing. What a gate finds of the request (capacity, overflow)
 * rejects the plan; what it finds of our own derivation is a BUG and fails it. Either way the stages that committed
 * before it stay. Pure but for the observer; any thread, one outcome each.
 */
#ifndef BP_COMMON_PIPELINE_H
#define BP_COMMON_PIPELINE_H

#include "common/passes/pass.h"

/* Every pass, in order of boundary. */
extern const struct bp_pass *const bp_passes[];
extern const size_t bp_passes_n;
const struct bp_pass *bp_pass_find(const char *name);

/* The passes that a plan of this request runs, in order: 2, or 3 with a target. */
enum { BP_PLAN_PASSES_MAX = 3, BP_EVIDENCE_MAX = 96 };
size_t bp_pipeline_passes(const struct bp_request *request, const struct bp_pass *ret[BP_PLAN_PASSES_MAX]);

/* The id of the request's plan under the current passes. */
int bp_pipeline_plan_id(const struct bp_request *request, struct bp_digest *ret, struct bp_err *err);

enum bp_plan_state { BP_PLAN_QUEUED, BP_PLAN_RUNNING, BP_PLAN_COMMITTED, BP_PLAN_REJECTED, BP_PLAN_FAILED };
extern const char *const bp_plan_state_names[]; /* NULL-terminated */

/* A committed snapshot. The bytes belong to the outcome. */
struct bp_snapshot {
    struct bp_ir ir;
    struct bp_digest digest;
    struct bp_buf bytes;
};

struct bp_derivation {
    const struct bp_pass *pass;
    struct bp_digest source, target;
    struct bp_evidence evidence[BP_EVIDENCE_MAX];
    size_t n_evidence;
};

struct bp_outcome {
    struct bp_digest id;
    enum bp_plan_state state; /* committed, rejected or failed */
    bp_u128 parameters;
    struct bp_fingerprints fingerprints;
    struct bp_snapshot snapshots[BP_STAGE_N]; /* by stage, the first n_snapshots committed */
    size_t n_snapshots;
    struct bp_derivation derivations[BP_PLAN_PASSES_MAX];
    size_t n_derivations;
    struct bp_evidence model_evidence[BP_EVIDENCE_MAX]; /* the gate of the model stage, which no pass makes */
    size_t n_model_evidence;
    struct bp_problems diagnostics; /* why it was rejected or failed */
};

/* Called after each stage committed, on the calling thread. */
struct bp_pipeline_observer {
    void (*stage_done)(void *data, enum bp_stage stage);
    void *data;
};

/* Derives the plan. -1 only when memory ran out (nothing to release then). Snapshots' IR lives in `arena`; release
 * the outcome with bp_outcome_release before the arena. `observer` may be NULL. */
int bp_pipeline_run(const struct bp_request *request, const struct bp_pipeline_observer *observer,
                    struct bp_arena *arena, struct bp_outcome *ret, struct bp_err *err);
void bp_outcome_release(struct bp_outcome *outcome);

/* One stage of a replay: what was stored, what comes out now. */
struct bp_replay_stage {
    enum bp_stage stage;
    const char *pass;                    /* NULL for the model stage */
    unsigned revision, current_revision; /* of the pass; 0 for the model stage */
    struct bp_digest expected, actual;
    bool has_actual; /* false when the pass refused its source or the stored bytes do not decode */
    bool identical;
    char first_difference[BP_POINTER_MAX]; /* JSON Pointer into the snapshot; "" when identical */
    bool has_difference;
    bool corrupt; /* the stored bytes are not those of the digest, or do not decode */
};

/* A stored snapshot as the store found it, unverified. `bytes` NULL when there are none that could be unpacked. */
struct bp_stored_snapshot {
    enum bp_stage stage;
    struct bp_digest digest;
    const char *bytes;
    size_t n;
    const char *pass; /* that made it; NULL for the model */
    unsigned revision;
};

struct bp_replay {
    bool identical;
    struct bp_replay_stage stages[BP_STAGE_N];
    size_t n_stages;
};

/* Derives a stored plan again, stage by stage, from its canonical normalised request, and compares: each pass runs from
 * its regenerated source and, when that differs from the stored one, again from the stored one. -1: the request does
 * not decode, or memory ran out. */
int bp_pipeline_replay(const char *request, size_t n_request, const struct bp_stored_snapshot *stored, size_t n_stored,
                       struct bp_replay *ret, struct bp_err *err);

#endif
