/* What decoding a snapshot refuses: any value of another type, any key missing or too many, and by name the rules that
 * types do not say. The snapshots spoiled are real ones. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fault_alloc.h"
#include "tests/unit/gate_fixture.h"
#include "tests/unit/reading.h"

static struct plan plan;

static void release(void)
{
    plan_release(&plan);
}

/* Decodes a value; on success it must encode to what it was, if it still is canonical. */
static bool decodes(enum bp_stage stage, const json_t *value, struct bp_err *err)
{
    struct bp_arena arena = {0};
    struct bp_ir ir;
    char *text = json_dumps(value, JSON_SORT_KEYS | JSON_COMPACT | JSON_ENCODE_ANY);
    *err = (struct bp_err){0};
    const bool ok = bp_ir_decode(stage, text, strlen(text), &arena, &ir, err) == 0;
    if (ok) {
        struct bp_buf again = {0};
        ck_assert_msg(bp_ir_encode(&ir, &again, err) == 0, "%s", err->message);
        ck_assert_uint_eq(again.len, strlen(text));
        ck_assert_mem_eq(again.data, text, again.len);
        bp_buf_release(&again);
    }
    free(text);
    bp_arena_release(&arena);
    return ok;
}

static json_t *snapshot_json(enum plan_name name, enum bp_stage stage)
{
    plan_of(&plan, name);
    const struct bp_buf *bytes = &plan.outcome.snapshots[stage].bytes;
    json_t *value = json_loadb(bytes->data, bytes->len, 0, NULL);
    ck_assert_ptr_nonnull(value);
    return value;
}

/* ---- Every value of a snapshot, in turn ---- */

struct walk {
    enum bp_stage stage;
    json_t *root;
    unsigned spoiled;
};

static bool may_be_null(const char *pointer)
{
    return strstr(pointer, "/reduction") || strstr(pointer, "/sharding/") || strstr(pointer, "/queue");
}

/* Keys of the bindings' and the model's canonical forms, and of resources, may be absent. */
static bool may_be_absent(const char *pointer)
{
    return strncmp(pointer, "/strategy/", 10) == 0 || strncmp(pointer, "/workload/", 10) == 0 ||
           strstr(pointer, "/model/") || strstr(pointer, "/resources/");
}

static bool is_near(const char *found, const char *spoiled)
{
    const size_t n = strlen(found), m = strlen(spoiled);
    return strncmp(found, spoiled, n < m ? n : m) == 0;
}

static void expect_refusal(struct walk *walk, const char *pointer, const char *how)
{
    struct bp_err err;
    walk->spoiled++;
    ck_assert_msg(!decodes(walk->stage, walk->root, &err), "%s of %s was taken", how, pointer);
    ck_assert_msg(err.code == BP_E_structure_violated, "%s of %s: %s %s", how, pointer, bp_code_name(err.code),
                  err.message);
    ck_assert_msg(*err.message != '\0', "%s of %s says nothing", how, pointer);
}

/* A value of each type in place of `was`, put there by `set`. */
static void spoil_value(struct walk *walk, const char *pointer, const json_t *was, void (*set)(void *, json_t *),
                        void *place)
{
    json_t *const others[] = {json_null(),      json_true(),  json_integer(-1), json_real(1.5),
                              json_string("?"), json_array(), json_object()};
    json_t *kept = json_incref((json_t *)(uintptr_t)was);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const bool other_type =
            json_typeof(others[i]) != json_typeof(was) && !(json_is_boolean(was) && json_is_boolean(others[i]));
        const bool allowed = json_is_null(others[i]) && may_be_null(pointer);
        struct bp_err err;
        set(place, json_incref(others[i]));
        if (other_type && !allowed && !(json_is_null(was) && may_be_null(pointer)))
            expect_refusal(walk, pointer, "another type");
        else
            decodes(walk->stage, walk->root, &err);
        json_decref(others[i]);
    }
    set(place, json_incref(kept));
    json_decref(kept);
}

struct member {
    json_t *object;
    const char *key;
};
static void set_member(void *place, json_t *value)
{
    struct member *member = place;
    json_object_set_new(member->object, member->key, value);
}

struct item {
    json_t *array;
    size_t at;
};
static void set_item(void *place, json_t *value)
{
    struct item *item = place;
    json_array_set_new(item->array, item->at, value);
}

static void walk_value(struct walk *walk, const char *pointer, json_t *value);

static void walk_object(struct walk *walk, const char *pointer, json_t *object)
{
    json_t *keys = json_array(), *key;
    size_t i;
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at))
        json_array_append_new(keys, json_string(json_object_iter_key(at)));
    json_object_set_new(object, "unheard_of", json_integer(1));
    expect_refusal(walk, pointer, "an unknown key");
    json_object_del(object, "unheard_of");
    json_array_foreach(keys, i, key) {
        char inner[512];
        struct member member = {object, json_string_value(key)};
        json_t *value = json_incref(json_object_get(object, member.key));
        snprintf(inner, sizeof inner, "%s/%s", pointer, member.key);
        json_object_del(object, member.key);
        if (!may_be_absent(inner))
            expect_refusal(walk, inner, "the absence");
        json_object_set(object, member.key, value);
        spoil_value(walk, inner, value, set_member, &member);
        walk_value(walk, inner, value);
        json_decref(value);
    }
    json_decref(keys);
}

static bool is_collective(const json_t *array, size_t i)
{
    return json_object_get(json_object_get(json_array_get(array, i), "body"), "collective") != NULL;
}

/* The first of an array stands for all; of tasks, so does the first collective. */
static void walk_array(struct walk *walk, const char *pointer, json_t *array)
{
    bool collective_seen = false;
    for (size_t i = 0; i < json_array_size(array); i++) {
        char inner[512];
        struct item item = {array, i};
        if (i > 0 && (collective_seen || !is_collective(array, i)))
            continue;
        collective_seen |= is_collective(array, i);
        json_t *value = json_incref(json_array_get(array, i));
        snprintf(inner, sizeof inner, "%s/%zu", pointer, i);
        spoil_value(walk, inner, value, set_item, &item);
        walk_value(walk, inner, value);
        json_decref(value);
    }
}

static void walk_value(struct walk *walk, const char *pointer, json_t *value)
{
    if (json_is_object(value))
        walk_object(walk, pointer, value);
    else if (json_is_array(value))
        walk_array(walk, pointer, value);
}

/* Between them they have every form: training alone has collectives of a plain strategy, queues, its own memory. */
static const struct {
    enum plan_name plan;
    enum bp_stage stage;
} walked[] = {{DECODE, BP_STAGE_MODEL},    {DECODE, BP_STAGE_DISTRIBUTED}, {DECODE, BP_STAGE_PORTABLE},
              {DECODE, BP_STAGE_CONCRETE}, {PLAIN, BP_STAGE_DISTRIBUTED},  {PLAIN, BP_STAGE_CONCRETE}};

START_TEST(test_decode__no_value_may_be_another_missing_or_new)
{
    struct walk walk = {.stage = walked[_i].stage};
    struct bp_err err;
    walk.root = snapshot_json(walked[_i].plan, walk.stage);
    walk_value(&walk, "", walk.root);
    ck_assert_uint_gt(walk.spoiled, 100);
    ck_assert_msg(decodes(walk.stage, walk.root, &err), "the walk left it spoiled");
    json_decref(walk.root);
}
END_TEST

/* ---- Rules that types do not say ---- */

#define ZERO_ID "00000000000000000000000000000000"

static const struct rule {
    enum plan_name plan;
    enum bp_stage stage;
    const char *pointer; /* what is replaced */
    const char *with;    /* JSON with ' for "; "@/pointer" copies what stands elsewhere */
    const char *at;      /* where it is found; NULL: at `pointer` */
} rules[] = {
    {PLAIN, BP_STAGE_MODEL, "/parents", "['sha256:" ZERO_ID ZERO_ID "']", NULL},
    {PLAIN, BP_STAGE_MODEL, "/schema", "'blueprint.model/2'", NULL},
    {PLAIN, BP_STAGE_MODEL, "/stage", "'portable'", NULL},
    {PLAIN, BP_STAGE_MODEL, "/mode", "'both'", NULL},
    {PLAIN, BP_STAGE_MODEL, "/operations", "[]", NULL},
    {PLAIN, BP_STAGE_MODEL, "/operations/0/inputs", "['value:" ZERO_ID "']", "/operations/0/inputs/0"},
    {PLAIN, BP_STAGE_MODEL, "/operations/0/inputs", "@/operations/0/id", NULL},
    {PLAIN, BP_STAGE_MODEL, "/operations/0/model/name", "'x'", NULL},
    {DECODE, BP_STAGE_MODEL, "/operations/0/effects/0/access", "'append'", NULL},
    {DECODE, BP_STAGE_MODEL, "/operations/0/effects/2", "@/operations/0/effects/0", "/operations/0/effects"},
    {PLAIN, BP_STAGE_MODEL, "/values/1/id", "@/values/0/id", NULL},
    {PLAIN, BP_STAGE_MODEL, "/values/0/id", "'task:" ZERO_ID "'", "/operations/0/inputs/0"},
    {PLAIN, BP_STAGE_MODEL, "/values/0/shape", "['batch', 2]", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/bindings/strategy", "'sha256:00'", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/conventions/attention", "'causal'", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/conventions/latent_attention", "'hidden'", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/assumptions", "['luck']", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/assumptions", "['balanced_routing', 'balanced_routing']", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/tasks/0/block", "'sparse'", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/mesh/name", "'physical'", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/mesh/axes/0/name", "'none'", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/mesh/axes/0/size", "0", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/mesh/axes", "[{}, {}, {}, {}, {}, {}, {}]", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/parents", "[]", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/parents/1", "@/parents/0", "/parents"},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/values/0/shape/0", "0", "/values/0/shape"},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/values/0/shape", "[1,1,1,1,1,1]", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/values/0/sharding", "[null]", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/values/0/sharding/0", "'none'", "/values/0/sharding"},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/values/0/lineage/sources", "['x']", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/tasks/0/layer", "'attention.dreams'", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/tasks/0/ranks", "[1, 0]", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/tasks/0/ranks", "[0]", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/tasks/0/ranks/1", "0", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/tasks/0/body/kind", "'dream'", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/tasks/0/body/collective", "'all_reduce'", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/tasks/1/dependencies", "['task:" ZERO_ID "']", "/tasks/1/dependencies/0"},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/tasks/0/work/operations", "'01'", NULL},
    {PLAIN, BP_STAGE_DISTRIBUTED, "/tasks/0/work/read_bytes", "9007199254740992", NULL},
    {DECODE, BP_STAGE_DISTRIBUTED, "/tasks/0/effects", "[{'access': 'read', 'state': 'weights'}]",
     "/tasks/0/effects/0/state"},
    {DECODE, BP_STAGE_DISTRIBUTED, "/tasks/0/effects",
     "[{'access': 'read', 'state': 'kv_cache'}, {'access': 'write', 'state': 'kv_cache'}]", NULL},
    {DECODE, BP_STAGE_PORTABLE, "/tasks/0/resources/compute", "'0'", NULL},
    {DECODE, BP_STAGE_PORTABLE, "/tasks/0/resources/memory", "0", NULL},
    {DECODE, BP_STAGE_PORTABLE, "/tasks/0/capabilities", "[]", NULL},
    {DECODE, BP_STAGE_PORTABLE, "/tasks/0/capabilities/0/alternatives", "[]", NULL},
    {DECODE, BP_STAGE_PORTABLE, "/tasks/0/capabilities/0/alternatives", "['a','b','c','d']", NULL},
    {DECODE, BP_STAGE_PORTABLE, "/tasks/0/capabilities/0/alternatives", "[1]", NULL},
    {DECODE, BP_STAGE_PORTABLE, "/buffers/0/role", "'attic'", NULL},
    {PLAIN, BP_STAGE_CONCRETE, "/target/kind", "'none'", NULL},
    {PLAIN, BP_STAGE_CONCRETE, "/target/kind", "'reference-slot'", NULL},
    {PLAIN, BP_STAGE_CONCRETE, "/extension/kind", "'slot-dataflow'", "/extension"},
    {PLAIN, BP_STAGE_CONCRETE, "/extension/queues/0/queue", "'host'", NULL},
    {PLAIN, BP_STAGE_CONCRETE, "/extension/queues", "[]", NULL},
    {PLAIN, BP_STAGE_CONCRETE, "/commands/0/queue", "'none'", NULL},
    {PLAIN, BP_STAGE_CONCRETE, "/commands/0/task", "@/commands/0/id", NULL},
    {PLAIN, BP_STAGE_CONCRETE, "/buffers/0/region", "'region:" ZERO_ID "'", NULL},
    {PLAIN, BP_STAGE_CONCRETE, "/devices", "[0, 2]", "/devices/1"},
};

static json_t *at_pointer(json_t *value, const char *pointer)
{
    while (value && *pointer == '/') {
        const size_t n = strcspn(pointer + 1, "/");
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)n, pointer + 1);
        value =
            json_is_array(value) ? json_array_get(value, (size_t)strtoul(key, NULL, 10)) : json_object_get(value, key);
        pointer += 1 + n;
    }
    return value;
}

static void replace(json_t *root, const char *pointer, json_t *with)
{
    const char *key = strrchr(pointer, '/');
    char parent[256];
    snprintf(parent, sizeof parent, "%.*s", (int)(key - pointer), pointer);
    json_t *holder = at_pointer(root, parent);
    const size_t at = json_is_array(holder) ? (size_t)strtoul(key + 1, NULL, 10) : 0;
    ck_assert_msg(holder != NULL, "%s", pointer);
    if (!json_is_array(holder))
        json_object_set_new(holder, key + 1, with);
    else if (at == json_array_size(holder))
        json_array_append_new(holder, with);
    else
        json_array_set_new(holder, at, with);
}

START_TEST(test_decode__rules_are_named_where_they_are_broken)
{
    const struct rule *rule = &rules[_i];
    struct bp_err err;
    json_t *root = snapshot_json(rule->plan, rule->stage);
    json_t *with = *rule->with == '@' ? json_deep_copy(at_pointer(root, rule->with + 1)) : json_of(rule->with);
    replace(root, rule->pointer, with);
    ck_assert_msg(!decodes(rule->stage, root, &err), "%s was taken", rule->pointer);
    ck_assert_int_eq(err.code, BP_E_structure_violated);
    const char *at = rule->at ? rule->at : rule->pointer;
    ck_assert_msg(is_near(err.path, at), "%s: %s, not %s", err.path, err.message, at);
    json_decref(root);
}
END_TEST

START_TEST(test_decode__lists_out_of_order_or_with_repeats_are_refused)
{
    json_t *root = snapshot_json(PLAIN, BP_STAGE_PORTABLE), *producers = NULL;
    struct bp_err err;
    for (size_t i = 0; json_array_size(producers) < 2; i++)
        producers = json_object_get(json_array_get(json_object_get(root, "buffers"), i), "producers");
    json_t *first = json_incref(json_array_get(producers, 0)), *second = json_incref(json_array_get(producers, 1));
    json_array_set(producers, 0, second);
    json_array_set(producers, 1, first);
    ck_assert(!decodes(BP_STAGE_PORTABLE, root, &err));
    ck_assert_int_eq(err.code, BP_E_structure_violated);
    ck_assert_msg(strstr(err.path, "/producers/1") != NULL, "%s", err.path);
    json_array_set(producers, 1, second);
    ck_assert(!decodes(BP_STAGE_PORTABLE, root, &err));
    json_decref(first);
    json_decref(second);
    json_decref(root);
}
END_TEST

START_TEST(test_decode__a_collective_says_its_message_once)
{
    json_t *root = snapshot_json(PLAIN, BP_STAGE_DISTRIBUTED), *body = NULL;
    struct bp_err err;
    for (size_t i = 0; !json_object_get(body, "message_bytes"); i++)
        body = json_object_get(json_array_get(json_object_get(root, "tasks"), i), "body");
    json_object_set_new(body, "message_bytes", json_integer(1));
    ck_assert(!decodes(BP_STAGE_DISTRIBUTED, root, &err));
    ck_assert_msg(strstr(err.path, "/body/message_bytes") != NULL, "%s", err.path);
    json_decref(root);
}
END_TEST

START_TEST(test_decode__too_many_ranks_or_devices_are_refused)
{
    json_t *root = snapshot_json(PLAIN, BP_STAGE_CONCRETE), *devices = json_array();
    struct bp_err err;
    for (int i = 0; i <= BP_TENSOR_PARALLEL_MAX; i++)
        json_array_append_new(devices, json_integer(i));
    json_object_set_new(root, "devices", devices);
    ck_assert(!decodes(BP_STAGE_CONCRETE, root, &err));
    ck_assert_str_eq(err.path, "/devices");
    json_decref(root);
}
END_TEST

START_TEST(test_decode__routes_of_transfers_come_back)
{
    json_t *root = snapshot_json(SHARDED, BP_STAGE_CONCRETE);
    struct bp_err err;
    json_t *route = json_of("{'channel': 1, 'destination': 0, 'source': 9007199254740991}");
    json_object_set(route, "command", at_pointer(root, "/commands/3/id"));
    json_array_append_new(at_pointer(root, "/extension/routes"), route);
    ck_assert_msg(decodes(BP_STAGE_CONCRETE, root, &err), "%s: %s", err.path, err.message);
    json_object_set(route, "command", at_pointer(root, "/commands/3/task"));
    ck_assert(!decodes(BP_STAGE_CONCRETE, root, &err));
    ck_assert_str_eq(err.path, "/extension/routes/0/command");
    json_decref(root);
}
END_TEST

START_TEST(test_decode__what_is_no_snapshot_is_refused)
{
    static const struct {
        const char *text;
        enum bp_code code;
    } texts[] = {
        {"", BP_E_empty_body},           {"{", BP_E_invalid_json},          {"{\"a\":1,\"a\":1}", BP_E_duplicate_key},
        {"[]", BP_E_structure_violated}, {"null", BP_E_structure_violated}, {"{}", BP_E_structure_violated}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        for (unsigned stage = 0; stage < BP_STAGE_N; stage++) {
            struct bp_arena arena = {0};
            struct bp_err err = {0};
            struct bp_ir ir;
            ck_assert_int_eq(
                bp_ir_decode((enum bp_stage)stage, texts[i].text, strlen(texts[i].text), &arena, &ir, &err), -1);
            ck_assert_msg(err.code == texts[i].code, "%s: %s", texts[i].text, bp_code_name(err.code));
            bp_arena_release(&arena);
        }
    }
}
END_TEST

/* Every flipped byte is refused or is another snapshot that encodes again; none of them crashes. */
START_TEST(test_decode__flipped_bytes_never_crash)
{
    plan_of(&plan, DECODE);
    const struct bp_buf *bytes = &plan.outcome.snapshots[_i].bytes;
    for (size_t at = 0; at < bytes->len; at += 1 + bytes->len / 250) {
        struct bp_arena arena = {0};
        struct bp_buf again = {0};
        struct bp_err err = {0};
        struct bp_ir ir;
        char *copy = malloc(bytes->len);
        memcpy(copy, bytes->data, bytes->len);
        copy[at] = (char)(copy[at] ^ 1 << at % 8);
        if (bp_ir_decode((enum bp_stage)_i, copy, bytes->len, &arena, &ir, &err) == 0)
            ck_assert_msg(bp_ir_encode(&ir, &again, &err) == 0, "byte %zu: %s", at, err.message);
        else
            ck_assert_int_ne(err.code, BP_OK);
        bp_buf_release(&again);
        bp_arena_release(&arena);
        free(copy);
    }
}
END_TEST

START_TEST(test_decode__want_of_memory_is_reported_as_such)
{
    plan_of(&plan, DECODE);
    const struct bp_buf *bytes = &plan.outcome.snapshots[_i].bytes;
    for (long n = 0;; n += 1 + n / 10) {
        struct bp_arena arena = {0};
        struct bp_err err = {0};
        struct bp_ir ir;
        bp_fault_alloc_after(n);
        const int result = bp_ir_decode((enum bp_stage)_i, bytes->data, bytes->len, &arena, &ir, &err);
        const bool failed = bp_fault_alloc_off();
        bp_arena_release(&arena);
        if (!failed) {
            ck_assert_int_eq(result, 0);
            return;
        }
        ck_assert_msg(result == -1 && err.code == BP_E_out_of_memory, "allocation %ld: %d %s", n, result, err.message);
    }
}
END_TEST

Suite *suite_ir_decode(void)
{
    Suite *suite = suite_create("ir_decode");
    TCase *tcase = tcase_create("ir_decode");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, NULL, release);
    tcase_add_loop_test(tcase, test_decode__no_value_may_be_another_missing_or_new, 0, sizeof walked / sizeof *walked);
    tcase_add_loop_test(tcase, test_decode__rules_are_named_where_they_are_broken, 0, sizeof rules / sizeof *rules);
    tcase_add_test(tcase, test_decode__lists_out_of_order_or_with_repeats_are_refused);
    tcase_add_test(tcase, test_decode__a_collective_says_its_message_once);
    tcase_add_test(tcase, test_decode__too_many_ranks_or_devices_are_refused);
    tcase_add_test(tcase, test_decode__routes_of_transfers_come_back);
    tcase_add_test(tcase, test_decode__what_is_no_snapshot_is_refused);
    tcase_add_loop_test(tcase, test_decode__flipped_bytes_never_crash, 0, BP_STAGE_N);
    tcase_add_loop_test(tcase, test_decode__want_of_memory_is_reported_as_such, 0, BP_STAGE_N);
    suite_add_tcase(suite, tcase);
    return suite;
}
