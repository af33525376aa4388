#include "common/gate/distributed.h"

#define EACH_LAYER(ir, layer)                                                                                          \
    const struct bp_distributed_layer *layer = (ir)->layers;                                                           \
    layer < (ir)->layers + (ir)->n_layers;                                                                             \
    layer++

bp_u128 bp_gate_kv_cache(struct bp_calc *calc, const struct bp_symbols *symbols)
{
    return BP_PROD(calc, 2, symbols->b, symbols->c, symbols->d, symbols->k_l, symbols->e);
}

bp_u128 bp_gate_boundary(struct bp_calc *calc, const struct bp_symbols *symbols)
{
    return BP_PROD(calc, symbols->b, symbols->q, symbols->H, symbols->e);
}

bp_u128 bp_gate_workspace(struct bp_calc *calc, const struct bp_symbols *symbols)
{
    const struct bp_symbols *s = symbols;
    bp_u128 r = bp_mul(calc, s->d, BP_SUM(calc, s->h_l, s->k_l, s->k_l));
    bp_u128 f = BP_PROD(calc, s->b, s->q, bp_div(calc, s->F, s->t), s->gated ? 2 : 1);
    const bp_u128 unfused[] = {BP_PROD(calc, s->b, s->q, r), BP_PROD(calc, s->b, s->h_l, s->q, s->c), f};
    bp_u128 most = 0;
    for (size_t i = 0; i < BP_GATE_COUNT(unfused); i++)
        most = unfused[i] > most ? unfused[i] : most;
    return bp_add(calc, bp_gate_boundary(calc, s), bp_mul(calc, s->e, most));
}

static void expect_fact(struct bp_gate *gate, enum bp_memory_fact fact, const struct bp_calc *calc, bp_u128 expected)
{
    const struct bp_memory *memory = &gate->target.as.distributed->memory;
    bp_gate_exact(gate, BP_E_structure_violated, bp_gate_path(gate, "/memory/%s", bp_memory_names[fact]), calc,
                  expected, memory->at[fact].n);
}

static bool is_training(const struct bp_gate *gate)
{
    return gate->target.as.distributed->workload.mode == BP_MODE_TRAINING;
}

void bp_gate_check_memory_mode(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    for (int fact = 0; fact < BP_MEMORY_N; fact++)
        if (!bp_memory_fact_in((enum bp_memory_fact)fact, ir->workload.mode))
            expect_fact(gate, (enum bp_memory_fact)fact, &(struct bp_calc){0}, 0);
}

static bp_u128 shard(struct bp_calc *calc, bp_u128 parameters, const struct bp_strategy *strategy, uint64_t from_stage)
{
    return bp_div_ceil(calc, parameters, strategy->zero_stage >= from_stage ? strategy->data_parallel : 1);
}

/* Under ZeRO each row is sharded by itself, so that the sums are of rounded shares. */
void bp_gate_check_memory_states(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bool training = is_training(gate);
    bp_u128 weights = 0, gradients = 0, optimizer = 0;
    for (EACH_LAYER(ir, layer)) {
        bp_u128 P = layer->parameters;
        weights = bp_add(&calc, weights, bp_mul(&calc, training ? shard(&calc, P, &ir->strategy, 3) : P, s->e));
        if (!training)
            continue;
        gradients = bp_add(&calc, gradients, bp_mul(&calc, shard(&calc, P, &ir->strategy, 2), s->g));
        bp_u128 bytes_of_state = s->e < 4 ? 12 : 8;
        optimizer = bp_add(&calc, optimizer, bp_mul(&calc, shard(&calc, P, &ir->strategy, 1), bytes_of_state));
    }
    expect_fact(gate, BP_MEMORY_WEIGHTS, &calc, weights);
    if (training) {
        expect_fact(gate, BP_MEMORY_GRADIENTS, &calc, gradients);
        expect_fact(gate, BP_MEMORY_OPTIMIZER, &calc, optimizer);
    }
}

/* Every A is added before anything is taken away: partial sums can dip below zero. */
void bp_gate_check_memory_stored(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    struct bp_calc calc = {0};
    if (!is_training(gate))
        return;
    bool full = ir->strategy.recompute == BP_RECOMPUTE_FULL;
    bp_u128 stored = 0;
    for (EACH_LAYER(ir, layer))
        stored = bp_add(&calc, stored, layer->activation.n);
    for (EACH_LAYER(ir, layer)) {
        stored = bp_sub(&calc, stored, layer->keeps_output ? 0 : layer->output.n);
        stored = bp_sub(&calc, stored, layer->keeps_activation ? 0 : layer->activation.n);
    }
    expect_fact(gate, BP_MEMORY_STORED_ACTIVATIONS, full ? &(struct bp_calc){0} : &calc, full ? 0 : stored);
    calc = (struct bp_calc){0};
    bp_u128 checkpoint = bp_mul(&calc, gate->symbols->Xs, gate->symbols->e);
    expect_fact(gate, BP_MEMORY_ACTIVATION_CHECKPOINT, &calc, full ? checkpoint : 0);
}

void bp_gate_check_memory_working(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    struct bp_calc calc = {0};
    bp_u128 working = 0;
    if (!is_training(gate))
        return;
    for (EACH_LAYER(ir, layer))
        working = bp_add(&calc, working, layer->owns_activation ? layer->activation.n : 0);
    expect_fact(gate, BP_MEMORY_WORKING_ACTIVATIONS, &calc, working);
}

void bp_gate_check_memory_bound(struct bp_gate *gate)
{
    const struct bp_bytes *memory = gate->target.as.distributed->memory.at;
    BP_GATE_EXPECT(gate, memory[BP_MEMORY_STORED_ACTIVATIONS].n <= memory[BP_MEMORY_WORKING_ACTIVATIONS].n,
                   BP_E_structure_violated, "/memory/stored_activations",
                   "more is stored than a block works with at once");
}

void bp_gate_check_memory_inference(struct bp_gate *gate)
{
    static const struct {
        enum bp_memory_fact fact;
        bp_u128 (*formula)(struct bp_calc *calc, const struct bp_symbols *symbols);
    } facts[] = {{BP_MEMORY_KV_CACHE, bp_gate_kv_cache},
                 {BP_MEMORY_BOUNDARY, bp_gate_boundary},
                 {BP_MEMORY_WORKSPACE, bp_gate_workspace}};
    for (size_t i = 0; i < BP_GATE_COUNT(facts) && !is_training(gate); i++) {
        struct bp_calc calc = {0};
        bp_u128 expected = facts[i].formula(&calc, gate->symbols);
        expect_fact(gate, facts[i].fact, &calc, expected);
    }
}
