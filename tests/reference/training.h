/* One training block of the independent recomputation: rows with what they do and read, and the builders of each row
 * kind of docs/formulas.md. Sizes are elements unless said. */
#ifndef TESTS_REFERENCE_TRAINING_H
#define TESTS_REFERENCE_TRAINING_H

#include "tests/reference/reference.h"

enum ref_row_kind { FORK, NORM, LINEAR, PRODUCT, SOFTMAX, DROPOUT, ACTIVATION, RESIDUAL, COLLECTIVE, OTHER };
enum { BLOCK_INPUT = -1, NO_TASK = -1, ROW_INPUTS = 3, BLOCK_ROWS = 64 };

struct row {
    enum ref_row_kind kind;
    struct ref_row facts;
    int inputs[ROW_INPUTS], n_inputs;     /* rows, or BLOCK_INPUT */
    bool needs[ROW_INPUTS], needs_output; /* operands of the activation gradient that may have to be made again */
    bool has_forward, has_agrad, has_wgrad, again;
    const char *forward_collective, *backward_collective, *axis;
    wide copies;                           /* ranks that hold the same parameters */
    struct ref_work forward, agrad, wgrad; /* bytes, but for the operations */
    int forward_task, again_task, agrad_task, wgrad_task;
};

struct block {
    const struct ref_request *r;
    const struct ref_kind *kind;
    struct ref_plan *plan;
    size_t first; /* task of the plan */
    struct row rows[BLOCK_ROWS];
    int n;
    wide h_l, k_l, T, T_s, X, Xs;
    wide copies, expert_copies;
    /* sequence parallelism in force; the gather is repeated; the rows of 8 to 10 are; all are */
    bool split, AG, selective, full;
};

struct ref_work ref_elements(const struct block *b, wide operations, wide read, wide write);

/* Each adds a row and returns its place. A is owned and O kept until said otherwise. */
int ref_row(struct block *b, const char *name, enum ref_row_kind kind, int input);
void ref_row_reads(struct block *b, int row, int input); /* one input more, unless it is one already */
void ref_row_state(struct block *b, int row, wide A_bytes, wide O_bytes, bool keeps_A);
void ref_row_share(struct block *b, int row, bool shares); /* shared: neither owned nor kept */

int ref_fork(struct block *b, const char *name, wide n, wide users, int input, bool keeps);
int ref_norm(struct block *b, const char *name, wide n, wide w, wide P, int input);
int ref_linear(struct block *b, const char *name, wide m, wide n, wide k, bool bias, int input, bool keeps);
/* `A` is what the product reads, `kept` what of it is this rank's own. */
int ref_product(struct block *b, const char *name, wide W, wide A, wide kept, wide O, int one, int other);
int ref_softmax(struct block *b, const char *name, wide n, int input);
int ref_dropout(struct block *b, const char *name, wide n, int input);
int ref_activation(struct block *b, const char *name, wide n, int input, int other);
int ref_residual(struct block *b, const char *name, wide n, int one, int other);
/* Of the tensor group; nothing at t = 1. `n` elements. */
int ref_collective(struct block *b, const char *name, bool plain, wide n, int input);
/* Of another group; nothing in a group of one. Kinds as in the task names. */
int ref_group_collective(struct block *b, const char *name, const char *axis, wide group, const char *forward,
                         const char *backward, wide n, int input);

/* Parts of the block. Each returns the row that puts the part's result out. */
int ref_training_attention(struct block *b, int input); /* from the projections to attention.output */
int ref_training_mlp(struct block *b, const char *part, wide width, int input, bool own, bool keeps);
int ref_training_experts(struct block *b, int input);

#endif
