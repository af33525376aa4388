/* Does the job fit, and the smallest changes that make it fit (job.md).
 *
 * A suggestion keeps the number of devices, the model, the lengths, the dtype and the global batch; it changes as few
 * fields of the request as will do, and no part of it would do alone. Each was derived again as a whole job before it
 * is named. Pure; any thread.
 */
#ifndef BP_VIEW_FIT_H
#define BP_VIEW_FIT_H

#include "common/view/capacity.h"

/* The fields that a suggestion may change, in the order in which suggestions that change as many are listed. The last
 * three follow from others and are never changed alone. */
#define BP_FIT_FIELDS                                                                                                  \
    BP_FIT_FIELD(RECOMPUTE, "/strategy/recompute")                                                                     \
    BP_FIT_FIELD(SEQUENCE_PARALLEL, "/strategy/sequence_parallel")                                                     \
    BP_FIT_FIELD(RECOMPUTE_ACTIVATION, "/strategy/recompute_activation")                                               \
    BP_FIT_FIELD(ZERO_STAGE, "/strategy/zero_stage")                                                                   \
    BP_FIT_FIELD(MICRO_BATCH_SIZE, "/workload/micro_batch_size")                                                       \
    BP_FIT_FIELD(PIPELINE_SCHEDULE, "/strategy/pipeline_schedule")                                                     \
    BP_FIT_FIELD(PREFILL_CHUNK, "/workload/prefill_chunk")                                                             \
    BP_FIT_FIELD(EXPERT_PARALLEL, "/strategy/expert_parallel")                                                         \
    BP_FIT_FIELD(TENSOR_PARALLEL, "/strategy/tensor_parallel")                                                         \
    BP_FIT_FIELD(PIPELINE_PARALLEL, "/strategy/pipeline_parallel")                                                     \
    BP_FIT_FIELD(DATA_PARALLEL, "/strategy/data_parallel")                                                             \
    BP_FIT_FIELD(REPLICAS, "/strategy/replicas")                                                                       \
    BP_FIT_FIELD(VIRTUAL_STAGES, "/strategy/virtual_stages")                                                           \
    BP_FIT_FIELD(PIPELINE_LAYERS, "/strategy/pipeline_layers")
#define BP_FIT_FIELD(suffix, path) BP_FIT_##suffix,
enum bp_fit_field { BP_FIT_FIELDS BP_FIT_FIELD_N };
#undef BP_FIT_FIELD
extern const char *const bp_fit_paths[];

/* A field as a number: an enum's, a bool's, of pipeline_layers how many there are. */
uint64_t bp_fit_value(const struct bp_whole_job *job, enum bp_fit_field field);

enum { BP_SUGGESTIONS_MAX = 8 };

struct bp_suggestion {
    struct bp_whole_job job; /* the request as changed */
    bool changed[BP_FIT_FIELD_N];
    unsigned n_changed;
    struct bp_bytes total, headroom;
};

struct bp_fit {
    struct bp_capacity capacity;
    const struct bp_whole_job *said;   /* the request as it was said, which suggestions change */
    struct bp_suggestion *suggestions; /* none when the job fits */
    size_t n_suggestions;
    uint64_t fewest_devices;            /* on which some strategy fits, within devices_per_node; 0: none found */
    struct bp_strategy fewest_strategy; /* that one, of micro-batches of one sequence; meaningful when there is one */
};

/* -1: as bp_capacity_of. */
int bp_fit_of(const struct bp_whole_job *job, struct bp_arena *arena, struct bp_fit *ret, struct bp_err *err);

#endif
