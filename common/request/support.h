/* What no rows are known for, in words. Pure; any thread. */
#ifndef BP_REQUEST_SUPPORT_H
#define BP_REQUEST_SUPPORT_H

#include "common/request/request.h"

/* The first thing about a kind of block that the rows of a mode, over `tensor_parallel` ranks, do not have; NULL when
 * they have it all. A literal. */
const char *bp_unsupported_in_kind(const struct bp_kind *kind, enum bp_mode mode, uint64_t tensor_parallel);

#endif
