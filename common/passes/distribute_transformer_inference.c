/* Model -> distributed, inference: one block, one phase, on one rank of a tensor-parallel group. The theory is the
 * text below; the rows are in inference_block.c; what both distribute passes share is in block.c.
 */
#include "common/passes/block.h"
#include "common/passes/laws.h"

#define RULE "distribute.inference"

static const char theory[] =
    "One inference phase of a Transformer block of each kind is expanded into the tasks of one rank of a "
    "tensor-parallel "
    "group.\n"
    "\n"
    "Symbols: \\(b\\) batch, \\(q\\) query tokens, \\(c\\) visible context, \\(H\\) hidden, \\(F\\) feed-forward, "
    "\\(h\\) "
    "query heads, \\(k\\) key/value heads, \\(d\\) head size, \\(t\\) tensor-parallel degree, \\(e\\) bytes of an "
    "element, \\(h_l = h/t\\), \\(k_l = \\max(k/t, 1)\\), \\(Y = bqH\\), \\(r = d(h_l + 2k_l)\\), \\(s = b h_l q c\\), "
    "\\(f = bqF/t\\). Prefill has \\(q = c\\), decode \\(q = 1\\).\n"
    "\n"
    "### Work\n"
    "\n"
    "The attention core is\n"
    "\n"
    "\\[ W_{\\mathrm{attention}} = 4bqcdh_l + 5s = \\frac{4bqcH}{t} + 5b\\frac{h}{t}qc \\ (d = H/h), \\]\n"
    "\n"
    "its first term the two products with the keys and the values, its second the softmax. The projections and the MLP "
    "are\n"
    "\n"
    "\\[ W_{\\mathrm{QKV}} = 2bqHr = \\frac{6bqH^2}{t} \\ (k = h), \\quad W_{\\mathrm{out}} = 2bqdh_lH = "
    "\\frac{2bqH^2}{t}, \\quad W_{\\mathrm{MLP}} = \\frac{4bqHF}{t}, \\quad W_{\\mathrm{gated\\,MLP}} = "
    "\\frac{6bqHF}{t}. "
    "\\]\n"
    "\n"
    "| task | operations; read; write, in elements |\n"
    "|---|---|\n"
    "| attention.norm, mlp.norm | \\(5Y; Y+2H; Y\\), RMSNorm \\(4Y; Y+H; Y\\) |\n"
    "| attention.qkv | \\(2bqHr; Y+P; bqr\\) |\n"
    "| attention.qk_norm, \\(n = bqd(h_l+k_l)\\) | \\(4n; n+2d; n\\), LayerNorm \\(5n; n+4d; n\\) |\n"
    "| attention.rope | \\(6n; n; n\\) |\n"
    "| attention.kv_write | \\(0; 2bqdk_l; 2bqdk_l\\), writes the KV cache |\n"
    "| attention.core | \\(4bqcdh_l + 5s; bqdh_l + 2bcdk_l; bqdh_l\\), reads the KV cache |\n"
    "| attention.output | \\(2bqdh_lH; bqdh_l+P; Y\\) |\n"
    "| attention.all_reduce, mlp.all_reduce | \\(Y(t-1)/t; Y; Y\\), message \\(Ye\\) bytes |\n"
    "| attention.residual, mlp.residual | \\(Y; 2Y; Y\\) |\n"
    "| mlp.gate, mlp.up | \\(2bqHF/t; Y+P; f\\) |\n"
    "| mlp.activation | GELU \\(8f; f; f\\), ReLU \\(f; f; f\\), gated \\(9f; 2f; f\\) |\n"
    "| mlp.down | \\(2bqHF/t; f+P; Y\\) |\n"
    "\n"
    "### Memory\n"
    "\n"
    "\\[ C_{\\mathrm{KV}} = 2bcdk_l\\,e = 2bc\\frac{H}{t}e \\ (k = h,\\ d = H/h), \\qquad D = Ye, \\]\n"
    "\n"
    "\\[ C_{\\mathrm{workspace}} = D + e\\max(bqr,\\ s,\\ f \\text{ or } 2f \\text{ gated}). \\]\n"
    "\n"
    "### Other kinds of block\n"
    "\n"
    "Each kind of block that is planned is a program of its own in the one snapshot. The rows beside those above are "
    "in "
    "docs/formulas.md.\n"
    "\n"
    "Latent attention, \\(l_q\\) and \\(l_{kv}\\) the ranks of the latents, \\(n\\), \\(r\\), \\(v\\) the widths of a "
    "head that do not rotate, that do, and of its value: prefill expands keys and values of every token it sees, "
    "decode "
    "lets the query and the output absorb that product and attends to the latents themselves. The form is stamped.\n"
    "\n"
    "\\[ W_{\\mathrm{prefill}} = s\\bigl(2(n + r) + 2v + 5\\bigr), \\qquad W_{\\mathrm{decode}} = s\\bigl(4l_{kv} + 2r "
    "+ "
    "5\\bigr), \\qquad C_{\\mathrm{KV}} = bc(l_{kv} + r)\\,e_{\\mathrm{kv}}. \\]\n"
    "\n"
    "Experts, under balanced routing (stamped): \\(N = bqK\\,etp/t\\) pairs on a rank, whatever the number of "
    "experts,\n"
    "\n"
    "\\[ W_{\\mathrm{experts}} = \\frac{6bqK\\,HF_e}{t} \\text{ (gated)}. \\]\n"
    "\n"
    "Where the tensor group is the experts' too, every rank routes all tokens and one all-reduce sums what they and "
    "the "
    "shared experts gave; else tokens are divided, sent to their experts and back by all-to-alls, and gathered.\n"
    "\n"
    "In decode a window bounds what is seen, \\(\\min(c, w)\\), and so the cache; elsewhere it is a mask, which is not "
    "counted. A soft cap is \\(3s\\) operations of the core, a position bias \\(s\\), a sink five a query and head. "
    "\\(e_{\\mathrm{kv}}\\) are the bytes of an element of the cache, where it has a type of its own.\n"
    "\n"
    "Reads and writes of the KV cache are effects. Fused and paged attention stay alternatives that a target may "
    "choose; "
    "none is assumed here.\n";

static const struct bp_reference references[] = {
    {"A. Vaswani et al., Attention Is All You Need, NeurIPS 2017, section 3.2", "https://arxiv.org/abs/1706.03762"},
    {"M. Shoeybi et al., Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism, 2019, "
     "section 3",
     "https://arxiv.org/abs/1909.08053"},
    {"DeepSeek-AI, DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model, 2024, sections "
     "2.1 and 2.2",
     "https://arxiv.org/abs/2405.04434"},
    {"D. Lepikhin et al., GShard: Scaling Giant Models with Conditional Computation and Automatic Sharding, ICLR 2021, "
     "sections 2.2 and 3",
     "https://arxiv.org/abs/2006.16668"},
    {"T. Dao et al., FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness, NeurIPS 2022, "
     "section 3 (the boundary to implementations that do not materialise the scores)",
     "https://arxiv.org/abs/2205.14135"},
};

static const char *const qkv_rows[] = {"attention.qkv", NULL};
static const char *const core_rows[] = {"attention.core", NULL};
static const char *const output_rows[] = {"attention.output", NULL};
static const char *const mlp_rows[] = {"mlp.gate", "mlp.up", "mlp.down", NULL};

static enum bp_phase phase_of(const struct bp_gate *gate)
{
    return gate->request->workload.phase == BP_PREFILL ? BP_PHASE_PREFILL : BP_PHASE_DECODE;
}

static void expect(struct bp_gate *gate, struct bp_calc *calc, const char *const *rows, bp_u128 expected)
{
    bp_gate_equal(gate, "/tasks", calc, expected, bp_law_operations(gate, calc, rows, phase_of(gate)));
}

static void compare_qkv(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    expect(gate, &calc, qkv_rows, bp_div(&calc, BP_PROD(&calc, 6, s->b, s->q, s->H, s->H), s->t));
}

static bp_u128 qkv_operations(const struct bp_symbols *s, struct bp_calc *calc)
{
    bp_u128 heads = bp_add(calc, s->h_l, bp_mul(calc, 2, s->k_l));
    return BP_PROD(calc, 2, s->b, s->q, s->H, s->d, heads);
}

static void compare_qkv_grouped(struct bp_gate *gate)
{
    struct bp_calc calc = {0};
    expect(gate, &calc, qkv_rows, qkv_operations(gate->symbols, &calc));
}

static void compare_core(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bp_u128 bqc = BP_PROD(&calc, s->b, s->q, s->c);
    expect(gate, &calc, core_rows,
           bp_add(&calc, bp_div(&calc, BP_PROD(&calc, 4, bqc, s->H), s->t),
                  BP_PROD(&calc, 5, bqc, bp_div(&calc, s->h, s->t))));
}

static bp_u128 core_operations(const struct bp_symbols *s, struct bp_calc *calc)
{
    bp_u128 scores = BP_PROD(calc, s->b, s->h_l, s->q, s->c);
    return bp_mul(calc, scores, bp_add(calc, bp_mul(calc, 4, s->d), 5));
}

static void compare_core_heads(struct bp_gate *gate)
{
    struct bp_calc calc = {0};
    expect(gate, &calc, core_rows, core_operations(gate->symbols, &calc));
}

static void compare_output(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    expect(gate, &calc, output_rows, bp_div(&calc, BP_PROD(&calc, 2, s->b, s->q, s->H, s->h, s->d), s->t));
}

static bp_u128 mlp_operations(const struct bp_symbols *s, struct bp_calc *calc)
{
    return bp_div(calc, BP_PROD(calc, s->gated ? 6 : 4, s->b, s->q, s->H, s->F), s->t);
}

static void compare_mlp(struct bp_gate *gate)
{
    struct bp_calc calc = {0};
    expect(gate, &calc, mlp_rows, mlp_operations(gate->symbols, &calc));
}

/* The whole block in one closed form: what the exact-work evidence of this pass is. */
static void compare_block(struct bp_gate *gate)
{
    static const unsigned activation[] = {
        [BP_ACTIVATION_GELU] = 8, [BP_ACTIVATION_RELU] = 1, [BP_ACTIVATION_SWIGLU] = 9, [BP_ACTIVATION_GEGLU] = 9};
    const struct bp_symbols *s = gate->symbols;
    const struct bp_model *model = &gate->request->model;
    struct bp_calc calc = {0};
    bp_u128 Y = BP_PROD(&calc, s->b, s->q, s->H), per_norm = model->norm == BP_NORM_LAYERNORM ? 5 : 4;
    bp_u128 rotated = BP_PROD(&calc, s->b, s->q, s->d, bp_add(&calc, s->h_l, s->k_l));
    bp_u128 per_head = bp_add(&calc, s->kind->qk_norm ? per_norm : 0, model->position == BP_POSITION_ROPE ? 6 : 0);
    bp_u128 products = BP_SUM(&calc, qkv_operations(s, &calc), core_operations(s, &calc),
                              BP_PROD(&calc, 2, Y, s->d, s->h_l), mlp_operations(s, &calc));
    bp_u128 f = bp_div(&calc, BP_PROD(&calc, s->b, s->q, s->F), s->t);
    bp_u128 rest = BP_SUM(&calc, BP_PROD(&calc, 2, per_norm, Y), bp_mul(&calc, per_head, rotated),
                          bp_mul(&calc, activation[s->kind->activation], f), bp_mul(&calc, 2, Y));
    bp_u128 reductions = bp_mul(&calc, 2, bp_div(&calc, bp_mul(&calc, Y, s->t - 1), s->t));
    expect(gate, &calc, NULL, BP_SUM(&calc, products, rest, reductions));
}

static bp_u128 cache_bytes(const struct bp_gate *gate)
{
    return bp_dtype_bytes(gate->request->workload.kv_cache_dtype);
}

static void compare_kv_cache(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bp_law_memory(gate, BP_MEMORY_KV_CACHE, &calc,
                  BP_PROD(&calc, 2, s->b, s->c, bp_div(&calc, s->H, s->t), cache_bytes(gate)));
}

static void compare_kv_cache_grouped(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bp_law_memory(gate, BP_MEMORY_KV_CACHE, &calc, BP_PROD(&calc, 2, s->b, s->c, s->d, s->k_l, cache_bytes(gate)));
}

static bp_u128 workspace(const struct bp_symbols *s, struct bp_calc *calc, bp_u128 qkv_width)
{
    bp_u128 bq = bp_mul(calc, s->b, s->q), largest = bp_mul(calc, bq, qkv_width);
    bp_u128 scores = BP_PROD(calc, s->b, s->h_l, s->q, s->c);
    bp_u128 f = bp_div(calc, BP_PROD(calc, s->gated ? 2 : 1, bq, s->F), s->t);
    largest = scores > largest ? scores : largest;
    largest = f > largest ? f : largest;
    return bp_mul(calc, s->e, bp_add(calc, bp_mul(calc, bq, s->H), largest));
}

static bool has_dense_workspace(const struct bp_gate *gate)
{
    return bp_law_heads(gate) && bp_law_dense_mlp(gate);
}

static bool has_plain_workspace(const struct bp_gate *gate)
{
    return has_dense_workspace(gate) && gate->symbols->heads_are_plain && !gate->symbols->gated;
}

static void compare_workspace(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bp_law_memory(gate, BP_MEMORY_WORKSPACE, &calc, workspace(s, &calc, bp_mul(&calc, 3, bp_div(&calc, s->H, s->t))));
}

static void compare_workspace_grouped(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bp_u128 r = bp_mul(&calc, s->d, bp_add(&calc, s->h_l, bp_mul(&calc, 2, s->k_l)));
    bp_law_memory(gate, BP_MEMORY_WORKSPACE, &calc, workspace(s, &calc, r));
}

static bool has_plain_scores(const struct bp_gate *gate)
{
    const struct bp_kind *kind = gate->symbols->kind;
    return bp_law_heads(gate) && !kind->soft_cap && !kind->sinks && gate->request->model.position != BP_POSITION_ALIBI;
}

static bool has_plain_heads_and_scores(const struct bp_gate *gate)
{
    return has_plain_scores(gate) && gate->symbols->heads_are_plain;
}

/* The closed form of the whole block rotates whole heads. */
static bool is_plain(const struct bp_gate *gate)
{
    const struct bp_kind *kind = gate->symbols->kind;
    bool rope = gate->request->model.position == BP_POSITION_ROPE;
    return bp_law_plain_block(gate) && kind->rotary_dim == (rope ? kind->head_dim : 0);
}

static const struct bp_law laws[] = {
    {"law.qkv", "W_{\\mathrm{QKV}} = \\frac{6bqH^2}{t}", "k = h, d = H/h",
     "Vaswani et al., section 3.2; Shoeybi et al., section 3", bp_law_plain_heads, compare_qkv},
    {"law.qkv_grouped", "W_{\\mathrm{QKV}} = 2bqHd(h_l + 2k_l)", "attention by heads",
     "docs/formulas.md, attention.qkv", bp_law_heads, compare_qkv_grouped},
    {"law.attention", "W_{\\mathrm{attention}} = \\frac{4bqcH}{t} + 5b\\frac{h}{t}qc", "k = h, d = H/h",
     "Vaswani et al., section 3.2; Shoeybi et al., section 3", has_plain_heads_and_scores, compare_core},
    {"law.attention_heads", "W_{\\mathrm{attention}} = b h_l q c\\,(4d + 5)",
     "attention by heads, nothing done to the scores", "docs/formulas.md, attention.core", has_plain_scores,
     compare_core_heads},
    {"law.attention_output", "W_{\\mathrm{out}} = \\frac{2bqHhd}{t}", "attention by heads",
     "Vaswani et al., section 3.2; Shoeybi et al., section 3", bp_law_heads, compare_output},
    {"law.mlp", "W_{\\mathrm{MLP}} = \\frac{4bqHF}{t}", "two-matrix MLP",
     "Vaswani et al., section 3.2; Shoeybi et al., section 3", bp_law_two_matrix_mlp, compare_mlp},
    {"law.mlp_gated", "W_{\\mathrm{MLP}} = \\frac{6bqHF}{t}", "gated MLP", "docs/formulas.md, laws", bp_law_gated_mlp,
     compare_mlp},
    {"law.exact_work",
     "\\sum_i F_i = W_{\\mathrm{QKV}} + W_{\\mathrm{attention}} + W_{\\mathrm{out}} + W_{\\mathrm{MLP}} + "
     "(2\\nu + 2)Y + n(\\nu[\\mathrm{qk\\_norm}] + 6[\\mathrm{rope}]) + \\alpha f + 2Y\\frac{t-1}{t}",
     "a plain block", "docs/formulas.md, inference block", is_plain, compare_block},
    {"law.kv_cache", "C_{\\mathrm{KV}} = 2bc\\frac{H}{t}e_{\\mathrm{kv}}", "k = h, d = H/h",
     "Vaswani et al., section 3.2; Shoeybi et al., section 3", bp_law_plain_heads, compare_kv_cache},
    {"law.kv_cache_grouped", "C_{\\mathrm{KV}} = 2bcdk_l\\,e_{\\mathrm{kv}}", "attention by heads",
     "docs/formulas.md, inference block", bp_law_heads, compare_kv_cache_grouped},
    {"law.workspace",
     "C_{\\mathrm{workspace}} = D + e\\max\\left(3bq\\frac{H}{t}, b\\frac{h}{t}qc, bq\\frac{F}{t}\\right)",
     "k = h, d = H/h, two-matrix MLP", "docs/formulas.md, inference block", has_plain_workspace, compare_workspace},
    {"law.workspace_grouped", "C_{\\mathrm{workspace}} = D + e\\max(bqr, s, f \\text{ or } 2f)",
     "attention by heads, a dense MLP", "docs/formulas.md, inference block", has_dense_workspace,
     compare_workspace_grouped},
};
static const struct bp_law_group own_laws = BP_BLOCK_GROUP(laws);
static const struct bp_law_group *const law_groups[] = {&own_laws, &bp_collective_laws, &bp_parameter_laws,
                                                        &bp_inference_kind_laws};
static const struct bp_check_group *const checks[] = {&bp_distributed_checks, &bp_program_checks, &bp_distribute_checks,
                                                      &bp_distribute_block_checks, &bp_replay_checks};

static bool applies(const struct bp_request *request)
{
    return request->workload.mode == BP_MODE_INFERENCE;
}

static int run(const struct bp_pass_input *input, struct bp_arena *arena, struct bp_ir *ret, struct bp_err *err)
{
    return bp_block_distribute(input, RULE, bp_inference_block, arena, ret, err);
}

const struct bp_pass bp_distribute_transformer_inference = {
    .name = "distribute-transformer-inference",
    .revision = 4,
    .source = BP_STAGE_MODEL,
    .target = BP_STAGE_DISTRIBUTED,
    .rule = RULE,
    .title = "Inference distribution",
    .summary = "Expands one prefill or decode phase of a block into the compute and collective tasks of one "
               "tensor-parallel rank.",
    .formula_source = "Transformer, Megatron-LM, FlashAttention implementation boundary",
    .bindings = BP_BINDING_WORKLOAD | BP_BINDING_STRATEGY,
    .applies = applies,
    .run = run,
    .runs_twice = true,
    BP_PASS_TABLES,
};
