/* Thousands of random valid requests: each plan equals the independent recomputation and replays identically. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/runner.h"
#include "tests/property/derive.h"

static struct ref_plan plan;

static json_t *request_of_case(unsigned i, unsigned bits)
{
    struct gen gen = gen_of_case(i);
    struct gen_shape shape = {.bits = bits};
    shape.training = gen_chance(&gen, 70);
    shape.target = gen_chance(&gen, 60);
    return gen_request(&gen, &shape);
}

START_TEST(test_plans__equal_the_recomputation_and_replay)
{
    const unsigned n = gen_cases(500);
    for (unsigned i = 0; i < n; i++) {
        struct derived derived;
        struct ref_request request;
        derive(&derived, request_of_case(i, 12));
        ck_assert(ref_request_read(derived.body, &request));
        ref_plan_derive(&request, &plan);
        expect_committed(&derived, &request, &plan);
        derived_release(&derived);
    }
}
END_TEST

START_TEST(test_plans__huge_dimensions_are_exact_or_refused)
{
    const unsigned n = gen_cases(500);
    unsigned n_refused = 0, n_committed = 0;
    for (unsigned i = 0; i < n; i++) {
        struct derived derived;
        struct ref_request request;
        struct gen gen = gen_of_case(1000000 + i);
        derive(&derived, request_of_case(2000000 + i, (unsigned)gen_range(&gen, 13, 53)));
        ck_assert(ref_request_read(derived.body, &request));
        ref_plan_derive(&request, &plan);
        const bool committed = expect_exact_or_refused(&derived, &request, &plan);
        n_committed += committed;
        n_refused += !committed;
        derived_release(&derived);
    }
    ck_assert_msg(n < 200 || (n_refused > n / 20 && n_committed > n / 20),
                  "%u refused, %u committed: the cases say little", n_refused, n_committed);
}
END_TEST

/* A device that holds exactly the layout will do; one byte less is refused with the shortfall. */
START_TEST(test_plans__fit_to_the_byte)
{
    const unsigned n = gen_cases(120);
    for (unsigned i = 0; i < n; i++) {
        struct derived derived;
        struct ref_request request;
        struct gen gen = gen_of_case(3000000 + i);
        json_t *body =
            gen_request(&gen, &(struct gen_shape){.bits = 10, .training = gen_chance(&gen, 50), .target = true});
        ck_assert(ref_request_read(body, &request));
        ref_plan_derive(&request, &plan);
        json_t *deployment = json_object_get(body, "deployment");
        json_object_set_new(deployment, "memory_bytes", json_integer((json_int_t)plan.layout_end));
        derive(&derived, body);
        expect_committed(&derived, &request, &plan);
        const struct bp_digest portable = derived.outcome.snapshots[BP_STAGE_PORTABLE].digest;
        json_object_set_new(deployment, "memory_bytes", json_integer((json_int_t)plan.layout_end - 1));
        derive_again(&derived);
        EXPECT(&derived, derived.accepted && derived.outcome.state == BP_PLAN_REJECTED, "not rejected");
        EXPECT(&derived,
               derived.outcome.diagnostics.n == 1 && derived.outcome.diagnostics.at[0].code == BP_E_capacity_exceeded,
               "%s", derived_findings(&derived));
        EXPECT(&derived, derived.outcome.n_snapshots == 3, "%zu snapshots stay", derived.outcome.n_snapshots);
        EXPECT(&derived, bp_digest_equal(&portable, &derived.outcome.snapshots[BP_STAGE_PORTABLE].digest),
               "the deployment changed the portable plan");
        derived_release(&derived);
    }
}
END_TEST

Suite *suite_plans(void)
{
    Suite *suite = suite_create("plans");
    TCase *tcase = tcase_create("plans");
    tcase_set_timeout(tcase, 0); /* bounded by BP_PROPERTY_CASES */
    tcase_add_test(tcase, test_plans__equal_the_recomputation_and_replay);
    tcase_add_test(tcase, test_plans__huge_dimensions_are_exact_or_refused);
    tcase_add_test(tcase, test_plans__fit_to_the_byte);
    suite_add_tcase(suite, tcase);
    return suite;
}
