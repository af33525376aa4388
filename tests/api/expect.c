#include "tests/api/expect.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *find(json_t *value, const char *pointer)
{
    while (value && *pointer == '/') {
        char key[256];
        size_t n = strcspn(++pointer, "/");
        snprintf(key, sizeof key, "%.*s", (int)n, pointer);
        value = json_is_array(value) ? json_array_get(value, strtoul(key, NULL, 10)) : json_object_get(value, key);
        pointer += n;
    }
    return value;
}

const char *json_text(json_t *value)
{
    char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_SORT_KEYS);
    ck_assert_ptr_nonnull(dump);
    const char *text = keep_text("%s", dump);
    free(dump);
    return text;
}

json_t *at(json_t *value, const char *pointer)
{
    json_t *found = find(value, pointer);
    ck_assert_msg(found, "nothing at %s of %.600s", pointer, json_text(value));
    return found;
}

const char *text_at(json_t *value, const char *pointer)
{
    json_t *found = at(value, pointer);
    ck_assert_msg(json_is_string(found), "%s is no string", pointer);
    return json_string_value(found);
}

json_int_t int_at(json_t *value, const char *pointer)
{
    json_t *found = at(value, pointer);
    ck_assert_msg(json_is_integer(found), "%s is no integer", pointer);
    return json_integer_value(found);
}

bool has(json_t *value, const char *pointer)
{
    return find(value, pointer) != NULL;
}

void expect_equal(json_t *actual, json_t *expected, const char *what)
{
    ck_assert_msg(json_equal(actual, expected), "%s: %.1200s, expected %.1200s", what, json_text(actual),
                  json_text(expected));
}

json_t *json_of(const char *text)
{
    json_error_t error;
    json_t *value = json_loads(text, JSON_DECODE_ANY, &error);
    ck_assert_msg(value, "%s: %s", error.text, text);
    return keep_json(value);
}

json_t *json_file(const char *format, ...)
{
    char path[512];
    json_error_t error;
    va_list args;
    va_start(args, format);
    vsnprintf(path, sizeof path, format, args);
    va_end(args);
    json_t *value = json_load_file(path, 0, &error);
    ck_assert_msg(value, "%s: %s", path, error.text);
    return keep_json(value);
}

json_t *small_request(void)
{
    return json_of("{\"model\": {\"transformer\": {\"name\": \"small\", \"hidden_size\": 64, \"num_hidden_layers\": 4,"
                   " \"num_attention_heads\": 8, \"intermediate_size\": 256, \"vocab_size\": 1000,"
                   " \"activation\": \"gelu\", \"norm\": \"layernorm\", \"position\": \"rope\"}},"
                   " \"workload\": {\"mode\": \"training\", \"sequence_length\": 32, \"micro_batch_size\": 2,"
                   " \"global_batch_size\": 8, \"dtype\": \"bfloat16\"},"
                   " \"strategy\": {\"tensor_parallel\": 2}}");
}

void set_at(json_t *value, const char *pointer, json_t *member)
{
    char parent[256];
    const char *key = strrchr(pointer, '/');
    snprintf(parent, sizeof parent, "%.*s", (int)(key - pointer), pointer);
    json_t *holder = at(value, parent);
    ck_assert_msg(json_is_object(holder), "%s is no object", parent);
    ck_assert_int_eq(json_object_set_new(holder, key + 1, member), 0);
}

json_t *with_target(json_t *request, const char *kind, json_int_t devices, json_int_t memory)
{
    json_t *copy = keep_json(json_deep_copy(request));
    set_at(copy, "/target", json_pack("{s:s}", "kind", kind));
    set_at(copy, "/deployment", json_pack("{s:I, s:I}", "devices", devices, "memory_bytes", memory));
    return copy;
}

struct reply post_plan(json_t *request)
{
    return http_post("/v1/plans", json_text(request));
}

json_t *plan_of(json_t *request, int status)
{
    struct reply reply = post_plan(request);
    ck_assert_msg(reply.status == status, "status %d, expected %d: %.1000s", reply.status, status, reply.body);
    ck_assert_ptr_nonnull(reply.json);
    return reply.json;
}

const char *digest_of(json_t *plan, const char *stage)
{
    size_t i;
    json_t *snapshot;
    json_array_foreach(at(plan, "/snapshots"), i, snapshot)
        if (strcmp(text_at(snapshot, "/stage"), stage) == 0)
            return text_at(snapshot, "/digest");
    ck_abort_msg("the plan has no stage %s: %.600s", stage, json_text(plan));
}

json_t *snapshot_of(json_t *plan, const char *stage)
{
    struct reply reply = http_get("/v1/snapshots/%s", digest_of(plan, stage));
    ck_assert_int_eq(reply.status, 200);
    ck_assert_str_eq(text_at(reply.json, "/stage"), stage);
    return reply.json;
}

void expect_problem(const struct reply *reply, int status, const char *code)
{
    ck_assert_msg(reply->status == status, "status %d, expected %d: %.1000s", reply->status, status, reply->body);
    const char *media = http_header(reply, "content-type");
    ck_assert_ptr_nonnull(media);
    ck_assert_str_eq(media, "application/problem+json");
    ck_assert_int_eq(int_at(reply->json, "/status"), status);
    ck_assert_str_eq(text_at(reply->json, "/code"), code);
    ck_assert_str_eq(text_at(reply->json, "/type"), keep_text("urn:blueprint:error:%s", code));
    ck_assert_uint_ge(json_array_size(at(reply->json, "/errors")), 1);
}

json_t *expect_error(const struct reply *reply, const char *path, const char *code)
{
    size_t i;
    json_t *error;
    json_array_foreach(at(reply->json, "/errors"), i, error)
        if (strcmp(text_at(error, "/path"), path) == 0 && strcmp(text_at(error, "/code"), code) == 0)
            return error;
    ck_abort_msg("no error %s at \"%s\" in %.1500s", code, path, reply->body);
}
