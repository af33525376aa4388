/* What the verifiers share: an index by id or name, the walks over entities, lineage and dependencies.
 *
 * Everything here holds up on a snapshot whose numbers are arbitrary: an index is looked at before it is used. Scratch
 * comes from the gate's arena; when that runs out the findings are marked so and the walk ends early. Only for the
 * files of this directory.
 */
#ifndef BP_GATE_CHECKS_H
#define BP_GATE_CHECKS_H

#include "common/gate/gate.h"

#define BP_GATE_COUNT(rows) (sizeof(rows) / sizeof *(rows))
#define BP_GATE_GROUP(rows)                                                                                            \
    {                                                                                                                  \
        .at = (rows), .n = BP_GATE_COUNT(rows)                                                                         \
    }
#define BP_GATE_BLOCK_GROUP(rows)                                                                                      \
    {                                                                                                                  \
        .at = (rows), .n = BP_GATE_COUNT(rows), .each_block = true                                                     \
    }

/* Memory ran out: the findings are not complete. */
void bp_gate_no_memory(struct bp_gate *gate);

/* bp_gate_equal with a code of the caller's. */
void bp_gate_exact(struct bp_gate *gate, enum bp_code code, const char *path, const struct bp_calc *calc,
                   bp_u128 expected, bp_u128 actual);

/* Where each key was first put. Keys are borrowed. */
struct bp_gate_slot {
    const void *key;
    uint32_t length, place;
};
struct bp_gate_index {
    struct bp_gate_slot *slots;
    size_t mask;
};
#define BP_GATE_NOWHERE UINT32_MAX

bool bp_gate_index_init(struct bp_gate *gate, size_t n_keys, struct bp_gate_index *ret);
/* The place that has the key: `place` itself unless another came first. */
uint32_t bp_gate_index_put(struct bp_gate_index *index, const void *key, size_t length, uint32_t place);
uint32_t bp_gate_index_find(const struct bp_gate_index *index, const void *key, size_t length);

/* One array of entities of a snapshot: structures of `size` bytes, each beginning with its id. */
struct bp_gate_entities {
    enum bp_entity_kind kind;
    const void *at;
    uint32_t n;
    size_t size;
    /* What the id is made of beside the place; NULL when the entity's source does not tell. */
    const char *(*name)(const struct bp_gate *gate, uint32_t i);
    size_t lineage;   /* offset of the struct bp_lineage; 0 when the entity has none */
    unsigned sources; /* kinds that may be its sources, a bit each */
};
/* An entity that has a name, and one that has a lineage. */
#define BP_GATE_NAMED(kind, array, n, name)                                                                            \
    {                                                                                                                  \
        BP_ENTITY_##kind, (array), (n), sizeof *(array), (name), 0, 0                                                  \
    }
#define BP_GATE_DERIVED(kind, type, array, n, sources)                                                                 \
    {                                                                                                                  \
        BP_ENTITY_##kind, (array), (n), sizeof(type), NULL, offsetof(type, lineage), (sources)                         \
    }

/* The arrays of a snapshot, or those of them that a check is about. */
struct bp_gate_arrays {
    struct bp_gate_entities at[3];
    size_t n;
};

/* Ids are what the source digest, the binding, the array, the place and the name make them; no two are alike. */
void bp_gate_check_ids(struct bp_gate *gate, const struct bp_digest *binding, const struct bp_gate_arrays *arrays);
void bp_gate_check_unique_ids(struct bp_gate *gate, const struct bp_gate_arrays *arrays);

/* for (BP_GATE_EACH(i, span)): the places of a span, one after the other. */
#define BP_GATE_EACH(i, span)                                                                                          \
    uint32_t i = (span).first;                                                                                         \
    i < (span).end;                                                                                                    \
    i++

/* Names are there and no two of a span of an array are alike. `key` is the member's name in JSON. */
void bp_gate_check_names(struct bp_gate *gate, const char *array, const char *key, struct bp_span span,
                         const char *(*name)(const struct bp_gate *gate, uint32_t i));

/* Every entity of `derived` names the pass's rule and sources that exist, of the kinds it may have, none twice. */
void bp_gate_check_lineage(struct bp_gate *gate, const struct bp_gate_arrays *derived,
                           const struct bp_gate_arrays *sources);
/* Every entity of `sources` is the source of something derived. */
void bp_gate_check_coverage(struct bp_gate *gate, const struct bp_gate_arrays *derived,
                            const struct bp_gate_arrays *sources);

/* The parent digest of the snapshot is the digest of the source. */
void bp_gate_check_parent(struct bp_gate *gate, const struct bp_digest *parent);

/* A list of places: ascending, without repeats, each within the span. */
void bp_gate_check_list(struct bp_gate *gate, const struct bp_list *list, struct bp_span span, const char *array,
                        uint32_t i, const char *key);
/* What entity `i` of a span waits for: ascending, without repeats, each of the span and before `i`; only one that
 * `may_begin`, as the first of the span does, waits for nothing. */
void bp_gate_check_dependencies(struct bp_gate *gate, const struct bp_list *dependencies, const char *array, uint32_t i,
                                uint32_t first, bool may_begin);
bool bp_gate_list_has(const struct bp_list *list, uint32_t place);
bool bp_gate_list_equal(const struct bp_list *a, const struct bp_list *b);

#endif
