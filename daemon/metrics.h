/* What the daemon counts, and its Prometheus text. Any thread may count; counting takes no lock. */
#ifndef BP_DAEMON_METRICS_H
#define BP_DAEMON_METRICS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"

#define BP_COUNTER(suffix, name, help) BP_COUNTER_##suffix,
enum bp_counter {
#include "daemon/metrics.def"
    BP_COUNTER_N
};
#undef BP_COUNTER
#define BP_GAUGE(suffix, name, help) BP_GAUGE_##suffix,
enum bp_gauge {
#include "daemon/metrics.def"
    BP_GAUGE_N
};
#undef BP_GAUGE
#define BP_STAGE_LABEL(suffix, name) BP_LATENCY_##suffix,
enum bp_latency {
#include "daemon/metrics.def"
    BP_LATENCY_N
};
#undef BP_STAGE_LABEL
#define BP_BUCKET(nanoseconds, seconds) BP_BUCKET_##nanoseconds,
enum bp_bucket {
#include "daemon/metrics.def"
    BP_BUCKET_N
};
#undef BP_BUCKET
#define BP_STATUS(status) BP_STATUS_##status,
enum bp_status {
#include "daemon/metrics.def"
    BP_STATUS_N /* and one slot for any other */
};
#undef BP_STATUS

#define BP_METRICS_ROUTES_MAX 64

/* Zero-initialise. */
struct bp_metrics {
    atomic_uint_fast64_t counters[BP_COUNTER_N];
    atomic_uint_fast64_t requests[BP_METRICS_ROUTES_MAX][BP_STATUS_N + 1];
    struct {
        atomic_uint_fast64_t buckets[BP_BUCKET_N + 1], nanoseconds;
    } latency[BP_LATENCY_N];
};

void bp_metrics_count(struct bp_metrics *metrics, enum bp_counter counter);
void bp_metrics_request(struct bp_metrics *metrics, size_t route, int status);
void bp_metrics_latency(struct bp_metrics *metrics, enum bp_latency stage, uint64_t nanoseconds);

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t bp_clock_ns(void);

/* The Prometheus text exposition. `routes` are the names of the routes by index, `values` the sampled gauges. */
void bp_metrics_write(const struct bp_metrics *metrics, const char *const *routes, size_t n_routes,
                      const uint64_t values[BP_GAUGE_N], struct bp_buf *out);

#endif
