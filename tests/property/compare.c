#include "tests/property/compare.h"

#include <stdio.h>
#include <string.h>

/* Remembers the first difference. */
static void differ(struct compare *compare, const char *where, const char *what, const char *actual,
                   const char *expected)
{
    if (!compare->difference[0])
        snprintf(compare->difference, sizeof(compare->difference), "%s: %s is %s, expected %s", where, what, actual,
                 expected);
}

static void same_text(struct compare *compare, const char *where, const char *what, const char *actual,
                      const char *expected)
{
    if (!actual || !expected ? actual != expected : strcmp(actual, expected) != 0)
        differ(compare, where, what, actual ? actual : "nothing", expected ? expected : "nothing");
}

static void same_number(struct compare *compare, const char *where, const char *what, wide actual, wide expected)
{
    char left[BP_U128_TEXT], right[BP_U128_TEXT];
    if (actual == expected)
        return;
    bp_u128_format(actual, left);
    bp_u128_format(expected, right);
    differ(compare, where, what, left, right);
}

static void same_work(struct compare *compare, const char *where, const struct bp_work *actual,
                      const struct ref_work *expected)
{
    same_number(compare, where, "operations", actual->operations.n, expected->operations);
    same_number(compare, where, "read_bytes", actual->read.n, expected->read);
    same_number(compare, where, "write_bytes", actual->write.n, expected->write);
    same_number(compare, where, "message_bytes", actual->message.n, expected->message);
}

/* `list` names exactly what `set` marks among n, ascending. */
static void same_set(struct compare *compare, const char *where, const char *what, const struct bp_list *list,
                     const bool *set, size_t n)
{
    uint32_t next = 0;
    for (size_t i = 0; i < n; i++) {
        if (!set[i])
            continue;
        if (next >= list->n || list->at[next] != i)
            same_number(compare, where, what, next < list->n ? list->at[next] : WIDE_HUGE, i);
        next++;
    }
    same_number(compare, where, what, list->n, next);
}

static void same_effect(struct compare *compare, const struct bp_effect *effect, const struct ref_task *task)
{
    same_number(compare, task->name, "effect", effect->has, task->uses_kv_cache);
    if (effect->has)
        same_text(compare, task->name, "effect's access", bp_access_names[effect->access],
                  task->writes_kv_cache ? "write" : "read");
}

static void same_layer(struct compare *compare, const struct ref_request *request,
                       const struct bp_distributed_layer *layer, const struct ref_row *row)
{
    same_number(compare, row->name, "block", layer->block, row->block);
    same_text(compare, row->name, "layer", layer->name, row->name);
    same_number(compare, row->name, "parameters", layer->parameters, row->parameters);
    if (!request->training)
        return;
    if (row->states_A)
        same_number(compare, row->name, "activation_bytes", layer->activation.n, row->A);
    if (row->states_O)
        same_number(compare, row->name, "output_bytes", layer->output.n, row->O);
    if (row->A != 0)
        same_number(compare, row->name, "owns_activation", layer->owns_activation, row->owns_A);
    if (request->recompute == REF_FULL)
        return; /* nothing of a row is kept, whatever its marks say */
    if (row->states_A && row->A != 0)
        same_number(compare, row->name, "keeps_activation", layer->keeps_activation, row->keeps_A);
    if (row->states_O)
        same_number(compare, row->name, "keeps_output", layer->keeps_output, row->keeps_O);
}

static const char *collective_of(const struct ref_task *task)
{
    return task->collective ? task->collective : "none";
}

static void same_memory(struct compare *compare, const struct bp_memory *actual, const struct ref_memory *memory)
{
    for (size_t i = 0; i < BP_MEMORY_N; i++)
        same_number(compare, "memory", bp_memory_names[i], actual->at[i].n, ref_memory_of(memory, bp_memory_names[i]));
}

/* A model of one kind says no name in its form: the importers' rule names it. */
static void same_blocks(struct compare *compare, const struct ref_plan *plan, const struct bp_distributed_ir *ir)
{
    same_number(compare, "distributed", "blocks", ir->n_blocks, plan->n_blocks);
    for (size_t i = 0; i < plan->n_blocks && i < ir->n_blocks; i++) {
        const struct ref_block *block = &plan->blocks[i];
        if (block->name[0])
            same_text(compare, "block", "name", ir->blocks[i].name, block->name);
        same_number(compare, ir->blocks[i].name, "layers", ir->blocks[i].layers, block->layers);
        same_memory(compare, &ir->blocks[i].memory, &block->memory);
    }
    same_memory(compare, &ir->memory, &plan->memory);
}

/* What the snapshot says that it counts and assumes. */
static void same_stamps(struct compare *compare, const struct ref_request *request, const struct bp_distributed_ir *ir)
{
    bool latent = false, experts = false;
    for (size_t i = 0; i < request->n_kinds; i++) {
        latent |= request->kinds[i].l_kv != 0;
        experts |= request->kinds[i].E != 0;
    }
    const bool absorbed = !request->training && !request->prefill;
    same_number(compare, "distributed", "latent_attention", ir->latent_attention,
                !latent    ? BP_LATENT_NONE
                : absorbed ? BP_LATENT_ABSORBED
                           : BP_LATENT_EXPANDED);
    same_number(compare, "distributed", "balanced_routing", ir->balanced_routing, experts);
}

static bool reduces(const char *collective)
{
    return collective && strcmp(collective, "all_gather") != 0 && strcmp(collective, "all_to_all") != 0;
}

bool compare_distributed(struct compare *compare, const struct ref_request *request, const struct ref_plan *plan,
                         const struct bp_distributed_ir *ir)
{
    compare->difference[0] = '\0';
    same_number(compare, "distributed", "tasks", ir->n_tasks, plan->n_tasks);
    for (size_t i = 0; i < plan->n_tasks && i < ir->n_tasks; i++) {
        const struct bp_distributed_task *actual = &ir->tasks[i];
        const struct ref_task *task = &plan->tasks[i];
        same_text(compare, "distributed task", "name", actual->name, task->name);
        same_text(compare, task->name, "layer", ir->layers[actual->layer].name, task->layer);
        same_text(compare, task->name, "phase", bp_phase_names[actual->phase], task->phase);
        same_text(compare, task->name, "engine", bp_engine_names[actual->engine], task->engine);
        same_text(compare, task->name, "kind", bp_task_kind_names[actual->kind],
                  task->collective ? "collective" : "compute");
        same_text(compare, task->name, "collective", bp_collective_names[actual->collective], collective_of(task));
        same_number(compare, task->name, "reduces", actual->reduces, reduces(task->collective));
        same_text(compare, task->name, "axis", bp_axis_names[actual->axis], task->axis ? task->axis : "none");
        same_number(compare, task->name, "block", actual->block, task->block);
        same_work(compare, task->name, &actual->work, &task->work);
        same_effect(compare, &actual->effect, task);
        same_set(compare, task->name, "dependency", &actual->dependencies, task->waits_for, plan->n_tasks);
    }
    same_number(compare, "distributed", "layers", ir->n_layers, plan->n_rows);
    for (size_t i = 0; i < plan->n_rows && i < ir->n_layers; i++)
        same_layer(compare, request, &ir->layers[i], &plan->rows[i]);
    same_blocks(compare, plan, ir);
    same_stamps(compare, request, ir);
    return !compare->difference[0];
}

static void same_buffers_of_task(struct compare *compare, const struct ref_plan *plan, size_t i,
                                 const struct bp_portable_task *actual)
{
    bool reads[REF_BUFFERS], writes[REF_BUFFERS];
    for (size_t b = 0; b < plan->n_buffers; b++) {
        reads[b] = plan->buffers[b].read_by[i];
        writes[b] = plan->buffers[b].written_by[i];
    }
    same_set(compare, plan->tasks[i].name, "input", &actual->inputs, reads, plan->n_buffers);
    same_set(compare, plan->tasks[i].name, "output", &actual->outputs, writes, plan->n_buffers);
}

static void same_needs(struct compare *compare, const struct bp_portable_task *actual, const struct ref_task *task)
{
    char implementation[80];
    same_number(compare, task->name, "compute", actual->resources.compute.n, task->work.operations);
    same_number(compare, task->name, "memory", actual->resources.memory.n, wide_add(task->work.read, task->work.write));
    same_number(compare, task->name, "network", actual->resources.network.n, task->work.message);
    same_text(compare, task->name, "capability", actual->capability.name, ref_task_capability(task));
    uint32_t n = actual->capability.n_alternatives;
    same_number(compare, task->name, "alternatives", n,
                strcmp(task->name, "attention.core") == 0 ? 3
                : strcmp(task->engine, "vector") == 0     ? 1
                                                          : 2);
    snprintf(implementation, sizeof(implementation), "reference/%s", n ? actual->capability.alternatives[n - 1] : "");
    same_text(compare, task->name, "last alternative", implementation, ref_task_implementation(task));
}

bool compare_portable(struct compare *compare, const struct ref_request *request, const struct ref_plan *plan,
                      const struct bp_portable_ir *ir)
{
    compare->difference[0] = '\0';
    same_number(compare, "portable", "tasks", ir->n_tasks, plan->n_tasks);
    for (size_t i = 0; i < plan->n_tasks && i < ir->n_tasks; i++) {
        const struct bp_portable_task *actual = &ir->tasks[i];
        const struct ref_task *task = &plan->tasks[i];
        same_text(compare, "portable task", "name", actual->name, task->name);
        same_text(compare, task->name, "layer", actual->layer, task->layer);
        if (plan->blocks[task->block].name[0])
            same_text(compare, task->name, "block", actual->block, plan->blocks[task->block].name);
        same_text(compare, task->name, "phase", bp_phase_names[actual->phase], task->phase);
        same_text(compare, task->name, "engine", bp_engine_names[actual->engine], task->engine);
        same_text(compare, task->name, "kind", bp_task_kind_names[actual->kind],
                  task->collective ? "collective" : "compute");
        same_number(compare, task->name, "ranks", actual->n_ranks, request->t);
        same_work(compare, task->name, &actual->work, &task->work);
        same_effect(compare, &actual->effect, task);
        same_set(compare, task->name, "dependency", &actual->dependencies, task->waits_for, plan->n_tasks);
        same_needs(compare, actual, task);
        same_buffers_of_task(compare, plan, i, actual);
    }
    same_number(compare, "portable", "buffers", ir->n_buffers, plan->n_buffers);
    for (size_t i = 0; i < plan->n_buffers && i < ir->n_buffers; i++) {
        const struct bp_portable_buffer *actual = &ir->buffers[i];
        const struct ref_buffer *buffer = &plan->buffers[i];
        same_text(compare, "buffer", "role", bp_buffer_role_names[actual->role], buffer->role);
        if (plan->blocks[buffer->block].name[0])
            same_text(compare, buffer->role, "block", actual->block, plan->blocks[buffer->block].name);
        same_text(compare, buffer->role, "storage", bp_storage_names[actual->storage], buffer->storage);
        same_number(compare, buffer->role, "size_bytes", actual->size.n, buffer->size);
        same_number(compare, buffer->role, "alignment_bytes", actual->alignment, 16);
        same_set(compare, buffer->role, "producer", &actual->producers, buffer->written_by, plan->n_tasks);
        same_set(compare, buffer->role, "consumer", &actual->consumers, buffer->read_by, plan->n_tasks);
    }
    return !compare->difference[0];
}

static void same_uses(struct compare *compare, const struct ref_plan *plan, size_t i,
                      const struct bp_concrete_command *actual)
{
    uint32_t next = 0;
    for (size_t b = 0; b < plan->n_buffers; b++) {
        const bool reads = plan->buffers[b].read_by[i], writes = plan->buffers[b].written_by[i];
        if (!reads && !writes)
            continue;
        const char *where = plan->tasks[i].name;
        if (next < actual->n_uses) {
            same_number(compare, where, "buffer", actual->uses[next].buffer, b);
            same_text(compare, where, "access", bp_access_names[actual->uses[next].access],
                      reads && writes ? "read_write"
                      : reads         ? "read"
                                      : "write");
        }
        next++;
    }
    same_number(compare, plan->tasks[i].name, "buffers", actual->n_uses, next);
}

static void same_queues(struct compare *compare, const struct ref_plan *plan, const struct bp_concrete_ir *ir)
{
    bool collective[REF_TASKS], compute[REF_TASKS];
    for (size_t i = 0; i < plan->n_tasks; i++) {
        collective[i] = plan->tasks[i].collective != NULL;
        compute[i] = !collective[i];
    }
    same_set(compare, "compute queue", "command", &ir->queues[BP_QUEUE_COMPUTE], compute, plan->n_tasks);
    same_set(compare, "collective queue", "command", &ir->queues[BP_QUEUE_COLLECTIVE], collective, plan->n_tasks);
    same_number(compare, "transfer queue", "commands", ir->queues[BP_QUEUE_TRANSFER].n, 0);
    same_number(compare, "host queue", "commands", ir->queues[BP_QUEUE_HOST].n, 0);
    same_number(compare, "queue target", "issues", ir->n_issues, 0);
}

static void same_slots(struct compare *compare, const struct ref_plan *plan, const struct bp_concrete_ir *ir)
{
    same_number(compare, "slot target", "issues", ir->n_issues, plan->n_tasks);
    for (uint32_t i = 0; i < ir->n_issues && i < plan->n_tasks; i++) {
        same_number(compare, plan->tasks[i].name, "command", ir->issues[i].command, i);
        same_number(compare, plan->tasks[i].name, "cycle", ir->issues[i].cycle, i);
        same_number(compare, plan->tasks[i].name, "slot", ir->issues[i].slot, 0);
    }
    same_number(compare, "slot target", "routes", ir->n_routes, 0);
}

bool compare_concrete(struct compare *compare, const struct ref_request *request, const struct ref_plan *plan,
                      const struct bp_concrete_ir *ir)
{
    compare->difference[0] = '\0';
    same_number(compare, "concrete", "devices", ir->n_devices, request->t);
    same_number(compare, "concrete", "regions", ir->n_regions, 1);
    same_number(compare, "concrete", "buffers", ir->n_buffers, plan->n_buffers);
    for (size_t i = 0; i < plan->n_buffers && i < ir->n_buffers; i++) {
        const struct ref_buffer *buffer = &plan->buffers[i];
        same_number(compare, buffer->role, "region", ir->buffers[i].region, 0);
        same_number(compare, buffer->role, "offset_bytes", ir->buffers[i].offset.n, buffer->offset);
        same_number(compare, buffer->role, "size_bytes", ir->buffers[i].size.n, buffer->size);
        same_number(compare, buffer->role, "alignment_bytes", ir->buffers[i].alignment, 16);
    }
    same_number(compare, "concrete", "commands", ir->n_commands, plan->n_tasks);
    for (size_t i = 0; i < plan->n_tasks && i < ir->n_commands; i++) {
        const struct bp_concrete_command *actual = &ir->commands[i];
        const struct ref_task *task = &plan->tasks[i];
        same_text(compare, task->name, "kind", bp_task_kind_names[actual->kind],
                  task->collective ? "collective" : "compute");
        same_text(compare, task->name, "queue", bp_queue_names[actual->queue],
                  request->slots     ? NULL
                  : task->collective ? "collective"
                                     : "compute");
        same_text(compare, task->name, "implementation", actual->implementation, ref_task_implementation(task));
        same_set(compare, task->name, "dependency", &actual->dependencies, task->waits_for, plan->n_tasks);
        same_uses(compare, plan, i, actual);
    }
    if (request->slots)
        same_slots(compare, plan, ir);
    else
        same_queues(compare, plan, ir);
    return !compare->difference[0];
}

static void same_total(struct compare *compare, const char *where, const json_t *actual, const struct ref_plan *plan,
                       const char *word)
{
    char digits[BP_U128_TEXT];
    size_t n;
    const struct ref_work total = ref_plan_total(plan, word, &n);
    bp_u128_format(total.operations, digits);
    same_number(compare, where, "tasks", (wide)json_integer_value(json_object_get(actual, "tasks")), n);
    same_text(compare, where, "operations", json_string_value(json_object_get(actual, "operations")), digits);
    same_number(compare, where, "read_bytes", (wide)json_integer_value(json_object_get(actual, "read_bytes")),
                total.read);
    same_number(compare, where, "write_bytes", (wide)json_integer_value(json_object_get(actual, "write_bytes")),
                total.write);
    same_number(compare, where, "message_bytes", (wide)json_integer_value(json_object_get(actual, "message_bytes")),
                total.message);
}

/* Every phase, or engine, that has a task, and no other. */
static void same_totals(struct compare *compare, const json_t *actual, const struct ref_plan *plan,
                        const char *const *words)
{
    size_t n_with_tasks = 0;
    for (size_t i = 0; words[i]; i++) {
        size_t n;
        ref_plan_total(plan, words[i], &n);
        if (n == 0)
            continue;
        n_with_tasks++;
        same_total(compare, words[i], json_object_get(actual, words[i]), plan, words[i]);
    }
    same_number(compare, "facts", "totals", json_object_size(actual), n_with_tasks);
}

bool compare_facts(struct compare *compare, const struct ref_plan *plan, const json_t *facts)
{
    compare->difference[0] = '\0';
    const json_t *memory = json_object_get(facts, "memory");
    same_text(compare, "facts", "scope", json_string_value(json_object_get(facts, "scope")),
              plan->n_blocks > 1 ? "one block of each kind, one rank" : "one block, one rank");
    same_total(compare, "facts", facts, plan, NULL);
    same_totals(compare, json_object_get(facts, "by_phase"), plan, bp_phase_names);
    same_totals(compare, json_object_get(facts, "by_engine"), plan, bp_engine_names);
    same_number(compare, "facts", "memory", json_object_size(memory), plan->memory.n);
    for (size_t i = 0; i < plan->memory.n; i++) {
        const struct ref_memory_fact *fact = &plan->memory.at[i];
        same_number(compare, "memory", fact->name, (wide)json_integer_value(json_object_get(memory, fact->name)),
                    fact->bytes);
    }
    return !compare->difference[0];
}
