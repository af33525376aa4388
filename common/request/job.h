/* A whole job: a plan request without target, and what only the job as a whole has (api.md, "The capacity view").
 *
 * Pure data and its reader; any thread.
 */
#ifndef BP_REQUEST_JOB_H
#define BP_REQUEST_JOB_H

#include "common/request/request.h"

enum bp_optimizer { BP_ADAM, BP_ADAMW, BP_SGD, BP_SGD_MOMENTUM, BP_ADAM_8BIT, BP_ADAFACTOR };
enum bp_attention_count { BP_ATTENTION_FULL, BP_ATTENTION_CAUSAL };
enum bp_operations_count { BP_OPERATIONS_HARDWARE, BP_OPERATIONS_MODEL };
enum bp_kernel { BP_KERNEL_TILED, BP_KERNEL_UNFUSED };
enum bp_loss { BP_LOSS_FP32_COPY, BP_LOSS_IN_PLACE };
enum bp_window_kv { BP_WINDOW_KV_CAPPED, BP_WINDOW_KV_FULL };

/* Their names in JSON, NULL-terminated, in the order of the enums. */
extern const char *const bp_optimizer_names[],
    *const bp_attention_count_names[], *const bp_operations_count_names[], *const bp_kernel_names[],
                                                                               *const bp_loss_names[],
                                                                                   *const bp_window_kv_names[];

/* How things are counted; chosen by the caller, stamped on every answer. */
struct bp_conventions {
    enum bp_attention_count attention;   /* causal: scores and context halved in operations, nothing else */
    enum bp_operations_count operations; /* which of the two counts a reader is to take */
    enum bp_kernel kernel;               /* tiled: no S*S tensor is kept or held */
    enum bp_loss loss;                   /* in_place: no fp32 copy of the logits */
    enum bp_window_kv window_kv;         /* capped: a sliding layer caches no more than its window needs */
};

/* The most pipeline stages, and runs of blocks (stages times virtual stages), that a job may have: an answer lists
 * every one. */
enum { BP_STAGES_MAX = 1024, BP_JOB_RUNS_MAX = 4096 };

/* The most that routing may be off balance, in thousandths. */
enum { BP_IMBALANCE_PERMILLE_MAX = 1000000 };

/* The strategy as the caller said it, inert fields and all, and which of the fields that follow others were said: what
 * a change of it is a change from. */
struct bp_said {
    struct bp_strategy strategy;
    bool pipeline_schedule, recompute_all_gather, expert_tensor_parallel;
};

struct bp_whole_job {
    struct bp_request request; /* no target, no deployment */
    struct bp_said said;
    struct bp_conventions conventions;
    enum bp_optimizer optimizer;
    uint64_t vocab_multiple;          /* the vocabulary is rounded up to it before it is divided; 1 */
    uint64_t kv_block, prefill_chunk; /* tokens; in decode the chunk only says what a window keeps */
    uint64_t imbalance_permille;      /* token-expert pairs of the busiest rank, of those under balanced routing */
    bool has_memory, has_allowance;   /* memory_bytes; reserve_bytes or utilization_permille */
    struct bp_bytes memory, reserve;
    uint64_t utilization_permille, devices_per_node;
    uint64_t position_offset;       /* of struct bp_config */
    struct bp_quantisation storage; /* of the weights in inference; without element_bits they are of the dtype */
};

/* Devices of the job: t * p * cp * dp, in inference t * p * replicas. */
bp_u128 bp_whole_job_devices(const struct bp_whole_job *job);

/* The job of a stored plan's request: defaults for all the rest; the memory is its deployment's, where it has one. */
void bp_whole_job_of(const struct bp_request *request, struct bp_whole_job *ret);

/* What the whole job has no account of, as unsupported_feature: word embeddings of another width, prediction of several
 * tokens, training in float8 or of blocks without rows. */
void bp_whole_job_check(const struct bp_whole_job *job, struct bp_problems *problems);

/* Reads the body of POST /v1/fit: every problem is added with its pointer; `*ret` is meaningful only when none was.
 * -1 only when memory ran out. */
int bp_whole_job_read(const json_t *body, struct bp_arena *arena, struct bp_problems *problems,
                      struct bp_whole_job *ret, struct bp_config *ret_config);

#endif
