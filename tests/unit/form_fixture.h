/* The transformer form, written and read again. */
#ifndef BP_TESTS_UNIT_FORM_FIXTURE_H
#define BP_TESTS_UNIT_FORM_FIXTURE_H

#include "common/base/arena.h"
#include "common/model/model.h"

/* The form of the model reads as the same model, kinds and layers and all, of the same count and the same form. */
void expect_form_says_it_all(const struct bp_model *model, struct bp_arena *arena);

#endif
