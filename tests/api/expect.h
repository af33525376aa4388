/* What the tests ask of JSON, and the requests they send. A helper that finds something else fails the test. */
#ifndef BP_TESTS_API_EXPECT_H
#define BP_TESTS_API_EXPECT_H

#include <check.h>
#include <jansson.h>
#include <stdbool.h>

#include "tests/api/http.h"

/* The value at a JSON Pointer, which must be there; strings and integers the same. */
json_t *at(json_t *value, const char *pointer);
const char *text_at(json_t *value, const char *pointer);
json_int_t int_at(json_t *value, const char *pointer);
bool has(json_t *value, const char *pointer);

/* Fails naming `what` and both texts unless the values are equal. */
void expect_equal(json_t *actual, json_t *expected, const char *what);

/* A JSON text as a value, kept. */
json_t *json_of(const char *text);
json_t *json_file(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *json_text(json_t *value);

/* A small training request, as a value of the test's own to change. */
json_t *small_request(void);

/* The same with a target on `devices` devices of `memory` bytes. */
json_t *with_target(json_t *request, const char *kind, json_int_t devices, json_int_t memory);

/* Sets the member at a pointer. */
void set_at(json_t *value, const char *pointer, json_t *member);

struct reply post_plan(json_t *request);

/* Posts, and must get the plan with this status. */
json_t *plan_of(json_t *request, int status);

/* The digest of a stage of a plan, and the stage's snapshot. */
const char *digest_of(json_t *plan, const char *stage);
json_t *snapshot_of(json_t *plan, const char *stage);

/* The reply must be problem+json with this status and top-level code. */
void expect_problem(const struct reply *reply, int status, const char *code);

/* One of the reply's errors must have this path and code; returns it. */
json_t *expect_error(const struct reply *reply, const char *path, const char *code);

#endif
