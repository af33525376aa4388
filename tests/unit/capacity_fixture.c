#include "tests/unit/capacity_fixture.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/view/capacity_write.h"
#include "tests/unit/reading.h"

enum { TEXT_MAX = 8192, KEPT_MAX = 4096 };

static json_t *kept[KEPT_MAX];
static size_t n_kept;

static json_t *keep(json_t *value)
{
    ck_assert_ptr_nonnull(value);
    ck_assert_uint_lt(n_kept, KEPT_MAX);
    kept[n_kept++] = value;
    return value;
}

void capacity_forget(void)
{
    while (n_kept)
        json_decref(kept[--n_kept]);
}

/* NULL, and in `ret_refusal` why, when the request is refused. */
static json_t *answer(const json_t *request, const char **ret_refusal)
{
    struct bp_arena arena = {0};
    struct bp_problems problems = {0};
    struct bp_config config = {0};
    static struct bp_whole_job job;
    struct bp_fit fit;
    struct bp_err err = {0};
    struct bp_buf text = {0};
    struct bp_writer writer = {.out = &text, .any_order = true};
    json_t *ret = NULL;
    ck_assert_int_eq(bp_whole_job_read(request, &arena, &problems, &job, &config), 0);
    if (bp_problems_none(&problems)) {
        const struct bp_capacity_answer parts = {.job = &job, .config = &config, .fit = &fit};
        if (bp_fit_of(&job, &arena, &fit, &err) < 0 || bp_capacity_write(&writer, &parts, &err) < 0 ||
            bp_writer_finish(&writer, &err) < 0)
            bp_problems_add(&problems, err.code, err.path, "%s", err.message);
        else
            ret = keep(json_loadb(text.data, text.len, 0, NULL));
    }
    *ret_refusal = line_of(&problems);
    bp_buf_release(&text);
    bp_problems_release(&problems);
    bp_arena_release(&arena);
    return ret;
}

json_t *fit_of_json(const json_t *request)
{
    const char *refusal;
    json_t *ret = answer(request, &refusal);
    ck_assert_msg(ret != NULL, "%s", refusal);
    return ret;
}

const char *fit_refusal_of_json(const json_t *request)
{
    const char *refusal;
    answer(request, &refusal);
    return refusal;
}

static json_t *request_of(const char *format, va_list args)
{
    char text[TEXT_MAX];
    int n = vsnprintf(text, sizeof text, format, args);
    ck_assert(n > 0 && (size_t)n < sizeof text);
    return keep(json_of(text));
}

json_t *fit_of(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    json_t *request = request_of(format, args);
    va_end(args);
    return fit_of_json(request);
}

const char *fit_refusal(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    json_t *request = request_of(format, args);
    va_end(args);
    return fit_refusal_of_json(request);
}

static json_t *look_up(const json_t *value, char *pointer)
{
    char *rest;
    for (char *key = strtok_r(pointer, "/", &rest); key && value; key = strtok_r(NULL, "/", &rest))
        value =
            json_is_array(value) ? json_array_get(value, (size_t)strtoul(key, NULL, 10)) : json_object_get(value, key);
    return (json_t *)(uintptr_t)value;
}

static json_t *found(const json_t *value, const char *format, va_list args)
{
    char pointer[256], copy[256];
    vsnprintf(pointer, sizeof pointer, format, args);
    memcpy(copy, pointer, sizeof copy);
    json_t *at = look_up(value, copy);
    ck_assert_msg(at != NULL, "nothing is at %s", pointer);
    return at;
}

json_t *value_at(const json_t *value, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    json_t *at = found(value, format, args);
    va_end(args);
    return at;
}

json_int_t number_at(const json_t *value, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    json_t *at = found(value, format, args);
    va_end(args);
    ck_assert(json_is_integer(at));
    return json_integer_value(at);
}

bp_u128 decimal_at(const json_t *value, const char *pointer)
{
    bp_u128 number = 0;
    const char *text = json_string_value(value_at(value, "%s", pointer));
    ck_assert(text && bp_u128_parse(text, &number));
    return number;
}

void ck_decimal_eq(bp_u128 actual, bp_u128 expected)
{
    char a[BP_U128_TEXT], b[BP_U128_TEXT];
    bp_u128_format(actual, a);
    bp_u128_format(expected, b);
    ck_assert_str_eq(a, b);
}
