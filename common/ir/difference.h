/* Where two snapshots begin to differ. Pure; any thread. */
#ifndef BP_IR_DIFFERENCE_H
#define BP_IR_DIFFERENCE_H

#include "common/base/json.h"
#include "common/base/u128.h"

/* The JSON Pointer of the first value, in the order of canonical text, that is not the same in both: of a value that
 * one of them lacks, where it would stand. "" when the whole differs in type, or when nothing differs. -1 when one of
 * the texts does not parse: the codes of bp_json_parse. */
int bp_first_difference(const char *a, size_t n_a, const char *b, size_t n_b, char ret[BP_POINTER_MAX],
                        struct bp_err *err);

#endif
