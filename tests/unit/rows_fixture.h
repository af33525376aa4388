/* What the tests of the row tables share: a block of a model's kind under a workload and a strategy, looked up by row.
 */
#ifndef BP_TESTS_UNIT_ROWS_FIXTURE_H
#define BP_TESTS_UNIT_ROWS_FIXTURE_H

#include "common/passes/block.h"

/* What the next block is made of. */
extern struct bp_request rows_request;
extern struct bp_symbols rows_symbols;
extern struct bp_block rows_block;

/* A model of the catalogue, or of a config in which ' stands for "; described, whether or not it is planned. */
void rows_of_model(const char *name);
void rows_of_config(const char *config);

/* bfloat16 with fp32 gradients, one rank, ring exchange; ZeRO stage 0. */
void rows_training(uint64_t micro_batch, uint64_t sequence);
void rows_inference(enum bp_inference_phase phase, uint64_t batch, uint64_t context);

/* Degrees: the tensor group with sequence parallelism in training; experts; context parallelism. */
void rows_tensor_parallel(uint64_t t);
void rows_expert_parallel(uint64_t ep, uint64_t etp);

/* Derives the block of a kind ("" for the only one). Aborts the test when that fails; or says how it does. */
void rows_derive(const char *kind);
struct bp_err rows_refused(const char *kind);

bool rows_has(const char *name);
const struct bp_row *rows_named(const char *name); /* aborts the test when there is none */
const char *rows_names(void);                      /* in order, with spaces; valid until the next call */
const char *rows_inputs(const char *name);         /* of a row: their names, "input" for the block's, with spaces */
bp_u128 rows_parameters(void);                     /* of all rows */

/* In elements of two bytes; operations alone are themselves. */
void expect_elements(const struct bp_row_work *work, bp_u128 operations, bp_u128 read, bp_u128 write);
/* In bytes. */
void expect_bytes(const struct bp_row_work *work, bp_u128 operations, bp_u128 read, bp_u128 write);
/* A weight gradient: reads in elements, writes of P elements of four bytes. */
void expect_weight_gradient(const char *name, bp_u128 operations, bp_u128 read, bp_u128 parameters);
/* A collective over `ranks` of an axis, of so many elements whole. */
void expect_collective(const char *name, enum bp_axis axis, bp_u128 ranks, bp_u128 elements, enum bp_collective forward,
                       enum bp_collective backward);
/* What a row holds, in bytes: A, O; and whether A is kept, and its own. */
void expect_held(const char *name, bp_u128 activation, bp_u128 output, bool kept, bool owned);
void expect_memory(enum bp_memory_fact fact, bp_u128 bytes);

/* [n x axis, ...] of a tensor: "64@data 8 32@tensor". */
const char *rows_shape(const struct bp_tensor_shape *shape);

/* Plans the request. Aborts the test unless the plan is committed. */
void rows_commit(void);

/* Plans the request, whose model has one kind: what a task of its block waits for, their names with spaces. Aborts the
 * test unless the plan is committed. */
const char *rows_waits(const char *task);

void rows_forget(void);

#endif
