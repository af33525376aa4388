/* Distributed -> portable, training: the work that was derived, reified as a task graph with buffers. The theory is
 * the text below; what both plan passes share is in portable_block.c.
 */
#include "common/passes/laws.h"
#include "common/passes/portable_block.h"

#define RULE "plan.training"

static const char theory[] =
    "This pass preserves; it is no second estimator. For every distributed task \\(i\\) the exact work vector\n"
    "\n"
    "\\[ \\mathbf{w}_i = (F_i, R_i, W_i, M_i) \\]\n"
    "\n"
    "is copied into the workload of one portable task (operations, bytes read, bytes written, message bytes), and what "
    "the task requires of a device is its projection, without loss:\n"
    "\n"
    "\\[ Q_{\\mathrm{compute}} = F_i, \\qquad Q_{\\mathrm{memory}} = R_i + W_i, \\qquad Q_{\\mathrm{network}} = M_i. "
    "\\]\n"
    "\n"
    "Each block of the plan has buffers of its own, block after block. Memory becomes buffers. Weights, gradients and "
    "optimizer state are sums over rows; stored activations are reduced "
    "from the rows' inputs \\(A_\\ell\\) and outputs \\(O_\\ell\\),\n"
    "\n"
    "\\[ C_{\\mathrm{act}} = \\sum_\\ell \\left(A_\\ell - O_\\ell[\\neg\\mathrm{storeOutput}_\\ell] - "
    "A_\\ell[\\neg\\mathrm{storeActivation}_\\ell]\\right), \\]\n"
    "\n"
    "and the working activations hold what is beyond them, \\(C_{\\mathrm{work}} - C_{\\mathrm{act}} \\ge 0\\). Under "
    "full "
    "recomputation \\(C_{\\mathrm{act}} = 0\\) and the checkpoint \\(X_s e\\) takes its place. A buffer of no bytes is "
    "left "
    "out; every alignment is 16 bytes.\n"
    "\n"
    "| buffer | storage | written by | read by |\n"
    "|---|---|---|---|\n"
    "| input | device_local | | the forward and recompute tasks that read the block's input: attention.norm and "
    "attention.residual of a block with a norm before each branch |\n"
    "| output | device_local | the last forward task | |\n"
    "| weights | persistent | optimizer tasks | every task of a row with parameters |\n"
    "| gradients | persistent | weight-gradient tasks | weight-gradient and optimizer tasks |\n"
    "| optimizer_state | persistent | optimizer tasks | optimizer tasks |\n"
    "| activation_checkpoint | transient | the first forward task | the recompute and the gradients of what reads the "
    "block's input |\n"
    "| stored_activations | transient | forward tasks of rows that keep their input | those rows' later tasks, but the "
    "optimizer's |\n"
    "| working_activations | transient | every task but the optimizer's | the same |\n"
    "\n"
    "The sources of the numbers are those of the distribution; no performance model enters.\n";

static const struct bp_reference references[] = {
    {"M. Shoeybi et al., Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism, 2019",
     "https://arxiv.org/abs/1909.08053"},
    {"S. Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, SC 2020, sections "
     "3 and 5",
     "https://arxiv.org/abs/1910.02054"},
    {"V. Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, MLSys 2023, section 4",
     "https://arxiv.org/abs/2205.05198"},
};

/* Of the block at hand. */
static bp_u128 buffer_size(const struct bp_gate *gate, enum bp_buffer_role role)
{
    const struct bp_portable_ir *ir = gate->target.as.portable;
    for (uint32_t i = 0; i < ir->n_buffers; i++)
        if (ir->buffers[i].role == role && bp_law_is_of_block(gate, ir->buffers[i].block))
            return ir->buffers[i].size.n;
    return 0;
}

/* The reduction, over the rows of the source snapshot; and what the working set adds. */
static void compare_activations(struct bp_gate *gate)
{
    const struct bp_distributed_ir *source = gate->source.as.distributed;
    struct bp_calc calc = {0};
    bp_u128 all = 0, dropped = 0, working = 0;
    for (uint32_t i = gate->at.layers.first; i < gate->at.layers.end; i++) {
        const struct bp_distributed_layer *layer = &source->layers[i];
        all = bp_add(&calc, all, layer->activation.n);
        dropped = BP_SUM(&calc, dropped, layer->keeps_output ? 0 : layer->output.n,
                         layer->keeps_activation ? 0 : layer->activation.n);
        working = bp_add(&calc, working, layer->owns_activation ? layer->activation.n : 0);
    }
    bool full = gate->request->strategy.recompute == BP_RECOMPUTE_FULL;
    bp_u128 stored = full ? 0 : bp_sub(&calc, all, dropped);
    bp_gate_equal(gate, "/buffers", &calc, stored, buffer_size(gate, BP_BUFFER_STORED_ACTIVATIONS));
    bp_gate_equal(gate, "/buffers", &calc, bp_sub(&calc, working, stored),
                  buffer_size(gate, BP_BUFFER_WORKING_ACTIVATIONS));
}

static const struct bp_law laws[] = {
    {"law.activation_reduction",
     "C_{\\mathrm{act}} = \\sum_\\ell (A_\\ell - O_\\ell[\\neg\\mathrm{storeOutput}_\\ell] - "
     "A_\\ell[\\neg\\mathrm{storeActivation}_\\ell])",
     "every plan; 0 under full recomputation", "Korthikanti et al., section 4", bp_law_always, compare_activations},
};
static const struct bp_law_group own_laws = BP_BLOCK_GROUP(laws);
static const struct bp_law_group *const law_groups[] = {&own_laws, &bp_conservation_laws};
static const struct bp_check_group *const checks[] = {&bp_portable_checks, &bp_plan_checks, &bp_plan_block_checks};

static bool applies(const struct bp_request *request)
{
    return request->workload.mode == BP_MODE_TRAINING;
}

static int run(const struct bp_pass_input *input, struct bp_arena *arena, struct bp_ir *ret, struct bp_err *err)
{
    return bp_portable_block(input, RULE, arena, ret, err);
}

const struct bp_pass bp_plan_transformer_training = {
    .name = "plan-transformer-training",
    .revision = 3,
    .source = BP_STAGE_DISTRIBUTED,
    .target = BP_STAGE_PORTABLE,
    .rule = RULE,
    .title = "Training plan",
    .summary = "Reifies the distributed training work as portable tasks with exact workloads, resources and buffers.",
    .formula_source = "work-conserving map of the derived Transformer work vectors",
    .bindings = 0,
    .applies = applies,
    .run = run,
    BP_PASS_TABLES,
};
