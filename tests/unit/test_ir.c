/* Words, entity ids and the encoding of snapshots. What decoding refuses is in test_ir_decode.c. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/ir/codec.h"
#include "common/ir/difference.h"
#include "tests/lib/fault_alloc.h"
#include "tests/unit/gate_fixture.h"

static struct plan plan;

static void release(void)
{
    plan_release(&plan);
}

static const struct {
    const char *const *names;
    size_t n;
} vocabularies[] = {
    {bp_stage_names, BP_STAGE_N},
    {bp_stage_schemas, BP_STAGE_N},
    {bp_phase_names, BP_PHASE_N},
    {bp_engine_names, BP_ENGINE_N},
    {bp_task_kind_names, BP_TASK_KIND_N},
    {bp_collective_names, BP_COLLECTIVE_N},
    {bp_axis_names, BP_AXIS_N},
    {bp_access_names, BP_ACCESS_N},
    {bp_storage_names, BP_STORAGE_N},
    {bp_buffer_role_names, BP_BUFFER_ROLE_N},
    {bp_memory_names, BP_MEMORY_N},
    {bp_entity_names, BP_ENTITY_N},
    {bp_entity_array_names, BP_ENTITY_N},
    {bp_queue_names, BP_QUEUE_NONE},
    {bp_model_role_names, BP_MODEL_ROLE_N},
};

START_TEST(test_words__every_enum_has_its_names_and_an_end)
{
    for (size_t i = 0; i < vocabularies[_i].n; i++) {
        ck_assert_ptr_nonnull(vocabularies[_i].names[i]);
        for (size_t j = 0; j < i; j++)
            ck_assert_str_ne(vocabularies[_i].names[i], vocabularies[_i].names[j]);
    }
    ck_assert_ptr_null(vocabularies[_i].names[vocabularies[_i].n]);
}
END_TEST

START_TEST(test_words__buffers_and_memory_facts_are_where_the_specification_puts_them)
{
    static const struct {
        const char *role, *storage;
    } storage[] = {{"input", "device_local"},           {"output", "device_local"},
                   {"weights", "persistent"},           {"gradients", "persistent"},
                   {"optimizer_state", "persistent"},   {"activation_checkpoint", "transient"},
                   {"stored_activations", "transient"}, {"working_activations", "transient"},
                   {"kv_cache", "persistent"},          {"workspace", "transient"}};
    for (size_t i = 0; i < BP_BUFFER_ROLE_N; i++) {
        ck_assert_str_eq(bp_buffer_role_names[i], storage[i].role);
        ck_assert_str_eq(bp_storage_names[bp_buffer_role_storage[i]], storage[i].storage);
    }
    ck_assert(bp_memory_fact_in(BP_MEMORY_WEIGHTS, BP_MODE_TRAINING));
    ck_assert(bp_memory_fact_in(BP_MEMORY_WEIGHTS, BP_MODE_INFERENCE));
    ck_assert(bp_memory_fact_in(BP_MEMORY_OPTIMIZER, BP_MODE_TRAINING));
    ck_assert(!bp_memory_fact_in(BP_MEMORY_OPTIMIZER, BP_MODE_INFERENCE));
    ck_assert(!bp_memory_fact_in(BP_MEMORY_BOUNDARY, BP_MODE_TRAINING));
}
END_TEST

/* The id as the specification words it: of the whole canonical array. */
static struct bp_id id_by_definition(const struct bp_digest *source, const struct bp_digest *binding,
                                     enum bp_entity_kind kind, uint64_t index, const char *name)
{
    struct bp_buf text = {0};
    struct bp_writer writer = {.out = &text};
    struct bp_digest digest;
    struct bp_id id = {.kind = kind};
    bp_writer_array(&writer);
    bp_writer_digest(&writer, source);
    if (binding)
        bp_writer_digest(&writer, binding);
    else
        bp_writer_string(&writer, "");
    bp_writer_string(&writer, bp_entity_array_names[kind]);
    bp_writer_uint(&writer, index);
    bp_writer_string(&writer, name);
    bp_writer_end(&writer);
    ck_assert_int_eq(bp_writer_finish(&writer, NULL), 0);
    bp_digest_of(text.data, text.len, &digest);
    memcpy(id.hash, digest.bytes, sizeof id.hash);
    bp_buf_release(&text);
    return id;
}

START_TEST(test_id__is_the_hash_of_the_whole_canonical_array)
{
    static const char *const names[] = {"", "input", "attention.output_collective.recommunication.reduce_scatter"};
    static const uint64_t places[] = {0, 9, 10, 127, BP_JSON_INT_MAX};
    struct bp_arena arena = {0};
    struct bp_digest source, binding;
    bp_digest_of("source", 6, &source);
    bp_digest_of("binding", 7, &binding);
    for (unsigned with = 0; with < 2; with++) {
        struct bp_id_maker *maker = bp_id_maker_new(&arena, &source, with ? &binding : NULL);
        for (unsigned kind = 0; kind < BP_ENTITY_N; kind++) {
            for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
                for (size_t j = 0; j < sizeof names / sizeof *names; j++) {
                    struct bp_id id = bp_id_make(maker, (enum bp_entity_kind)kind, places[i], names[j]);
                    struct bp_id wanted = id_by_definition(&source, with ? &binding : NULL, (enum bp_entity_kind)kind,
                                                           places[i], names[j]);
                    ck_assert(bp_id_equal(&id, &wanted));
                }
            }
        }
    }
    bp_arena_release(&arena);
}
END_TEST

START_TEST(test_id__texts_go_there_and_back)
{
    struct bp_id id, back;
    for (unsigned kind = 0; kind < BP_ENTITY_N; kind++) {
        char text[BP_ID_TEXT], quoted[BP_ID_TEXT + 2];
        id.kind = (enum bp_entity_kind)kind;
        for (size_t i = 0; i < sizeof id.hash; i++)
            id.hash[i] = (uint8_t)(17 * i + kind);
        bp_id_format(&id, text);
        ck_assert_uint_eq(strlen(text), strlen(bp_entity_names[kind]) + 33);
        ck_assert(bp_id_parse(text, &back));
        ck_assert(bp_id_equal(&id, &back));
        const char *end = bp_id_put(quoted, &id);
        ck_assert_int_eq(quoted[0], '"');
        ck_assert_mem_eq(quoted + 1, text, strlen(text));
        ck_assert_int_eq(end - quoted, (int)strlen(text) + 2);
        back.kind = (enum bp_entity_kind)((kind + 1) % BP_ENTITY_N);
        ck_assert(!bp_id_equal(&id, &back));
    }
}
END_TEST

static const char *const not_ids[] = {
    "",
    ":",
    "task",
    "task:",
    "task:0123456789abcdef0123456789abcde",
    "task:0123456789abcdef0123456789abcdef0",
    "task:0123456789ABCDEF0123456789abcdef",
    "tusk:0123456789abcdef0123456789abcdef",
    "tas:0123456789abcdef0123456789abcdef",
    ":0123456789abcdef0123456789abcdef",
    "0123456789abcdef0123456789abcdef",
    "task:0123456789abcdef0123456789abcdeg",
};

START_TEST(test_id__other_texts_are_not_read)
{
    struct bp_id id = {.kind = BP_ENTITY_REGION};
    ck_assert_msg(!bp_id_parse(not_ids[_i], &id), "%s", not_ids[_i]);
    ck_assert_int_eq((int)id.kind, BP_ENTITY_REGION);
}
END_TEST

static const char *written(struct bp_writer *writer)
{
    static char text[1024];
    struct bp_err err = {0};
    ck_assert_msg(bp_writer_finish(writer, &err) == 0, "%s", err.message);
    snprintf(text, sizeof text, "%s", bp_buf_string(writer->out));
    bp_buf_release(writer->out);
    return text;
}

START_TEST(test_work__is_written_and_compared_whole)
{
    struct bp_buf out = {0};
    struct bp_writer writer = {.out = &out}, past = {.out = &out};
    struct bp_work work = {{~(bp_u128)0}, {BP_JSON_INT_MAX}, {2}, {3}};
    bp_work_write(&writer, &work);
    ck_assert_str_eq(written(&writer),
                     "{\"message_bytes\":3,\"operations\":\"340282366920938463463374607431768211455\","
                     "\"read_bytes\":9007199254740991,\"write_bytes\":2}");
    for (unsigned i = 0; i < 4; i++) {
        struct bp_work other = work;
        other.operations.n -= i == 0;
        other.read.n -= i == 1;
        other.write.n -= i == 2;
        other.message.n -= i == 3;
        ck_assert(!bp_work_equal(&work, &other));
    }
    ck_assert(bp_work_equal(&work, &work));
    work.write.n = BP_JSON_INT_MAX + 1;
    bp_work_write(&past, &work);
    ck_assert_int_eq(bp_writer_finish(&past, NULL), -1);
    bp_buf_release(&out);
}
END_TEST

START_TEST(test_memory__is_written_in_canonical_order)
{
    struct bp_buf out = {0};
    struct bp_writer training = {.out = &out}, inference = {.out = &out};
    struct bp_memory memory;
    for (unsigned i = 0; i < BP_MEMORY_N; i++)
        memory.at[i].n = i;
    bp_memory_write(&training, &memory, BP_MODE_TRAINING);
    ck_assert_str_eq(written(&training), "{\"activation_checkpoint\":4,\"gradients\":1,\"optimizer\":2,"
                                         "\"stored_activations\":3,\"weights\":0,\"working_activations\":5}");
    bp_memory_write(&inference, &memory, BP_MODE_INFERENCE);
    ck_assert_str_eq(written(&inference), "{\"boundary\":8,\"kv_cache\":6,\"weights\":0,\"workspace\":7}");
}
END_TEST

START_TEST(test_portable__access_follows_from_what_is_read_and_written)
{
    const uint32_t reads[] = {0, 2}, writes[] = {1, 2};
    struct bp_portable_task task = {.inputs = {reads, 2}, .outputs = {writes, 2}};
    enum bp_access access;
    ck_assert(bp_portable_access(&task, 0, &access));
    ck_assert_int_eq((int)access, BP_ACCESS_READ);
    ck_assert(bp_portable_access(&task, 1, &access));
    ck_assert_int_eq((int)access, BP_ACCESS_WRITE);
    ck_assert(bp_portable_access(&task, 2, &access));
    ck_assert_int_eq((int)access, BP_ACCESS_READ_WRITE);
    ck_assert(!bp_portable_access(&task, 3, &access));
}
END_TEST

/* jansson's own canonical form of the same value: keys sorted, no spaces. Ours has ASCII keys and no floats, so it is
 * the same. */
static void assert_canonical(const struct bp_buf *bytes)
{
    json_t *value = json_loadb(bytes->data, bytes->len, 0, NULL);
    char *text = json_dumps(value, JSON_SORT_KEYS | JSON_COMPACT);
    ck_assert_ptr_nonnull(text);
    ck_assert_uint_eq(strlen(text), bytes->len);
    ck_assert_mem_eq(text, bytes->data, bytes->len);
    free(text);
    json_decref(value);
}

START_TEST(test_snapshot__decodes_to_what_encodes_to_the_same_canonical_bytes)
{
    plan_of(&plan, (enum plan_name)_i);
    ck_assert_uint_eq(plan.outcome.n_snapshots, BP_STAGE_N);
    for (size_t stage = 0; stage < plan.outcome.n_snapshots; stage++) {
        const struct bp_snapshot *snapshot = &plan.outcome.snapshots[stage];
        struct bp_arena arena = {0};
        struct bp_err err = {0};
        struct bp_buf again = {0};
        struct bp_ir ir;
        assert_canonical(&snapshot->bytes);
        ck_assert_msg(
            bp_ir_decode((enum bp_stage)stage, snapshot->bytes.data, snapshot->bytes.len, &arena, &ir, &err) == 0,
            "%s: %s", err.path, err.message);
        ck_assert_int_eq(bp_ir_encode(&ir, &again, &err), 0);
        ck_assert_uint_eq(again.len, snapshot->bytes.len);
        ck_assert_mem_eq(again.data, snapshot->bytes.data, again.len);
        bp_buf_release(&again);
        bp_arena_release(&arena);
    }
}
END_TEST

START_TEST(test_snapshot__what_the_ids_were_made_of_is_known_again)
{
    struct bp_arena arena = {0};
    plan_of(&plan, (enum plan_name)_i);
    const struct bp_buf *model = &plan.outcome.snapshots[BP_STAGE_MODEL].bytes;
    const struct bp_buf *distributed = &plan.outcome.snapshots[BP_STAGE_DISTRIBUTED].bytes;
    const struct bp_model_ir *a = bp_model_ir_decode(model->data, model->len, &arena, NULL);
    const struct bp_distributed_ir *b = bp_distributed_ir_decode(distributed->data, distributed->len, &arena, NULL);
    ck_assert(bp_digest_equal(&a->transformer, &plan.outcome.fingerprints.transformer));
    ck_assert(bp_digest_equal(&b->binding, &plan.outcome.fingerprints.distribution));
    ck_assert_str_eq(a->operations[0].model.name, "");
    bp_arena_release(&arena);
}
END_TEST

START_TEST(test_snapshot__encoding_appends)
{
    struct bp_buf out = {0};
    plan_of(&plan, DECODE);
    const struct bp_snapshot *snapshot = &plan.outcome.snapshots[BP_STAGE_PORTABLE];
    bp_buf_addstr(&out, "before");
    ck_assert_int_eq(bp_ir_encode(&snapshot->ir, &out, NULL), 0);
    ck_assert_uint_eq(out.len, 6 + snapshot->bytes.len);
    ck_assert_mem_eq(out.data + 6, snapshot->bytes.data, snapshot->bytes.len);
    bp_buf_release(&out);
}
END_TEST

static void spoil_reference(struct spoiled *it)
{
    struct bp_portable_task *task = (struct bp_portable_task *)(uintptr_t)&it->portable->tasks[1];
    task->dependencies = list_of(it, 1, (const uint32_t[]){it->portable->n_tasks});
}
static void spoil_enum(struct spoiled *it)
{
    ((struct bp_portable_task *)(uintptr_t)it->portable->tasks)->phase = (enum bp_phase)(BP_PHASE_N + 7);
}
static void spoil_bytes(struct spoiled *it)
{
    ((struct bp_portable_buffer *)(uintptr_t)it->portable->buffers)->size.n = BP_JSON_INT_MAX + 1;
}
static void spoil_work(struct spoiled *it)
{
    ((struct bp_portable_task *)(uintptr_t)it->portable->tasks)->work.read.n = BP_JSON_INT_MAX + 1;
}
static void spoil_text(struct spoiled *it)
{
    ((struct bp_portable_task *)(uintptr_t)it->portable->tasks)->name = "\xff";
}
static void spoil_rule(struct spoiled *it)
{
    ((struct bp_portable_task *)(uintptr_t)it->portable->tasks)->lineage.rule = "\xff";
}
static void spoil_ranks(struct spoiled *it)
{
    ((struct bp_portable_task *)(uintptr_t)it->portable->tasks)->n_ranks = UINT64_MAX;
}
static void spoil_layer(struct spoiled *it)
{
    ((struct bp_distributed_task *)(uintptr_t)it->distributed->tasks)->layer = it->distributed->n_layers;
}
static void spoil_region(struct spoiled *it)
{
    ((struct bp_concrete_buffer *)(uintptr_t)it->concrete->buffers)->region = it->concrete->n_regions;
}
static void spoil_use(struct spoiled *it)
{
    ((struct bp_concrete_use *)(uintptr_t)it->concrete->commands[0].uses)->buffer = it->concrete->n_buffers;
}
static void spoil_effects(struct spoiled *it)
{
    ((struct bp_model_operation *)(uintptr_t)it->model->operations)->n_effects = 3;
}

static const struct {
    enum bp_stage stage;
    void (*spoil)(struct spoiled *it);
} unwritable[] = {
    {BP_STAGE_PORTABLE, spoil_reference}, {BP_STAGE_PORTABLE, spoil_enum},     {BP_STAGE_PORTABLE, spoil_bytes},
    {BP_STAGE_PORTABLE, spoil_work},      {BP_STAGE_PORTABLE, spoil_text},     {BP_STAGE_PORTABLE, spoil_rule},
    {BP_STAGE_PORTABLE, spoil_ranks},     {BP_STAGE_DISTRIBUTED, spoil_layer}, {BP_STAGE_CONCRETE, spoil_region},
    {BP_STAGE_CONCRETE, spoil_use},       {BP_STAGE_MODEL, spoil_effects},
};

START_TEST(test_snapshot__what_has_no_text_is_an_error_not_a_crash)
{
    struct spoiled copy = {0};
    struct bp_buf out = {0};
    struct bp_err err = {0};
    plan_of(&plan, DECODE);
    spoiled_copy(&copy, &plan, unwritable[_i].stage);
    unwritable[_i].spoil(&copy);
    ck_assert_int_eq(bp_ir_encode(&copy.gate.target, &out, &err), -1);
    ck_assert_int_eq(err.code, BP_E_internal);
    bp_buf_release(&out);
    spoiled_release(&copy);
}
END_TEST

START_TEST(test_snapshot__want_of_memory_while_encoding_is_reported)
{
    plan_of(&plan, SHARDED);
    const struct bp_snapshot *snapshot = &plan.outcome.snapshots[_i];
    for (long n = 0;; n++) {
        struct bp_err err = {0};
        struct bp_buf out = {0};
        bp_fault_alloc_after(n);
        const int result = bp_ir_encode(&snapshot->ir, &out, &err);
        const bool failed = bp_fault_alloc_off();
        bp_buf_release(&out);
        if (!failed) {
            ck_assert_int_eq(result, 0);
            return;
        }
        ck_assert_msg(result == -1 && err.code == BP_E_out_of_memory, "allocation %ld: %s", n, err.message);
    }
}
END_TEST

START_TEST(test_model__want_of_memory_gives_no_snapshot)
{
    plan_of(&plan, PREFILL);
    struct bp_arena arena = {0};
    bp_fault_alloc_after(0);
    const struct bp_model_ir *ir = bp_model_ir_of(&plan.request, &plan.outcome.fingerprints.transformer, &arena);
    if (bp_fault_alloc_off())
        ck_assert_ptr_null(ir);
    bp_arena_release(&arena);
}
END_TEST

static const struct {
    const char *a, *b, *pointer;
} differences[] = {
    {"{\"a\":1}", "{\"a\":1}", ""},
    {"{\"a\":1}", "{\"a\":2}", "/a"},
    {"{\"a\":1}", "[1]", ""},
    {"1", "2", ""},
    {"{\"a\":1}", "{}", "/a"},
    {"{\"a\":1}", "{\"a\":1,\"b\":2}", "/b"},
    {"{\"a\":1,\"c\":1}", "{\"b\":1,\"c\":2}", "/a"},
    {"{\"b\":1,\"c\":1}", "{\"a\":1,\"c\":2}", "/a"},
    {"{\"a\":[1,2,{\"b\":[]}]}", "{\"a\":[1,2,{\"b\":[0]}]}", "/a/2/b/0"},
    {"{\"a\":[1,2]}", "{\"a\":[1,2,3]}", "/a/2"},
    {"{\"a\":[1,2,3]}", "{\"a\":[1,2]}", "/a/2"},
    {"{\"x/y~z\":1}", "{\"x/y~z\":\"1\"}", "/x~1y~0z"},
    {"{\"a\":{\"b\":1},\"c\":1}", "{\"a\":{\"b\":1},\"c\":2}", "/c"},
};

START_TEST(test_difference__is_the_first_in_canonical_order)
{
    char pointer[BP_POINTER_MAX] = "?";
    for (unsigned turn = 0; turn < 2; turn++) {
        const char *a = turn ? differences[_i].b : differences[_i].a, *b = turn ? differences[_i].a : differences[_i].b;
        ck_assert_int_eq(bp_first_difference(a, strlen(a), b, strlen(b), pointer, NULL), 0);
        ck_assert_str_eq(pointer, differences[_i].pointer);
    }
}
END_TEST

START_TEST(test_difference__texts_that_do_not_parse_are_an_error)
{
    char pointer[BP_POINTER_MAX];
    struct bp_err first = {0}, second = {0};
    ck_assert_int_eq(bp_first_difference("{", 1, "{}", 2, pointer, &first), -1);
    ck_assert_int_eq(bp_first_difference("{}", 2, "", 0, pointer, &second), -1);
    ck_assert_int_eq(first.code, BP_E_invalid_json);
    ck_assert_int_eq(second.code, BP_E_empty_body);
}
END_TEST

#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

Suite *suite_ir(void)
{
    Suite *suite = suite_create("ir");
    TCase *tcase = tcase_create("ir");
    tcase_add_checked_fixture(tcase, NULL, release);
    tcase_add_loop_test(tcase, test_words__every_enum_has_its_names_and_an_end, 0, COUNT(vocabularies));
    tcase_add_test(tcase, test_words__buffers_and_memory_facts_are_where_the_specification_puts_them);
    tcase_add_test(tcase, test_id__is_the_hash_of_the_whole_canonical_array);
    tcase_add_test(tcase, test_id__texts_go_there_and_back);
    tcase_add_loop_test(tcase, test_id__other_texts_are_not_read, 0, COUNT(not_ids));
    tcase_add_test(tcase, test_work__is_written_and_compared_whole);
    tcase_add_test(tcase, test_memory__is_written_in_canonical_order);
    tcase_add_test(tcase, test_portable__access_follows_from_what_is_read_and_written);
    tcase_add_loop_test(tcase, test_snapshot__decodes_to_what_encodes_to_the_same_canonical_bytes, 0, PLAN_NAME_N);
    tcase_add_loop_test(tcase, test_snapshot__what_the_ids_were_made_of_is_known_again, 0, PLAN_NAME_N);
    tcase_add_test(tcase, test_snapshot__encoding_appends);
    tcase_add_loop_test(tcase, test_snapshot__what_has_no_text_is_an_error_not_a_crash, 0, COUNT(unwritable));
    tcase_add_loop_test(tcase, test_snapshot__want_of_memory_while_encoding_is_reported, 0, BP_STAGE_N);
    tcase_add_test(tcase, test_model__want_of_memory_gives_no_snapshot);
    tcase_add_loop_test(tcase, test_difference__is_the_first_in_canonical_order, 0, COUNT(differences));
    tcase_add_test(tcase, test_difference__texts_that_do_not_parse_are_an_error);
    suite_add_tcase(suite, tcase);
    return suite;
}
