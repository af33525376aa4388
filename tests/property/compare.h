/* A derived plan against the independent recomputation, entity by entity. */
#ifndef BP_TESTS_PROPERTY_COMPARE_H
#define BP_TESTS_PROPERTY_COMPARE_H

#include "common/pipeline.h"
#include "tests/reference/reference.h"

/* Where two plans differ first: what, and both sides. Empty when they do not. */
struct compare {
    char difference[512];
};

/* Each returns true when nothing differs. The IR is that of the snapshot's decoded bytes. */
bool compare_distributed(struct compare *compare, const struct ref_request *request, const struct ref_plan *plan,
                         const struct bp_distributed_ir *ir);
bool compare_portable(struct compare *compare, const struct ref_request *request, const struct ref_plan *plan,
                      const struct bp_portable_ir *ir);
bool compare_concrete(struct compare *compare, const struct ref_request *request, const struct ref_plan *plan,
                      const struct bp_concrete_ir *ir);

/* `facts` is the object of the plan's record. */
bool compare_facts(struct compare *compare, const struct ref_plan *plan, const json_t *facts);

#endif
