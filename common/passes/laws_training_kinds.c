/* Laws of training for what a plain block does not have: latent attention, experts, branches side by side, what is done
 * to scores, context parallelism (docs/formulas.md, "Blocks of other kinds"). */
#include <string.h>

#include "common/passes/laws.h"

#define FORMULAS "docs/formulas.md, blocks of other kinds"

static void expect_forward(struct bp_gate *gate, struct bp_calc *calc, const char *const *rows, bp_u128 expected)
{
    bp_gate_equal(gate, "/tasks", calc, expected, bp_law_operations(gate, calc, rows, BP_PHASE_FORWARD));
}

static bp_u128 tokens(const struct bp_gate *gate, struct bp_calc *calc)
{
    return bp_mul(calc, gate->symbols->B, gate->symbols->S);
}

static bp_u128 scores(const struct bp_gate *gate, struct bp_calc *calc)
{
    const struct bp_symbols *s = gate->symbols;
    return BP_PROD(calc, s->B, s->h_l, s->S, s->S_c);
}

/* Payload that the block's collectives along an axis carry in one phase. */
static bp_u128 payload(const struct bp_gate *gate, struct bp_calc *calc, enum bp_axis axis, enum bp_phase phase)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    bp_u128 sum = 0;
    for (uint32_t i = gate->at.tasks.first; i < gate->at.tasks.end; i++)
        if (ir->tasks[i].axis == axis && ir->tasks[i].phase == phase)
            sum = bp_add(calc, sum, ir->tasks[i].work.message.n);
    return sum;
}

/* ---- Latent attention ---- */

static bool is_latent(const struct bp_gate *gate)
{
    return gate->symbols->kind->attention == BP_ATTENTION_LATENT;
}

static void compare_latent_projections(struct bp_gate *gate)
{
    static const char *const rows[] = {"attention.query_down",     "attention.query_up",     "attention.query",
                                       "attention.key_value_down", "attention.key_value_up", NULL};
    const struct bp_symbols *s = gate->symbols;
    const struct bp_kind *kind = s->kind;
    struct bp_calc calc = {0};
    bp_u128 nope = kind->qk_nope_head_dim, rope = kind->qk_rope_head_dim, l_q = kind->q_lora_rank;
    bp_u128 whole = tokens(gate, &calc), own = bp_div(&calc, s->Xs, s->H);
    bp_u128 down = BP_PROD(&calc, 2, own, s->H, BP_SUM(&calc, l_q, kind->kv_lora_rank, rope));
    bp_u128 query = BP_PROD(&calc, 2, whole, l_q ? l_q : s->H, s->h_l, bp_add(&calc, nope, rope));
    bp_u128 key_value = BP_PROD(&calc, 2, whole, kind->kv_lora_rank, s->h_l, bp_add(&calc, nope, kind->v_head_dim));
    expect_forward(gate, &calc, rows, BP_SUM(&calc, down, query, key_value));
}

static void compare_latent_scores(struct bp_gate *gate)
{
    static const char *const rows[] = {"attention.scores", "attention.context", NULL};
    const struct bp_kind *kind = gate->symbols->kind;
    struct bp_calc calc = {0};
    bp_u128 width =
        BP_SUM(&calc, (bp_u128)kind->qk_nope_head_dim, (bp_u128)kind->qk_rope_head_dim, (bp_u128)kind->v_head_dim);
    expect_forward(gate, &calc, rows, BP_PROD(&calc, 2, scores(gate, &calc), width));
}

static void compare_latent_output(struct bp_gate *gate)
{
    static const char *const rows[] = {"attention.output", NULL};
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    expect_forward(gate, &calc, rows, BP_PROD(&calc, 2, tokens(gate, &calc), s->h_l, s->kind->v_head_dim, s->H));
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
    return has_experts(gate) && (gate->symbols->ep > 1 || gate->symbols->etp > 1);
}

/* By routed pairs: BS K etp/t of them on a rank, whatever the number of experts. */
static void compare_experts(struct bp_gate *gate)
{
    static const char *const rows[] = {"moe.gate", "moe.up", "moe.down", NULL};
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bp_u128 per_pair = BP_PROD(&calc, s->gated ? 6 : 4, s->H, s->F_e, s->K, tokens(gate, &calc));
    expect_forward(gate, &calc, rows, bp_div(&calc, per_pair, s->t));
}

static void compare_router(struct bp_gate *gate)
{
    static const char *const rows[] = {"moe.router", NULL};
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    expect_forward(gate, &calc, rows, BP_PROD(&calc, 2, s->Xs, s->E));
}

static void compare_shared_experts(struct bp_gate *gate)
{
    static const char *const rows[] = {"shared.gate", "shared.up", "shared.down", NULL};
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bp_u128 all = BP_PROD(&calc, s->gated ? 6 : 4, tokens(gate, &calc), s->H, s->F_s);
    expect_forward(gate, &calc, rows, bp_div(&calc, all, s->t));
}

/* There and back: the rank's own pairs over the expert group, the gathered ones over an expert's tensor group. */
static void compare_expert_payload(struct bp_gate *gate)
{
    static const enum bp_phase phases[] = {BP_PHASE_FORWARD, BP_PHASE_ACTIVATION_GRADIENT};
    const struct bp_symbols *s = gate->symbols;
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
        struct bp_calc calc = {0};
        bp_u128 own = bp_div(&calc, BP_PROD(&calc, tokens(gate, &calc), s->K, s->H, s->e), s->t);
        bp_gate_equal(gate, "/tasks", &calc, s->ep > 1 ? bp_mul(&calc, 2, own) : 0,
                      payload(gate, &calc, BP_AXIS_EXPERT, phases[i]));
        bp_gate_equal(gate, "/tasks", &calc, s->etp > 1 ? BP_PROD(&calc, 2, own, s->etp) : 0,
                      payload(gate, &calc, BP_AXIS_EXPERT_TENSOR, phases[i]));
    }
}

/* E/ep experts on a rank, each F_e/etp wide: they divide by their own degrees, and by t never. */
static void compare_expert_parameters(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bp_u128 ups = s->gated ? 2 : 1, width = bp_div(&calc, s->F_e, s->etp), held = 0;
    bp_u128 one = BP_PROD(&calc, bp_add(&calc, ups, 1), s->H, width);
    if (s->kind->expert_bias)
        one = BP_SUM(&calc, one, bp_mul(&calc, ups, width), s->H);
    for (uint32_t i = gate->at.layers.first; i < gate->at.layers.end; i++) {
        const char *name = ir->layers[i].name;
        if (strcmp(name, "moe.gate") == 0 || strcmp(name, "moe.up") == 0 || strcmp(name, "moe.down") == 0)
            held = bp_add(&calc, held, ir->layers[i].parameters);
    }
    bp_gate_equal(gate, "/layers", &calc, bp_mul(&calc, bp_div(&calc, s->E, s->ep), one), held);
}

/* ---- Branches side by side ---- */

static bool is_parallel(const struct bp_gate *gate)
{
    return gate->symbols->kind->residual == BP_RESIDUAL_PARALLEL && gate->symbols->t > 1;
}

/* Both branches leave through one collective; with one norm for both they enter through one as well. */
static void compare_side_by_side(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bp_u128 entries = s->kind->norm_place == BP_NORM_PLACE_SHARED ? 1 : 2, M = bp_mul(&calc, s->X, s->e);
    bp_u128 forward = s->sequence_parallel ? entries + 1 : 1, backward = s->sequence_parallel ? entries + 1 : entries;
    bp_gate_equal(gate, "/tasks", &calc, bp_mul(&calc, forward, M),
                  payload(gate, &calc, BP_AXIS_TENSOR, BP_PHASE_FORWARD));
    bp_gate_equal(gate, "/tasks", &calc, bp_mul(&calc, backward, M),
                  payload(gate, &calc, BP_AXIS_TENSOR, BP_PHASE_ACTIVATION_GRADIENT));
}

/* ---- Scores ---- */

static bool changes_scores(const struct bp_gate *gate)
{
    return gate->symbols->kind->soft_cap || gate->request->model.position == BP_POSITION_ALIBI;
}

static void compare_changed_scores(struct bp_gate *gate)
{
    static const char *const rows[] = {"attention.soft_cap", "attention.position_bias", NULL};
    struct bp_calc calc = {0};
    bp_u128 m = scores(gate, &calc);
    bool cap = gate->symbols->kind->soft_cap, bias = gate->request->model.position == BP_POSITION_ALIBI;
    expect_forward(gate, &calc, rows, bp_mul(&calc, (cap ? 3U : 0U) + (bias ? 1U : 0U), m));
    bp_gate_equal(gate, "/tasks", &calc, cap ? bp_mul(&calc, 4, m) : 0,
                  bp_law_operations(gate, &calc, rows, BP_PHASE_ACTIVATION_GRADIENT));
}

/* ---- Norms ---- */

/* n elements of each norm over the hidden size, and of those of queries, keys and latents: f, b and w operations an
 * element, the last where there are weights. */
static void compare_norms(struct bp_gate *gate)
{
    static const struct {
        unsigned forward, activation_gradient, weight_gradient;
    } work[] = {[BP_NORM_LAYERNORM] = {9, 14, 7}, [BP_NORM_RMSNORM] = {4, 8, 4}};
    static const unsigned count[] = {[BP_NORM_PLACE_BEFORE] = 2,
                                     [BP_NORM_PLACE_AFTER] = 2,
                                     [BP_NORM_PLACE_AFTER_RESIDUAL] = 2,
                                     [BP_NORM_PLACE_AROUND] = 4,
                                     [BP_NORM_PLACE_SHARED] = 1};
    static const char *const wide[] = {"attention.norm", "attention.post_norm", "mlp.norm", "mlp.post_norm", NULL};
    static const char *const of_heads[] = {"attention.query_norm", "attention.key_norm", NULL};
    static const char *const of_latents[] = {"attention.query_latent_norm", "attention.key_value_latent_norm", NULL};
    const struct bp_symbols *s = gate->symbols;
    const struct bp_model *model = &gate->request->model;
    const struct bp_kind *kind = s->kind;
    struct bp_calc calc = {0};
    bool weights = !model->norm_without_weight, latent = is_latent(gate);
    bp_u128 heads = BP_PROD(&calc, tokens(gate, &calc), s->d, bp_add(&calc, s->h_l, s->k_l));
    bp_u128 latents = bp_mul(&calc, bp_div(&calc, s->Xs, s->H), bp_add(&calc, kind->q_lora_rank, kind->kv_lora_rank));
    const struct {
        const char *const *rows;
        bp_u128 n;
        bool weights;
    } norms[] = {
        {wide, bp_mul(&calc, count[kind->norm_place], s->Xs), weights},
        {of_heads, kind->qk_norm ? heads : 0, kind->qk_norm != BP_QK_NORM_WITHOUT_WEIGHT},
        {of_latents, latent ? latents : 0, weights},
    };
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        const struct {
            enum bp_phase phase;
            unsigned per_element;
        } phases[] = {{BP_PHASE_FORWARD, work[model->norm].forward},
                      {BP_PHASE_ACTIVATION_GRADIENT, work[model->norm].activation_gradient},
                      {BP_PHASE_WEIGHT_GRADIENT, norms[i].weights ? work[model->norm].weight_gradient : 0}};
        for (size_t j = 0; j < sizeof phases / sizeof *phases; j++)
            bp_gate_equal(gate, "/tasks", &calc, bp_mul(&calc, phases[j].per_element, norms[i].n),
                          bp_law_operations(gate, &calc, norms[i].rows, phases[j].phase));
    }
}

/* ---- Context parallelism ---- */

static bool is_context_parallel(const struct bp_gate *gate)
{
    return gate->request->strategy.context_parallel > 1;
}

/* Gathered: keys and values of the whole sequence, and their gradients scattered. Exchanged: the rank's own queries,
 * keys and values one way, its outputs the other. */
static void compare_context_payload(struct bp_gate *gate)
{
    static const enum bp_phase phases[] = {BP_PHASE_FORWARD, BP_PHASE_ACTIVATION_GRADIENT};
    const struct bp_symbols *s = gate->symbols;
    const struct bp_kind *kind = s->kind;
    bool latent = is_latent(gate), exchanged = gate->request->strategy.cp_comm == BP_CP_A2A;
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
        struct bp_calc calc = {0};
        bp_u128 key = latent ? (bp_u128)kind->qk_nope_head_dim + kind->qk_rope_head_dim : s->d;
        bp_u128 value = latent ? kind->v_head_dim : s->d, both = bp_add(&calc, key, value);
        bp_u128 keys = bp_mul(&calc, latent ? s->h_l : s->k_l, both), queries = bp_mul(&calc, s->h_l, both);
        bp_u128 own = bp_mul(&calc, tokens(gate, &calc), bp_add(&calc, queries, keys));
        bp_u128 gathered = BP_PROD(&calc, s->B, s->S_c, keys);
        bp_gate_equal(gate, "/tasks", &calc, bp_mul(&calc, exchanged ? own : gathered, s->e),
                      payload(gate, &calc, BP_AXIS_CONTEXT, phases[i]));
    }
}

static const struct bp_law laws[] = {
    {"law.latent_projections",
     "W = 2T_sH(l_q + l_{kv} + r) + 2T h_l\\bigl(l_q(n+r) + l_{kv}(n+v)\\bigr), \\text{ with } H \\text{ for the "
     "query's }"
     " l_q \\text{ where there is no latent}",
     "latent attention", "DeepSeek-AI, DeepSeek-V2, section 2.1; " FORMULAS, is_latent, compare_latent_projections},
    {"law.latent_scores", "W = 2Bh_lSS_c(n + r + v)", "latent attention",
     "DeepSeek-AI, DeepSeek-V2, section 2.1; " FORMULAS, is_latent, compare_latent_scores},
    {"law.latent_output", "W = 2Th_l v H", "latent attention", "DeepSeek-AI, DeepSeek-V2, section 2.1; " FORMULAS,
     is_latent, compare_latent_output},
    {"law.experts", "W = \\frac{6 \\text{ or } 4}{t} BSK H F_e", "experts, gated or not",
     "Lepikhin et al., GShard, section 2.2; " FORMULAS, has_experts, compare_experts},
    {"law.router", "W = 2X_sE", "experts", "Lepikhin et al., GShard, section 2.2; " FORMULAS, has_experts,
     compare_router},
    {"law.shared_experts", "W = \\frac{6 \\text{ or } 4}{t} BSH F_s", "shared experts, gated or not",
     "DeepSeek-AI, DeepSeek-V2, section 2.2; " FORMULAS, has_shared_experts, compare_shared_experts},
    {"law.expert_payload",
     "M_{\\mathrm{expert}} = 2\\frac{BSKH}{t}e\\,[ep > 1], \\quad M_{\\mathrm{expert\\,tensor}} = "
     "2\\frac{BSKH}{t}etp\\,e\\,[etp > 1] \\text{ forward, and as much backward}",
     "experts over several ranks", "Lepikhin et al., GShard, section 3; " FORMULAS, is_spread, compare_expert_payload},
    {"law.expert_parameters", "\\sum P = \\frac{E}{ep}\\Bigl((\\mu + 1)H\\frac{F_e}{etp} + \\mathrm{biases}\\Bigr)",
     "experts", FORMULAS, has_experts, compare_expert_parameters},
    {"law.side_by_side",
     "M_{\\mathrm{TP}} = Xe \\text{ forward and } uXe \\text{ backward},\\ (u + 1)Xe \\text{ each with sequence "
     "parallelism};\\ u = 1 \\text{ with one norm for both branches, else } 2",
     "attention and MLP side by side, t > 1", "Wang and Komatsuzaki, GPT-J; " FORMULAS, is_parallel,
     compare_side_by_side},
    {"law.changed_scores",
     "W = (3[\\mathrm{soft\\,cap}] + [\\mathrm{alibi}])\\,Bh_lSS_c, \\quad W_{\\mathrm{agrad}} = "
     "4[\\mathrm{soft\\,cap}]\\,Bh_lSS_c",
     "a soft cap or a position bias of the scores", FORMULAS, changes_scores, compare_changed_scores},
    {"law.norms",
     "W = (f, b, w)\\Bigl(uX_s + Td(h_l + k_l)[\\mathrm{qk\\,norm}] + T_s(l_q + l_{kv})\\Bigr),\\ u = 1, 2, 4 "
     "\\text{ norms of the hidden size}",
     "every block", FORMULAS, bp_law_always, compare_norms},
    {"law.context_payload",
     "M = BS_c\\,2dk_l\\,e \\text{ gathered}, \\quad M = T\\,2d(h_l + k_l)\\,e \\text{ exchanged}, \\text{ forward and "
     "backward}",
     "context parallelism", "Liu et al., Ring Attention, section 3; Jacobs et al., DeepSpeed-Ulysses, section 3",
     is_context_parallel, compare_context_payload},
};
const struct bp_law_group bp_training_kind_laws = BP_BLOCK_GROUP(laws);
