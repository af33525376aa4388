/* The MLP of a training block: rows 19 to 21, and experts in place of rows 18 to 22. */
#include <stdio.h>

#include "tests/reference/training.h"

/* The names of the dense MLP and of the shared experts, which have the same rows. */
static const char *const names[2][5] = {
    {"mlp.gate_fork", "mlp.gate", "mlp.up", "mlp.activation", "mlp.down"},
    {"shared.gate_fork", "shared.gate", "shared.up", "shared.activation", "shared.down"},
};

int ref_training_mlp(struct block *b, const char *part, wide width, int input, bool own, bool keeps)
{
    const struct ref_kind *kind = b->kind;
    const char *const *name = names[part[0] == 's'];
    int gate = BLOCK_INPUT, up, last = input;
    if (kind->gated) {
        last = ref_fork(b, name[0], b->X, 2, last, keeps);
        ref_row_share(b, last, !own);
        gate = ref_linear(b, name[1], b->T, b->r->H, width, kind->mlp_bias, last, false);
        ref_row_share(b, gate, true);
    }
    up = ref_linear(b, name[2], b->T, b->r->H, width, kind->mlp_bias, last, keeps);
    ref_row_share(b, up, kind->gated || !own);
    last = ref_activation(b, name[3], wide_mul(b->T, width), up, kind->gated ? gate : up);
    return ref_linear(b, name[4], b->T, width, b->r->H, kind->mlp_bias, last, !b->r->recompute_activation);
}

/* ---- Experts ---- */

/* A linear over pairs: the weights are those of all local experts. */
static int add_expert_linear(struct block *b, const char *name, wide m, wide n, wide k, int input, bool keeps)
{
    const struct ref_request *r = b->r;
    const wide experts = b->kind->E / r->ep, weights = PROD(experts, n, k);
    const wide P = wide_add(weights, b->kind->expert_bias ? wide_mul(experts, k) : 0);
    int i = ref_linear(b, name, m, n, k, false, input, keeps);
    struct row *row = &b->rows[i];
    row->forward.read = wide_mul(wide_add(wide_mul(m, n), P), r->e);
    row->agrad.read = wide_mul(wide_add(weights, wide_mul(m, k)), r->e);
    row->wgrad.write = wide_mul(P, r->g);
    row->facts.parameters = P;
    row->copies = b->expert_copies;
    return i;
}

static int add_router(struct block *b, int fork)
{
    const struct ref_kind *kind = b->kind;
    const wide scores = wide_mul(b->T_s, kind->E), taken = wide_mul(b->T_s, kind->K);
    int last = ref_linear(b, "moe.router", b->T_s, b->r->H, kind->E, kind->router_bias, fork, false);
    ref_row_share(b, last, true);
    last = ref_softmax(b, "moe.router_softmax", scores, last);
    last = ref_row(b, "moe.top_k", OTHER, last);
    b->rows[last].needs_output = true;
    b->rows[last].forward = ref_elements(b, scores, scores, taken);
    b->rows[last].agrad = ref_elements(b, taken, wide_mul(2, taken), scores);
    ref_row_state(b, last, wide_mul(taken, b->r->e), wide_mul(taken, b->r->e), true);
    return last;
}

/* Tokens to their experts and back, added up. */
static int add_permute(struct block *b, wide sent, int fork, int top_k)
{
    const wide taken = wide_mul(b->T_s, b->kind->K), moved = wide_add(b->Xs, taken);
    int i = ref_row(b, "moe.permute", OTHER, fork);
    ref_row_reads(b, i, top_k);
    b->rows[i].needs[1] = true;
    b->rows[i].forward = ref_elements(b, 0, moved, sent);
    b->rows[i].agrad = ref_elements(b, wide_mul(b->kind->K - 1, b->Xs), wide_add(sent, taken), moved);
    ref_row_state(b, i, 0, wide_mul(sent, b->r->e), false);
    return i;
}

static int add_unpermute(struct block *b, wide sent, int input)
{
    int i = ref_row(b, "moe.unpermute", OTHER, input);
    b->rows[i].forward = ref_elements(b, wide_mul(b->kind->K - 1, b->Xs), sent, b->Xs);
    b->rows[i].agrad = ref_elements(b, 0, b->Xs, sent);
    ref_row_state(b, i, 0, wide_mul(b->Xs, b->r->e), false);
    return i;
}

static int add_routed(struct block *b, int fork)
{
    const struct ref_request *r = b->r;
    const struct ref_kind *kind = b->kind;
    const wide N_s = wide_mul(b->T_s, kind->K), N = wide_mul(N_s, r->etp), width = kind->F_e / r->etp;
    const wide sent = wide_mul(N_s, r->H), gathered = wide_mul(N, r->H);
    int gate = BLOCK_INPUT, up, last = add_permute(b, sent, fork, add_router(b, fork));
    last = ref_group_collective(b, "moe.dispatch", "expert", r->ep, "all_to_all", "all_to_all", sent, last);
    last =
        ref_group_collective(b, "moe.gather", "expert_tensor", r->etp, "all_gather", "reduce_scatter", gathered, last);
    if (kind->gated) {
        last = ref_fork(b, "moe.gate_fork", gathered, 2, last, true);
        gate = add_expert_linear(b, "moe.gate", N, r->H, width, last, false);
        ref_row_share(b, gate, true);
    }
    up = add_expert_linear(b, "moe.up", N, r->H, width, last, true);
    ref_row_share(b, up, kind->gated);
    last = ref_activation(b, "moe.activation", wide_mul(N, width), up, kind->gated ? gate : up);
    last = add_expert_linear(b, "moe.down", N, width, r->H, last, !r->recompute_activation);
    last =
        ref_group_collective(b, "moe.scatter", "expert_tensor", r->etp, "reduce_scatter", "all_gather", gathered, last);
    last = ref_group_collective(b, "moe.combine", "expert", r->ep, "all_to_all", "all_to_all", sent, last);
    return add_unpermute(b, sent, last);
}

static int add_shared(struct block *b, int fork)
{
    int last = ref_collective(b, "shared.input_collective", true, b->X, fork);
    if (last != fork)
        ref_row_share(b, last, true);
    last = ref_training_mlp(b, "shared", b->kind->F_s / b->r->t, last, b->split, !b->AG);
    return ref_collective(b, "shared.output_collective", false, b->X, last);
}

static int add_scaling(struct block *b, int fork, int shared)
{
    int scale = ref_linear(b, "shared.scale", b->T_s, b->r->H, 1, false, fork, false);
    ref_row_share(b, scale, true);
    const wide both = wide_add(b->Xs, b->T_s);
    int i = ref_row(b, "shared.scaling", OTHER, shared);
    b->rows[i].needs[0] = true;
    ref_row_reads(b, i, scale);
    b->rows[i].forward = ref_elements(b, b->Xs, both, b->Xs);
    b->rows[i].agrad = ref_elements(b, wide_mul(2, b->Xs), wide_add(wide_mul(2, b->Xs), b->T_s), both);
    ref_row_state(b, i, wide_mul(both, b->r->e), wide_mul(b->Xs, b->r->e), true);
    return i;
}

int ref_training_experts(struct block *b, int input)
{
    const struct ref_kind *kind = b->kind;
    const wide users = (wide)2 + (kind->F_s ? 1 : 0) + (kind->shared_gate ? 1 : 0);
    int fork = ref_fork(b, "moe.fork", b->Xs, users, input, true);
    int routed = add_routed(b, fork);
    if (!kind->F_s)
        return routed;
    int shared = add_shared(b, fork);
    if (kind->shared_gate)
        shared = add_scaling(b, fork, shared);
    return ref_residual(b, "shared.add", b->Xs, shared, routed);
}
