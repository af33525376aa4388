/* What the tests of the capacity view share: a fit request in, the answer's JSON out. What is returned lives until
 * capacity_forget, which is for a teardown. */
#ifndef BP_TESTS_UNIT_CAPACITY_FIXTURE_H
#define BP_TESTS_UNIT_CAPACITY_FIXTURE_H

#include <jansson.h>

#include "common/base/u128.h"

/* The answer to a request, in which ' stands for ". Aborts the test when it is refused. */
json_t *fit_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
json_t *fit_of_json(const json_t *request);

/* Why a request is refused: "code path, code path"; "" when it is not. What the derivation itself refuses counts. */
const char *fit_refusal(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *fit_refusal_of_json(const json_t *request);

/* What is at a JSON Pointer (built as by printf), which must be there. */
json_t *value_at(const json_t *value, const char *format, ...) __attribute__((format(printf, 2, 3)));
json_int_t number_at(const json_t *value, const char *format, ...) __attribute__((format(printf, 2, 3)));
bp_u128 decimal_at(const json_t *value, const char *pointer);

void ck_decimal_eq(bp_u128 actual, bp_u128 expected);

void capacity_forget(void);

#endif
