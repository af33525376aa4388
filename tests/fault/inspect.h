/* Looks into a database from outside, without the daemon's code: what is not as it must be. */
#ifndef BP_TESTS_FAULT_INSPECT_H
#define BP_TESTS_FAULT_INSPECT_H

#include <stddef.h>
#include <stdint.h>

#include "tests/fault/load.h"

struct inspection {
    unsigned n_faults;
    char first[512]; /* in words */
    unsigned long n_plans, n_snapshots, n_edges;
};

/* The file's integrity, every reference, the wholeness of every plan, every snapshot against its digest, and that what
 * was acknowledged is there: plans committed or rejected as they were acknowledged, replays identical. Nothing may be
 * under way. */
struct inspection inspect(const char *database, const struct ack *acks, size_t n_acks);

/* The same of a database that an older schema was used for until `since`, microseconds since 1970: who asked for what
 * is recorded from then on. */
struct inspection inspect_since(const char *database, int64_t since, const struct ack *acks, size_t n_acks);

#endif
