/* Experts of an inference block. */
#include "tests/reference/inference.h"

static int add_expert_linear(struct block *b, const char *name, wide pairs, wide inner, wide columns, int after)
{
    const wide experts = b->kind->E / b->r->ep;
    struct ref_work work = {PROD(2, pairs, inner, columns), wide_mul(pairs, inner), wide_mul(pairs, columns), 0};
    const wide P = wide_add(PROD(experts, inner, columns), b->kind->expert_bias ? wide_mul(experts, columns) : 0);
    return ref_infer(b, name, "matrix", work, P, after, after);
}

static int add_expert_mlp(struct block *b, wide pairs, int after)
{
    const struct ref_kind *kind = b->kind;
    const wide H = b->r->H, width = kind->F_e / b->r->etp, f = wide_mul(pairs, width);
    int gate = kind->gated ? add_expert_linear(b, "moe.gate", pairs, H, width, after) : BLOCK_INPUT;
    int up = add_expert_linear(b, "moe.up", pairs, H, width, after);
    struct ref_work work = {wide_mul(kind->gated ? 9 : kind->relu ? 1 : 8, f), wide_mul(kind->gated ? 2 : 1, f), f, 0};
    int activation = ref_infer(b, "moe.activation", "vector", work, 0, up, kind->gated ? gate : up);
    return add_expert_linear(b, "moe.down", pairs, width, H, activation);
}

static int add_routed(struct block *b, wide tokens, wide pairs, int after)
{
    const struct ref_request *r = b->r;
    const struct ref_kind *kind = b->kind;
    const wide scores = wide_mul(tokens, kind->E), taken = wide_mul(tokens, kind->K), rows = wide_mul(tokens, r->H);
    const wide sent = wide_mul(taken, r->H);
    int last = ref_infer_linear(b, "moe.router", tokens, r->H, kind->E, kind->router_bias, after);
    last = ref_infer(b, "moe.router_softmax", "vector", (struct ref_work){wide_mul(5, scores), scores, scores, 0}, 0,
                     last, last);
    last = ref_infer(b, "moe.top_k", "vector", (struct ref_work){scores, scores, taken, 0}, 0, last, last);
    last = ref_infer(b, "moe.permute", "vector", (struct ref_work){0, wide_add(rows, taken), sent, 0}, 0, after, last);
    const bool dealt = r->ep != 1 || r->etp != r->t;
    const wide gathered = wide_mul(pairs, r->H);
    if (dealt) {
        last = ref_infer_collective(b, "moe.dispatch", "all_to_all", "expert", r->ep, sent, last);
        last = ref_infer_collective(b, "moe.gather", "all_gather", "expert_tensor", r->etp, gathered, last);
    }
    last = add_expert_mlp(b, pairs, last);
    if (dealt) {
        last = ref_infer_collective(b, "moe.scatter", "reduce_scatter", "expert_tensor", r->etp, gathered, last);
        last = ref_infer_collective(b, "moe.combine", "all_to_all", "expert", r->ep, sent, last);
    }
    last = ref_infer(b, "moe.unpermute", "vector", (struct ref_work){wide_mul(kind->K - 1, rows), sent, rows, 0}, 0,
                     last, last);
    return dealt ? ref_infer_collective(b, "moe.output_collective", "all_gather", "tensor", r->t, b->Y, last) : last;
}

int ref_infer_experts(struct block *b, int after, bool *ret_complete)
{
    const struct ref_request *r = b->r;
    const struct ref_kind *kind = b->kind;
    const bool dealt = r->ep != 1 || r->etp != r->t;
    const wide tokens = dealt ? b->bq / r->t : b->bq, taken = wide_mul(tokens, kind->K);
    int routed = add_routed(b, tokens, dealt ? wide_mul(taken, r->etp) : taken, after);
    *ret_complete = dealt;
    if (!kind->F_s)
        return routed;
    int shared = ref_infer_mlp(b, "shared", kind->F_s / r->t, after);
    if (dealt)
        shared = ref_infer_collective(b, "shared.all_reduce", "all_reduce", "tensor", r->t, b->Y, shared);
    if (kind->shared_gate) {
        int scale = ref_infer_linear(b, "shared.scale", b->bq, r->H, 1, false, after);
        shared = ref_infer(b, "shared.scaling", "vector", (struct ref_work){b->Y, wide_add(b->Y, b->bq), b->Y, 0}, 0,
                           shared, scale);
    }
    return ref_infer_add(b, "shared.add", b->Y, shared, routed);
}
