#include "daemon/jobs/drain.h"

void bp_drain_begin(struct bp_drain *drain, uint64_t now)
{
    drain->since = now;
    drain->waiting = true;
    drain->after_one = false;
}

void bp_drain_end(struct bp_drain *drain)
{
    drain->waiting = false;
}

void bp_drain_count(struct bp_drain *drain, uint64_t now)
{
    /* The time from a job's coming to an idle worker's taking it says nothing of how long work takes. */
    if (drain->after_one) {
        uint64_t *slot = &drain->intervals[drain->next];
        drain->sum += now - drain->since - *slot;
        *slot = now - drain->since;
        drain->next = (drain->next + 1) % BP_DRAIN_SAMPLES;
        if (drain->n < BP_DRAIN_SAMPLES)
            drain->n++;
    }
    drain->since = now;
    drain->after_one = true;
}

unsigned bp_drain_seconds(const struct bp_drain *drain, uint64_t now, size_t n)
{
    static const double most = BP_DRAIN_SECONDS_MAX;
    double interval = drain->n ? (double)drain->sum / (double)drain->n : 0;
    double open = drain->waiting ? (double)(now - drain->since) : 0;
    if (open > interval)
        interval = ((double)drain->sum + open) / (double)(drain->n + 1);
    double seconds = interval * (double)n / 1e9;
    return seconds >= most ? BP_DRAIN_SECONDS_MAX : 1 + (unsigned)seconds;
}
