/* The capacity view as JSON (api.md, "The capacity view"). Pure; any thread. */
#ifndef BP_VIEW_CAPACITY_WRITE_H
#define BP_VIEW_CAPACITY_WRITE_H

#include "common/view/fit.h"

struct bp_capacity_answer {
    const struct bp_whole_job *job;
    const struct bp_fit *fit;
    const struct bp_config *config;          /* how the model was resolved; NULL when that is not known any more */
    const struct bp_digest *plan, *portable; /* of the stored plan that it is about; NULL: of none */
};

/* {total, active, active_without_embedding, components}. */
void bp_parameters_write(struct bp_writer *writer, const struct bp_parameter_count *count);

/* Without a memory to fit in, what is said of fitting is left out and `memory_bytes` is null. The writer must be of
 * `any_order`. -1: quantity_overflow (parameters past 128 bits). */
int bp_capacity_write(struct bp_writer *writer, const struct bp_capacity_answer *answer, struct bp_err *err);

#endif
