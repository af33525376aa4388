/* Thousands of random valid requests: each plan equals the independent recomputation and replays identically. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/runner.h"
#include "tests/property/derive.h"
#include "tests/property/features.h"

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
    const unsigned n = gen_cases(1000);
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

/* The whole of it is compared; what a plan is taken through beside that, as any other, in every eighth case. */
START_TEST(test_plans__of_other_kinds_equal_the_recomputation)
{
    const unsigned n = gen_cases(2000);
    static struct features features;
    for (unsigned i = 0; i < n; i++) {
        struct derived derived;
        struct ref_request request;
        struct gen gen = gen_of_case(4000000 + i);
        struct gen_shape shape = {.bits = 8, .training = gen_chance(&gen, 60), .target = gen_chance(&gen, 50)};
        derive(&derived, gen_request_of_kinds(&gen, &shape));
        ck_assert(ref_request_read(derived.body, &request));
        ref_plan_derive(&request, &plan);
        if (i % 8 == 0)
            expect_committed(&derived, &request, &plan);
        else
            expect_same(&derived, &request, &plan);
        features_count(&features, &request);
        derived_release(&derived);
    }
    const char *missing = features_print(&features, 1);
    ck_assert_msg(n < 400 || !missing, "no case has this: %s", missing ? missing : "");
}
END_TEST

/* A quantity is stated exactly or refused as too large; it is refused only when one really is. */
static void expect_exact_or_refused(const struct derived *derived, const struct ref_request *request)
{
    const bool refused = !derived->accepted || derived->outcome.state == BP_PLAN_REJECTED;
    if (!refused) {
        expect_committed(derived, request, &plan);
        return;
    }
    const struct bp_problems *problems = derived->accepted ? &derived->outcome.diagnostics : &derived->problems;
    EXPECT(derived, problems->n > 0, "refused without a reason");
    for (size_t i = 0; i < problems->n; i++)
        EXPECT(derived, problems->at[i].code == BP_E_quantity_overflow, "%s", derived_findings(derived));
}

static bool everything_fits(void)
{
    const struct ref_work total = ref_plan_total(&plan, NULL, NULL);
    return plan.largest_bytes <= BP_JSON_INT_MAX && total.read <= BP_JSON_INT_MAX && total.write <= BP_JSON_INT_MAX &&
           total.message <= BP_JSON_INT_MAX;
}

START_TEST(test_plans__huge_dimensions_are_exact_or_refused)
{
    const unsigned n = gen_cases(1200);
    unsigned n_refused = 0, n_committed = 0;
    for (unsigned i = 0; i < n; i++) {
        struct derived derived;
        struct ref_request request;
        struct gen gen = gen_of_case(1000000 + i);
        derive(&derived, request_of_case(2000000 + i, (unsigned)gen_range(&gen, 13, 53)));
        ck_assert(ref_request_read(derived.body, &request));
        ref_plan_derive(&request, &plan);
        expect_exact_or_refused(&derived, &request);
        const bool committed = derived.accepted && derived.outcome.state == BP_PLAN_COMMITTED;
        EXPECT(&derived, committed || !everything_fits(), "refused though everything fits: %s",
               derived_findings(&derived));
        EXPECT(&derived, !committed || plan.largest_bytes <= BP_JSON_INT_MAX, "committed though a size is too large");
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
    const unsigned n = gen_cases(200);
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
    tcase = tcase_create("kinds");
    tcase_set_timeout(tcase, 0);
    tcase_add_test(tcase, test_plans__of_other_kinds_equal_the_recomputation);
    suite_add_tcase(suite, tcase);
    return suite;
}
