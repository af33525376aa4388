/* Stage `distributed`: one block of each planned kind on a logical mesh, as tasks local to one tensor-parallel rank and
 * collectives of its groups. No devices, queues, kernels or time. Pipeline and data parallelism stay in the typed
 * strategy.
 *
 * Each kind of block is a program of its own: its rows, values and tasks stand together, in the order of the blocks,
 * and refer to none of another block.
 */
#ifndef BP_IR_DISTRIBUTED_IR_H
#define BP_IR_DISTRIBUTED_IR_H

#include "common/ir/ir.h"

enum { BP_DIMS_MAX = 5, BP_MESH_AXES_MAX = 6 };

/* How latent attention is counted (DeepSeek-AI, "DeepSeek-V2", section 2.1): keys and values expanded from the latents,
 * or the projections out of them absorbed into the query and the output. NONE: no planned block has it. */
enum bp_latent_form { BP_LATENT_NONE, BP_LATENT_EXPANDED, BP_LATENT_ABSORBED };

struct bp_mesh_axis {
    enum bp_axis axis;
    uint64_t size;
};

/* A kind of block that is planned. */
struct bp_distributed_block {
    const char *name;        /* of the kind */
    uint64_t layers;         /* blocks of the kind that the model has */
    struct bp_memory memory; /* of one of them */
};

/* Roles, unique within a block: "input", "output", "<row>.parameters", "<row>.output". Shapes are global: a dimension
 * with a sharding axis is the sum over that axis of what each rank holds, replicas included (a bias added after a
 * row-parallel linear, a key/value head that several ranks hold), so that shape / axis size is always one rank's shape.
 */
struct bp_distributed_value {
    struct bp_id id;
    const char *role;
    uint32_t block; /* of `blocks` */
    uint32_t n_dims;
    uint64_t shape[BP_DIMS_MAX];
    enum bp_axis sharding[BP_DIMS_MAX]; /* BP_AXIS_NONE: not split */
    enum bp_dtype dtype;
    struct bp_lineage lineage;
};

/* A row of the block as it was derived: what the memory facts are reduced from. Bytes of one rank. */
struct bp_distributed_layer {
    const char *name;           /* unique within the block */
    uint32_t block;             /* of `blocks` */
    uint64_t parameters;        /* P, elements */
    struct bp_bytes activation; /* A: the input activation the row would keep */
    struct bp_bytes output;     /* O */
    bool keeps_activation;      /* A is kept for the backward pass */
    bool keeps_output;          /* O is stored by the row that reads it, not dropped and recomputed */
    bool owns_activation;       /* A counts as working memory (it is not shared with another row) */
};

struct bp_distributed_task {
    struct bp_id id;
    const char *name; /* unique within the block */
    uint32_t block;   /* of `blocks` */
    uint32_t layer;   /* of `layers` */
    enum bp_phase phase;
    enum bp_engine engine;
    enum bp_task_kind kind;         /* compute or collective */
    enum bp_collective collective;  /* BP_COLLECTIVE_NONE for compute */
    bool reduces;                   /* a collective that sums */
    enum bp_axis axis;              /* along which a collective's group lies; BP_AXIS_NONE for compute */
    struct bp_list dependencies;    /* of `tasks` */
    struct bp_list inputs, outputs; /* of `values` */
    struct bp_effect effect;
    struct bp_work work;
    struct bp_lineage lineage;
};

struct bp_distributed_ir {
    struct bp_digest parent;  /* the model snapshot */
    struct bp_digest binding; /* fingerprint of {strategy, workload}, which the ids are made of */
    struct bp_digest workload_fingerprint, strategy_fingerprint;
    struct bp_workload workload;
    struct bp_strategy strategy;
    enum bp_latent_form latent_attention;
    bool balanced_routing; /* assumed: every expert gets as many tokens */
    struct bp_mesh_axis axes[BP_MESH_AXES_MAX];
    uint32_t n_axes;
    const struct bp_distributed_block *blocks;
    uint32_t n_blocks;
    const struct bp_distributed_value *values;
    uint32_t n_values;
    const struct bp_distributed_layer *layers;
    uint32_t n_layers;
    const struct bp_distributed_task *tasks;
    uint32_t n_tasks;
    struct bp_memory memory; /* the sum over the blocks: one of each kind */
};

/* Where the entities of one block stand: from `first` up to, not including, `end`. */
struct bp_span {
    uint32_t first, end;
};
struct bp_distributed_program {
    struct bp_span values, layers, tasks;
};
/* Spans from the first entity that names the block to the last; empty where none does. */
struct bp_distributed_program bp_distributed_program_of(const struct bp_distributed_ir *ir, uint32_t block);

/* Ranks along an axis; 1 where nothing is split, 0 for an axis that the mesh does not have. */
uint64_t bp_distributed_axis_size(const struct bp_distributed_ir *ir, enum bp_axis axis);

int bp_distributed_ir_encode(const struct bp_distributed_ir *ir, struct bp_buf *out, struct bp_err *err);
const struct bp_distributed_ir *bp_distributed_ir_decode(const char *bytes, size_t n, struct bp_arena *arena,
                                                         struct bp_err *err);

#endif
