/* A model explained, of its config alone: what it is made of, what it holds, what was made of each key. Pure; any
 * thread. */
#ifndef BP_VIEW_EXPLAIN_H
#define BP_VIEW_EXPLAIN_H

#include "common/base/canon.h"
#include "common/model/config.h"

/* {name, family, class, dtype, quantisation, parameters, kinds, kv_bytes_per_token, ignored, assumed, refused}; the KV
 * bytes at 16 bits an element. The config must have parameters, the writer be of `any_order`. -1: quantity_overflow. */
int bp_explain_write(struct bp_writer *writer, const struct bp_config *config, struct bp_err *err);

#endif
