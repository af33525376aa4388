/* What the daemon counts, and its Prometheus text. Any thread may count; counting takes no lock.
 *
 * Every family is a row of metrics.def. Labels take their values from tables of ours, never from a request, so that
 * what there is to count is known beforehand and has its place in one array.
 */
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

/* What is sampled, gauges and counters. */
#define BP_GAUGE(suffix, name, help) BP_GAUGE_##suffix,
#define BP_SAMPLED(suffix, type, unit, name, help) BP_GAUGE_##suffix,
enum bp_gauge {
#include "daemon/metrics.def"
    BP_GAUGE_N
};
#undef BP_GAUGE
#undef BP_SAMPLED

/* A sample that could not be taken; it is left out. */
#define BP_UNKNOWN UINT64_MAX

#define BP_LABEL(suffix, n, key) BP_LABEL_##suffix,
enum bp_label {
#include "daemon/metrics.def"
    BP_LABEL_N
};
#undef BP_LABEL
#define BP_LABEL(suffix, n, key) BP_LABEL_##suffix##_N = (n),
enum bp_label_size {
#include "daemon/metrics.def"
};
#undef BP_LABEL

#define BP_COUNTERS(suffix, name, a, b, c, help) BP_COUNTERS_##suffix,
enum bp_counters {
#include "daemon/metrics.def"
    BP_COUNTERS_N
};
#undef BP_COUNTERS

#define BP_HISTOGRAM(suffix, name, label, buckets, help) BP_HISTOGRAM_##suffix,
enum bp_histogram {
#include "daemon/metrics.def"
    BP_HISTOGRAM_N
};
#undef BP_HISTOGRAM

#define BP_BUCKET(nanoseconds, seconds) BP_BUCKET_##nanoseconds,
enum bp_bucket {
#include "daemon/metrics.def"
    BP_BUCKETS_MAX /* of any histogram */
};
#undef BP_BUCKET

/* The cells of a histogram: how many fell into each bucket, how many past the last, and the sum of the values. */
enum { BP_HISTOGRAM_SUM = BP_BUCKETS_MAX + 1, BP_HISTOGRAM_CELLS };

/* Where a family's cells begin. */
#define BP_COUNTERS(suffix, name, a, b, c, help)                                                                       \
    BP_CELLS_##suffix,                                                                                                 \
        BP_LAST_##suffix = BP_CELLS_##suffix + BP_LABEL_##a##_N * BP_LABEL_##b##_N * BP_LABEL_##c##_N - 1,
#define BP_HISTOGRAM(suffix, name, label, buckets, help)                                                               \
    BP_CELLS_##suffix, BP_LAST_##suffix = BP_CELLS_##suffix + BP_LABEL_##label##_N * BP_HISTOGRAM_CELLS - 1,
enum bp_cells {
#include "daemon/metrics.def"
    BP_CELLS_N
};
#undef BP_COUNTERS
#undef BP_HISTOGRAM

/* Zero-initialise. */
struct bp_metrics {
    atomic_uint_fast64_t counters[BP_COUNTER_N];
    atomic_uint_fast64_t cells[BP_CELLS_N];
};

enum bp_cache_result { BP_CACHE_HIT, BP_CACHE_MISS };
enum bp_cache_kind { BP_CACHE_BODIES, BP_CACHE_SNAPSHOTS };
enum bp_probe { BP_PROBE_WRITE, BP_PROBE_SCHEMA, BP_PROBE_DISK, BP_PROBE_WAL, BP_PROBE_QUEUE, BP_PROBE_N };
enum bp_replay_verdict { BP_REPLAY_IDENTICAL, BP_REPLAY_DIVERGENT };
enum bp_long_job { BP_LONG_COLLECTION, BP_LONG_HISTORY_REPLAY, BP_LONG_BACKUP };
enum bp_long_job_outcome { BP_LONG_DONE, BP_LONG_FAILED, BP_LONG_SUPERSEDED };

/* Indices on the labels ROUTE (of routes.def, then "none"), METHOD and STATUS; on CODE it is enum bp_code, on PASS 0
 * for the model stage and then the place in bp_passes, and the enums above are their own. */
size_t bp_metrics_method(const char *method);
size_t bp_metrics_status(int status);

/* The value of a label; NULL where the label has none of that index. */
const char *bp_metrics_label(enum bp_label label, size_t index);

void bp_metrics_count(struct bp_metrics *metrics, enum bp_counter counter);
void bp_metrics_add(struct bp_metrics *metrics, enum bp_counter counter, uint64_t n);

/* Counts the member of the family with these values of its labels; 0 for those it does not have. */
void bp_metrics_count_by(struct bp_metrics *metrics, enum bp_counters family, size_t a, size_t b, size_t c);

/* `value` in nanoseconds where the buckets are seconds; `label` is 0 where there is none. */
void bp_metrics_observe(struct bp_metrics *metrics, enum bp_histogram histogram, size_t label, uint64_t value);

/* CLOCK_MONOTONIC in nanoseconds; and the same as of the last tick, some milliseconds ago at the most, for a fraction
 * of the price. */
uint64_t bp_clock_ns(void);
uint64_t bp_clock_coarse_ns(void);

/* Adds {key="value"} pairs as the text format has them: backslash, quote and line feed are escaped. */
void bp_metrics_write_label(struct bp_buf *out, const char *key, const char *value, char before);

/* The Prometheus text exposition (version 0.0.4). `values` are the samples. Families of several labels, and histograms
 * with one, leave out the members that were never counted. */
void bp_metrics_write(const struct bp_metrics *metrics, const uint64_t values[BP_GAUGE_N], struct bp_buf *out);

#endif
