/* What differs between two plans. Pure; any thread. */
#ifndef BP_VIEW_DIFF_H
#define BP_VIEW_DIFF_H

#include "common/base/arena.h"
#include "common/ir/ir.h"

/* One plan: its snapshots by stage, its canonical request, its facts (NULL when it has none). */
struct bp_diff_side {
    bool has[BP_STAGE_N];
    struct bp_digest digest[BP_STAGE_N];
    const char *request, *facts;
    size_t n_request, n_facts;
};

/* {stages: [{stage, a, b, same}], request: [{path, a, b}], facts: [{path, a, b}]}: every stage that one of them has;
 * of requests and facts what differs, by JSON Pointer in sorted order, null where one has nothing. The writer must be
 * of `any_order`. -1: a text that does not parse (the codes of bp_json_parse), out_of_memory. */
int bp_diff_write(struct bp_writer *writer, const struct bp_diff_side *a, const struct bp_diff_side *b,
                  struct bp_err *err);

#endif
