/* Within the Megatron-LM importer: its arguments looked up by name, with Megatron's defaults. */
#ifndef BP_REQUEST_IMPORT_MEGATRON_H
#define BP_REQUEST_IMPORT_MEGATRON_H

#include "common/request/import_args.h"

struct bp_megatron {
    struct bp_peer *peer;
    struct bp_args *args;
};

/* The argument of that name, which counts as used from then on; NULL when it was not given. */
struct bp_arg *bp_megatron_get(struct bp_megatron *m, const char *name);
bool bp_megatron_has(const struct bp_megatron *m, const char *name);

/* Its value: a whole number of at least `least`, or `fallback` (absent, or with a problem); whether a switch is on; the
 * index in `names`, which is NULL-terminated; whether a decimal number is zero. */
uint64_t bp_megatron_count(struct bp_megatron *m, const char *name, uint64_t least, uint64_t fallback);
uint64_t bp_megatron_required(struct bp_megatron *m, const char *name);
bool bp_megatron_flag(struct bp_megatron *m, const char *name);
int bp_megatron_enum(struct bp_megatron *m, const char *name, const char *const *names, int fallback);
bool bp_megatron_is_zero(struct bp_megatron *m, const char *name, bool fallback);

/* A problem at an argument that was given, or else at its name. */
void bp_megatron_refuse(struct bp_megatron *m, const char *name, enum bp_code code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Lists an argument that was given, with why it is not, or not so, in the request. */
void bp_megatron_list(struct bp_megatron *m, const char *name, const char *why);

/* Lists what was not given and is taken to be so. */
void bp_megatron_assume(struct bp_megatron *m, const char *name, uint64_t value, const char *why);

/* Fill the parts of peer->job. The strategy's comes first: the model's vocabulary depends on it. */
void bp_megatron_read_strategy(struct bp_megatron *m);
void bp_megatron_read_workload(struct bp_megatron *m);

#endif
