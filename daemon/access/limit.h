/* How much one caller may ask for: so many requests in a period, so many at once.
 *
 * The rate is a bucket of `requests` that fills evenly, `requests` in a period (the generic cell rate algorithm: one
 * number of state). So a caller may send them all at once and then one each period / requests; one that was refused may
 * come again after exactly the seconds that it was told, rounded up, if it sent nothing in between.
 *
 * Pure but for the limiter handed in, which one thread at a time may use; the clock comes from the caller.
 */
#ifndef BP_ACCESS_LIMIT_H
#define BP_ACCESS_LIMIT_H

#include <stdint.h>

#include "common/base/err.h"

struct bp_limits {
    unsigned requests; /* in a period; 0: no limit */
    uint64_t period_ns;
    unsigned at_once; /* requests under way; 0: no limit */
};

enum { BP_LIMIT_MOST = 1000000 };

/* "N/s", "N/m" or "N/h", N of 1 to BP_LIMIT_MOST, into the rate of `*ret`. NULL, or what is wrong. */
const char *bp_limits_read_rate(const char *text, struct bp_limits *ret);

/* A number of 1 to BP_LIMIT_MOST into `at_once` of `*ret`. NULL, or what is wrong. */
const char *bp_limits_read_at_once(const char *text, struct bp_limits *ret);

/* Zero-initialise. */
struct bp_limiter {
    uint64_t due_ns; /* when the bucket is full again */
    unsigned under_way;
};

/* Admits a request, to be given back when it is over. -1: rate_limited, concurrency_limited; then nothing is taken, and
 * `*ret_seconds` says when to come again: exact for the rate; 1 for the other, since nobody knows when one ends. */
int bp_limiter_take(struct bp_limiter *limiter, const struct bp_limits *limits, uint64_t now_ns, unsigned *ret_seconds,
                    struct bp_err *err);
void bp_limiter_give(struct bp_limiter *limiter);

#endif
