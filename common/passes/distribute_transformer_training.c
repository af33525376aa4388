/* Model -> distributed, training: one block on one rank of a tensor-parallel group, as forward, recompute,
 * activation-gradient, weight-gradient, optimizer and collective tasks. The theory is the text below; the rows are in
 * training_block.c; what both distribute passes share is in block.c.
 */
#include "common/passes/block.h"
#include "common/passes/laws.h"

#define RULE "distribute.training"

static const char theory[] =
    "One Transformer block of each kind is expanded into the tasks of one rank of a tensor-parallel group. Pipeline "
    "and data "
    "parallelism stay in the typed strategy: no cross-stage graph is made up.\n"
    "\n"
    "Symbols: \\(B\\) micro-batch, \\(S\\) sequence, \\(H\\) hidden, \\(F\\) feed-forward, \\(h\\) query heads, "
    "\\(k\\) "
    "key/value heads, \\(d\\) head size, \\(t\\) tensor-parallel degree, \\(e\\) and \\(g\\) bytes of an element and "
    "of a "
    "gradient, \\(X = BSH\\), \\(X_s = X/t\\) under sequence parallelism and \\(X\\) otherwise, \\(h_l = h/t\\), "
    "\\(k_l = \\max(k/t, 1)\\), \\(n = B h_l S^2\\).\n"
    "\n"
    "### Work\n"
    "\n"
    "A product \\([m,n] \\times [n,k]\\) is\n"
    "\n"
    "\\[ W_{\\mathrm{gemm}} = 2mnk \\]\n"
    "\n"
    "operations forward, as many for the gradient of its input and as many for that of its weights. So\n"
    "\n"
    "\\[ W_{\\mathrm{QKV}} = 2BSHd(h_l + 2k_l) = \\frac{6BSH^2}{t} \\ (k = h,\\ d = H/h), \\qquad "
    "W_{\\mathrm{attn\\,matmul}} = 4BS^2 h_l d = \\frac{4BS^2H}{t}, \\]\n"
    "\n"
    "\\[ W_{\\mathrm{MLP}} = \\frac{4BSHF}{t}, \\qquad W_{\\mathrm{gated\\,MLP}} = \\frac{6BSHF}{t}. \\]\n"
    "\n"
    "Full attention is counted, not its causal half; the convention is stamped on the snapshot. Traffic is compulsory "
    "traffic: each distinct operand is read once, each result written once.\n"
    "\n"
    "| row | forward: operations; read; write | activation gradient | weight gradient |\n"
    "|---|---|---|---|\n"
    "| fork to \\(u\\) users | none | \\((u-1)n; un; n\\) | none |\n"
    "| LayerNorm, \\(P = 2w\\) | \\(9n; n+P; n\\) | \\(14n; 2n+w; n\\) | \\(7n; 2n;\\) \\(Pg\\) bytes |\n"
    "| RMSNorm, \\(P = w\\) | \\(4n; n+P; n\\) | \\(8n; 2n+w; n\\) | \\(4n; 2n;\\) \\(Pg\\) bytes |\n"
    "| linear, \\(P = nk\\) and its bias | \\(2mnk; mn+P; mk\\) | \\(2mnk; nk+mk; mn\\) | \\(2mnk; mn+mk;\\) \\(Pg\\) "
    "bytes |\n"
    "| product of activations \\(A\\) into \\(O\\) | \\(W; A; O\\) | \\(2W; A+O; A\\) | none |\n"
    "| softmax | \\(5n; n; n\\) | \\(8n; 2n; n\\) | none |\n"
    "| dropout, a mask byte an element | \\(n; ne; ne+n\\) bytes | \\(n; ne+n; ne\\) bytes | none |\n"
    "| GELU | \\(8n; n; n\\) | \\(13n; 2n; n\\) | none |\n"
    "| ReLU | \\(n; n; n\\) | \\(n; 2n; n\\) | none |\n"
    "| gated activation | \\(9n; 2n; n\\) | \\(15n; 3n; 2n\\) | none |\n"
    "| residual | \\(n; 2n; n\\) | none | none |\n"
    "\n"
    "### Collectives\n"
    "\n"
    "At a semantic boundary of the tensor group\n"
    "\n"
    "\\[ M_{\\mathrm{TP}} = BSH\\,e, \\qquad W_{\\mathrm{reduce}} = BSH\\,\\frac{t-1}{t}. \\]\n"
    "\n"
    "Without sequence parallelism the plain boundary (before the column-parallel linears) all-reduces backward and its "
    "conjugate (after the row-parallel one) all-reduces forward. With it the plain boundary all-gathers forward and "
    "reduce-scatters backward, its conjugate the reverse.\n"
    "\n"
    "### Activations\n"
    "\n"
    "With \\(A_\\ell\\) the input a row would keep and \\(O_\\ell\\) its output,\n"
    "\n"
    "\\[ C_{\\mathrm{act}} = \\sum_\\ell \\left(A_\\ell - O_\\ell[\\neg\\mathrm{storeOutput}_\\ell] - "
    "A_\\ell[\\neg\\mathrm{storeActivation}_\\ell]\\right). \\]\n"
    "\n"
    "Selective recomputation drops the scores, the softmax and its dropout and does them again; full recomputation "
    "keeps "
    "the block's input alone, \\(X_s e\\). For sixteen-bit elements, \\(k = h\\), \\(F = 4H\\), a plain MLP and both "
    "dropouts this is, in \\(sbh = X\\) and \\(a = h\\),\n"
    "\n"
    "\\[ sbh\\left(10 + \\frac{24}{t} + 5\\frac{aS}{Ht}\\right), \\qquad "
    "sbh\\left(\\frac{34}{t} + 5\\frac{aS}{Ht}\\right) \\text{ with sequence parallelism.} \\]\n"
    "\n"
    "### Optimizer\n"
    "\n"
    "Adam over \\(P\\) parameters of a row, ZeRO stage \\(z\\) over \\(dp\\) ranks, \\(\\mathrm{own} = \\lceil P/dp "
    "\\rceil\\) from stage 1 on:\n"
    "\n"
    "\\[ \\mathrm{weights} = \\lceil P/dp \\rceil_{z \\ge 3}\\,e, \\quad \\mathrm{gradients} = \\lceil P/dp "
    "\\rceil_{z \\ge 2}\\,g, \\quad \\mathrm{state} = \\mathrm{own}\\,(8 + 4[e < 4]), \\]\n"
    "\n"
    "which for \\(e = 2\\), \\(g = 4\\) is 18 bytes a parameter at stage 0 and \\(6 + 12/dp\\) at stage 1.\n"
    "\n"
    "### Other kinds of block\n"
    "\n"
    "A model is a list of kinds of block; each kind that is planned is a program of its own in the one snapshot, with "
    "the symbols of its kind. The rows are those above, and these; all of them, with what each keeps, are in "
    "docs/formulas.md.\n"
    "\n"
    "Experts: \\(E\\) of them, of which a token takes \\(K\\), each \\(F_e\\) wide, over \\(ep\\) ranks and, within an "
    "expert, \\(etp\\). Under balanced routing, which is stamped on the snapshot, a rank has \\(N = BSK\\,etp/t\\) "
    "pairs "
    "of a token and an expert. Each pair meets the weights of one expert, so that the work follows the pairs and the "
    "parameters the experts:\n"
    "\n"
    "\\[ W_{\\mathrm{experts}} = \\frac{6BSK\\,H F_e}{t} \\text{ (gated)}, \\qquad \\sum P = "
    "\\frac{E}{ep}\\,3H\\frac{F_e}{etp}, \\qquad M_{\\mathrm{dispatch}} = M_{\\mathrm{combine}} = \\frac{BSK\\,H}{t}e. "
    "\\]\n"
    "\n"
    "Latent attention in its expanded form, \\(l_q\\) and \\(l_{kv}\\) the ranks of the latents, \\(n\\), \\(r\\), "
    "\\(v\\) "
    "the widths of a head that do not rotate, that do, and of its value:\n"
    "\n"
    "\\[ W_{\\mathrm{latent}} = 2T_sH(l_q + l_{kv} + r) + 2T h_l\\bigl(l_q(n+r) + l_{kv}(n+v)\\bigr), \\qquad "
    "W_{\\mathrm{scores}} = 2Bh_lSS_c(n + r + v). \\]\n"
    "\n"
    "Attention and MLP side by side sum their outputs before the one collective that both leave through. Norms may "
    "stand "
    "before each branch, after it, around it, or after the sum; a soft cap is \\(3\\) operations a score and a "
    "position "
    "bias one. A window is a mask, and no mask is counted. Under context parallelism \\(S = S_c/cp\\) is the rank's "
    "share "
    "of the sequence, and keys and values of all of it are gathered, \\(M = BS_c\\,2dk_l\\,e\\), or exchanged by "
    "heads.\n"
    "\n"
    "No latency, no efficiency and no physical collective algorithm is part of this derivation.\n";

static const struct bp_reference references[] = {
    {"M. Shoeybi et al., Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism, 2019, "
     "section 3",
     "https://arxiv.org/abs/1909.08053"},
    {"D. Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, SC 2021, "
     "section 3 and appendix",
     "https://arxiv.org/abs/2104.04473"},
    {"V. Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, MLSys 2023, sections 4 and "
     "5, table 2",
     "https://arxiv.org/abs/2205.05198"},
    {"S. Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, SC 2020, sections "
     "3 and 5",
     "https://arxiv.org/abs/1910.02054"},
    {"D. Lepikhin et al., GShard: Scaling Giant Models with Conditional Computation and Automatic Sharding, ICLR 2021, "
     "sections 2.2 and 3",
     "https://arxiv.org/abs/2006.16668"},
    {"DeepSeek-AI, DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model, 2024, sections "
     "2.1 and 2.2",
     "https://arxiv.org/abs/2405.04434"},
    {"H. Liu et al., Ring Attention with Blockwise Transformers for Near-Infinite Context, ICLR 2024, section 3",
     "https://arxiv.org/abs/2310.01889"},
    {"S. A. Jacobs et al., DeepSpeed Ulysses: System Optimizations for Enabling Training of Extreme Long Sequence "
     "Transformer Models, 2023, section 3",
     "https://arxiv.org/abs/2309.14509"},
    {"M. Isaev et al., Calculon: a Methodology and Tool for High-Level Codesign of Systems and Large Language Models, "
     "SC 2023",
     "https://doi.org/10.1145/3581784.3607102"},
};

static const char *const qkv_rows[] = {"attention.query", "attention.key", "attention.value", NULL};
static const char *const matmul_rows[] = {"attention.scores", "attention.context", NULL};
static const char *const output_rows[] = {"attention.output", NULL};
static const char *const mlp_rows[] = {"mlp.gate", "mlp.up", "mlp.down", NULL};

static void expect_forward(struct bp_gate *gate, struct bp_calc *calc, const char *const *rows, bp_u128 expected)
{
    bp_gate_equal(gate, "/tasks", calc, expected, bp_law_operations(gate, calc, rows, BP_PHASE_FORWARD));
}

static void compare_qkv(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    expect_forward(gate, &calc, qkv_rows, bp_div(&calc, BP_PROD(&calc, 6, s->B, s->S, s->H, s->H), s->t));
}

static void compare_qkv_grouped(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bp_u128 heads = bp_add(&calc, s->h_l, bp_mul(&calc, 2, s->k_l));
    expect_forward(gate, &calc, qkv_rows, BP_PROD(&calc, 2, s->B, s->S, s->H, s->d, heads));
}

static void compare_attention_matmul(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    expect_forward(gate, &calc, matmul_rows, bp_div(&calc, BP_PROD(&calc, 4, s->B, s->S, s->S_c, s->H), s->t));
}

static void compare_attention_matmul_heads(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    expect_forward(gate, &calc, matmul_rows, BP_PROD(&calc, 4, s->B, s->S, s->S_c, s->h_l, s->d));
}

static void compare_attention_output(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    expect_forward(gate, &calc, output_rows, BP_PROD(&calc, 2, s->B, s->S, s->h_l, s->d, s->H));
}

static void compare_mlp(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    expect_forward(gate, &calc, mlp_rows,
                   bp_div(&calc, BP_PROD(&calc, s->gated ? 6 : 4, s->B, s->S, s->H, s->F), s->t));
}

/* The gradient of a product is two products of its size. */
static void compare_backward(struct bp_gate *gate)
{
    struct bp_calc calc = {0};
    bp_u128 forward = bp_law_engine_operations(gate, &calc, BP_ENGINE_MATRIX, BP_PHASE_FORWARD);
    bp_u128 backward =
        bp_add(&calc, bp_law_engine_operations(gate, &calc, BP_ENGINE_MATRIX, BP_PHASE_ACTIVATION_GRADIENT),
               bp_law_engine_operations(gate, &calc, BP_ENGINE_MATRIX, BP_PHASE_WEIGHT_GRADIENT));
    bp_gate_equal(gate, "/tasks", &calc, bp_mul(&calc, 2, forward), backward);
}

/* Full: everything again. Selective: scores, softmax, dropout. Besides: the MLP activation where asked. */
static void compare_recompute(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    const struct bp_kind *kind = gate->symbols->kind;
    const struct bp_strategy *strategy = &gate->request->strategy;
    struct bp_calc calc = {0};
    bp_u128 again = bp_add(&calc, bp_law_operations(gate, &calc, NULL, BP_PHASE_RECOMPUTE),
                           bp_law_operations(gate, &calc, NULL, BP_PHASE_RECOMMUNICATION));
    bp_u128 expected = 0;
    if (strategy->recompute == BP_RECOMPUTE_FULL) {
        expected = bp_law_operations(gate, &calc, NULL, BP_PHASE_FORWARD);
    } else {
        static const unsigned activation[] = {
            [BP_ACTIVATION_GELU] = 8, [BP_ACTIVATION_RELU] = 1, [BP_ACTIVATION_SWIGLU] = 9, [BP_ACTIVATION_GEGLU] = 9};
        bp_u128 n = BP_PROD(&calc, s->B, s->h_l, s->S, s->S);
        bp_u128 per_score = BP_SUM(&calc, bp_mul(&calc, 2, s->d), 5, kind->attention_dropout);
        if (strategy->recompute == BP_RECOMPUTE_SELECTIVE)
            expected = bp_mul(&calc, n, per_score);
        if (strategy->recompute_activation)
            expected = bp_add(&calc, expected,
                              bp_div(&calc, BP_PROD(&calc, activation[kind->activation], s->B, s->S, s->F), s->t));
    }
    bp_gate_equal(gate, "/tasks", &calc, expected, again);
}

/* What each row kind does on the vector engine, per element: forward, activation gradient, weight gradient. */
struct vector_work {
    unsigned forward, activation_gradient, weight_gradient;
};

static void compare_vector_work(struct bp_gate *gate)
{
    static const struct vector_work norms[] = {[BP_NORM_LAYERNORM] = {9, 14, 7}, [BP_NORM_RMSNORM] = {4, 8, 4}},
                                    activations[] = {[BP_ACTIVATION_GELU] = {8, 13, 0},
                                                     [BP_ACTIVATION_RELU] = {1, 1, 0},
                                                     [BP_ACTIVATION_SWIGLU] = {9, 15, 0},
                                                     [BP_ACTIVATION_GEGLU] = {9, 15, 0}},
                                    softmax = {5, 8, 0}, dropout = {1, 1, 0}, residual = {1, 0, 0}, fork = {0, 1, 0};
    const struct bp_symbols *s = gate->symbols;
    const struct bp_model *model = &gate->request->model;
    const struct bp_kind *kind = s->kind;
    struct bp_calc calc = {0};
    bp_u128 n = BP_PROD(&calc, s->B, s->h_l, s->S, s->S), Xs2 = bp_mul(&calc, 2, s->Xs);
    bp_u128 heads = BP_PROD(&calc, s->B, s->S, s->d, bp_add(&calc, s->h_l, s->k_l));
    const struct {
        struct vector_work work;
        bp_u128 elements;
    } kinds[] = {
        {norms[model->norm], bp_add(&calc, Xs2, kind->qk_norm ? heads : 0)},
        {activations[kind->activation], bp_div(&calc, BP_PROD(&calc, s->B, s->S, s->F), s->t)},
        {softmax, n},
        {dropout, bp_add(&calc, kind->attention_dropout ? n : 0, kind->hidden_dropout ? Xs2 : 0)},
        {residual, Xs2},
        {fork, BP_SUM(&calc, Xs2, bp_mul(&calc, 2, s->X), s->gated ? s->X : 0)},
    };
    bp_u128 forward = 0, activation_gradient = 0, weight_gradient = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        forward = bp_add(&calc, forward, bp_mul(&calc, kinds[i].work.forward, kinds[i].elements));
        activation_gradient =
            bp_add(&calc, activation_gradient, bp_mul(&calc, kinds[i].work.activation_gradient, kinds[i].elements));
        weight_gradient =
            bp_add(&calc, weight_gradient, bp_mul(&calc, kinds[i].work.weight_gradient, kinds[i].elements));
    }
    const struct {
        enum bp_phase phase;
        bp_u128 expected;
    } phases[] = {{BP_PHASE_FORWARD, forward},
                  {BP_PHASE_ACTIVATION_GRADIENT, activation_gradient},
                  {BP_PHASE_WEIGHT_GRADIENT, weight_gradient}};
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
        bp_gate_equal(gate, "/tasks", &calc, phases[i].expected,
                      bp_law_engine_operations(gate, &calc, BP_ENGINE_VECTOR, phases[i].phase));
}

static bool keeps_rows(const struct bp_gate *gate)
{
    return gate->request->strategy.recompute != BP_RECOMPUTE_FULL;
}

static bool keeps_plain_rows(const struct bp_gate *gate)
{
    return bp_law_plain_block(gate) && keeps_rows(gate);
}

/* For any plain block: what Korthikanti et al. sum up in section 4.1, in the sizes of this model. */
static void compare_stored(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    const struct bp_kind *kind = gate->symbols->kind;
    const struct bp_strategy *strategy = &gate->request->strategy;
    struct bp_calc calc = {0};
    bp_u128 BS = bp_mul(&calc, s->B, s->S), n = BP_PROD(&calc, s->B, s->h_l, s->S, s->S);
    bp_u128 gathered = s->gathers_again ? s->Xs : s->X, F_l = bp_div(&calc, s->F, s->t);
    bp_u128 qk = bp_add(&calc, s->h_l, s->k_l);
    bp_u128 heads = BP_SUM(&calc, bp_mul(&calc, kind->qk_norm ? 2 : 1, qk), s->k_l, s->h_l);
    bp_u128 mlp = s->gated ? 2 : 1;
    if (!strategy->recompute_activation)
        mlp++; /* the down projection's input */
    bool core = strategy->recompute == BP_RECOMPUTE_NONE, dropout = kind->attention_dropout;
    bp_u128 kept = BP_SUM(&calc, bp_mul(&calc, 2, s->Xs), bp_mul(&calc, 2, gathered), BP_PROD(&calc, BS, s->d, heads),
                          BP_PROD(&calc, BS, mlp, F_l), core ? bp_mul(&calc, dropout ? 2 : 1, n) : 0);
    bp_u128 masks = bp_add(&calc, kind->hidden_dropout ? bp_mul(&calc, 2, s->Xs) : 0, core && dropout ? n : 0);
    bp_law_memory(gate, BP_MEMORY_STORED_ACTIVATIONS, &calc, bp_add(&calc, bp_mul(&calc, kept, s->e), masks));
}

static bool is_korthikanti(const struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    const struct bp_kind *kind = gate->symbols->kind;
    return keeps_plain_rows(gate) && s->e == 2 && s->heads_are_plain && s->F == 4 * s->H && !s->gated &&
           !kind->qk_norm && !gate->request->strategy.recompute_activation &&
           kind->hidden_dropout == kind->attention_dropout;
}

static void compare_korthikanti(struct bp_gate *gate)
{
    enum { TENSOR, SEQUENCE, SEQUENCE_GATHERED };
    static const struct {
        unsigned whole, over_t, core;
    } coefficients[3][2] = {
        [TENSOR] = {{8, 24, 2}, {10, 24, 5}},
        [SEQUENCE] = {{0, 32, 2}, {0, 34, 5}},
        [SEQUENCE_GATHERED] = {{4, 28, 2}, {4, 30, 5}},
    };
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    int form = !s->sequence_parallel ? TENSOR : s->gathers_again ? SEQUENCE : SEQUENCE_GATHERED;
    bool dropout = s->kind->hidden_dropout, core = gate->request->strategy.recompute == BP_RECOMPUTE_NONE;
    bp_u128 scores = bp_div(&calc, BP_PROD(&calc, s->X, s->h, s->S), bp_mul(&calc, s->H, s->t));
    bp_u128 stored = BP_SUM(&calc, bp_mul(&calc, coefficients[form][dropout].whole, s->X),
                            bp_div(&calc, bp_mul(&calc, coefficients[form][dropout].over_t, s->X), s->t),
                            core ? bp_mul(&calc, coefficients[form][dropout].core, scores) : 0);
    bp_law_memory(gate, BP_MEMORY_STORED_ACTIVATIONS, &calc, stored);
}

static bool recomputes_all(const struct bp_gate *gate)
{
    return !keeps_rows(gate);
}

static void compare_checkpoint(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bp_law_memory(gate, BP_MEMORY_ACTIVATION_CHECKPOINT, &calc,
                  BP_PROD(&calc, s->B, bp_div(&calc, s->S, s->sequence_parallel ? s->t : 1), s->H, s->e));
    bp_law_memory(gate, BP_MEMORY_STORED_ACTIVATIONS, &calc, 0);
}

static bool is_mixed_precision(const struct bp_gate *gate, uint64_t zero_stage)
{
    return gate->symbols->e == 2 && gate->symbols->g == 4 && gate->request->strategy.zero_stage == zero_stage;
}

static bool is_replicated(const struct bp_gate *gate)
{
    return is_mixed_precision(gate, 0);
}

static bool is_evenly_sharded(const struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    bool even = is_mixed_precision(gate, 1) && bp_law_dense_mlp(gate);
    for (uint32_t i = gate->at.layers.first; even && i < gate->at.layers.end; i++)
        even = ir->layers[i].parameters % gate->symbols->dp == 0;
    return even;
}

static void compare_model_state(struct bp_gate *gate, bp_u128 dp)
{
    const struct bp_bytes *memory = gate->target.as.distributed->blocks[gate->block].memory.at;
    struct bp_calc calc = {0};
    bp_u128 state =
        BP_SUM(&calc, memory[BP_MEMORY_WEIGHTS].n, memory[BP_MEMORY_GRADIENTS].n, memory[BP_MEMORY_OPTIMIZER].n);
    bp_u128 per_parameter = bp_add(&calc, bp_mul(&calc, 6, dp), 12);
    bp_gate_equal(gate, bp_gate_path(gate, "/blocks/%u/memory", gate->block), &calc,
                  bp_mul(&calc, per_parameter, bp_law_parameters(gate, &calc)), bp_mul(&calc, dp, state));
}

static void compare_replicated_state(struct bp_gate *gate)
{
    compare_model_state(gate, 1);
}

static void compare_sharded_state(struct bp_gate *gate)
{
    compare_model_state(gate, gate->symbols->dp);
}

static const struct bp_law laws[] = {
    {"law.qkv", "W_{\\mathrm{QKV}} = \\frac{6BSH^2}{t}", "k = h, d = H/h", "Shoeybi et al., section 3",
     bp_law_plain_heads, compare_qkv},
    {"law.qkv_grouped", "W_{\\mathrm{QKV}} = 2BSHd(h_l + 2k_l)", "attention by heads", "docs/formulas.md, laws",
     bp_law_heads, compare_qkv_grouped},
    {"law.attention_matmul", "W_{\\mathrm{attn\\,matmul}} = \\frac{4BS^2H}{t}", "k = h, d = H/h",
     "Shoeybi et al., section 3", bp_law_plain_heads, compare_attention_matmul},
    {"law.attention_matmul_heads", "W_{\\mathrm{attn\\,matmul}} = 4BS^2h_l d", "attention by heads",
     "docs/formulas.md, rows 8, 11", bp_law_heads, compare_attention_matmul_heads},
    {"law.attention_output", "W_{\\mathrm{out}} = 2BSh_l d H", "attention by heads", "docs/formulas.md, row 12",
     bp_law_heads, compare_attention_output},
    {"law.mlp", "W_{\\mathrm{MLP}} = \\frac{4BSHF}{t}", "two-matrix MLP", "Shoeybi et al., section 3",
     bp_law_two_matrix_mlp, compare_mlp},
    {"law.mlp_gated", "W_{\\mathrm{MLP}} = \\frac{6BSHF}{t}", "gated MLP", "docs/formulas.md, laws", bp_law_gated_mlp,
     compare_mlp},
    {"law.backward", "W_{\\mathrm{agrad}} + W_{\\mathrm{wgrad}} = 2W_{\\mathrm{fwd}} \\text{ on the matrix engine}",
     "every block", "Narayanan et al., appendix", bp_law_always, compare_backward},
    {"law.vector_work",
     "\\sum_{\\mathrm{vector}} F = \\sum_{\\mathrm{kind}} (f, b, w)_{\\mathrm{kind}} \\cdot n_{\\mathrm{kind}} \\text{ "
     "forward, for activation and for weight gradients}",
     "a plain block", "docs/formulas.md, row kinds", bp_law_plain_block, compare_vector_work},
    {"law.recompute",
     "W_{\\mathrm{again}} = W_{\\mathrm{fwd}} \\text{ full},\\ n(2d + 5 + [\\mathrm{dropout}]) \\text{ selective},\\ "
     "\\text{plus the MLP activation where asked}",
     "a plain block", "Korthikanti et al., section 5", bp_law_plain_block, compare_recompute},
    {"law.stored_activations",
     "C_{\\mathrm{act}} = e\\bigl(2X_s + 2\\hat X + BSd(\\kappa(h_l + k_l) + k_l + h_l) + BS\\mu F/t + \\delta "
     "n\\bigr) + "
     "\\mathrm{masks}",
     "a plain block, no full recomputation", "Korthikanti et al., section 4.1, in this model's sizes", keeps_plain_rows,
     compare_stored},
    {"law.korthikanti",
     "C_{\\mathrm{act}} = sbh\\left(10 + \\frac{24}{t} + 5\\frac{aS}{Ht}\\right) \\text{ and its sequence-parallel, "
     "selective and dropout-free forms}",
     "two-byte elements, k = h, d = H/h, F = 4H, two-matrix MLP, no query/key norms, no recompute_activation, both "
     "dropouts or neither, no full recomputation",
     "Korthikanti et al., table 2", is_korthikanti, compare_korthikanti},
    {"law.checkpoint", "C_{\\mathrm{ckpt}} = X_s e", "full recomputation", "Korthikanti et al., section 5",
     recomputes_all, compare_checkpoint},
    {"law.state_18_bytes", "\\mathrm{weights} + \\mathrm{gradients} + \\mathrm{state} = 18 \\sum P",
     "two-byte elements, fp32 gradients, ZeRO stage 0",
     "Megatron-LM, distributed optimizer documentation; Rajbhandari et al., section 3.1", is_replicated,
     compare_replicated_state},
    {"law.state_sharded", "\\mathrm{weights} + \\mathrm{gradients} + \\mathrm{state} = (6 + 12/dp) \\sum P",
     "two-byte elements, fp32 gradients, ZeRO stage 1, dp divides each row, a dense MLP",
     "Rajbhandari et al., section 5", is_evenly_sharded, compare_sharded_state},
};
static const struct bp_law_group own_laws = BP_BLOCK_GROUP(laws);
static const struct bp_law_group *const law_groups[] = {&own_laws, &bp_collective_laws, &bp_parameter_laws,
                                                        &bp_training_kind_laws};
static const struct bp_check_group *const checks[] = {&bp_distributed_checks, &bp_program_checks, &bp_distribute_checks,
                                                      &bp_distribute_block_checks, &bp_replay_checks};

static bool applies(const struct bp_request *request)
{
    return request->workload.mode == BP_MODE_TRAINING;
}

static int run(const struct bp_pass_input *input, struct bp_arena *arena, struct bp_ir *ret, struct bp_err *err)
{
    return bp_block_distribute(input, RULE, bp_training_block, arena, ret, err);
}

const struct bp_pass bp_distribute_transformer_training = {
    .name = "distribute-transformer-training",
    .revision = 5,
    .source = BP_STAGE_MODEL,
    .target = BP_STAGE_DISTRIBUTED,
    .rule = RULE,
    .title = "Training distribution",
    .summary =
        "Expands one training block of each kind into the compute and collective tasks of one tensor-parallel rank.",
    .formula_source = "Megatron-LM, selective recomputation",
    .bindings = BP_BINDING_WORKLOAD | BP_BINDING_STRATEGY,
    .applies = applies,
    .run = run,
    .runs_twice = true,
    BP_PASS_TABLES,
};
