#include "tests/unit/mutations.h"

#include <string.h>

static struct bp_concrete_command *command(struct spoiled *copy, uint32_t place)
{
    return (struct bp_concrete_command *)&copy->concrete->commands[place];
}

static struct bp_concrete_buffer *buffer(struct spoiled *copy, uint32_t place)
{
    return (struct bp_concrete_buffer *)&copy->concrete->buffers[place];
}

static void share_id(struct spoiled *copy)
{
    command(copy, 2)->id = command(copy, 1)->id;
}

static void use_no_buffer(struct spoiled *copy)
{
    ((struct bp_concrete_use *)command(copy, 1)->uses)[0].buffer = 99;
}

static void use_out_of_order(struct spoiled *copy)
{
    struct bp_concrete_use *uses = (struct bp_concrete_use *)command(copy, 1)->uses;
    uses[1].buffer = uses[0].buffer;
}

static void use_otherwise(struct spoiled *copy)
{
    struct bp_concrete_use *uses = (struct bp_concrete_use *)command(copy, 1)->uses;
    uses[0].access = uses[0].access == BP_ACCESS_READ ? BP_ACCESS_WRITE : BP_ACCESS_READ;
}

static void use_another(struct spoiled *copy)
{
    ((struct bp_concrete_use *)command(copy, 1)->uses)[0].buffer = 1;
}

static void wait_for_itself(struct spoiled *copy)
{
    command(copy, 1)->dependencies = list_of(copy, 1, (uint32_t[]){1});
}

static void wait_for_the_first(struct spoiled *copy)
{
    command(copy, copy->concrete->n_commands - 1)->dependencies = list_of(copy, 1, (uint32_t[]){0});
}

/* Aligned, but with a hole before it. */
static void leave_a_hole(struct spoiled *copy)
{
    buffer(copy, 1)->offset.n += 16;
}

static void lack_one_byte(struct spoiled *copy)
{
    const struct bp_concrete_buffer *last = buffer(copy, copy->concrete->n_buffers - 1);
    ((struct bp_concrete_region *)copy->concrete->regions)->capacity.n = last->offset.n + last->size.n - 1;
}

static void come_from_another(struct spoiled *copy)
{
    command(copy, 1)->lineage = command(copy, 2)->lineage;
}

static void buffer_from_another(struct spoiled *copy)
{
    buffer(copy, 1)->lineage = buffer(copy, 0)->lineage;
}

static void come_from_nowhere(struct spoiled *copy)
{
    command(copy, 1)->lineage.sources = bp_arena_array(&copy->arena, 1, sizeof(struct bp_id));
}

static void run_another(struct spoiled *copy)
{
    command(copy, 1)->task = command(copy, 2)->task;
}

static void hold_another(struct spoiled *copy)
{
    buffer(copy, 1)->source = buffer(copy, 0)->source;
}

static void lose_the_last_command(struct spoiled *copy)
{
    copy->concrete->n_commands--;
}

static void lose_the_last_buffer(struct spoiled *copy)
{
    copy->concrete->n_buffers--;
}

static struct bp_list *queue(struct spoiled *copy, enum bp_queue which)
{
    return &copy->concrete->queues[which];
}

static void drop_from_the_queue(struct spoiled *copy)
{
    queue(copy, BP_QUEUE_COMPUTE)->n--;
}

static void queue_nothing_known(struct spoiled *copy)
{
    *queue(copy, BP_QUEUE_HOST) = list_of(copy, 1, (uint32_t[]){9999});
}

static void queue_elsewhere(struct spoiled *copy)
{
    *queue(copy, BP_QUEUE_HOST) = list_of(copy, 1, (uint32_t[]){0});
}

static void issue_in_reverse(struct spoiled *copy)
{
    uint32_t *at = (uint32_t *)queue(copy, BP_QUEUE_COMPUTE)->at, first = at[0];
    at[0] = at[1];
    at[1] = first;
}

static void have_slots_too(struct spoiled *copy)
{
    copy->concrete->issues = bp_arena_array(&copy->arena, 1, sizeof *copy->concrete->issues);
    copy->concrete->n_issues = 1;
}

static void have_a_queue_too(struct spoiled *copy)
{
    queue_elsewhere(copy);
}

static void route_computation(struct spoiled *copy)
{
    copy->concrete->routes = bp_arena_array(&copy->arena, 1, sizeof *copy->concrete->routes);
    copy->concrete->n_routes = 1;
}

static void route_to_nowhere(struct spoiled *copy)
{
    struct bp_slot_route *route = bp_arena_array(&copy->arena, 1, sizeof *route);
    *route = (struct bp_slot_route){.command = 1, .destination = 99};
    command(copy, 1)->kind = BP_TASK_TRANSFER;
    copy->concrete->routes = route;
    copy->concrete->n_routes = 1;
}

static void route_no_command(struct spoiled *copy)
{
    route_to_nowhere(copy);
    ((struct bp_slot_route *)copy->concrete->routes)->command = 9999;
}

static void derive_differently(struct spoiled *copy)
{
    char *digit = strstr((bp_buf_string(&copy->again), copy->again.data), "\"offset_bytes\":0");
    digit[strlen("\"offset_bytes\":")] = '1';
}

#define C(check) .id = check, .stage = BP_STAGE_CONCRETE
#define SLOT(check) C(check), .plan = SHARDED
#define K struct bp_concrete_command
#define B struct bp_concrete_buffer
#define R struct bp_concrete_region
#define I struct bp_slot_issue
#define OF_COMMAND(task_name) .part = COMMAND, .name = task_name
#define OF_BUFFER(role_name) .part = BUFFER, .name = role_name
static const struct mutation rows[] = {
    {C("concrete.ids"), .path = "/commands/%u/id", OF_COMMAND("mlp.up.forward"), FLIP(K, id.hash)},
    {C("concrete.ids"), .path = "/buffers/%u/id", OF_BUFFER("weights"), FLIP(B, id.hash)},
    {C("concrete.ids"), .path = "/regions/0/id", .part = REGION, FLIP(R, id.hash)},
    {C("concrete.ids"), .path = "/commands/1/id", .spoil = run_another},
    {C("concrete.unique_ids"), .path = "/commands/2/id", .spoil = share_id},
    {C("concrete.references"), .path = "/buffers/%u/region", OF_BUFFER("weights"), SET(B, region, 3)},
    {C("concrete.references"), .path = "/commands/1/buffers/0", .spoil = use_no_buffer},
    {C("concrete.references"), .path = "/commands/1/buffers/1", .spoil = use_out_of_order},
    {C("concrete.references"), .path = "/commands/%u", OF_COMMAND("mlp.up.forward"), SET(K, kind, 99)},
    {C("concrete.devices"), .path = "/devices", SET(struct bp_concrete_ir, n_devices, 0)},
    {C("concrete.devices"), .path = "/regions", COUNT(struct bp_concrete_ir, n_regions, 0)},
    {C("concrete.devices"), .path = "/regions/0/device", .part = REGION, SET(R, device, 1)},
    {C("concrete.topology"), .path = "/commands/1/dependencies/0", .spoil = wait_for_itself},
    {C("concrete.layout"), .path = "/buffers/1/offset_bytes", .spoil = leave_a_hole},
    {C("concrete.layout"), .path = "/buffers/0/offset_bytes", OF_BUFFER("input"), SET(B, offset, 16)},
    {C("concrete.alignment"), .path = "/buffers/%u/offset_bytes", OF_BUFFER("weights"), FLIP(B, offset)},
    {C("concrete.alignment"), .path = "/buffers/%u/alignment_bytes", OF_BUFFER("weights"), SET(B, alignment, 0)},
    {C("concrete.capacity"), .path = "/deployment/memory_bytes", .spoil = lack_one_byte},
    {C("concrete.capacity"), .path = "/deployment/memory_bytes", OF_BUFFER("weights"), SET(B, size, UINT64_MAX)},
    {C("bind.parent"), .path = "/parents/0", FLIP(struct bp_concrete_ir, parent)},
    {C("bind.bindings"), .path = "/target/fingerprint", FLIP(struct bp_concrete_ir, target_fingerprint)},
    {C("bind.bindings"), .path = "/deployment/fingerprint", FLIP(struct bp_concrete_ir, deployment_fingerprint)},
    {C("bind.bindings"), .path = "", FLIP(struct bp_concrete_ir, binding)},
    {C("bind.bindings"), .path = "/target/kind", SET(struct bp_concrete_ir, target, BP_TARGET_SLOT)},
    {C("bind.lineage"), .path = "/commands/1/lineage/sources/0", .spoil = come_from_nowhere},
    {C("bind.lineage"), .path = "/buffers/%u/lineage/rule", OF_BUFFER("weights"),
     TEXT(B, lineage.rule, "bind.reference-slot")},
    {C("bind.coverage"), .path = "", .spoil = come_from_another},
    {C("bind.origins"), .path = "/commands/1/lineage/sources", .spoil = come_from_another},
    {C("bind.origins"), .path = "/buffers/1/lineage/sources", .spoil = buffer_from_another},
    {C("bind.commands"), .path = "/commands", .spoil = lose_the_last_command},
    {C("bind.commands"), .path = "/commands/1/task", .spoil = run_another},
    {C("bind.commands"), .path = "/commands/%u/kind", OF_COMMAND("mlp.up.forward"), SET(K, kind, BP_TASK_TRANSFER)},
    {C("bind.dependencies"), .spoil = wait_for_the_first},
    {C("bind.implementation"), .path = "/commands/%u/implementation", OF_COMMAND("mlp.up.forward"),
     TEXT(K, implementation, "reference/tensor-core")},
    {C("bind.implementation"), .path = "/commands/%u/implementation", OF_COMMAND("mlp.up.forward"),
     TEXT(K, implementation, "vendor/matrix-engine")},
    {C("bind.access"), .path = "/commands/1/buffers/0", .spoil = use_otherwise},
    {C("bind.access"), .path = "/commands/1/buffers/0", .spoil = use_another},
    {C("bind.access"), .path = "/commands/%u/buffers", OF_COMMAND("mlp.up.forward"), COUNT(K, n_uses, 1)},
    {C("bind.buffers"), .path = "/buffers", .spoil = lose_the_last_buffer},
    {C("bind.buffers"), .path = "/buffers/1/source", .spoil = hold_another},
    {C("bind.buffers"), .path = "/buffers/%u/size_bytes", OF_BUFFER("weights"), FLIP(B, size)},
    {C("bind.buffers"), .path = "/buffers/%u/alignment_bytes", OF_BUFFER("weights"), SET(B, alignment, 32)},
    {C("bind.devices"), .path = "/devices", SET(struct bp_concrete_ir, n_devices, 3)},
    {C("bind.capacity"), .path = "/regions/0/capacity_bytes", .part = REGION, FLIP(R, capacity)},
    {C("queue.extension"), .path = "/target/kind", SET(struct bp_concrete_ir, target, BP_TARGET_SLOT)},
    {C("queue.extension"), .path = "/extension", .spoil = have_slots_too},
    {C("queue.coverage"), .spoil = drop_from_the_queue},
    {C("queue.coverage"), .path = "/extension/queues/3/commands/0", .spoil = queue_nothing_known},
    {C("queue.coverage"), .path = "/commands/0/queue", .spoil = queue_elsewhere},
    {C("queue.kind"), .path = "/extension/queues/3/commands/0", .spoil = queue_elsewhere},
    {C("queue.order"), .path = "/extension/queues/0/commands/1", .spoil = issue_in_reverse},
    {C("queue.field"), .path = "/commands/%u/queue", OF_COMMAND("mlp.up.forward"), SET(K, queue, BP_QUEUE_NONE)},
    {C("queue.field"), .path = "/commands/%u/queue", OF_COMMAND("mlp.up.forward"), SET(K, kind, 99)},
    {SLOT("slot.extension"), .path = "/target/kind", SET(struct bp_concrete_ir, target, BP_TARGET_QUEUE)},
    {SLOT("slot.extension"), .path = "/extension", .spoil = have_a_queue_too},
    {SLOT("slot.extension"), .path = "/commands/%u/queue", OF_COMMAND("mlp.up.forward"), SET(K, queue, BP_QUEUE_HOST)},
    {SLOT("slot.coverage"), .path = "/commands/3", .part = ISSUE, .place = 3, SET(I, command, 4)},
    {SLOT("slot.coverage"), .path = "/extension/issue/3/command", .part = ISSUE, .place = 3, SET(I, command, 9999)},
    {SLOT("slot.unique"), .path = "/extension/issue/3", .part = ISSUE, .place = 3, SET(I, cycle, 2)},
    {SLOT("slot.issue"), .path = "/extension/issue/3", .part = ISSUE, .place = 3, SET(I, slot, 1)},
    {SLOT("slot.issue"), .path = "/extension/issue/3", .part = ISSUE, .place = 3, SET(I, cycle, 99)},
    {SLOT("slot.order"), .part = ISSUE, SET(I, cycle, 50)},
    {SLOT("slot.routes"), .path = "/commands/0", .spoil = route_computation},
    {SLOT("slot.routes"), .path = "/extension/routes/0", .spoil = route_to_nowhere},
    {SLOT("slot.routes"), .path = "/extension/routes/0/command", .spoil = route_no_command},
    {SLOT("slot.routes"), .path = "/commands/%u", OF_COMMAND("mlp.up.forward"), SET(K, kind, BP_TASK_TRANSFER)},
    {C("rederivation.bytes"), .path = "/buffers/0/offset_bytes", .spoil = derive_differently},
};
const struct mutation_group concrete_mutations = MUTATIONS(rows);
