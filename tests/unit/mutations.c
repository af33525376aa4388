#include "tests/unit/mutations.h"

#include <check.h>
#include <string.h>

const struct mutation_group *const mutation_groups[] = {&model_mutations, &distributed_mutations, &portable_mutations,
                                                        &concrete_mutations, &law_mutations};
const size_t mutation_groups_n = sizeof mutation_groups / sizeof *mutation_groups;

/* The array that a part is of. */
struct array {
    const void *at;
    size_t size;
};

static struct array array_of(const struct spoiled *copy, enum part part)
{
    const struct bp_model_ir *m = copy->model;
    const struct bp_distributed_ir *d = copy->distributed;
    const struct bp_portable_ir *p = copy->portable;
    const struct bp_concrete_ir *c = copy->concrete;
    switch (part) {
    case SNAPSHOT:
        return (struct array){m ? (const void *)m : d ? (const void *)d : p ? (const void *)p : (const void *)c, 0};
    case VALUE:
        return m ? (struct array){m->values, sizeof *m->values} : (struct array){d->values, sizeof *d->values};
    case OPERATION:
        return (struct array){m->operations, sizeof *m->operations};
    case BLOCK:
        return (struct array){d->blocks, sizeof *d->blocks};
    case LAYER:
        return (struct array){d->layers, sizeof *d->layers};
    case TASK:
        return d ? (struct array){d->tasks, sizeof *d->tasks} : (struct array){p->tasks, sizeof *p->tasks};
    case BUFFER:
        return p ? (struct array){p->buffers, sizeof *p->buffers} : (struct array){c->buffers, sizeof *c->buffers};
    case REGION:
        return (struct array){c->regions, sizeof *c->regions};
    case COMMAND:
        return (struct array){c->commands, sizeof *c->commands};
    case ISSUE:
        return (struct array){c->issues, sizeof *c->issues};
    }
    ck_abort_msg("there is no part %d", (int)part);
}

static uint32_t find(const struct mutation *mutation, const struct spoiled *copy)
{
    static const enum bp_entity_kind kinds[] = {
        [VALUE] = BP_ENTITY_VALUE, [TASK] = BP_ENTITY_TASK, [BUFFER] = BP_ENTITY_BUFFER, [COMMAND] = BP_ENTITY_COMMAND};
    if (!mutation->name)
        return mutation->place;
    return mutation->part == LAYER ? place_of_row(copy, mutation->name)
                                   : place_of(copy, kinds[mutation->part], mutation->name);
}

/* A member of 1, 4, 8 or 16 bytes: bool, enum or index, count, operations. */
static void set_member(char *member, size_t size, uint64_t value)
{
    if (size == sizeof(bool))
        *(bool *)member = value != 0;
    else if (size == sizeof(uint32_t))
        *(uint32_t *)member = (uint32_t)value;
    else if (size == sizeof(uint64_t))
        *(uint64_t *)member = value;
    else
        *(bp_u128 *)member = value;
}

uint32_t mutate(const struct mutation *mutation, struct spoiled *copy)
{
    uint32_t place = find(mutation, copy);
    if (mutation->spoil) {
        mutation->spoil(copy);
        return place;
    }
    struct array array = array_of(copy, mutation->part);
    char *member = (char *)array.at + place * array.size + mutation->at;
    if (mutation->text)
        memcpy(member, &mutation->text, sizeof mutation->text);
    else if (mutation->size)
        set_member(member, mutation->size, mutation->value);
    else
        *member ^= 1;
    return place;
}
