/* Inputs of other programs as requests of ours.
 *
 * A Megatron-LM command line or YAML file, or a Calculon application and execution, becomes the JSON text of a plan
 * request or of a fit request (api.md). What has a counterpart is carried over; what has none is listed with its value
 * and why, and refused instead when it would change a number that the request stands for. Nothing else is checked here:
 * divisibilities, ranges of degrees and the like are the request's own reader's.
 *
 * A problem's path is the argument's name as the text spells it ("--num-layers", "num_layers"), for Calculon a JSON
 * Pointer behind "application" or "execution"; "" for the text as a whole. Its message begins with line and column
 * where the text has them. Pure; any thread.
 */
#ifndef BP_REQUEST_IMPORT_PEER_H
#define BP_REQUEST_IMPORT_PEER_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"

/* Longest text that is read, in bytes. */
enum { BP_PEER_TEXT_MAX = 1 << 20 };

struct bp_peer_text {
    const char *data;
    size_t len;
};

/* A fit request has what a plan request cannot carry: the optimizer, the vocabulary's multiple, the attention kernel.
 */
enum bp_peer_form { BP_PEER_PLAN, BP_PEER_FIT };

/* What the caller says beside the text; 0: not said. */
struct bp_peer_options {
    enum bp_peer_form form;
    uint64_t world_size;   /* ranks of the whole job, which decide data parallelism */
    uint64_t vocab_size;   /* in place of the text's, which may leave it to a tokenizer */
    uint64_t memory_bytes; /* of a fit request */
};

/* One thing of the text that is not in the request, or not as it stood there. `name` and `value` are as in the text
 * ("" for no value): bytes of any kind. In the arena. */
struct bp_leftover {
    const char *name, *value, *why;
};

struct bp_peer_request {
    struct bp_buf text; /* the request */
    const struct bp_leftover *leftovers;
    size_t n_leftovers;
};

/* `ret` is the request only when no problem was added; its leftovers are filled as far as the reading came. Release
 * ret->text. -1 only when memory ran out, with `ret` untouched. */
int bp_megatron_import(struct bp_peer_text text, const struct bp_peer_options *options, struct bp_arena *arena,
                       struct bp_problems *problems, struct bp_peer_request *ret);
int bp_calculon_import(struct bp_peer_text application, struct bp_peer_text execution,
                       const struct bp_peer_options *options, struct bp_arena *arena, struct bp_problems *problems,
                       struct bp_peer_request *ret);

#endif
