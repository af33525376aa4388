/* Laws are held to by pass: one id can stand for two formulas, of training and of inference. */
#include "tests/unit/mutations.h"

static void pad_the_layout(struct spoiled *copy)
{
    ((struct bp_concrete_buffer *)copy->concrete->buffers)[1].offset.n += 16;
}

static void queue_twice(struct spoiled *copy)
{
    copy->concrete->queues[BP_QUEUE_HOST] = list_of(copy, 1, (uint32_t[]){0});
}

#define D(law) .id = law, .stage = BP_STAGE_DISTRIBUTED
#define P(law) .id = law, .stage = BP_STAGE_PORTABLE
#define C(law) .id = law, .stage = BP_STAGE_CONCRETE
#define OPERATIONS(task_name) .part = TASK, .name = task_name, FLIP(struct bp_distributed_task, work.operations)
#define MESSAGE(task_name) .part = TASK, .name = task_name, FLIP(struct bp_distributed_task, work.message)
#define PARAMETERS(row_name) .part = LAYER, .name = row_name, FLIP(struct bp_distributed_layer, parameters)
#define MEMORY(fact)                                                                                                   \
    .part = BLOCK, .at = offsetof(struct bp_distributed_block, memory) + BP_MEMORY_##fact * sizeof(struct bp_bytes)
#define SIZE(role_name) .part = BUFFER, .name = role_name, FLIP(struct bp_portable_buffer, size)
static const struct mutation rows[] = {
    {D("law.qkv"), .path = "/tasks", OPERATIONS("attention.query.forward")},
    {D("law.qkv_grouped"), .plan = SHARDED, .path = "/tasks", OPERATIONS("attention.key.forward")},
    {D("law.attention_matmul"), .path = "/tasks", OPERATIONS("attention.scores.forward")},
    {D("law.attention_matmul_heads"), .plan = SHARDED, .path = "/tasks", OPERATIONS("attention.context.forward")},
    {D("law.attention_output"), .path = "/tasks", OPERATIONS("attention.output.forward")},
    {D("law.mlp"), .path = "/tasks", OPERATIONS("mlp.down.forward")},
    {D("law.mlp_gated"), .plan = SHARDED, .path = "/tasks", OPERATIONS("mlp.gate.forward")},
    {D("law.backward"), .path = "/tasks", OPERATIONS("mlp.up.weight_gradient")},
    {D("law.vector_work"), .path = "/tasks", OPERATIONS("mlp.norm.forward")},
    {D("law.vector_work"), .path = "/tasks", OPERATIONS("attention.qkv_fork.activation_gradient")},
    {D("law.vector_work"), .path = "/tasks", OPERATIONS("attention.norm.weight_gradient")},
    {D("law.recompute"), .plan = FULL, .path = "/tasks", OPERATIONS("mlp.up.recompute")},
    {D("law.recompute"), .plan = SHARDED, .path = "/tasks", OPERATIONS("attention.softmax.recompute")},
    {D("law.stored_activations"), .plan = SHARDED, .path = "/blocks/0/memory/stored_activations",
     MEMORY(STORED_ACTIVATIONS)},
    {D("law.korthikanti"), .path = "/blocks/0/memory/stored_activations", MEMORY(STORED_ACTIVATIONS)},
    {D("law.checkpoint"), .plan = FULL, .path = "/blocks/0/memory/activation_checkpoint",
     MEMORY(ACTIVATION_CHECKPOINT)},
    {D("law.state_18_bytes"), .path = "/blocks/0/memory", MEMORY(OPTIMIZER)},
    {D("law.state_sharded"), .plan = SHARDED, .path = "/blocks/0/memory", MEMORY(OPTIMIZER)},
    {D("law.tensor_payload"), .path = "/tasks", .part = TASK, .name = "mlp.output_collective.forward.all_reduce",
     FLIP(struct bp_distributed_task, work.message)},
    {D("law.tensor_reduction"), .path = "/tasks", OPERATIONS("mlp.output_collective.forward.all_reduce")},
    {D("law.parameters"), .path = "/layers", PARAMETERS("mlp.up")},
    {D("law.qkv"), .plan = PREFILL, .path = "/tasks", OPERATIONS("attention.qkv")},
    {D("law.qkv_grouped"), .plan = DECODE, .path = "/tasks", OPERATIONS("attention.qkv")},
    {D("law.attention"), .plan = PREFILL, .path = "/tasks", OPERATIONS("attention.core")},
    {D("law.attention_heads"), .plan = DECODE, .path = "/tasks", OPERATIONS("attention.core")},
    {D("law.attention_output"), .plan = DECODE, .path = "/tasks", OPERATIONS("attention.output")},
    {D("law.mlp"), .plan = PREFILL, .path = "/tasks", OPERATIONS("mlp.up")},
    {D("law.mlp_gated"), .plan = DECODE, .path = "/tasks", OPERATIONS("mlp.gate")},
    {D("law.exact_work"), .plan = DECODE, .path = "/tasks", OPERATIONS("attention.rope")},
    {D("law.kv_cache"), .plan = PREFILL, .path = "/blocks/0/memory/kv_cache", MEMORY(KV_CACHE)},
    {D("law.kv_cache_grouped"), .plan = DECODE, .path = "/blocks/0/memory/kv_cache", MEMORY(KV_CACHE)},
    {D("law.workspace"), .plan = PREFILL, .path = "/blocks/0/memory/workspace", MEMORY(WORKSPACE)},
    {D("law.workspace_grouped"), .plan = DECODE, .path = "/blocks/0/memory/workspace", MEMORY(WORKSPACE)},
    {D("law.tensor_payload"), .plan = DECODE, .path = "/tasks", .part = TASK, .name = "mlp.all_reduce",
     FLIP(struct bp_distributed_task, work.message)},
    {D("law.tensor_reduction"), .plan = DECODE, .path = "/tasks", OPERATIONS("mlp.all_reduce")},
    {D("law.parameters"), .plan = DECODE, .path = "/layers", PARAMETERS("mlp.up")},
    {D("law.kind_parameters"), .plan = CAPPED, .path = "/layers", PARAMETERS("attention.query")},
    {D("law.latent_projections"), .plan = LATENT, .path = "/tasks", OPERATIONS("attention.key_value_up.forward")},
    {D("law.latent_scores"), .plan = LATENT, .path = "/tasks", OPERATIONS("attention.scores.forward")},
    {D("law.latent_output"), .plan = LATENT, .path = "/tasks", OPERATIONS("attention.output.forward")},
    {D("law.experts"), .plan = LATENT, .path = "/tasks", OPERATIONS("moe.up.forward")},
    {D("law.router"), .plan = LATENT, .path = "/tasks", OPERATIONS("moe.router.forward")},
    {D("law.shared_experts"), .plan = LATENT, .path = "/tasks", OPERATIONS("shared.down.forward")},
    {D("law.expert_payload"), .plan = LATENT, .path = "/tasks", MESSAGE("moe.dispatch.forward.all_to_all")},
    {D("law.expert_payload"), .plan = LATENT, .path = "/tasks",
     MESSAGE("moe.gather.activation_gradient.reduce_scatter")},
    {D("law.expert_parameters"), .plan = LATENT, .path = "/layers", PARAMETERS("moe.gate")},
    {D("law.side_by_side"), .plan = BESIDE, .path = "/tasks", MESSAGE("block.output_collective.forward.all_reduce")},
    {D("law.side_by_side"), .plan = BESIDE, .path = "/tasks",
     MESSAGE("attention.input_collective.activation_gradient.all_reduce")},
    {D("law.changed_scores"), .plan = CAPPED, .path = "/tasks", OPERATIONS("attention.soft_cap.forward")},
    {D("law.changed_scores"), .plan = CAPPED, .path = "/tasks", OPERATIONS("attention.soft_cap.activation_gradient")},
    {D("law.changed_scores"), .plan = BESIDE, .path = "/tasks", OPERATIONS("attention.position_bias.forward")},
    {D("law.norms"), .plan = CAPPED, .path = "/tasks", OPERATIONS("mlp.post_norm.forward")},
    {D("law.norms"), .plan = CAPPED, .path = "/tasks", OPERATIONS("attention.query_norm.activation_gradient")},
    {D("law.norms"), .plan = LATENT, .path = "/tasks", OPERATIONS("attention.query_latent_norm.weight_gradient")},
    {D("law.context_payload"), .plan = LATENT, .path = "/tasks",
     MESSAGE("attention.context_collective.forward.all_gather")},
    {D("law.context_payload"), .plan = BESIDE, .path = "/tasks",
     MESSAGE("attention.context_return.activation_gradient.all_to_all")},
    {D("law.kind_parameters"), .plan = ABSORBED, .path = "/layers", PARAMETERS("attention.value_up")},
    {D("law.latent_core"), .plan = EXPANDED, .path = "/tasks", OPERATIONS("attention.core")},
    {D("law.latent_core"), .plan = ABSORBED, .path = "/tasks", OPERATIONS("attention.core")},
    {D("law.latent_projections"), .plan = EXPANDED, .path = "/tasks", OPERATIONS("attention.key_value_up")},
    {D("law.latent_projections"), .plan = ABSORBED, .path = "/tasks", OPERATIONS("attention.query_absorb")},
    {D("law.latent_cache"), .plan = ABSORBED, .path = "/blocks/0/memory/kv_cache", MEMORY(KV_CACHE)},
    {D("law.experts"), .plan = EXPANDED, .path = "/tasks", OPERATIONS("moe.down")},
    {D("law.router"), .plan = WINDOWED, .path = "/tasks", OPERATIONS("moe.router")},
    {D("law.shared_experts"), .plan = ABSORBED, .path = "/tasks", OPERATIONS("shared.gate")},
    {D("law.expert_payload"), .plan = EXPANDED, .path = "/tasks", MESSAGE("moe.combine")},
    {D("law.expert_payload"), .plan = EXPANDED, .path = "/tasks", MESSAGE("moe.scatter")},
    {D("law.side_by_side"), .plan = ABREAST, .path = "/tasks", MESSAGE("block.all_reduce")},
    {D("law.changed_scores"), .plan = ABREAST, .path = "/tasks", OPERATIONS("attention.core")},
    {D("law.changed_scores"), .plan = WINDOWED, .path = "/tasks", OPERATIONS("attention.core")},
    {D("law.window"), .plan = WINDOWED, .path = "/blocks/0/memory/kv_cache", MEMORY(KV_CACHE)},
    {P("law.activation_reduction"), .path = "/buffers", SIZE("stored_activations")},
    {P("law.work_conservation"), .path = "/tasks", .part = TASK, .name = "mlp.up.forward",
     FLIP(struct bp_portable_task, work.operations)},
    {P("law.resource_projection"), .path = "/tasks", .part = TASK, .name = "mlp.up.forward",
     FLIP(struct bp_portable_task, resources.memory)},
    {P("law.capacity"), .plan = DECODE, .path = "/buffers", SIZE("workspace")},
    {P("law.work_conservation"), .plan = DECODE, .path = "/tasks", .part = TASK, .name = "mlp.up",
     FLIP(struct bp_portable_task, work.read)},
    {P("law.resource_projection"), .plan = DECODE, .path = "/tasks", .part = TASK, .name = "mlp.up",
     FLIP(struct bp_portable_task, resources.compute)},
    {C("law.layout"), .path = "/buffers", .spoil = pad_the_layout},
    {C("law.queue_partition"), .path = "/extension/queues", .spoil = queue_twice},
    {C("law.layout"), .plan = SHARDED, .path = "/buffers", .spoil = pad_the_layout},
    {C("law.slot_issue"), .plan = SHARDED, .path = "/extension/issue", .part = ISSUE, .place = 3,
     FLIP(struct bp_slot_issue, cycle)},
};
const struct mutation_group law_mutations = MUTATIONS(rows);
