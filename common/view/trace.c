#include "common/view/trace.h"

#include <stdio.h>
#include <string.h>

enum { PREFIX_DIGITS_MIN = 8, ID_DIGITS = 2 * sizeof((struct bp_id *)0)->hash, ARRAYS_MAX = 3, NAMES_SHOWN = 8 };

/* An array of entities, each of which begins with its id. */
struct entities {
    const void *at;
    uint32_t n;
    size_t size;
    const char *(*name)(const void *entity);                 /* NULL: it is named as what it came from */
    const struct bp_lineage *(*lineage)(const void *entity); /* NULL: it came from nothing of the plan */
};

#define ENTITY_NAME(function, type, expression)                                                                        \
    static const char *function(const void *entity)                                                                    \
    {                                                                                                                  \
        const type *it = entity;                                                                                       \
        return expression;                                                                                             \
    }
#define ENTITY_LINEAGE(function, type)                                                                                 \
    static const struct bp_lineage *function(const void *entity)                                                       \
    {                                                                                                                  \
        return &((const type *)entity)->lineage;                                                                       \
    }
ENTITY_NAME(model_value_name, struct bp_model_value, bp_model_role_names[it->role])
ENTITY_NAME(operation_name, struct bp_model_operation, it->name)
ENTITY_NAME(distributed_value_name, struct bp_distributed_value, it->role)
ENTITY_NAME(distributed_task_name, struct bp_distributed_task, it->name)
ENTITY_NAME(portable_task_name, struct bp_portable_task, it->name)
ENTITY_NAME(portable_buffer_name, struct bp_portable_buffer, bp_buffer_role_names[it->role])
ENTITY_LINEAGE(distributed_value_lineage, struct bp_distributed_value)
ENTITY_LINEAGE(distributed_task_lineage, struct bp_distributed_task)
ENTITY_LINEAGE(portable_task_lineage, struct bp_portable_task)
ENTITY_LINEAGE(portable_buffer_lineage, struct bp_portable_buffer)
ENTITY_LINEAGE(concrete_buffer_lineage, struct bp_concrete_buffer)
ENTITY_LINEAGE(command_lineage, struct bp_concrete_command)

/* Every region stands for one device's memory. */
static const char *region_name(const void *entity)
{
    (void)entity;
    return "memory";
}

#define ENTITIES(array, count, name, lineage)                                                                          \
    {                                                                                                                  \
        (array), (count), sizeof *(array), (name), (lineage)                                                           \
    }

static void entities_of(const struct bp_ir *ir, struct entities ret[ARRAYS_MAX])
{
    memset(ret, 0, ARRAYS_MAX * sizeof *ret);
    switch (ir->stage) {
    case BP_STAGE_MODEL: {
        const struct bp_model_ir *model = ir->as.model;
        ret[0] = (struct entities)ENTITIES(model->operations, model->n_operations, operation_name, NULL);
        ret[1] = (struct entities)ENTITIES(model->values, model->n_values, model_value_name, NULL);
        return;
    }
    case BP_STAGE_DISTRIBUTED: {
        const struct bp_distributed_ir *it = ir->as.distributed;
        ret[0] = (struct entities)ENTITIES(it->tasks, it->n_tasks, distributed_task_name, distributed_task_lineage);
        ret[1] = (struct entities)ENTITIES(it->values, it->n_values, distributed_value_name, distributed_value_lineage);
        return;
    }
    case BP_STAGE_PORTABLE: {
        const struct bp_portable_ir *it = ir->as.portable;
        ret[0] = (struct entities)ENTITIES(it->tasks, it->n_tasks, portable_task_name, portable_task_lineage);
        ret[1] = (struct entities)ENTITIES(it->buffers, it->n_buffers, portable_buffer_name, portable_buffer_lineage);
        return;
    }
    default: {
        const struct bp_concrete_ir *it = ir->as.concrete;
        ret[0] = (struct entities)ENTITIES(it->commands, it->n_commands, NULL, command_lineage);
        ret[1] = (struct entities)ENTITIES(it->buffers, it->n_buffers, NULL, concrete_buffer_lineage);
        ret[2] = (struct entities)ENTITIES(it->regions, it->n_regions, region_name, NULL);
        return;
    }
    }
}

/* What the caller asked for: the first digits of an id's hash, of one kind or of any. */
struct wanted {
    const char *digits;
    size_t n_digits;
    int kind; /* -1: any */
};

static bool wanted_read(const char *text, struct wanted *ret)
{
    const char *colon = strchr(text, ':');
    struct wanted wanted = {.digits = colon ? colon + 1 : text, .kind = -1};
    for (int kind = 0; colon && kind < BP_ENTITY_N; kind++)
        if (strlen(bp_entity_names[kind]) == (size_t)(colon - text) &&
            memcmp(bp_entity_names[kind], text, (size_t)(colon - text)) == 0)
            wanted.kind = kind;
    wanted.n_digits = strlen(wanted.digits);
    const bool digits_only = strspn(wanted.digits, "0123456789abcdef") == wanted.n_digits;
    if ((colon && wanted.kind < 0) || !digits_only || wanted.n_digits < PREFIX_DIGITS_MIN ||
        wanted.n_digits > ID_DIGITS)
        return false;
    *ret = wanted;
    return true;
}

static bool id_matches(const struct wanted *wanted, const struct bp_id *id)
{
    char digits[ID_DIGITS + 1];
    if (wanted->kind >= 0 && (int)id->kind != wanted->kind)
        return false;
    bp_hex(id->hash, sizeof id->hash, digits);
    return memcmp(digits, wanted->digits, wanted->n_digits) == 0;
}

/* An entity found. */
struct place {
    enum bp_stage stage;
    struct entities in;
    const struct bp_id *id;
};

struct search {
    size_t n;
    struct place first;
    char names[NAMES_SHOWN * BP_ID_TEXT + 8]; /* of all that match, as far as they are shown */
};

static void search_found(struct search *search, enum bp_stage stage, const struct entities *in, const struct bp_id *id)
{
    if (search->n == 0)
        search->first = (struct place){stage, *in, id};
    if (search->n <= NAMES_SHOWN) {
        char text[BP_ID_TEXT];
        bp_id_format(id, text);
        const size_t n = strlen(search->names);
        snprintf(search->names + n, sizeof search->names - n, "%s%s", n ? ", " : "",
                 search->n == NAMES_SHOWN ? "..." : text);
    }
    search->n++;
}

static void search_stage(struct search *search, const struct bp_ir *ir, const struct wanted *wanted)
{
    struct entities arrays[ARRAYS_MAX];
    entities_of(ir, arrays);
    for (const struct entities *in = arrays; in < arrays + ARRAYS_MAX; in++) {
        const char *entity = in->at;
        for (uint32_t i = 0; i < in->n; i++, entity += in->size)
            if (id_matches(wanted, (const struct bp_id *)(const void *)entity))
                search_found(search, ir->stage, in, (const struct bp_id *)(const void *)entity);
    }
}

static int start_find(const struct bp_trace_plan *plan, const char *entity, struct place *ret, struct bp_err *err)
{
    struct wanted wanted;
    struct search search = {0};
    if (!wanted_read(entity, &wanted))
        return bp_fail(err, BP_E_invalid_id, "", "not the id of an entity, nor 8 or more of its digits");
    for (size_t stage = 0; stage < plan->n; stage++)
        search_stage(&search, &plan->ir[stage], &wanted);
    if (search.n == 0)
        return bp_fail(err, BP_E_not_found, "", "the plan has no entity of that id");
    if (search.n > 1)
        return bp_fail(err, BP_E_ambiguous_prefix, "", "it could be %s", search.names);
    *ret = search.first;
    return 0;
}

static bool source_find(const struct bp_ir *ir, const struct bp_id *id, struct place *ret)
{
    struct entities arrays[ARRAYS_MAX];
    entities_of(ir, arrays);
    for (const struct entities *in = arrays; in < arrays + ARRAYS_MAX; in++) {
        const char *entity = in->at;
        for (uint32_t i = 0; i < in->n; i++, entity += in->size) {
            const struct bp_id *own = (const void *)entity;
            if (bp_id_equal(own, id)) {
                *ret = (struct place){ir->stage, *in, own};
                return true;
            }
        }
    }
    return false;
}

int bp_trace(const struct bp_trace_plan *plan, const char *entity, struct bp_trace_link ret[BP_STAGE_N], size_t *ret_n,
             struct bp_err *err)
{
    struct bp_trace_link chain[BP_STAGE_N];
    struct place at = {0};
    size_t n = 0;
    if (start_find(plan, entity, &at, err) != 0)
        return -1;
    for (;;) {
        const struct bp_lineage *lineage = at.in.lineage ? at.in.lineage(at.id) : NULL;
        chain[n++] = (struct bp_trace_link){.stage = at.stage,
                                            .digest = plan->digest[at.stage],
                                            .id = *at.id,
                                            .name = at.in.name ? at.in.name(at.id) : NULL,
                                            .rule = lineage ? lineage->rule : NULL};
        if (!lineage)
            break;
        char text[BP_ID_TEXT];
        bp_id_format(at.id, text);
        if (lineage->n_sources == 0 || !source_find(&plan->ir[at.stage - 1], &lineage->sources[0], &at))
            return bp_fail(err, BP_E_structure_violated, "", "the lineage of %s leads nowhere", text);
    }
    for (size_t i = n; i-- > 0;)
        if (!chain[i].name)
            chain[i].name = chain[i + 1].name; /* only the first, of the concrete stage, has none */
    memcpy(ret, chain, n * sizeof *chain);
    *ret_n = n;
    return 0;
}

void bp_trace_write(struct bp_writer *writer, const struct bp_trace_link *chain, size_t n)
{
    bp_writer_object(writer);
    bp_writer_key(writer, "entity");
    bp_writer_id(writer, &chain[0].id);
    bp_writer_key(writer, "chain");
    bp_writer_array(writer);
    for (size_t i = 0; i < n; i++) {
        bp_writer_object(writer);
        bp_writer_put_string(writer, "stage", bp_stage_names[chain[i].stage]);
        bp_writer_key(writer, "digest");
        bp_writer_digest(writer, &chain[i].digest);
        bp_writer_key(writer, "entity");
        bp_writer_id(writer, &chain[i].id);
        bp_writer_put_string(writer, "kind", bp_entity_names[chain[i].id.kind]);
        bp_writer_put_string(writer, "name", chain[i].name);
        bp_writer_key(writer, "rule");
        if (chain[i].rule)
            bp_writer_string(writer, chain[i].rule);
        else
            bp_writer_null(writer);
        bp_writer_end(writer);
    }
    bp_writer_end(writer);
    bp_writer_end(writer);
}
