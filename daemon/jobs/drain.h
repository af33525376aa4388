/* How fast a lane of the queue drains, measured while jobs wait in it. Times are nanoseconds of any one clock, which
 * the caller reads. Under the caller's lock.
 */
#ifndef BP_JOBS_DRAIN_H
#define BP_JOBS_DRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BP_DRAIN_SAMPLES = 32, BP_DRAIN_SECONDS_MAX = 60 };

/* Zero-initialise. */
struct bp_drain {
    uint64_t intervals[BP_DRAIN_SAMPLES], sum; /* between jobs that left while others waited; a ring */
    size_t n, next;
    uint64_t since; /* the last of them, or when the first began to wait */
    bool waiting, after_one;
};

void bp_drain_begin(struct bp_drain *drain, uint64_t now); /* a job waits where none did */
void bp_drain_count(struct bp_drain *drain, uint64_t now); /* one leaves for a worker */
void bp_drain_end(struct bp_drain *drain);                 /* none waits any more */

/* Seconds until `n` jobs have left as fast as the last ones did, and the one that is waited for now when it takes
 * longer: 1 to BP_DRAIN_SECONDS_MAX. */
unsigned bp_drain_seconds(const struct bp_drain *drain, uint64_t now, size_t n);

#endif
