#include "common/passes/laws.h"

#include <string.h>

static bool names(const char *const *rows, const char *row)
{
    for (; *rows; rows++)
        if (strcmp(*rows, row) == 0)
            return true;
    return false;
}

bp_u128 bp_law_operations(const struct bp_gate *gate, struct bp_calc *calc, const char *const *rows,
                          enum bp_phase phase)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    bp_u128 sum = 0;
    for (uint32_t i = gate->at.tasks.first; i < gate->at.tasks.end; i++) {
        const struct bp_distributed_task *task = &ir->tasks[i];
        if (task->phase == phase && task->layer < ir->n_layers && (!rows || names(rows, ir->layers[task->layer].name)))
            sum = bp_add(calc, sum, task->work.operations.n);
    }
    return sum;
}

bp_u128 bp_law_engine_operations(const struct bp_gate *gate, struct bp_calc *calc, enum bp_engine engine,
                                 enum bp_phase phase)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    bp_u128 sum = 0;
    for (uint32_t i = gate->at.tasks.first; i < gate->at.tasks.end; i++)
        if (ir->tasks[i].phase == phase && ir->tasks[i].engine == engine)
            sum = bp_add(calc, sum, ir->tasks[i].work.operations.n);
    return sum;
}

bp_u128 bp_law_parameters(const struct bp_gate *gate, struct bp_calc *calc)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    bp_u128 sum = 0;
    for (uint32_t i = gate->at.layers.first; i < gate->at.layers.end; i++)
        sum = bp_add(calc, sum, ir->layers[i].parameters);
    return sum;
}

void bp_law_memory(struct bp_gate *gate, enum bp_memory_fact fact, const struct bp_calc *calc, bp_u128 expected)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    bp_gate_equal(gate, bp_gate_path(gate, "/blocks/%u/memory/%s", gate->block, bp_memory_names[fact]), calc, expected,
                  ir->blocks[gate->block].memory.at[fact].n);
}

bool bp_law_is_of_block(const struct bp_gate *gate, const char *name)
{
    return strcmp(gate->symbols->kind->name, name) == 0;
}

bool bp_law_always(const struct bp_gate *gate)
{
    (void)gate;
    return true;
}

bool bp_law_heads(const struct bp_gate *gate)
{
    return gate->symbols->kind->attention == BP_ATTENTION_HEADS;
}

bool bp_law_plain_heads(const struct bp_gate *gate)
{
    return bp_law_heads(gate) && gate->symbols->heads_are_plain;
}

bool bp_law_dense_mlp(const struct bp_gate *gate)
{
    return gate->symbols->kind->num_experts == 0;
}

bool bp_law_two_matrix_mlp(const struct bp_gate *gate)
{
    return bp_law_dense_mlp(gate) && !gate->symbols->gated;
}

bool bp_law_gated_mlp(const struct bp_gate *gate)
{
    return bp_law_dense_mlp(gate) && gate->symbols->gated;
}

bool bp_law_plain_block(const struct bp_gate *gate)
{
    const struct bp_model *model = &gate->request->model;
    const struct bp_kind *kind = gate->symbols->kind;
    bool layernorm = model->norm == BP_NORM_LAYERNORM;
    bool norms =
        kind->norm_place == BP_NORM_PLACE_BEFORE && !model->norm_without_weight &&
        !(layernorm && model->norm_without_bias) &&
        (kind->qk_norm == BP_QK_NORM_NONE || (kind->qk_norm == BP_QK_NORM_HEAD && kind->qk_norm_bias == layernorm));
    bool scores = !kind->soft_cap && !kind->sinks && model->position != BP_POSITION_ALIBI;
    return bp_law_heads(gate) && bp_law_dense_mlp(gate) && norms && scores &&
           kind->residual == BP_RESIDUAL_SEQUENTIAL && gate->request->strategy.context_parallel == 1;
}

static bool has_tensor_group(const struct bp_gate *gate)
{
    return bp_law_plain_block(gate) && gate->symbols->t > 1;
}

/* M_TP = X e: the payload of every collective. */
static void compare_payload(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    struct bp_calc calc = {0};
    bp_u128 payload = bp_mul(&calc, gate->symbols->X, gate->symbols->e);
    for (uint32_t i = gate->at.tasks.first; i < gate->at.tasks.end; i++)
        bp_gate_equal(gate, "/tasks", &calc, ir->tasks[i].kind == BP_TASK_COLLECTIVE ? payload : 0,
                      ir->tasks[i].work.message.n);
}

/* W_reduce = X (t-1)/t where a collective reduces, else nothing. */
static void compare_reduction(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bp_u128 reduction = bp_div(&calc, bp_mul(&calc, s->X, s->t - 1), s->t);
    for (uint32_t i = gate->at.tasks.first; i < gate->at.tasks.end; i++)
        if (ir->tasks[i].kind == BP_TASK_COLLECTIVE)
            bp_gate_equal(gate, "/tasks", &calc, ir->tasks[i].reduces ? reduction : 0, ir->tasks[i].work.operations.n);
}

static const struct bp_law collective_laws[] = {
    {"law.tensor_payload", "M_{\\mathrm{TP}} = X e", "a plain block, t > 1", "Shoeybi et al., section 3",
     has_tensor_group, compare_payload},
    {"law.tensor_reduction", "W_{\\mathrm{reduce}} = X \\frac{t-1}{t}", "a plain block, t > 1, collectives that reduce",
     "Shoeybi et al., section 3", has_tensor_group, compare_reduction},
};
const struct bp_law_group bp_collective_laws = BP_BLOCK_GROUP(collective_laws);

/* Per rank: the projections, the MLP, two block norms, two head norms, and a bias per output column. */
static void compare_parameters(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    const struct bp_model *model = &gate->request->model;
    const struct bp_kind *kind = s->kind;
    struct bp_calc calc = {0};
    bp_u128 qkv = bp_mul(&calc, s->d, bp_add(&calc, s->h_l, bp_mul(&calc, 2, s->k_l)));
    bp_u128 F_l = bp_div(&calc, s->F, s->t), ups = s->gated ? 2 : 1;
    bp_u128 vectors = model->norm == BP_NORM_LAYERNORM ? 2 : 1;
    bp_u128 weights = bp_mul(&calc, s->H, BP_SUM(&calc, qkv, bp_mul(&calc, s->h_l, s->d), bp_mul(&calc, ups + 1, F_l)));
    bp_u128 norms = BP_PROD(&calc, 2, vectors, bp_add(&calc, s->H, kind->qk_norm ? s->d : 0));
    bp_u128 biases = BP_SUM(&calc, kind->qkv_bias ? qkv : 0, kind->output_bias ? s->H : 0,
                            kind->mlp_bias ? bp_add(&calc, s->H, bp_mul(&calc, ups, F_l)) : 0);
    bp_gate_equal(gate, "/layers", &calc, BP_SUM(&calc, weights, norms, biases), bp_law_parameters(gate, &calc));
}

/* A whole block is on one rank, so that what its kind is counted to have is what the rows hold. What the router's load
 * moves is no row's. */
static bool is_on_one_rank(const struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    return s->t == 1 && (s->E == 0 || (s->ep == 1 && s->etp == 1));
}

static void compare_kind_parameters(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_parameter_count count;
    struct bp_calc calc = {0};
    if (bp_kind_count(&gate->request->model, s->kind, &count, NULL) < 0)
        calc.overflow = true;
    bp_u128 unmoved = s->kind->score_correction_bias ? s->E : 0;
    bp_gate_equal(gate, "/layers", &calc, calc.overflow ? 0 : count.total,
                  bp_add(&calc, bp_law_parameters(gate, &calc), unmoved));
}

static const struct bp_law parameter_laws[] = {
    {"law.kind_parameters",
     "\\sum P = P_{\\mathrm{kind}} - E[\\mathrm{score\\ correction}], \\text{ the count of the checkpoint's tensors}",
     "t = 1, experts on one rank", "the public classes of the families", is_on_one_rank, compare_kind_parameters},
    {"law.parameters",
     "\\sum P = H\\bigl(d(2h_l + 2k_l) + \\mu F/t\\bigr) + 2\\nu(H + [\\mathrm{qk\\_norm}]\\,d) + \\mathrm{biases}, "
     "\\quad \\mu = 2 \\text{ or } 3 \\text{ gated},\\ \\nu = 2 \\text{ LayerNorm},\\ 1 \\text{ RMSNorm}",
     "a plain block", "docs/formulas.md, row parameters", bp_law_plain_block, compare_parameters},
};
const struct bp_law_group bp_parameter_laws = BP_BLOCK_GROUP(parameter_laws);
