/* Distributed -> portable, inference: the work that was derived, reified as a task graph with weights, KV state,
 * boundary and a conservative workspace. The theory is the text below; what both plan passes share is in
 * portable_block.c.
 */
#include "common/passes/laws.h"
#include "common/passes/portable_block.h"

#define RULE "plan.inference"

static const char theory[] =
    "Every distributed task becomes one portable task with the same work vector,\n"
    "\n"
    "\\[ (F_i, R_i, W_i, M_i)_{\\mathrm{distributed}} = (F_i, R_i, W_i, M_i)_{\\mathrm{portable}}, \\]\n"
    "\n"
    "whose projections are what it requires of a device:\n"
    "\n"
    "\\[ Q_{\\mathrm{compute}} = F_i, \\qquad Q_{\\mathrm{memory}} = R_i + W_i, \\qquad Q_{\\mathrm{network}} = M_i. "
    "\\]\n"
    "\n"
    "Memory becomes buffers: the boundary \\(D = bqHe\\) in and out, the weights, the KV cache \\(C_{\\mathrm{KV}}\\), "
    "and a "
    "workspace. Until a target selects an implementation of the attention core its scores are taken to be "
    "materialised, so "
    "that with \\(r = d(h_l + 2k_l)\\)\n"
    "\n"
    "\\[ C_{\\mathrm{workspace}} = D + e\\max\\left(bqr,\\ b h_l q c,\\ bq\\frac{F}{t}\\right), \\]\n"
    "\n"
    "its last term twice for a gated MLP. This is an obligation on capacity, an upper bound. A tiled exact attention "
    "may "
    "lower it when a target binds it, under a verified choice; the operations stay what they are.\n"
    "\n"
    "| buffer | storage | written by | read by |\n"
    "|---|---|---|---|\n"
    "| input | device_local | | the tasks that read the block's input: attention.norm and attention.residual of a "
    "block "
    "with a norm before each branch |\n"
    "| output | device_local | the last task | |\n"
    "| weights | persistent | | every task of a row with parameters |\n"
    "| kv_cache | persistent | attention.kv_write | attention.core, and what expands latents |\n"
    "| workspace | transient | every task | every task |\n";

static const struct bp_reference references[] = {
    {"A. Vaswani et al., Attention Is All You Need, NeurIPS 2017, section 3.2", "https://arxiv.org/abs/1706.03762"},
    {"T. Dao et al., FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness, NeurIPS 2022, "
     "section 3",
     "https://arxiv.org/abs/2205.14135"},
};

/* The buffers, in the sizes of this model, from the request alone. */
static void compare_capacity(struct bp_gate *gate)
{
    const struct bp_portable_ir *target = gate->target.as.portable;
    const struct bp_symbols *s = gate->symbols;
    const bp_u128 e_kv = bp_dtype_bytes(gate->request->workload.kv_cache_dtype);
    struct bp_calc calc = {0};
    bp_u128 bq = bp_mul(&calc, s->b, s->q), D = BP_PROD(&calc, bq, s->H, s->e);
    const bp_u128 held[] = {
        BP_PROD(&calc, bq, s->d, bp_add(&calc, s->h_l, bp_mul(&calc, 2, s->k_l))),
        BP_PROD(&calc, s->b, s->h_l, s->q, s->c),
        BP_PROD(&calc, s->gated ? 2 : 1, bq, bp_div(&calc, s->F, s->t)),
    };
    bp_u128 largest = 0;
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        largest = held[i] > largest ? held[i] : largest;
    const bp_u128 expected[BP_BUFFER_ROLE_N] = {
        [BP_BUFFER_INPUT] = D,
        [BP_BUFFER_OUTPUT] = D,
        [BP_BUFFER_KV_CACHE] = BP_PROD(&calc, 2, s->b, s->c, s->d, s->k_l, e_kv),
        [BP_BUFFER_WORKSPACE] = bp_add(&calc, D, bp_mul(&calc, largest, s->e)),
    };
    for (uint32_t i = 0; i < target->n_buffers; i++)
        if (bp_law_is_of_block(gate, target->buffers[i].block) && target->buffers[i].role < BP_BUFFER_ROLE_N &&
            target->buffers[i].role != BP_BUFFER_WEIGHTS)
            bp_gate_equal(gate, "/buffers", &calc, expected[target->buffers[i].role], target->buffers[i].size.n);
}

static bool has_heads_and_a_dense_mlp(const struct bp_gate *gate)
{
    return bp_law_heads(gate) && bp_law_dense_mlp(gate);
}

static const struct bp_law laws[] = {
    {"law.capacity",
     "D = bqHe, \\quad C_{\\mathrm{KV}} = 2bcdk_l e_{\\mathrm{kv}}, \\quad C_{\\mathrm{workspace}} = D + e\\max(bqr, b "
     "h_l q c, "
     "bqF/t \\text{ or } 2bqF/t)",
     "attention by heads, a dense MLP", "docs/formulas.md, inference block", has_heads_and_a_dense_mlp,
     compare_capacity},
};
static const struct bp_law_group own_laws = BP_BLOCK_GROUP(laws);
static const struct bp_law_group *const law_groups[] = {&own_laws, &bp_conservation_laws};
static const struct bp_check_group *const checks[] = {&bp_portable_checks, &bp_plan_checks, &bp_plan_block_checks};

static bool applies(const struct bp_request *request)
{
    return request->workload.mode == BP_MODE_INFERENCE;
}

static int run(const struct bp_pass_input *input, struct bp_arena *arena, struct bp_ir *ret, struct bp_err *err)
{
    return bp_portable_block(input, RULE, arena, ret, err);
}

const struct bp_pass bp_plan_transformer_inference = {
    .name = "plan-transformer-inference",
    .revision = 3,
    .source = BP_STAGE_DISTRIBUTED,
    .target = BP_STAGE_PORTABLE,
    .rule = RULE,
    .title = "Inference plan",
    .summary = "Reifies the distributed inference work as portable tasks, with weights, KV state and a conservative "
               "workspace.",
    .formula_source = "work conservation, conservative unfused workspace",
    .bindings = 0,
    .applies = applies,
    .run = run,
    BP_PASS_TABLES,
};
