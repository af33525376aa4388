/* From rows to tasks: the part of both distribute passes that is the same.
 *
 * A block is a table of rows in dataflow order (training_block.c, inference_block.c). Each row says what it does in
 * each phase, what it holds, and which rows its inputs come from; bp_block_distribute makes the tasks, their direct
 * data dependencies, the values and their lineage out of that. Pure; one arena, one thread.
 */
#ifndef BP_PASSES_BLOCK_H
#define BP_PASSES_BLOCK_H

#include "common/passes/pass.h"

enum { BP_ROWS_MAX = 63, BP_ROW_INPUTS_MAX = 4, BP_BLOCK_INPUT = BP_ROWS_MAX };

/* What the activation gradient of a row needs again, when it was not kept but can be made again. */
enum bp_operands { BP_NEEDS_NOTHING, BP_NEEDS_INPUTS, BP_NEEDS_LAST_INPUT, BP_NEEDS_ITSELF };

/* Global, within one rank of the context-parallel group: where there is such a group the value's shape gets a dimension
 * of its ranks after the batch. */
struct bp_tensor_shape {
    uint32_t n_dims; /* 0: there is no such tensor */
    bp_u128 size[BP_DIMS_MAX];
    enum bp_axis sharding[BP_DIMS_MAX];
};

/* What one row does in one phase. */
struct bp_row_work {
    bool has;
    enum bp_collective collective;
    struct bp_work work;
};

struct bp_row {
    const char *name;
    enum bp_engine engine;
    enum bp_axis axis;                            /* of the mesh, along which a collective's group lies */
    uint32_t inputs[BP_ROW_INPUTS_MAX], n_inputs; /* rows of the table, or BP_BLOCK_INPUT */
    struct bp_row_work forward, activation_gradient, weight_gradient, optimizer;
    bool recomputed; /* its forward work is done again before the backward pass */
    enum bp_operands operands;
    uint64_t parameters;        /* P, elements of one rank */
    struct bp_bytes activation; /* A */
    struct bp_bytes output;     /* O */
    bool keeps_activation, keeps_output, owns_activation;
    struct bp_bytes scores_in_activation, scores_in_output; /* what of A and O a tiled attention never materialises */
    bool bias;                                              /* P includes one per output column */
    bool expert;     /* of the local experts: replicated over fewer ranks than the rest */
    uint64_t copies; /* of its weight: local experts; 1 */
    struct bp_tensor_shape parameter_shape, output_shape; /* global */
    struct bp_effect effect;
    bool writes_kv_cache; /* its output is the KV cache */
};

struct bp_block {
    struct bp_row rows[BP_ROWS_MAX];
    uint32_t n_rows;
    struct bp_tensor_shape boundary; /* of the block's input and output */
    struct bp_memory memory;
    enum bp_phase forward_phase; /* forward, prefill or decode */
};

/* The next row of the table, zeroed but for its name and engine; remember its place with bp_block_last. */
struct bp_row *bp_block_add(struct bp_block *block, const char *name, enum bp_engine engine);
uint32_t bp_block_last(const struct bp_block *block);
void bp_row_reads(struct bp_row *row, uint32_t input); /* nothing when it reads that already */

/* Exact work in elements: operations; read; write, times e. */
struct bp_row_work bp_row_work(struct bp_calc *calc, bp_u128 operations, bp_u128 read, bp_u128 write, bp_u128 e);
/* The same with reads and writes in bytes. */
struct bp_row_work bp_row_work_bytes(struct bp_calc *calc, bp_u128 operations, bp_u128 read, bp_u128 write);

/* A collective of `n` elements over `ranks` (docs/formulas.md, "Collectives"): payload M = n*e, n(ranks-1)/ranks
 * operations if it reduces. */
struct bp_row_work bp_row_collective(struct bp_calc *calc, const struct bp_symbols *symbols,
                                     enum bp_collective collective, bp_u128 n, bp_u128 ranks);

/* The row tables of the block of kind `s->kind`. -1: quantity_overflow, internal. */
typedef int bp_block_rows(const struct bp_request *request, const struct bp_symbols *s, struct bp_block *ret,
                          struct bp_err *err);
bp_block_rows bp_training_block, bp_inference_block;

/* The distributed snapshot: a program of each planned block. -1: quantity_overflow, out_of_memory, internal. */
int bp_block_distribute(const struct bp_pass_input *input, const char *rule, bp_block_rows *rows,
                        struct bp_arena *arena, struct bp_ir *ret, struct bp_err *err);

#endif
