/* Stage `portable`: the task graph with exact workload facts, resource requirements, capability alternatives and
 * abstract buffers. No devices, addresses, kernels or time.
 */
#ifndef BP_IR_PORTABLE_IR_H
#define BP_IR_PORTABLE_IR_H

#include "common/ir/ir.h"

/* A capability and the implementations that would do, most specific first; the last is the reference one. */
struct bp_capability {
    const char *name;
    const char *alternatives[3]; /* NULL-terminated unless all three are used */
    uint32_t n_alternatives;
};

/* What a task needs of a device: the non-lossy projections of its work vector. 0 is left out of the snapshot. */
struct bp_resources {
    struct bp_ops compute;
    struct bp_bytes memory, network;
};

struct bp_portable_task {
    struct bp_id id;
    const char *name, *layer, *block; /* as in the distributed snapshot */
    enum bp_phase phase;
    enum bp_engine engine;
    enum bp_task_kind kind;
    struct bp_list dependencies; /* of `tasks` */
    struct bp_list inputs;       /* of `buffers`: those it reads */
    struct bp_list outputs;      /* of `buffers`: those it writes */
    uint64_t n_ranks;            /* ranks 0 to n_ranks - 1 */
    struct bp_effect effect;
    struct bp_work work;
    struct bp_resources resources;
    struct bp_capability capability;
    struct bp_lineage lineage;
};

struct bp_portable_buffer {
    struct bp_id id;
    enum bp_buffer_role role;
    const char *block; /* whose it is */
    enum bp_storage storage;
    struct bp_bytes size;
    uint64_t alignment;
    struct bp_list producers, consumers; /* of `tasks`: those that write it, those that read it */
    struct bp_lineage lineage;
};

struct bp_portable_ir {
    struct bp_digest parent; /* the distributed snapshot */
    const struct bp_portable_task *tasks;
    uint32_t n_tasks;
    const struct bp_portable_buffer *buffers;
    uint32_t n_buffers;
};

/* How a task uses a buffer, by its inputs and outputs; false when it does not. */
bool bp_portable_access(const struct bp_portable_task *task, uint32_t buffer, enum bp_access *ret);

int bp_portable_ir_encode(const struct bp_portable_ir *ir, struct bp_buf *out, struct bp_err *err);
const struct bp_portable_ir *bp_portable_ir_decode(const char *bytes, size_t n, struct bp_arena *arena,
                                                   struct bp_err *err);

#endif
