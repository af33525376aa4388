/* One random request taken through everything a daemon would do with it. */
#ifndef BP_TESTS_PROPERTY_DERIVE_H
#define BP_TESTS_PROPERTY_DERIVE_H

#include <check.h>

#include "common/pipeline.h"
#include "tests/property/compare.h"
#include "tests/property/generate.h"

struct derived {
    json_t *body;
    char *text; /* of the body, for messages */
    struct bp_arena arena;
    struct bp_problems problems;
    struct bp_request request;
    struct bp_config config;
    bool accepted; /* by bp_request_read; then `outcome` holds the plan */
    struct bp_outcome outcome;
};

/* Reads and derives; takes the body. Fails the test when memory runs out. */
void derive(struct derived *derived, json_t *body);
void derive_again(struct derived *derived); /* the same body, changed by the caller */
void derived_release(struct derived *derived);

/* Fails the test, naming the request. */
#define EXPECT(derived, holds, ...)                                                                                    \
    do {                                                                                                               \
        if (!(holds)) {                                                                                                \
            char why[1024];                                                                                            \
            snprintf(why, sizeof(why), __VA_ARGS__);                                                                   \
            ck_abort_msg("%s\nrequest: %s", why, (derived)->text);                                                     \
        }                                                                                                              \
    } while (0)

/* What must hold of a plan that committed: its evidence, its snapshots against the recomputation after a decode, byte
 * equality of the encoding, digests, lineage between stages, and the replay. */
void expect_committed(const struct derived *derived, const struct ref_request *request, const struct ref_plan *plan);

/* That it committed and its snapshots are those of the recomputation, and no more. */
void expect_same(const struct derived *derived, const struct ref_request *request, const struct ref_plan *plan);

/* A quantity is stated exactly or refused as too large, and refused only when one really is. Whether it committed. */
bool expect_exact_or_refused(const struct derived *derived, const struct ref_request *request,
                             const struct ref_plan *plan);

/* What was found, as text: the refusal's or the plan's problems. */
const char *derived_findings(const struct derived *derived);

#endif
