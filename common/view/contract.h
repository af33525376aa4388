/* A pass's contract as `/v1/passes` serves it. Pure; any thread. */
#ifndef BP_VIEW_CONTRACT_H
#define BP_VIEW_CONTRACT_H

#include "common/passes/pass.h"

/* {name, revision, title, summary, source, target, rule, formula_source, theory, references, bindings, laws, checks},
 * in that order, so the writer must be of `any_order`. */
void bp_contract_write(struct bp_writer *writer, const struct bp_pass *pass);

#endif
