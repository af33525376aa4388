/* Stage `model`: one semantic operation over values with symbolic shapes. No placement, no sharding, no hardware.
 *
 * The mode is part of it (training and inference are different operations); dimensions and element type stay symbols
 * that the workload binds at the next stage.
 */
#ifndef BP_IR_MODEL_IR_H
#define BP_IR_MODEL_IR_H

#include "common/ir/ir.h"

enum bp_model_role { BP_MODEL_INPUT, BP_MODEL_OUTPUT, BP_MODEL_KV_CACHE, BP_MODEL_ROLE_N };
extern const char *const bp_model_role_names[];

struct bp_model_value {
    struct bp_id id;
    enum bp_model_role role;
    const char *const *shape; /* symbols, NULL-terminated */
    const char *dtype;        /* a symbol */
};

struct bp_model_effect {
    uint32_t value; /* of `values` */
    enum bp_access access;
};

struct bp_model_operation {
    struct bp_id id;
    const char *name;               /* transformer.decoder_training or transformer.decoder_inference */
    struct bp_list inputs, outputs; /* of `values` */
    struct bp_model_effect effects[2];
    uint32_t n_effects;
    struct bp_model model;
};

/* No parents: the entity ids derive from the digest of the transformer form. */
struct bp_model_ir {
    enum bp_mode mode;
    struct bp_digest transformer;
    const struct bp_model_value *values;
    uint32_t n_values;
    const struct bp_model_operation *operations;
    uint32_t n_operations;
};

/* The model snapshot of a request: what `transformer.decoder_*` of this model is. NULL when memory ran out. */
const struct bp_model_ir *bp_model_ir_of(const struct bp_request *request, const struct bp_digest *transformer,
                                         struct bp_arena *arena);

int bp_model_ir_encode(const struct bp_model_ir *ir, struct bp_buf *out, struct bp_err *err);

/* From canonical bytes. -1: invalid_json and its kin, or structure_violated naming the JSON Pointer. The name of the
 * model is "" (a snapshot has none). */
const struct bp_model_ir *bp_model_ir_decode(const char *bytes, size_t n, struct bp_arena *arena, struct bp_err *err);

#endif
