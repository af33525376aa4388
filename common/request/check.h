/* What is held against a plan request beside what bp_request_check says. Internal to common/request; any thread. */
#ifndef BP_REQUEST_CHECK_H
#define BP_REQUEST_CHECK_H

#include "common/request/request.h"

/* What no row of a plan holds: unsupported_feature, or not_divisible where a rank would have part of a token. */
void bp_request_check_rows(const struct bp_request *request, struct bp_problems *problems);

/* The part of it about the planned kinds of block: each thing that has no rows once, however many kinds have it. */
void bp_request_check_kinds(const struct bp_request *request, struct bp_problems *problems);

/* Kinds that are named and that the model does not have are unknown_value (a name that could not be read is empty and
 * passes); the rest come out in the model's order, and all of them as none. */
void bp_request_settle_kinds(struct bp_request *request, struct bp_problems *problems);

#endif
