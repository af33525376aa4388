#include "common/gate/distributed.h"

#include <string.h>

/* The rows of the block at hand. */
#define EACH_LAYER(gate, layer)                                                                                        \
    const struct bp_distributed_layer *layer = (gate)->target.as.distributed->layers + (gate)->at.layers.first;        \
    layer < (gate)->target.as.distributed->layers + (gate)->at.layers.end;                                             \
    layer++

bp_u128 bp_gate_kv_cache(struct bp_calc *calc, const struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    const struct bp_kind *kind = s->kind;
    bp_u128 latent = (bp_u128)kind->kv_lora_rank + kind->qk_rope_head_dim;
    bp_u128 width = kind->attention == BP_ATTENTION_LATENT ? latent : BP_PROD(calc, 2, s->d, s->k_l);
    return BP_PROD(calc, s->b, s->c, width, bp_dtype_bytes(gate->request->workload.kv_cache_dtype));
}

bp_u128 bp_gate_boundary(struct bp_calc *calc, const struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    return BP_PROD(calc, s->b, s->q, s->H, s->e);
}

/* What attention projects of a token on one rank. */
static bp_u128 projected(struct bp_calc *calc, const struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    const struct bp_kind *kind = s->kind;
    bp_u128 rope = kind->qk_rope_head_dim, head = kind->qk_nope_head_dim + rope;
    if (kind->attention != BP_ATTENTION_LATENT)
        return bp_mul(calc, s->d, BP_SUM(calc, s->h_l, s->k_l, s->k_l));
    bool decode = gate->request->workload.phase == BP_DECODE;
    return bp_mul(calc, s->h_l,
                  decode ? bp_add(calc, kind->kv_lora_rank, rope)
                         : bp_add(calc, bp_mul(calc, 2, head), kind->v_head_dim));
}

bp_u128 bp_gate_workspace(struct bp_calc *calc, const struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    bp_u128 ups = s->gated ? 2 : 1, bq = bp_mul(calc, s->b, s->q);
    const bp_u128 unfused[] = {
        bp_mul(calc, bq, projected(calc, gate)),
        BP_PROD(calc, s->b, s->h_l, s->q, s->c),
        BP_PROD(calc, bq, ups, bp_div(calc, s->E ? s->F_s : s->F, s->t)),
        s->E ? BP_PROD(calc, s->pairs, ups, bp_div(calc, s->F_e, s->etp)) : 0,
    };
    bp_u128 most = 0;
    for (size_t i = 0; i < BP_GATE_COUNT(unfused); i++)
        most = unfused[i] > most ? unfused[i] : most;
    return bp_add(calc, bp_gate_boundary(calc, gate), bp_mul(calc, s->e, most));
}

static void expect_fact(struct bp_gate *gate, enum bp_memory_fact fact, const struct bp_calc *calc, bp_u128 expected)
{
    const struct bp_memory *memory = &gate->target.as.distributed->blocks[gate->block].memory;
    bp_gate_exact(gate, BP_E_structure_violated,
                  bp_gate_path(gate, "/blocks/%u/memory/%s", gate->block, bp_memory_names[fact]), calc, expected,
                  memory->at[fact].n);
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

bp_u128 bp_gate_replicas(const struct bp_gate *gate, uint32_t layer)
{
    static const char *const experts[] = {"moe.gate", "moe.up", "moe.down"};
    const struct bp_strategy *strategy = &gate->request->strategy;
    const char *name = gate->target.as.distributed->layers[layer].name;
    struct bp_calc calc = {0};
    bp_u128 ranks = bp_mul(&calc, strategy->data_parallel, strategy->context_parallel);
    for (size_t i = 0; i < BP_GATE_COUNT(experts); i++)
        if (strcmp(experts[i], name) == 0)
            return bp_div(&calc, bp_mul(&calc, ranks, strategy->tensor_parallel),
                          bp_mul(&calc, strategy->expert_parallel, strategy->expert_tensor_parallel));
    return ranks;
}

static bp_u128 shard(const struct bp_gate *gate, struct bp_calc *calc, const struct bp_distributed_layer *layer,
                     uint64_t from_stage)
{
    uint32_t place = (uint32_t)(layer - gate->target.as.distributed->layers);
    bool sharded = gate->request->strategy.zero_stage >= from_stage;
    return bp_div_ceil(calc, layer->parameters, sharded ? bp_gate_replicas(gate, place) : 1);
}

void bp_gate_check_memory_totals(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    for (int fact = 0; fact < BP_MEMORY_N; fact++) {
        struct bp_calc calc = {0};
        bp_u128 sum = 0;
        for (uint32_t i = 0; i < ir->n_blocks; i++)
            sum = bp_add(&calc, sum, ir->blocks[i].memory.at[fact].n);
        bp_gate_exact(gate, BP_E_structure_violated, bp_gate_path(gate, "/memory/%s", bp_memory_names[fact]), &calc,
                      sum, ir->memory.at[fact].n);
    }
}

/* Under ZeRO each row is sharded by itself, so that the sums are of rounded shares. */
void bp_gate_check_memory_states(struct bp_gate *gate)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bool training = is_training(gate);
    bp_u128 weights = 0, gradients = 0, optimizer = 0;
    for (EACH_LAYER(gate, layer)) {
        weights =
            bp_add(&calc, weights, bp_mul(&calc, training ? shard(gate, &calc, layer, 3) : layer->parameters, s->e));
        if (!training)
            continue;
        gradients = bp_add(&calc, gradients, bp_mul(&calc, shard(gate, &calc, layer, 2), s->g));
        bp_u128 bytes_of_state = s->e < 4 ? 12 : 8;
        optimizer = bp_add(&calc, optimizer, bp_mul(&calc, shard(gate, &calc, layer, 1), bytes_of_state));
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
    for (EACH_LAYER(gate, layer))
        stored = bp_add(&calc, stored, layer->activation.n);
    for (EACH_LAYER(gate, layer)) {
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
    struct bp_calc calc = {0};
    bp_u128 working = 0;
    if (!is_training(gate))
        return;
    for (EACH_LAYER(gate, layer))
        working = bp_add(&calc, working, layer->owns_activation ? layer->activation.n : 0);
    expect_fact(gate, BP_MEMORY_WORKING_ACTIVATIONS, &calc, working);
}

void bp_gate_check_memory_bound(struct bp_gate *gate)
{
    const struct bp_bytes *memory = gate->target.as.distributed->blocks[gate->block].memory.at;
    BP_GATE_EXPECT(gate, memory[BP_MEMORY_STORED_ACTIVATIONS].n <= memory[BP_MEMORY_WORKING_ACTIVATIONS].n,
                   BP_E_structure_violated, bp_gate_path(gate, "/blocks/%u/memory/stored_activations", gate->block),
                   "more is stored than a block works with at once");
}

void bp_gate_check_memory_inference(struct bp_gate *gate)
{
    static const struct {
        enum bp_memory_fact fact;
        bp_u128 (*formula)(struct bp_calc *calc, const struct bp_gate *gate);
    } facts[] = {{BP_MEMORY_KV_CACHE, bp_gate_kv_cache},
                 {BP_MEMORY_BOUNDARY, bp_gate_boundary},
                 {BP_MEMORY_WORKSPACE, bp_gate_workspace}};
    for (size_t i = 0; i < BP_GATE_COUNT(facts) && !is_training(gate); i++) {
        struct bp_calc calc = {0};
        bp_u128 expected = facts[i].formula(&calc, gate);
        expect_fact(gate, facts[i].fact, &calc, expected);
    }
}
