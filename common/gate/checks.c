#include "common/gate/checks.h"

#include <string.h>

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

/* The key's bytes, eight at a time. */
static uint64_t key_hash(const void *key, size_t length)
{
    const unsigned char *bytes = key;
    uint64_t hash = length, word;
    for (; length >= sizeof word; bytes += sizeof word, length -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = mix(hash, word);
    }
    for (word = 0; length > 0; length--)
        word = word << 8 | bytes[length - 1];
    return mix(hash, word);
}

bool bp_gate_index_init(struct bp_gate *gate, size_t n_keys, struct bp_gate_index *ret)
{
    size_t n_slots = 4;
    while (n_slots < 2 * n_keys)
        n_slots *= 2;
    struct bp_gate_slot *slots = bp_arena_array(gate->arena, n_slots, sizeof *slots);
    if (!slots) {
        bp_gate_no_memory(gate);
        return false;
    }
    *ret = (struct bp_gate_index){slots, n_slots - 1};
    return true;
}

static struct bp_gate_slot *index_slot(const struct bp_gate_index *index, const void *key, size_t length)
{
    for (size_t i = (size_t)key_hash(key, length);; i++) {
        struct bp_gate_slot *slot = &index->slots[i & index->mask];
        if (!slot->key || (slot->length == length && memcmp(slot->key, key, length) == 0))
            return slot;
    }
}

uint32_t bp_gate_index_put(struct bp_gate_index *index, const void *key, size_t length, uint32_t place)
{
    struct bp_gate_slot *slot = index_slot(index, key, length);
    if (!slot->key)
        *slot = (struct bp_gate_slot){key, (uint32_t)length, place};
    return slot->place;
}

uint32_t bp_gate_index_find(const struct bp_gate_index *index, const void *key, size_t length)
{
    const struct bp_gate_slot *slot = index_slot(index, key, length);
    return slot->key ? slot->place : BP_GATE_NOWHERE;
}

/* An id is compared as the bytes it is made of, which must therefore have no holes. */
_Static_assert(sizeof(struct bp_id) == sizeof(enum bp_entity_kind) + 16, "struct bp_id has padding");

static const struct bp_id *entity_id(const struct bp_gate_entities *entities, uint32_t i)
{
    return (const struct bp_id *)((const char *)entities->at + (size_t)i * entities->size);
}

static const struct bp_lineage *entity_lineage(const struct bp_gate_entities *entities, uint32_t i)
{
    return (const struct bp_lineage *)((const char *)entities->at + (size_t)i * entities->size + entities->lineage);
}

static const char *array_of(const struct bp_gate_entities *entities)
{
    return bp_entity_array_names[entities->kind];
}

void bp_gate_check_ids(struct bp_gate *gate, const struct bp_digest *binding, const struct bp_gate_arrays *arrays)
{
    const struct bp_id_maker *maker = bp_id_maker_new(gate->arena, &gate->source_digest, binding);
    if (!maker) {
        bp_gate_no_memory(gate);
        return;
    }
    for (size_t a = 0; a < arrays->n; a++) {
        for (uint32_t i = 0; i < arrays->at[a].n; i++) {
            const char *name = arrays->at[a].name(gate, i);
            if (!name)
                continue;
            struct bp_id id = bp_id_make(maker, arrays->at[a].kind, i, name);
            BP_GATE_EXPECT(gate, bp_id_equal(&id, entity_id(&arrays->at[a], i)), BP_E_structure_violated,
                           bp_gate_path(gate, "/%s/%u/id", array_of(&arrays->at[a]), i),
                           "the id is not made of the source, the binding, this place and \"%s\"", name);
        }
    }
}

static size_t count_entities(const struct bp_gate_arrays *arrays)
{
    size_t n = 0;
    for (size_t a = 0; a < arrays->n; a++)
        n += arrays->at[a].n;
    return n;
}

void bp_gate_check_unique_ids(struct bp_gate *gate, const struct bp_gate_arrays *arrays)
{
    struct bp_gate_index index;
    if (!bp_gate_index_init(gate, count_entities(arrays), &index))
        return;
    uint32_t place = 0;
    for (size_t a = 0; a < arrays->n; a++) {
        for (uint32_t i = 0; i < arrays->at[a].n; i++, place++) {
            const struct bp_id *id = entity_id(&arrays->at[a], i);
            BP_GATE_EXPECT(gate, bp_gate_index_put(&index, id, sizeof *id, place) == place, BP_E_structure_violated,
                           bp_gate_path(gate, "/%s/%u/id", array_of(&arrays->at[a]), i),
                           "another entity before this one has the same id");
        }
    }
}

void bp_gate_check_names(struct bp_gate *gate, const char *array, const char *key, struct bp_span span,
                         const char *(*name)(const struct bp_gate *gate, uint32_t i))
{
    struct bp_gate_index index;
    if (!bp_gate_index_init(gate, span.end - span.first, &index))
        return;
    for (BP_GATE_EACH(i, span)) {
        const char *text = name(gate, i);
        bool fresh = bp_gate_index_put(&index, text, strlen(text), i) == i;
        BP_GATE_EXPECT(gate, *text && fresh, BP_E_structure_violated, bp_gate_path(gate, "/%s/%u/%s", array, i, key),
                       "\"%s\" is %s", text, *text ? "taken by one before" : "no name");
    }
}

/* An index of the ids of several arrays, numbered through. */
static bool index_ids(struct bp_gate *gate, const struct bp_gate_arrays *arrays, struct bp_gate_index *ret)
{
    if (!bp_gate_index_init(gate, count_entities(arrays), ret))
        return false;
    uint32_t place = 0;
    for (size_t a = 0; a < arrays->n; a++) {
        for (uint32_t i = 0; i < arrays->at[a].n; i++, place++) {
            const struct bp_id *id = entity_id(&arrays->at[a], i);
            bp_gate_index_put(ret, id, sizeof *id, place);
        }
    }
    return true;
}

static bool may_be_source(const struct bp_gate_entities *derived, enum bp_entity_kind kind)
{
    return kind < BP_ENTITY_N && (derived->sources >> kind & 1) != 0;
}

/* One entity's lineage; `index` is of the sources' ids, `users` the last entity that named each of them. */
static void check_one_lineage(struct bp_gate *gate, const struct bp_gate_entities *derived, uint32_t i,
                              const struct bp_gate_index *index, const void **users)
{
    const struct bp_lineage *lineage = entity_lineage(derived, i);
    const char *array = array_of(derived);
    BP_GATE_EXPECT(gate, strcmp(lineage->rule, gate->rule) == 0, BP_E_cross_stage_violated,
                   bp_gate_path(gate, "/%s/%u/lineage/rule", array, i), "the rule is \"%s\", the pass's \"%s\"",
                   lineage->rule, gate->rule);
    BP_GATE_EXPECT(gate, lineage->n_sources > 0, BP_E_cross_stage_violated,
                   bp_gate_path(gate, "/%s/%u/lineage/sources", array, i), "it comes from nothing");
    for (uint32_t j = 0; j < lineage->n_sources; j++) {
        const struct bp_id *id = &lineage->sources[j];
        uint32_t place = bp_gate_index_find(index, id, sizeof *id);
        bool known = place != BP_GATE_NOWHERE, repeated = known && users[place] == lineage;
        if (known)
            users[place] = lineage;
        BP_GATE_EXPECT(gate, known && may_be_source(derived, id->kind) && !repeated, BP_E_cross_stage_violated,
                       bp_gate_path(gate, "/%s/%u/lineage/sources/%u", array, i, j), "%s",
                       repeated ? "this source stands before already"
                       : known  ? "an entity of this kind does not come from such a one"
                                : "the source snapshot has no such entity");
    }
}

void bp_gate_check_lineage(struct bp_gate *gate, const struct bp_gate_arrays *derived,
                           const struct bp_gate_arrays *sources)
{
    struct bp_gate_index index;
    const void **users = bp_arena_array(gate->arena, count_entities(sources), sizeof *users);
    if (!users) {
        bp_gate_no_memory(gate);
        return;
    }
    if (!index_ids(gate, sources, &index))
        return;
    for (size_t a = 0; a < derived->n; a++)
        for (uint32_t i = 0; i < derived->at[a].n; i++)
            check_one_lineage(gate, &derived->at[a], i, &index, users);
}

void bp_gate_check_coverage(struct bp_gate *gate, const struct bp_gate_arrays *derived,
                            const struct bp_gate_arrays *sources)
{
    struct bp_gate_index index;
    bool *covered = bp_arena_array(gate->arena, count_entities(sources), sizeof *covered);
    if (!covered) {
        bp_gate_no_memory(gate);
        return;
    }
    if (!index_ids(gate, sources, &index))
        return;
    for (size_t a = 0; a < derived->n; a++) {
        for (uint32_t i = 0; i < derived->at[a].n; i++) {
            const struct bp_lineage *lineage = entity_lineage(&derived->at[a], i);
            for (uint32_t j = 0; j < lineage->n_sources; j++) {
                uint32_t place = bp_gate_index_find(&index, &lineage->sources[j], sizeof *lineage->sources);
                if (place != BP_GATE_NOWHERE)
                    covered[place] = true;
            }
        }
    }
    uint32_t place = 0;
    for (size_t a = 0; a < sources->n; a++) {
        for (uint32_t i = 0; i < sources->at[a].n; i++, place++)
            BP_GATE_EXPECT(gate, covered[place], BP_E_cross_stage_violated, "",
                           "nothing comes from /%s/%u of the source", array_of(&sources->at[a]), i);
    }
}

void bp_gate_check_parent(struct bp_gate *gate, const struct bp_digest *parent)
{
    BP_GATE_EXPECT(gate, bp_digest_equal(parent, &gate->source_digest), BP_E_cross_stage_violated, "/parents/0",
                   "the parent is not the snapshot this one was derived from");
}

void bp_gate_check_list(struct bp_gate *gate, const struct bp_list *list, struct bp_span span, const char *array,
                        uint32_t i, const char *key)
{
    for (uint32_t j = 0; j < list->n; j++) {
        bool ascends = j == 0 || list->at[j - 1] < list->at[j];
        BP_GATE_EXPECT(gate, ascends && list->at[j] >= span.first && list->at[j] < span.end, BP_E_structure_violated,
                       bp_gate_path(gate, "/%s/%u/%s/%u", array, i, key, j),
                       ascends ? "there is no entity %u" : "entity %u does not ascend from the one before",
                       list->at[j]);
    }
}

void bp_gate_check_dependencies(struct bp_gate *gate, const struct bp_list *dependencies, const char *array, uint32_t i,
                                uint32_t first, bool may_begin)
{
    BP_GATE_EXPECT(gate, i == first ? dependencies->n == 0 : dependencies->n > 0 || may_begin, BP_E_structure_violated,
                   bp_gate_path(gate, "/%s/%u/dependencies", array, i),
                   i == first ? "the first waits for something" : "it waits for nothing, and does not begin a block");
    bp_gate_check_list(gate, dependencies, (struct bp_span){first, i}, array, i, "dependencies");
}

bool bp_gate_list_has(const struct bp_list *list, uint32_t place)
{
    for (uint32_t j = 0; j < list->n; j++)
        if (list->at[j] == place)
            return true;
    return false;
}

bool bp_gate_list_equal(const struct bp_list *a, const struct bp_list *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->at, b->at, a->n * sizeof *a->at) == 0);
}
