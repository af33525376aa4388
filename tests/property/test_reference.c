/* The recomputation itself is held to the golden cases, so that it may judge the passes. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/runner.h"
#include "tests/reference/reference.h"

#define GOLDEN "tests/golden"

/* The models of the golden cases, from their publishers' configurations. */
static const struct {
    const char *name, *transformer;
} models[] = {
    {"gpt2",
     "{\"hidden_size\": 768, \"num_hidden_layers\": 12, \"num_attention_heads\": 12,"
     " \"intermediate_size\": 3072, \"activation\": \"gelu\", \"norm\": \"layernorm\", \"position\": \"learned\","
     " \"bias\": true, \"hidden_dropout\": true, \"attention_dropout\": true}"},
    {"gpt3-175b", "{\"hidden_size\": 12288, \"num_hidden_layers\": 96, \"num_attention_heads\": 96,"
                  " \"intermediate_size\": 49152, \"activation\": \"gelu\", \"norm\": \"layernorm\","
                  " \"position\": \"learned\", \"hidden_dropout\": true, \"attention_dropout\": true}"},
    {"llama-3.1-8b", "{\"hidden_size\": 4096, \"num_hidden_layers\": 32, \"num_attention_heads\": 32,"
                     " \"num_key_value_heads\": 8, \"intermediate_size\": 14336, \"activation\": \"swiglu\","
                     " \"norm\": \"rmsnorm\", \"position\": \"rope\"}"},
    {"qwen2-7b", "{\"hidden_size\": 3584, \"num_hidden_layers\": 28, \"num_attention_heads\": 28,"
                 " \"num_key_value_heads\": 4, \"intermediate_size\": 18944, \"activation\": \"swiglu\","
                 " \"norm\": \"rmsnorm\", \"position\": \"rope\", \"qkv_bias\": true}"},
    {"qwen3-8b", "{\"hidden_size\": 4096, \"num_hidden_layers\": 36, \"num_attention_heads\": 32,"
                 " \"num_key_value_heads\": 8, \"head_dim\": 128, \"intermediate_size\": 12288,"
                 " \"activation\": \"swiglu\", \"norm\": \"rmsnorm\", \"position\": \"rope\", \"qk_norm\": true}"},
};

static json_t *load(const char *name, const char *file)
{
    char path[512];
    snprintf(path, sizeof(path), GOLDEN "/%s/%s", name, file);
    json_error_t error;
    json_t *value = json_load_file(path, 0, &error);
    ck_assert_msg(value != NULL, "%s: %s", path, error.text);
    return value;
}

static void read_request(const char *name, struct ref_request *ret)
{
    json_t *body = load(name, "request.json");
    const char *model = json_string_value(json_object_get(json_object_get(body, "model"), "name"));
    const char *form = NULL;
    for (size_t i = 0; model && i < sizeof(models) / sizeof(models[0]); i++)
        if (strcmp(models[i].name, model) == 0)
            form = models[i].transformer;
    ck_assert_msg(form != NULL, "%s: no row for its model", name);
    json_object_set_new(json_object_get(body, "model"), "transformer", json_loads(form, 0, NULL));
    ck_assert(ref_request_read(body, ret));
    json_decref(body);
}

static void expect_text(const char *where, const json_t *object, const char *key, const char *actual)
{
    const char *expected = json_string_value(json_object_get(object, key));
    ck_assert_msg(expected && strcmp(expected, actual) == 0, "%s: %s is %s, golden %s", where, key, actual,
                  expected ? expected : "absent");
}

static void expect_bytes(const char *where, const json_t *object, const char *key, wide actual)
{
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_integer(value) && (wide)json_integer_value(value) == actual, "%s: %s is %llu, golden %lld",
                  where, key, (unsigned long long)actual, (long long)json_integer_value(value));
}

static void expect_work(const char *where, const json_t *object, const struct ref_work *work)
{
    char digits[24];
    snprintf(digits, sizeof(digits), "%llu", (unsigned long long)work->operations);
    ck_assert(work->operations <= (wide)(unsigned long long)-1);
    expect_text(where, object, "operations", digits);
    expect_bytes(where, object, "read_bytes", work->read);
    expect_bytes(where, object, "write_bytes", work->write);
    expect_bytes(where, object, "message_bytes", work->message);
}

/* `names` lists exactly the tasks that `set` marks, in emission order. */
static void expect_set(const char *where, const struct ref_plan *plan, const json_t *names, const bool *set)
{
    size_t next = 0;
    for (size_t i = 0; i < plan->n_tasks; i++) {
        if (!set[i])
            continue;
        const char *name = json_string_value(json_array_get(names, next++));
        ck_assert_msg(name && strcmp(name, plan->tasks[i].name) == 0, "%s: has %s, golden %s", where,
                      plan->tasks[i].name, name ? name : "nothing");
    }
    ck_assert_msg(next == json_array_size(names), "%s: has %zu, golden %zu", where, next, json_array_size(names));
}

static void expect_tasks(const struct ref_plan *plan, const json_t *tasks)
{
    ck_assert_uint_eq(plan->n_tasks, json_array_size(tasks));
    for (size_t i = 0; i < plan->n_tasks; i++) {
        const struct ref_task *task = &plan->tasks[i];
        const json_t *golden = json_array_get(tasks, i);
        expect_text(task->name, golden, "name", task->name);
        expect_text(task->name, golden, "phase", task->phase);
        expect_text(task->name, golden, "engine", task->engine);
        expect_work(task->name, golden, &task->work);
        expect_set(task->name, plan, json_object_get(golden, "dependencies"), task->waits_for);
    }
}

static void expect_rest(const struct ref_plan *plan, const json_t *golden)
{
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(golden, "totals"), key, value) {
        struct ref_work total = ref_plan_total(plan, strcmp(key, "all") == 0 ? NULL : key, NULL);
        expect_work(key, value, &total);
    }
    const json_t *memory = json_object_get(golden, "memory"), *buffers = json_object_get(golden, "buffers");
    ck_assert_uint_eq(plan->memory.n, json_object_size(memory));
    for (size_t i = 0; i < plan->memory.n; i++)
        expect_bytes("memory", memory, plan->memory.at[i].name, plan->memory.at[i].bytes);
    ck_assert_uint_eq(plan->n_buffers, json_array_size(buffers));
    for (size_t i = 0; i < plan->n_buffers; i++) {
        const struct ref_buffer *buffer = &plan->buffers[i];
        const json_t *row = json_array_get(buffers, i);
        expect_text(buffer->role, row, "role", buffer->role);
        expect_text(buffer->role, row, "storage", buffer->storage);
        expect_bytes(buffer->role, row, "size_bytes", buffer->size);
        expect_bytes(buffer->role, row, "offset_bytes", buffer->offset);
        expect_set(buffer->role, plan, json_object_get(row, "producers"), buffer->written_by);
        expect_set(buffer->role, plan, json_object_get(row, "consumers"), buffer->read_by);
    }
    expect_bytes("layout", golden, "layout_end", plan->layout_end);
}

START_TEST(test_reference__every_golden_case_comes_out)
{
    static struct ref_plan plan;
    struct ref_request request;
    DIR *dir = opendir(GOLDEN);
    ck_assert_msg(dir != NULL, "run from the top of the source tree");
    size_t n = 0;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        read_request(entry->d_name, &request);
        ref_plan_derive(&request, &plan);
        json_t *golden = load(entry->d_name, "expected.json");
        expect_tasks(&plan, json_object_get(golden, "tasks"));
        expect_rest(&plan, golden);
        json_decref(golden);
        n++;
    }
    closedir(dir);
    ck_assert_uint_ge(n, 10);
}
END_TEST

START_TEST(test_reference__too_large_stays_too_large)
{
    ck_assert(wide_mul(WIDE_HUGE / 2, 3) == WIDE_HUGE);
    ck_assert(wide_add(WIDE_HUGE - 1, 2) == WIDE_HUGE);
    ck_assert(wide_div(WIDE_HUGE, 8) == WIDE_HUGE);
    ck_assert(wide_sub(WIDE_HUGE, 8) == WIDE_HUGE);
    ck_assert(wide_mul(0, WIDE_HUGE) == 0);
    ck_assert(wide_div(7, 2) == 4);
    ck_assert(PROD(2, 3, 5) == 30 && SUM(2, 3, 5) == 10);
}
END_TEST

Suite *suite_reference(void)
{
    Suite *suite = suite_create("reference");
    TCase *tcase = tcase_create("golden");
    tcase_add_test(tcase, test_reference__every_golden_case_comes_out);
    tcase_add_test(tcase, test_reference__too_large_stays_too_large);
    suite_add_tcase(suite, tcase);
    return suite;
}
