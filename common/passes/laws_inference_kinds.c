/* Laws of inference for what a plain block does not have: latent attention, experts, branches side by side, what is
 * done to scores, windows (docs/formulas.md, "Blocks of other kinds"). */
#include "common/passes/laws.h"

#define FORMULAS "docs/formulas.md, blocks of other kinds"

static enum bp_phase phase_of(const struct bp_gate *gate)
{
    return gate->request->workload.phase == BP_PREFILL ? BP_PHASE_PREFILL : BP_PHASE_DECODE;
}

static void expect(struct bp_gate *gate, struct bp_calc *calc, const char *const *rows, bp_u128 expected)
{
    bp_gate_equal(gate, "/tasks", calc, expected, bp_law_operations(gate, calc, rows, phase_of(gate)));
}

static bp_u128 query_tokens(const struct bp_gate *gate, struct bp_calc *calc)
{
    return bp_mul(calc, gate->symbols->b, gate->symbols->q);
}

static const char *const core_rows[] = {"attention.core", NULL};

/* ---- Latent attention ---- */

static bool is_latent(const struct bp_gate *gate)
{
    return gate->symbols->kind->attention == BP_ATTENTION_LATENT;
}

/* What one score costs beside its products, and what the sinks do. */
static bp_u128 score_operations(const struct bp_gate *gate)
{
    return 5 + (gate->symbols->kind->soft_cap ? 3U : 0U) + (gate->request->model.position == BP_POSITION_ALIBI);
}

static bp_u128 sink_operations(const struct bp_gate *gate, struct bp_calc *calc)
{
    const struct bp_symbols *s = gate->symbols;
    return s->kind->sinks ? BP_PROD(calc, 5, s->b, s->h_l, s->q) : 0;
}

/* Expanded: as many heads as multi-head attention. Absorbed: every head against the one latent of a token. */
static void compare_latent_core(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    const struct bp_kind *kind = s->kind;
    struct bp_calc calc = {0};
    bp_u128 scores = BP_PROD(&calc, s->b, s->h_l, s->q, s->c), rope = kind->qk_rope_head_dim;
    bp_u128 expanded = BP_SUM(&calc, (bp_u128)kind->qk_nope_head_dim, rope, (bp_u128)kind->v_head_dim);
    bp_u128 absorbed = bp_add(&calc, bp_mul(&calc, 2, kind->kv_lora_rank), rope);
    bool decode = gate->request->workload.phase == BP_DECODE;
    bp_u128 width = bp_mul(&calc, 2, decode ? absorbed : expanded);
    bp_u128 products = bp_mul(&calc, scores, bp_add(&calc, width, score_operations(gate)));
    expect(gate, &calc, core_rows, bp_add(&calc, products, sink_operations(gate, &calc)));
}

/* What leads from the latents to heads is the same product, whether keys and values are expanded (prefill, for every
 * token) or the query and the output take it up (decode, for the new ones). */
static void compare_latent_projections(struct bp_gate *gate)
{
    static const char *const rows[] = {"attention.query_down",     "attention.query_up",     "attention.query",
                                       "attention.key_value_down", "attention.key_value_up", "attention.query_absorb",
                                       "attention.value_up",       "attention.output",       NULL};
    const struct bp_symbols *s = gate->symbols;
    const struct bp_kind *kind = s->kind;
    struct bp_calc calc = {0};
    bp_u128 nope = kind->qk_nope_head_dim, rope = kind->qk_rope_head_dim, v = kind->v_head_dim, l_q = kind->q_lora_rank,
            l_kv = kind->kv_lora_rank;
    bp_u128 down = bp_mul(&calc, s->H, BP_SUM(&calc, l_q, l_kv, rope));
    bp_u128 query = BP_PROD(&calc, l_q ? l_q : s->H, s->h_l, bp_add(&calc, nope, rope));
    bp_u128 key_value = BP_PROD(&calc, l_kv, s->h_l, bp_add(&calc, nope, v));
    bp_u128 weights = BP_SUM(&calc, down, query, key_value, BP_PROD(&calc, s->h_l, v, s->H));
    expect(gate, &calc, rows, BP_PROD(&calc, 2, query_tokens(gate, &calc), weights));
}

static void compare_latent_cache(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    const struct bp_kind *kind = s->kind;
    struct bp_calc calc = {0};
    bp_u128 width = bp_add(&calc, kind->kv_lora_rank, kind->qk_rope_head_dim);
    bp_law_memory(gate, BP_MEMORY_KV_CACHE, &calc,
                  BP_PROD(&calc, s->b, s->c, width, bp_dtype_bytes(gate->request->workload.kv_cache_dtype)));
}

/* ---- Experts ---- */

static bool has_experts(const struct bp_gate *gate)
{
    return gate->symbols->E > 0;
}

static bool has_shared_experts(const struct bp_gate *gate)
{
    return has_experts(gate) && gate->symbols->F_s > 0;
}

static bool is_spread(const struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    return has_experts(gate) && (s->ep > 1 || s->etp != s->t);
}

static void compare_experts(struct bp_gate *gate)
{
    static const char *const rows[] = {"moe.gate", "moe.up", "moe.down", NULL};
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bp_u128 all = BP_PROD(&calc, s->gated ? 6 : 4, query_tokens(gate, &calc), s->K, s->H, s->F_e);
    expect(gate, &calc, rows, bp_div(&calc, all, s->t));
}

/* Each token is routed once: by every rank of a tensor group that is the experts' too, else by one of them. */
static void compare_router(struct bp_gate *gate)
{
    static const char *const rows[] = {"moe.router", NULL};
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bp_u128 all = BP_PROD(&calc, 2, query_tokens(gate, &calc), s->H, s->E);
    expect(gate, &calc, rows, is_spread(gate) ? bp_div(&calc, all, s->t) : all);
}

static void compare_shared_experts(struct bp_gate *gate)
{
    static const char *const rows[] = {"shared.gate", "shared.up", "shared.down", NULL};
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bp_u128 all = BP_PROD(&calc, s->gated ? 6 : 4, query_tokens(gate, &calc), s->H, s->F_s);
    expect(gate, &calc, rows, bp_div(&calc, all, s->t));
}

static bp_u128 payload(const struct bp_gate *gate, struct bp_calc *calc, enum bp_axis axis)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    bp_u128 sum = 0;
    for (uint32_t i = gate->at.tasks.first; i < gate->at.tasks.end; i++)
        if (ir->tasks[i].axis == axis)
            sum = bp_add(calc, sum, ir->tasks[i].work.message.n);
    return sum;
}

static void compare_expert_payload(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bp_u128 own = bp_div(&calc, BP_PROD(&calc, query_tokens(gate, &calc), s->K, s->H, s->e), s->t);
    bp_gate_equal(gate, "/tasks", &calc, s->ep > 1 ? bp_mul(&calc, 2, own) : 0, payload(gate, &calc, BP_AXIS_EXPERT));
    bp_gate_equal(gate, "/tasks", &calc, s->etp > 1 ? BP_PROD(&calc, 2, own, s->etp) : 0,
                  payload(gate, &calc, BP_AXIS_EXPERT_TENSOR));
}

/* ---- Branches side by side ---- */

static bool is_parallel(const struct bp_gate *gate)
{
    return gate->symbols->kind->residual == BP_RESIDUAL_PARALLEL && gate->symbols->t > 1;
}

static void compare_side_by_side(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bp_gate_equal(gate, "/tasks", &calc, bp_mul(&calc, s->X, s->e), payload(gate, &calc, BP_AXIS_TENSOR));
}

/* ---- Scores ---- */

static bool changes_scores(const struct bp_gate *gate)
{
    const struct bp_kind *kind = gate->symbols->kind;
    return !is_latent(gate) && (kind->soft_cap || kind->sinks || gate->request->model.position == BP_POSITION_ALIBI);
}

static void compare_changed_scores(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bp_u128 scores = BP_PROD(&calc, s->b, s->h_l, s->q, s->c);
    bp_u128 each = bp_add(&calc, bp_mul(&calc, 4, s->d), score_operations(gate));
    expect(gate, &calc, core_rows, bp_add(&calc, bp_mul(&calc, scores, each), sink_operations(gate, &calc)));
}

/* ---- Windows ---- */

static bool decodes_in_a_window(const struct bp_gate *gate)
{
    const struct bp_kind *kind = gate->symbols->kind;
    return !is_latent(gate) && kind->window > 0 && gate->request->workload.phase == BP_DECODE;
}

/* From the request, not from the symbols: what is seen is the window once the context is longer. */
static void compare_window(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    const struct bp_workload *workload = &gate->request->workload;
    struct bp_calc calc = {0};
    bp_u128 window = s->kind->window, context = workload->context_length;
    bp_u128 seen = window < context ? window : context;
    bp_law_memory(
        gate, BP_MEMORY_KV_CACHE, &calc,
        BP_PROD(&calc, 2, workload->batch_size, seen, s->d, s->k_l, bp_dtype_bytes(workload->kv_cache_dtype)));
}

static const struct bp_law laws[] = {
    {"law.latent_core",
     "W = bh_lqc\\bigl(2(n + r) + 2v + x\\bigr) \\text{ expanded (prefill)}, \\quad bh_lqc\\bigl(4l_{kv} + 2r + "
     "x\\bigr) \\text{ absorbed (decode)}, \\quad + 5bh_lq[\\mathrm{sinks}], \\quad x = 5 + "
     "3[\\mathrm{soft\\,cap}] + [\\mathrm{alibi}]",
     "latent attention", "DeepSeek-AI, DeepSeek-V2, section 2.1; " FORMULAS, is_latent, compare_latent_core},
    {"law.latent_projections", "W = 2bq\\bigl(H(l_q + l_{kv} + r) + l_q h_l(n+r) + l_{kv}h_l(n+v) + h_l v H\\bigr)",
     "latent attention", "DeepSeek-AI, DeepSeek-V2, section 2.1; " FORMULAS, is_latent, compare_latent_projections},
    {"law.latent_cache", "C_{\\mathrm{KV}} = bc(l_{kv} + r)\\,e_{\\mathrm{kv}}", "latent attention",
     "DeepSeek-AI, DeepSeek-V2, table 1; " FORMULAS, is_latent, compare_latent_cache},
    {"law.experts", "W = \\frac{6 \\text{ or } 4}{t} bqK H F_e", "experts, gated or not",
     "Lepikhin et al., GShard, section 2.2; " FORMULAS, has_experts, compare_experts},
    {"law.router", "W = 2bqHE, \\text{ over } t \\text{ where a rank routes its share}", "experts",
     "Lepikhin et al., GShard, section 2.2; " FORMULAS, has_experts, compare_router},
    {"law.shared_experts", "W = \\frac{6 \\text{ or } 4}{t} bqH F_s", "shared experts, gated or not",
     "DeepSeek-AI, DeepSeek-V2, section 2.2; " FORMULAS, has_shared_experts, compare_shared_experts},
    {"law.expert_payload",
     "M_{\\mathrm{expert}} = 2\\frac{bqKH}{t}e\\,[ep > 1], \\quad M_{\\mathrm{expert\\,tensor}} = "
     "2\\frac{bqKH}{t}etp\\,e\\,[etp > 1]",
     "experts over other ranks than the tensor group's", "Lepikhin et al., GShard, section 3; " FORMULAS, is_spread,
     compare_expert_payload},
    {"law.side_by_side", "M_{\\mathrm{TP}} = Ye", "attention and MLP side by side, t > 1",
     "Wang and Komatsuzaki, GPT-J; " FORMULAS, is_parallel, compare_side_by_side},
    {"law.changed_scores", "W = bh_lqc(4d + 5 + 3[\\mathrm{soft\\,cap}] + [\\mathrm{alibi}]) + 5bh_lq[\\mathrm{sinks}]",
     "a soft cap, a position bias or sinks of attention by heads", FORMULAS, changes_scores, compare_changed_scores},
    {"law.window", "C_{\\mathrm{KV}} = 2b\\min(c, w)dk_l\\,e_{\\mathrm{kv}}", "decode within a window",
     "Beltagy et al., Longformer, section 3.1; " FORMULAS, decodes_in_a_window, compare_window},
};
const struct bp_law_group bp_inference_kind_laws = BP_BLOCK_GROUP(laws);
