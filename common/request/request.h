/* A plan request, checked and normalised, and what identifies it.
 *
 * Four bindings come with a model: workload and strategy enter at the distributed stage, target and deployment at the
 * concrete one. Each has a canonical form (RFC 8785, keys at their defaults left out) whose digest is its
 * fingerprint. A plan's id is the digest of the canonical normalised request and the revisions of the passes.
 * Pure; any thread.
 */
#ifndef BP_REQUEST_REQUEST_H
#define BP_REQUEST_REQUEST_H

#include "common/base/arena.h"
#include "common/base/digest.h"
#include "common/model/config.h"

enum bp_mode { BP_MODE_TRAINING, BP_MODE_INFERENCE };
enum bp_dtype { BP_DTYPE_FLOAT8, BP_DTYPE_FLOAT16, BP_DTYPE_BFLOAT16, BP_DTYPE_FLOAT32 };
enum bp_inference_phase { BP_PREFILL, BP_DECODE };
enum bp_recompute { BP_RECOMPUTE_NONE, BP_RECOMPUTE_SELECTIVE, BP_RECOMPUTE_FULL };
enum bp_schedule { BP_SCHEDULE_NONE, BP_SCHEDULE_1F1B, BP_SCHEDULE_INTERLEAVED, BP_SCHEDULE_GPIPE };
/* How keys and values reach the queries of other ranks under context parallelism. */
enum bp_cp_comm { BP_CP_RING, BP_CP_ALL_GATHER, BP_CP_A2A };
enum bp_target_kind { BP_TARGET_NONE, BP_TARGET_QUEUE, BP_TARGET_SLOT };

/* Their names in JSON, NULL-terminated, in the order of the enums. bp_target_kind_names[0] is "none" and is never
 * read or written. */
extern const char *const bp_mode_names[], *const bp_dtype_names[], *const bp_inference_phase_names[],
                                                                       *const bp_recompute_names[],
                                                                           *const bp_schedule_names[],
                                                                               *const bp_cp_comm_names[],
                                                                                   *const bp_target_kind_names[];

uint64_t bp_dtype_bytes(enum bp_dtype dtype); /* bytes per element: 1, 2, 2, 4 */

struct bp_workload {
    enum bp_mode mode;
    enum bp_dtype dtype;
    /* training; 0 otherwise */
    uint64_t sequence_length, micro_batch_size, global_batch_size;
    enum bp_dtype gradient_dtype;
    /* inference; 0 otherwise */
    enum bp_inference_phase phase;
    uint64_t batch_size, context_length;
    enum bp_dtype kv_cache_dtype; /* `dtype` unless said */
    /* the kinds of block that are planned, in the model's order; none of them: every kind it has */
    char block_kinds[BP_KINDS_MAX][BP_KIND_NAME_MAX];
    uint32_t n_block_kinds;
};

/* The most runs of blocks (pipeline stages times virtual stages) that may be dealt by hand. */
enum { BP_RUNS_MAX = 256 };

struct bp_strategy {
    uint64_t tensor_parallel, pipeline_parallel;
    /* training; the defaults otherwise */
    uint64_t data_parallel;
    bool sequence_parallel, recompute_all_gather, recompute_activation;
    enum bp_recompute recompute;
    enum bp_schedule pipeline_schedule;
    uint64_t virtual_stages, zero_stage;
    uint64_t context_parallel;
    enum bp_cp_comm cp_comm;                          /* ring without context parallelism */
    uint64_t expert_parallel, expert_tensor_parallel; /* of models with experts: 1, tensor_parallel */
    /* blocks of each run, in model order: run c*p + s is chunk c of stage s; none of them: an even split */
    uint16_t pipeline_layers[BP_RUNS_MAX];
    uint32_t n_pipeline_layers;
    /* inference; 1 otherwise */
    uint64_t replicas;
};

struct bp_target {
    enum bp_target_kind kind;
};

struct bp_deployment {
    uint64_t devices;
    struct bp_bytes memory; /* of one device */
};

/* The largest degree of tensor parallelism: every task lists its ranks, so a snapshot grows with it. */
#define BP_TENSOR_PARALLEL_MAX 1024

struct bp_request {
    struct bp_model model;
    struct bp_workload workload;
    struct bp_strategy strategy;
    struct bp_target target;         /* kind BP_TARGET_NONE: the plan ends at `portable` */
    struct bp_deployment deployment; /* zero without a target */
};

/* Reads, checks and normalises a request (api.md, "A plan request"): every problem is added with its pointer; `*ret`
 * is meaningful only when none was. Inert fields come out at their defaults. `ret_config` says how the model was
 * resolved and is filled as far as that came. -1 only when memory ran out. */
int bp_request_read(const json_t *body, struct bp_arena *arena, struct bp_problems *problems, struct bp_request *ret,
                    struct bp_config *ret_config);

/* The same for a whole job, which is not refused for what only the rows of a plan lack. `ret_said` is the strategy as
 * it was said, with its inert fields. */
int bp_request_read_for_job(const json_t *body, struct bp_arena *arena, struct bp_problems *problems,
                            struct bp_request *ret, struct bp_strategy *ret_said, struct bp_config *ret_config);

/* Fields without effect take their defaults, so that requests which mean the same are the same. */
void bp_strategy_normalise(struct bp_strategy *strategy, const struct bp_model *model);

/* Whether some parameters are held by more than one rank: without that `zero_stage` has no effect. */
bool bp_strategy_holds_copies(const struct bp_strategy *strategy, const struct bp_model *model);

/* What must hold between the values of a request that was read, or changed since: every divisibility, the schedule, the
 * lengths, the devices. Every problem is added. */
void bp_request_check(const struct bp_request *request, uint64_t position_offset, struct bp_problems *problems);

/* Whether the request is about the model's blocks of kind `kind`. */
bool bp_request_has_kind(const struct bp_request *request, uint32_t kind);

/* The layers of a run of blocks: the first, and how many. Run c*p + s is chunk c of stage s. */
void bp_request_run_layers(const struct bp_request *request, uint64_t run, uint64_t *ret_first, uint64_t *ret_n);

/* Canonical forms. The request's has the keys deployment, model, strategy, target, workload. */
void bp_workload_write(struct bp_writer *writer, const struct bp_workload *workload);
void bp_strategy_write(struct bp_writer *writer, const struct bp_strategy *strategy, enum bp_mode mode);
void bp_request_write(struct bp_writer *writer, const struct bp_request *request);

/* Readers of the same objects, as found in a request or a snapshot: types, ranges, unknown keys, defaults; not what
 * holds between them. */
void bp_workload_read(const struct bp_reader *reader, struct bp_workload *ret);
void bp_strategy_read(const struct bp_reader *reader, enum bp_mode mode, struct bp_strategy *ret);

/* Fingerprints: the digest of one binding's canonical form, and of the object of the bindings that enter at a stage
 * together ({"strategy", "workload"} and {"deployment", "target"}), which the entity ids of that stage are made of. */
struct bp_fingerprints {
    struct bp_digest transformer; /* of the model's canonical form without its name */
    struct bp_digest workload, strategy, distribution;
    struct bp_digest target, deployment, binding; /* zero without a target */
};
int bp_request_fingerprints(const struct bp_request *request, struct bp_fingerprints *ret, struct bp_err *err);

/* Name and revision of a pass, in the order in which a plan runs them. */
struct bp_pass_revision {
    const char *name;
    unsigned revision;
};

/* The id of the plan: the digest of {"passes": [{"name", "revision"}], "request": {...}}. */
int bp_plan_id(const struct bp_request *request, const struct bp_pass_revision *passes, size_t n_passes,
               struct bp_digest *ret, struct bp_err *err);

#endif
