#include "common/ir/ir.h"

#include <string.h>

#include <nettle/sha2.h>

#define BP_STAGE(suffix, name) name,
const char *const bp_stage_names[] = {
#include "common/ir/vocabulary.def"
    NULL};
#undef BP_STAGE
#define BP_PHASE(suffix, name) name,
const char *const bp_phase_names[] = {
#include "common/ir/vocabulary.def"
    NULL};
#undef BP_PHASE
#define BP_ENGINE(suffix, name) name,
const char *const bp_engine_names[] = {
#include "common/ir/vocabulary.def"
    NULL};
#undef BP_ENGINE
#define BP_TASK_KIND(suffix, name) name,
const char *const bp_task_kind_names[] = {
#include "common/ir/vocabulary.def"
    NULL};
#undef BP_TASK_KIND
#define BP_COLLECTIVE(suffix, name) name,
const char *const bp_collective_names[] = {
#include "common/ir/vocabulary.def"
    NULL};
#undef BP_COLLECTIVE
#define BP_AXIS(suffix, name) name,
const char *const bp_axis_names[] = {
#include "common/ir/vocabulary.def"
    NULL};
#undef BP_AXIS
#define BP_ACCESS(suffix, name) name,
const char *const bp_access_names[] = {
#include "common/ir/vocabulary.def"
    NULL};
#undef BP_ACCESS
#define BP_STORAGE(suffix, name) name,
const char *const bp_storage_names[] = {
#include "common/ir/vocabulary.def"
    NULL};
#undef BP_STORAGE
#define BP_BUFFER_ROLE(suffix, name, storage) name,
const char *const bp_buffer_role_names[] = {
#include "common/ir/vocabulary.def"
    NULL};
#undef BP_BUFFER_ROLE
#define BP_BUFFER_ROLE(suffix, name, storage) BP_STORAGE_##storage,
const enum bp_storage bp_buffer_role_storage[] = {
#include "common/ir/vocabulary.def"
};
#undef BP_BUFFER_ROLE
#define BP_MEMORY(suffix, name, training, inference) name,
const char *const bp_memory_names[] = {
#include "common/ir/vocabulary.def"
    NULL};
#undef BP_MEMORY
#define BP_ENTITY(suffix, name, array) name,
const char *const bp_entity_names[] = {
#include "common/ir/vocabulary.def"
    NULL};
#undef BP_ENTITY
#define BP_ENTITY(suffix, name, array) array,
const char *const bp_entity_array_names[] = {
#include "common/ir/vocabulary.def"
    NULL};
#undef BP_ENTITY

const char *const bp_stage_schemas[] = {"blueprint.model/1", "blueprint.distributed/2", "blueprint.portable/2",
                                        "blueprint.concrete/1", NULL};

bool bp_memory_fact_in(enum bp_memory_fact fact, enum bp_mode mode)
{
#define BP_MEMORY(suffix, name, training, inference) {training, inference},
    static const bool in[][2] = {
#include "common/ir/vocabulary.def"
    };
#undef BP_MEMORY
    return in[fact][mode == BP_MODE_INFERENCE];
}

enum { HASH_DIGITS = 2 * sizeof((struct bp_id *)0)->hash };

bool bp_id_equal(const struct bp_id *a, const struct bp_id *b)
{
    return a->kind == b->kind && memcmp(a->hash, b->hash, sizeof a->hash) == 0;
}

char *bp_id_put(char *to, const struct bp_id *id)
{
#define BP_ENTITY(suffix, name, array) {sizeof(name) + 1, "\"" name ":"},
    static const struct {
        size_t n;
        char text[16];
    } heads[] = {
#include "common/ir/vocabulary.def"
    };
#undef BP_ENTITY
    memcpy(to, heads[id->kind].text, sizeof heads->text);
    to += heads[id->kind].n;
    bp_hex(id->hash, sizeof id->hash, to);
    to += HASH_DIGITS;
    *to++ = '"';
    return to;
}

void bp_id_format(const struct bp_id *id, char text[BP_ID_TEXT])
{
    char *end = stpcpy(text, bp_entity_names[id->kind]);
    *end++ = ':';
    bp_hex(id->hash, sizeof id->hash, end);
}

bool bp_id_parse(const char *text, struct bp_id *ret)
{
    struct bp_id id;
    const char *colon = strchr(text, ':');
    if (!colon || !bp_unhex(colon + 1, id.hash, sizeof id.hash))
        return false;
    for (unsigned kind = 0; kind < BP_ENTITY_N; kind++) {
        const size_t n = strlen(bp_entity_names[kind]);
        if ((size_t)(colon - text) == n && memcmp(text, bp_entity_names[kind], n) == 0) {
            id.kind = (enum bp_entity_kind)kind;
            *ret = id;
            return true;
        }
    }
    return false;
}

void bp_writer_id(struct bp_writer *writer, const struct bp_id *id)
{
    char *to = bp_writer_room(writer, BP_ID_TEXT);
    if (to)
        bp_writer_take(writer, bp_id_put(to, id));
}

/* The hash after `["<source>","<binding>","`, which every id of the snapshot begins with. */
struct bp_id_maker {
    struct sha256_ctx begun;
};

struct bp_id_maker *bp_id_maker_new(struct bp_arena *arena, const struct bp_digest *source,
                                    const struct bp_digest *binding)
{
    struct bp_id_maker *maker = bp_arena_array(arena, 1, sizeof *maker);
    if (!maker)
        return NULL;
    char head[2 * BP_DIGEST_TEXT + 8] = "[\"";
    bp_digest_format(source, head + 2);
    char *end = stpcpy(head + 2 + BP_DIGEST_TEXT - 1, "\",\"");
    if (binding) {
        bp_digest_format(binding, end);
        end += BP_DIGEST_TEXT - 1;
    }
    end = stpcpy(end, "\",\"");
    sha256_init(&maker->begun);
    sha256_update(&maker->begun, (size_t)(end - head), (const uint8_t *)head);
    return maker;
}

struct bp_id bp_id_make(const struct bp_id_maker *maker, enum bp_entity_kind kind, uint64_t index, const char *name)
{
    struct sha256_ctx sha = maker->begun;
    char middle[16 + BP_U128_TEXT + 8];
    char *end = stpcpy(stpcpy(middle, bp_entity_array_names[kind]), "\",");
    end += bp_u128_format(index, end);
    end = stpcpy(end, ",\"");
    sha256_update(&sha, (size_t)(end - middle), (const uint8_t *)middle);
    sha256_update(&sha, strlen(name), (const uint8_t *)name);
    sha256_update(&sha, 2, (const uint8_t *)"\"]");
    struct bp_id id = {.kind = kind};
    sha256_digest(&sha, sizeof id.hash, id.hash);
    return id;
}

bool bp_work_equal(const struct bp_work *a, const struct bp_work *b)
{
    return a->operations.n == b->operations.n && a->read.n == b->read.n && a->write.n == b->write.n &&
           a->message.n == b->message.n;
}

/* A number of one kind after the text that comes before it. */
static char *put_number(char *to, const char *before, size_t n, bp_u128 value)
{
    memcpy(to, before, n);
    return to + n + bp_u128_format(value, to + n);
}
#define PUT_NUMBER(to, before, value) put_number((to), "" before, sizeof(before) - 1, (value))

/* Written as text, there being one for every task of every stage. */
void bp_work_write(struct bp_writer *writer, const struct bp_work *work)
{
    char *to = bp_writer_room(writer, 64 + 4 * BP_U128_TEXT);
    if (!to)
        return;
    if (work->message.n > BP_JSON_INT_MAX || work->read.n > BP_JSON_INT_MAX || work->write.n > BP_JSON_INT_MAX)
        writer->breach = "an integer past 2^53 - 1";
    to = PUT_NUMBER(to, "{\"message_bytes\":", work->message.n);
    to = PUT_NUMBER(to, ",\"operations\":\"", work->operations.n);
    to = PUT_NUMBER(to, "\",\"read_bytes\":", work->read.n);
    to = PUT_NUMBER(to, ",\"write_bytes\":", work->write.n);
    *to++ = '}';
    bp_writer_take(writer, to);
}

void bp_memory_write(struct bp_writer *writer, const struct bp_memory *memory, enum bp_mode mode)
{
    static const enum bp_memory_fact sorted[] = {BP_MEMORY_ACTIVATION_CHECKPOINT,
                                                 BP_MEMORY_BOUNDARY,
                                                 BP_MEMORY_GRADIENTS,
                                                 BP_MEMORY_KV_CACHE,
                                                 BP_MEMORY_OPTIMIZER,
                                                 BP_MEMORY_STORED_ACTIVATIONS,
                                                 BP_MEMORY_WEIGHTS,
                                                 BP_MEMORY_WORKING_ACTIVATIONS,
                                                 BP_MEMORY_WORKSPACE};
    _Static_assert(sizeof sorted / sizeof *sorted == BP_MEMORY_N, "every fact has its place");
    bp_writer_object(writer);
    for (size_t i = 0; i < BP_MEMORY_N; i++) {
        if (!bp_memory_fact_in(sorted[i], mode))
            continue;
        bp_writer_key(writer, bp_memory_names[sorted[i]]);
        bp_writer_uint(writer, memory->at[sorted[i]].n);
    }
    bp_writer_end(writer);
}
