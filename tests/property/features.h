/* What the generated requests had: a feature that none has is not tested. */
#ifndef BP_TESTS_PROPERTY_FEATURES_H
#define BP_TESTS_PROPERTY_FEATURES_H

#include "tests/reference/reference.h"

enum { FEATURES_MAX = 80 };

struct features {
    unsigned at[FEATURES_MAX];
};

void features_count(struct features *features, const struct ref_request *request);

/* Prints how many cases had each; the first that fewer than `least` had, or NULL. */
const char *features_print(const struct features *features, unsigned least);

#endif
