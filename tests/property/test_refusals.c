/* Thousands of random requests with one or several faults: refused for exactly what is wrong with them, and where. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/runner.h"
#include "tests/property/generate.h"
#include "tests/property/oracle.h"

#include "common/request/request.h"

/* The object at a path of oracle_objects, or NULL. */
static json_t *object_at(json_t *body, size_t object)
{
    static const char *const members[] = {NULL, "model", "model", "workload", "strategy", "target", "deployment"};
    json_t *found = members[object] ? json_object_get(body, members[object]) : body;
    if (strcmp(oracle_objects[object], "/model/transformer") == 0)
        found = json_object_get(found, "transformer");
    return json_is_object(found) ? found : NULL;
}

static json_t *odd_value(struct gen *gen)
{
    static const char *const words[] = {"",     "training", "inference",       "learned", "none",     "interleaved",
                                        "1f1b", "float8",   "reference-queue", "full",    "nonsense", "swiglu"};
    switch (gen_range(gen, 0, 13)) {
    case 0:
        return json_integer(0);
    case 1:
        return json_integer(-1);
    case 2:
        return json_integer(INT64_C(1) << 53);
    case 3:
        return json_real(2.0);
    case 4:
        return json_null();
    case 5:
        return json_boolean(gen_chance(gen, 50));
    case 6:
        return json_array();
    case 7:
        return json_object();
    case 8:
    case 9:
    case 10:
        return json_string(words[gen_range(gen, 0, sizeof(words) / sizeof(words[0]) - 1)]);
    default:
        return json_integer((json_int_t)gen_range(gen, 1, 2000));
    }
}

static const char *some_key(struct gen *gen, size_t object)
{
    static const char *const unknown[] = {"a/b", "~tilde", "", "speed", "hidden_sizes"};
    size_t n = 0;
    while (oracle_key(object, n))
        n++;
    return gen_chance(gen, 8) ? unknown[gen_range(gen, 0, 4)] : oracle_key(object, (size_t)gen_range(gen, 0, n - 1));
}

static void break_one(struct gen *gen, json_t *body)
{
    /* Mostly the inner objects: at the outer two little is left to read once they are broken. */
    size_t object = gen_chance(gen, 10) ? (size_t)gen_range(gen, 0, 1) : (size_t)gen_range(gen, 2, ORACLE_OBJECTS - 1);
    json_t *broken = object_at(body, object);
    if (!broken)
        return;
    const char *key = some_key(gen, object);
    const json_t *old = json_object_get(broken, key);
    /* Another form of the model may only stand beside the one that is generated: alone it is for other tests. */
    if (object == 1 &&
        (strcmp(key, "transformer") == 0 ? json_object_size(broken) > 1 : !json_object_get(broken, "transformer")))
        return;
    if (gen_chance(gen, 25))
        json_object_del(broken, key);
    else if (json_is_integer(old) && gen_chance(gen, 60))
        json_object_set_new(broken, key, json_integer(json_integer_value(old) + (gen_chance(gen, 50) ? 1 : -1)));
    else
        json_object_set_new(broken, key, odd_value(gen));
}

static void describe(const struct oracle *expected, const struct bp_problems *actual, char *text, size_t room)
{
    int n = snprintf(text, room, "expected:");
    for (size_t i = 0; i < expected->n && (size_t)n < room; i++)
        n += snprintf(text + n, room - (size_t)n, " %s%s", expected->at[i].code, expected->at[i].path);
    if ((size_t)n < room)
        n += snprintf(text + n, room - (size_t)n, "; was:");
    for (size_t i = 0; i < actual->n && (size_t)n < room; i++)
        n += snprintf(text + n, room - (size_t)n, " %s%s", bp_code_name(actual->at[i].code), actual->at[i].path);
}

static bool same_problems(const struct oracle *expected, const struct bp_problems *actual)
{
    struct oracle seen = {.n = 0};
    for (size_t i = 0; i < actual->n; i++) {
        const char *code = bp_code_name(actual->at[i].code), *path = actual->at[i].path;
        if (!oracle_has(expected, code, path))
            return false;
        oracle_add(&seen, code, path);
    }
    return seen.n == expected->n;
}

/* Returns how many problems there were. */
static size_t expect_refusal(json_t *body)
{
    struct bp_arena arena = {0};
    struct bp_problems problems = {0};
    struct bp_request request;
    struct bp_config config;
    struct oracle expected;
    char text[4096];
    oracle_of(body, &expected);
    ck_assert_int_eq(bp_request_read(body, &arena, &problems, &request, &config), 0);
    if (!same_problems(&expected, &problems)) {
        describe(&expected, &problems, text, sizeof(text));
        ck_abort_msg("%s\nrequest: %s", text, json_dumps(body, JSON_COMPACT));
    }
    for (size_t i = 0; i < problems.n; i++)
        ck_assert_msg(problems.at[i].message[0] != '\0', "%s says nothing", problems.at[i].path);
    const size_t n = expected.n;
    bp_problems_release(&problems);
    bp_arena_release(&arena);
    return n;
}

START_TEST(test_refusals__name_exactly_what_is_wrong)
{
    const unsigned n = gen_cases(20000);
    unsigned by_count[4] = {0};
    for (unsigned i = 0; i < n; i++) {
        struct gen gen = gen_of_case(4000000 + i);
        const struct gen_shape shape = {.bits = 8, .training = gen_chance(&gen, 60), .target = gen_chance(&gen, 60)};
        json_t *body = gen_request(&gen, &shape);
        for (uint64_t faults = gen_range(&gen, 1, 4); faults > 0; faults--)
            break_one(&gen, body);
        const size_t found = expect_refusal(body);
        by_count[found < 3 ? found : 3]++;
        json_decref(body);
    }
    for (size_t i = 0; i < 4; i++)
        ck_assert_msg(n < 1000 || by_count[i] > n / 50, "only %u requests have %zu problems", by_count[i], i);
}
END_TEST

/* The body as a whole may be anything. */
START_TEST(test_refusals__a_body_that_is_no_object)
{
    json_t *const bodies[] = {json_null(), json_integer(1), json_string("plan"), json_array(), json_true()};
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct bp_arena arena = {0};
        struct bp_problems problems = {0};
        struct bp_request request;
        struct bp_config config;
        ck_assert_int_eq(bp_request_read(bodies[i], &arena, &problems, &request, &config), 0);
        ck_assert_uint_eq(problems.n, 1);
        ck_assert_int_eq(problems.at[0].code, BP_E_wrong_type);
        ck_assert_str_eq(problems.at[0].path, "");
        bp_problems_release(&problems);
        bp_arena_release(&arena);
        json_decref(bodies[i]);
    }
}
END_TEST

Suite *suite_refusals(void)
{
    Suite *suite = suite_create("refusals");
    TCase *tcase = tcase_create("refusals");
    tcase_set_timeout(tcase, 0); /* bounded by BP_PROPERTY_CASES */
    tcase_add_test(tcase, test_refusals__name_exactly_what_is_wrong);
    tcase_add_test(tcase, test_refusals__a_body_that_is_no_object);
    suite_add_tcase(suite, tcase);
    return suite;
}
