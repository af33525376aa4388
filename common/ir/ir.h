/* What the stages share: their words, entity ids, lineage, work vectors.
 *
 * A snapshot in memory is plain arrays in a job's arena, read-only once a pass returned it. Within a snapshot entities
 * refer to each other by index; to the parent snapshot by entity id. Encoding and decoding are in model_ir.h,
 * distributed_ir.h, portable_ir.h and concrete_ir.h. Pure; any thread.
 */
#ifndef BP_IR_IR_H
#define BP_IR_IR_H

#include "common/base/arena.h"
#include "common/base/canon.h"
#include "common/base/digest.h"
#include "common/base/json.h"
#include "common/request/request.h"

#define BP_STAGE(suffix, name) BP_STAGE_##suffix,
enum bp_stage {
#include "common/ir/vocabulary.def"
    BP_STAGE_N
};
#undef BP_STAGE
#define BP_PHASE(suffix, name) BP_PHASE_##suffix,
enum bp_phase {
#include "common/ir/vocabulary.def"
    BP_PHASE_N
};
#undef BP_PHASE
#define BP_ENGINE(suffix, name) BP_ENGINE_##suffix,
enum bp_engine {
#include "common/ir/vocabulary.def"
    BP_ENGINE_N
};
#undef BP_ENGINE
#define BP_TASK_KIND(suffix, name) BP_TASK_##suffix,
enum bp_task_kind {
#include "common/ir/vocabulary.def"
    BP_TASK_KIND_N
};
#undef BP_TASK_KIND
#define BP_COLLECTIVE(suffix, name) BP_COLLECTIVE_##suffix,
enum bp_collective {
#include "common/ir/vocabulary.def"
    BP_COLLECTIVE_N
};
#undef BP_COLLECTIVE
#define BP_AXIS(suffix, name) BP_AXIS_##suffix,
enum bp_axis {
#include "common/ir/vocabulary.def"
    BP_AXIS_N
};
#undef BP_AXIS
#define BP_ACCESS(suffix, name) BP_ACCESS_##suffix,
enum bp_access {
#include "common/ir/vocabulary.def"
    BP_ACCESS_N
};
#undef BP_ACCESS
#define BP_STORAGE(suffix, name) BP_STORAGE_##suffix,
enum bp_storage {
#include "common/ir/vocabulary.def"
    BP_STORAGE_N
};
#undef BP_STORAGE
#define BP_BUFFER_ROLE(suffix, name, storage) BP_BUFFER_##suffix,
enum bp_buffer_role {
#include "common/ir/vocabulary.def"
    BP_BUFFER_ROLE_N
};
#undef BP_BUFFER_ROLE
#define BP_MEMORY(suffix, name, training, inference) BP_MEMORY_##suffix,
enum bp_memory_fact {
#include "common/ir/vocabulary.def"
    BP_MEMORY_N
};
#undef BP_MEMORY
#define BP_ENTITY(suffix, name, array) BP_ENTITY_##suffix,
enum bp_entity_kind {
#include "common/ir/vocabulary.def"
    BP_ENTITY_N
};
#undef BP_ENTITY

/* Names in JSON, indexed by the enum and NULL-terminated (so that bp_reader_enum can read them). */
extern const char *const bp_stage_names[],
    *const bp_phase_names[], *const bp_engine_names[], *const bp_task_kind_names[],
                                                           *const bp_collective_names[],
                                                               *const bp_axis_names[],
                                                                   *const bp_access_names[],
                                                                       *const bp_storage_names[],
                                                                           *const bp_buffer_role_names[],
                                                                               *const bp_memory_names[],
                                                                                   *const bp_entity_names[],
                                                                                       *const bp_entity_array_names[];
extern const enum bp_storage bp_buffer_role_storage[];
bool bp_memory_fact_in(enum bp_memory_fact fact, enum bp_mode mode);

/* "blueprint.model/1" and so on: raised when a stage's form changes. */
extern const char *const bp_stage_schemas[];

/* An entity's id: `kind:` and 32 hex digits, the first half of the SHA-256 of the canonical array
 * [source digest, binding fingerprint or "", role, index, name]; role is the entity's array in the snapshot. */
struct bp_id {
    enum bp_entity_kind kind;
    uint8_t hash[16];
};
#define BP_ID_TEXT 48 /* the longest kind, ':', 32 digits, two quotes and a NUL fit */

bool bp_id_equal(const struct bp_id *a, const struct bp_id *b);
void bp_id_format(const struct bp_id *id, char text[BP_ID_TEXT]);
bool bp_id_parse(const char *text, struct bp_id *ret);
void bp_writer_id(struct bp_writer *writer, const struct bp_id *id);
/* The quoted text at `to`, which has BP_ID_TEXT bytes; its end. */
char *bp_id_put(char *to, const struct bp_id *id);

/* Makes the ids of one snapshot: hashes what all of them begin with once. */
struct bp_id_maker;
/* `binding` is NULL where no binding enters at the stage. NULL when memory ran out. Names are words of ours: printable
 * ASCII without a quote or a backslash, so that they stand in the array as they are. */
struct bp_id_maker *bp_id_maker_new(struct bp_arena *arena, const struct bp_digest *source,
                                    const struct bp_digest *binding);
struct bp_id bp_id_make(const struct bp_id_maker *maker, enum bp_entity_kind kind, uint64_t index, const char *name);

/* The entities that an entity of a later stage came from, and the rule that made it. Ids of the parent snapshot. */
struct bp_lineage {
    const char *rule;
    const struct bp_id *sources;
    uint32_t n_sources;
};

/* Positions in an array of the same snapshot, in ascending order. */
struct bp_list {
    const uint32_t *at;
    uint32_t n;
};

/* The exact work vector of a task on one rank: (F, R, W, M) of docs/formulas.md. */
struct bp_work {
    struct bp_ops operations;
    struct bp_bytes read, write, message;
};
bool bp_work_equal(const struct bp_work *a, const struct bp_work *b);
void bp_work_write(struct bp_writer *writer, const struct bp_work *work); /* {message_bytes, operations, ...} */

/* What one rank holds for the block, by fact; those of the other mode are 0. */
struct bp_memory {
    struct bp_bytes at[BP_MEMORY_N];
};
void bp_memory_write(struct bp_writer *writer, const struct bp_memory *memory, enum bp_mode mode);

/* The effect of a task on state that outlives it; KV cache is the only such state. */
struct bp_effect {
    bool has;
    enum bp_access access;
};

#endif
