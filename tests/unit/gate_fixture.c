#include "tests/unit/gate_fixture.h"

#include <check.h>
#include <string.h>

#include "tests/unit/reading.h"

#define BODY "'num_hidden_layers': 4, 'vocab_size': 100, 'name': 'm'"
/* What the blocks of latent attention share; dense ones and those of experts, with experts for every token. */
#define LATENTS                                                                                                        \
    "'attention': 'latent', 'num_attention_heads': 4, 'q_lora_rank': 24, 'kv_lora_rank': 16, 'qk_nope_head_dim': 8,"   \
    " 'qk_rope_head_dim': 4, 'v_head_dim': 12, 'activation': 'swiglu'"
#define EXPERTS                                                                                                        \
    "'num_experts': 8, 'experts_per_token': 2, 'expert_intermediate_size': 32,"                                        \
    " 'shared_expert_intermediate_size': 64, 'shared_expert_gate': true, 'score_correction_bias': true"
#define TARGET(kind)                                                                                                   \
    ", 'target': {'kind': 'reference-" kind "'}, 'deployment': {'devices': 2, 'memory_bytes': 1073741824}"
#define GEMMA                                                                                                          \
    "'num_attention_heads': 4, 'num_key_value_heads': 2, 'intermediate_size': 128, 'activation': 'geglu',"             \
    " 'attention_soft_cap': true, 'norm_place': 'around', 'qk_norm': true"
#define LATENT_MODEL                                                                                                   \
    "{'model': {'transformer': {" BODY ", 'hidden_size': 64, 'norm': 'rmsnorm', 'position': 'rope',"                   \
    " 'kinds': [{'name': 'dense', 'intermediate_size': 96, " LATENTS "}, {'name': 'expert', " LATENTS ", " EXPERTS     \
    "}], 'layers': [{'count': 1, 'kind': 'dense'}, {'count': 3, 'kind': 'expert'}]}}"
const char *const plan_texts[PLAN_NAME_N] = {
    [PLAIN] =
        "{'model': {'transformer': {" BODY ", 'hidden_size': 64, 'num_attention_heads': 4, 'intermediate_size': 256,"
        " 'activation': 'gelu', 'norm': 'layernorm', 'position': 'none', 'bias': true, 'hidden_dropout': true,"
        " 'attention_dropout': true}},"
        " 'workload': {'mode': 'training', 'sequence_length': 32, 'micro_batch_size': 2, 'global_batch_size': 8,"
        " 'dtype': 'bfloat16'}, 'strategy': {'tensor_parallel': 2, 'data_parallel': 2},"
        " 'target': {'kind': 'reference-queue'}, 'deployment': {'devices': 4, 'memory_bytes': 1073741824}}",
    [SHARDED] = "{'model': {'transformer': {" BODY ", 'hidden_size': 64, 'num_attention_heads': 8,"
                " 'num_key_value_heads': 2, 'intermediate_size': 96, 'activation': 'swiglu', 'norm': 'rmsnorm',"
                " 'position': 'rope', 'attention_dropout': true}},"
                " 'workload': {'mode': 'training', 'sequence_length': 32, 'micro_batch_size': 1,"
                " 'global_batch_size': 8, 'dtype': 'float16'},"
                " 'strategy': {'tensor_parallel': 2, 'data_parallel': 4, 'sequence_parallel': true,"
                " 'recompute': 'selective', 'zero_stage': 1},"
                " 'target': {'kind': 'reference-slot'}, 'deployment': {'devices': 2, 'memory_bytes': 1073741824}}",
    [FULL] =
        "{'model': {'transformer': {" BODY ", 'hidden_size': 64, 'num_attention_heads': 4, 'intermediate_size': 128,"
        " 'activation': 'relu', 'norm': 'layernorm', 'position': 'none', 'qk_norm': true}},"
        " 'workload': {'mode': 'training', 'sequence_length': 16, 'micro_batch_size': 1, 'global_batch_size': 3,"
        " 'dtype': 'float32'}, 'strategy': {'tensor_parallel': 2, 'data_parallel': 3, 'recompute': 'full',"
        " 'zero_stage': 3}, 'target': {'kind': 'reference-queue'},"
        " 'deployment': {'devices': 2, 'memory_bytes': 1073741824}}",
    [PREFILL] = "{'model': {'transformer': {" BODY ", 'hidden_size': 64, 'num_attention_heads': 4,"
                " 'intermediate_size': 256, 'activation': 'gelu', 'norm': 'layernorm', 'position': 'none'}},"
                " 'workload': {'mode': 'inference', 'phase': 'prefill', 'batch_size': 2, 'context_length': 24,"
                " 'dtype': 'float16'}, 'strategy': {'tensor_parallel': 2},"
                " 'target': {'kind': 'reference-queue'}, 'deployment': {'devices': 2, 'memory_bytes': 1073741824}}",
    [DECODE] = "{'model': {'transformer': {" BODY ", 'hidden_size': 64, 'num_attention_heads': 8,"
               " 'num_key_value_heads': 4, 'intermediate_size': 96, 'activation': 'geglu', 'norm': 'rmsnorm',"
               " 'position': 'rope', 'qk_norm': true}},"
               " 'workload': {'mode': 'inference', 'phase': 'decode', 'batch_size': 4, 'context_length': 48,"
               " 'dtype': 'bfloat16'}, 'strategy': {'tensor_parallel': 2, 'replicas': 2},"
               " 'target': {'kind': 'reference-slot'}, 'deployment': {'devices': 2, 'memory_bytes': 1073741824}}",
    [LATENT] = LATENT_MODEL ", 'workload': {'mode': 'training', 'sequence_length': 32, 'micro_batch_size': 1,"
                            " 'global_batch_size': 8, 'dtype': 'bfloat16'}, 'strategy': {'tensor_parallel': 2,"
                            " 'sequence_parallel': true, 'data_parallel': 4, 'context_parallel': 2,"
                            " 'expert_parallel': 4, 'expert_tensor_parallel': 2, 'zero_stage': 1},"
                            " 'target': {'kind': 'reference-queue'},"
                            " 'deployment': {'devices': 16, 'memory_bytes': 1073741824}}",
    [CAPPED] = "{'model': {'transformer': {" BODY ", 'hidden_size': 64, 'norm': 'rmsnorm', 'position': 'rope',"
               " 'kinds': [{'name': 'sliding', 'sliding_window': 8, " GEMMA "}, {'name': 'global', " GEMMA "}],"
               " 'layers': [{'count': 1, 'kind': 'sliding'}, {'count': 1, 'kind': 'global'},"
               " {'count': 1, 'kind': 'sliding'}, {'count': 1, 'kind': 'global'}]}},"
               " 'workload': {'mode': 'training', 'sequence_length': 16, 'micro_batch_size': 2, 'global_batch_size': 2,"
               " 'dtype': 'bfloat16'}, 'strategy': {'recompute': 'selective'}" TARGET("queue") "}",
    [BESIDE] = "{'model': {'transformer': {" BODY ", 'hidden_size': 64, 'num_attention_heads': 8,"
               " 'intermediate_size': 256, 'activation': 'gelu', 'norm': 'layernorm', 'position': 'alibi',"
               " 'residual': 'parallel', 'norm_place': 'shared', 'bias': true}},"
               " 'workload': {'mode': 'training', 'sequence_length': 32, 'micro_batch_size': 1, 'global_batch_size': 4,"
               " 'dtype': 'bfloat16'}, 'strategy': {'tensor_parallel': 2, 'data_parallel': 2, 'context_parallel': 2,"
               " 'cp_comm': 'a2a'}" TARGET("slot") "}",
    [EXPANDED] = LATENT_MODEL ", 'workload': {'mode': 'inference', 'phase': 'prefill', 'batch_size': 2,"
                              " 'context_length': 24, 'dtype': 'bfloat16'}, 'strategy': {'tensor_parallel': 2,"
                              " 'replicas': 4, 'expert_parallel': 4, 'expert_tensor_parallel': 2},"
                              " 'target': {'kind': 'reference-queue'},"
                              " 'deployment': {'devices': 2, 'memory_bytes': 1073741824}}",
    [ABSORBED] = LATENT_MODEL ", 'workload': {'mode': 'inference', 'phase': 'decode', 'batch_size': 3,"
                              " 'context_length': 24, 'dtype': 'bfloat16', 'kv_cache_dtype': 'float8'},"
                              " 'strategy': {}" TARGET("slot") "}",
    [WINDOWED] = "{'model': {'transformer': {" BODY ", 'hidden_size': 64, 'num_attention_heads': 8,"
                 " 'num_key_value_heads': 2, 'activation': 'swiglu', 'norm': 'rmsnorm', 'position': 'rope',"
                 " 'bias': true, 'attention_sinks': true, 'sliding_window': 8, 'num_experts': 4,"
                 " 'experts_per_token': 2, 'expert_intermediate_size': 32, 'router_bias': true,"
                 " 'expert_bias': true}}, 'workload': {'mode': 'inference', 'phase': 'decode', 'batch_size': 3,"
                 " 'context_length': 24, 'dtype': 'bfloat16'}, 'strategy': {'tensor_parallel': 2}" TARGET("queue") "}",
    [ABREAST] = "{'model': {'transformer': {" BODY ", 'hidden_size': 64, 'num_attention_heads': 8,"
                " 'intermediate_size': 256, 'activation': 'gelu', 'norm': 'layernorm', 'position': 'rope',"
                " 'rotary_dim': 4, 'residual': 'parallel', 'attention_soft_cap': true}},"
                " 'workload': {'mode': 'inference', 'phase': 'prefill', 'batch_size': 2, 'context_length': 16,"
                " 'dtype': 'bfloat16'}, 'strategy': {'tensor_parallel': 2}" TARGET("slot") "}",
};

void plan_derive(struct plan *plan, const json_t *request, enum bp_plan_state state)
{
    struct bp_problems problems = {0};
    struct bp_config config;
    struct bp_err err = {0};
    *plan = (struct plan){0};
    ck_assert_int_eq(bp_request_read(request, &plan->arena, &problems, &plan->request, &config), 0);
    ck_assert_str_eq(line_of(&problems), "");
    int result = bp_pipeline_run(&plan->request, NULL, &plan->arena, &plan->outcome, &err);
    ck_assert_msg(result == 0, "%s", err.message);
    const struct bp_problems *found = &plan->outcome.diagnostics;
    ck_assert_msg(plan->outcome.state == state, "%s: %s", line_of(found), found->n ? found->at[0].message : "");
    ck_assert_int_eq(bp_symbols_of_blocks(&plan->request, plan->symbols, &plan->n_blocks, &err), 0);
    bp_problems_release(&problems);
}

void plan_of(struct plan *plan, enum plan_name name)
{
    json_t *request = json_of(plan_texts[name]);
    plan_derive(plan, request, BP_PLAN_COMMITTED);
    json_decref(request);
}

void plan_release(struct plan *plan)
{
    bp_outcome_release(&plan->outcome);
    bp_arena_release(&plan->arena);
}

void spoiled_copy(struct spoiled *copy, const struct plan *plan, enum bp_stage stage)
{
    const struct bp_snapshot *snapshot = &plan->outcome.snapshots[stage];
    struct bp_err err = {0};
    *copy = (struct spoiled){.request = plan->request};
    copy->gate = (struct bp_gate){.request = &copy->request,
                                  .fingerprints = &plan->outcome.fingerprints,
                                  .blocks = plan->symbols,
                                  .n_blocks = plan->n_blocks,
                                  .source_digest = plan->outcome.fingerprints.transformer,
                                  .arena = &copy->arena,
                                  .bytes = &snapshot->bytes,
                                  .findings = &copy->findings};
    if (stage != BP_STAGE_MODEL) {
        copy->pass = plan->outcome.derivations[stage - 1].pass;
        copy->gate.rule = copy->pass->rule;
        copy->gate.source = plan->outcome.snapshots[stage - 1].ir;
        copy->gate.source_digest = plan->outcome.snapshots[stage - 1].digest;
    }
    bp_buf_add(&copy->again, snapshot->bytes.data, snapshot->bytes.len);
    copy->gate.again = &copy->again;
    struct bp_ir *ir = &copy->gate.target;
    int result = bp_ir_decode(stage, snapshot->bytes.data, snapshot->bytes.len, &copy->arena, ir, &err);
    ck_assert_msg(result == 0, "%s: %s", err.path, err.message);
    /* What the decoder made lies in the arena, which is not const. */
    copy->model = stage == BP_STAGE_MODEL ? (struct bp_model_ir *)ir->as.model : NULL;
    copy->distributed = stage == BP_STAGE_DISTRIBUTED ? (struct bp_distributed_ir *)ir->as.distributed : NULL;
    copy->portable = stage == BP_STAGE_PORTABLE ? (struct bp_portable_ir *)ir->as.portable : NULL;
    copy->concrete = stage == BP_STAGE_CONCRETE ? (struct bp_concrete_ir *)ir->as.concrete : NULL;
    /* What the ids of this stage are made of is no part of its text. */
    if (copy->concrete)
        copy->concrete->binding = snapshot->ir.as.concrete->binding;
}

void spoiled_release(struct spoiled *copy)
{
    bp_problems_release(&copy->findings);
    bp_buf_release(&copy->again);
    bp_arena_release(&copy->arena);
}

const struct bp_check_group *const *groups_of(const struct bp_pass *pass, size_t *ret_n)
{
    static const struct bp_check_group *const model[] = {&bp_model_checks};
    *ret_n = pass ? pass->n_checks : 1;
    return pass ? pass->checks : model;
}

size_t spoiled_check(struct spoiled *copy, struct bp_evidence evidence[BP_EVIDENCE_MAX])
{
    size_t n;
    const struct bp_check_group *const *groups = groups_of(copy->pass, &n);
    return bp_gate_run(&copy->gate, groups, n, NULL, 0, evidence);
}

size_t spoiled_hold_to_laws(struct spoiled *copy, struct bp_evidence evidence[BP_EVIDENCE_MAX])
{
    return copy->pass ? bp_gate_run(&copy->gate, NULL, 0, copy->pass->laws, copy->pass->n_laws, evidence) : 0;
}

const struct bp_evidence *evidence_of(const struct bp_evidence *evidence, size_t n, const char *id)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(evidence[i].check, id) == 0)
            return &evidence[i];
    return NULL;
}

static uint32_t portable_place(const struct bp_portable_ir *ir, enum bp_entity_kind kind, const char *name)
{
    if (kind == BP_ENTITY_TASK) {
        for (uint32_t i = 0; i < ir->n_tasks; i++)
            if (strcmp(ir->tasks[i].name, name) == 0)
                return i;
    } else {
        for (uint32_t i = 0; i < ir->n_buffers; i++)
            if (strcmp(bp_buffer_role_names[ir->buffers[i].role], name) == 0)
                return i;
    }
    return UINT32_MAX;
}

static uint32_t distributed_place(const struct bp_distributed_ir *ir, enum bp_entity_kind kind, const char *name)
{
    if (kind == BP_ENTITY_TASK) {
        for (uint32_t i = 0; i < ir->n_tasks; i++)
            if (strcmp(ir->tasks[i].name, name) == 0)
                return i;
    } else {
        for (uint32_t i = 0; i < ir->n_values; i++)
            if (strcmp(ir->values[i].role, name) == 0)
                return i;
    }
    return UINT32_MAX;
}

uint32_t place_of(const struct spoiled *copy, enum bp_entity_kind kind, const char *name)
{
    uint32_t place = copy->distributed ? distributed_place(copy->distributed, kind, name)
                     : copy->portable  ? portable_place(copy->portable, kind, name)
                                       : portable_place(copy->gate.source.as.portable,
                                                       kind == BP_ENTITY_COMMAND ? BP_ENTITY_TASK : kind, name);
    ck_assert_msg(place != UINT32_MAX, "there is no %s", name);
    return place;
}

uint32_t place_of_row(const struct spoiled *copy, const char *name)
{
    for (uint32_t i = 0; i < copy->distributed->n_layers; i++)
        if (strcmp(copy->distributed->layers[i].name, name) == 0)
            return i;
    ck_abort_msg("there is no row %s", name);
}

struct bp_list list_of(struct spoiled *copy, uint32_t n, const uint32_t *at)
{
    uint32_t *list = bp_arena_array(&copy->arena, n, sizeof *list);
    ck_assert_ptr_nonnull(list);
    memcpy(list, at, n * sizeof *list);
    return (struct bp_list){list, n};
}
