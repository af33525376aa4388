#include "daemon/metrics.h"

#include <time.h>

#include "common/base/version.h"

struct metric_row {
    const char *name, *help;
};

static const struct metric_row counters[] = {
#define BP_COUNTER(suffix, name, help) {name, help},
#include "daemon/metrics.def"
#undef BP_COUNTER
};
static const struct metric_row gauges[] = {
#define BP_GAUGE(suffix, name, help) {name, help},
#include "daemon/metrics.def"
#undef BP_GAUGE
};
static const char *const stage_labels[] = {
#define BP_STAGE_LABEL(suffix, name) name,
#include "daemon/metrics.def"
#undef BP_STAGE_LABEL
};
static const struct {
    uint64_t nanoseconds;
    const char *seconds;
} buckets[] = {
#define BP_BUCKET(nanoseconds, seconds) {nanoseconds, seconds},
#include "daemon/metrics.def"
#undef BP_BUCKET
};
static const int statuses[] = {
#define BP_STATUS(status) status,
#include "daemon/metrics.def"
#undef BP_STATUS
};

static void increment(atomic_uint_fast64_t *counter, uint64_t by)
{
    atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

static uint64_t value_of(const atomic_uint_fast64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void bp_metrics_count(struct bp_metrics *metrics, enum bp_counter counter)
{
    increment(&metrics->counters[counter], 1);
}

void bp_metrics_request(struct bp_metrics *metrics, size_t route, int status)
{
    size_t slot = 0;
    while (slot < BP_STATUS_N && statuses[slot] != status)
        slot++;
    increment(&metrics->requests[route][slot], 1);
}

void bp_metrics_latency(struct bp_metrics *metrics, enum bp_latency stage, uint64_t nanoseconds)
{
    size_t bucket = 0;
    while (bucket < BP_BUCKET_N && nanoseconds > buckets[bucket].nanoseconds)
        bucket++;
    increment(&metrics->latency[stage].buckets[bucket], 1);
    increment(&metrics->latency[stage].nanoseconds, nanoseconds);
}

uint64_t bp_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void head(struct bp_buf *out, const char *name, const char *help, const char *type)
{
    bp_buf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_requests(const struct bp_metrics *metrics, const char *const *routes, size_t n_routes,
                           struct bp_buf *out)
{
    static const char name[] = "blueprint_http_requests_total";
    head(out, name, "Requests answered, by route and status.", "counter");
    for (size_t route = 0; route < n_routes; route++)
        for (size_t slot = 0; slot <= BP_STATUS_N; slot++) {
            uint64_t n = value_of(&metrics->requests[route][slot]);
            if (n == 0)
                continue;
            bp_buf_addf(out, "%s{route=\"%s\",status=\"", name, routes[route]);
            if (slot < BP_STATUS_N)
                bp_buf_addu(out, (bp_u128)statuses[slot]);
            else
                bp_buf_addstr(out, "other");
            bp_buf_addf(out, "\"} %llu\n", (unsigned long long)n);
        }
}

static void write_latency(const struct bp_metrics *metrics, struct bp_buf *out)
{
    static const char name[] = "blueprint_plan_stage_seconds";
    head(out, name, "Time a stage of a plan took: its pass and gate; commit is the writer's.", "histogram");
    for (size_t stage = 0; stage < BP_LATENCY_N; stage++) {
        uint64_t n = 0;
        for (size_t i = 0; i < BP_BUCKET_N; i++) {
            n += value_of(&metrics->latency[stage].buckets[i]);
            bp_buf_addf(out, "%s_bucket{stage=\"%s\",le=\"%s\"} %llu\n", name, stage_labels[stage], buckets[i].seconds,
                        (unsigned long long)n);
        }
        n += value_of(&metrics->latency[stage].buckets[BP_BUCKET_N]);
        bp_buf_addf(out, "%s_bucket{stage=\"%s\",le=\"+Inf\"} %llu\n", name, stage_labels[stage],
                    (unsigned long long)n);
        bp_buf_addf(out, "%s_sum{stage=\"%s\"} %.9f\n", name, stage_labels[stage],
                    (double)value_of(&metrics->latency[stage].nanoseconds) / 1e9);
        bp_buf_addf(out, "%s_count{stage=\"%s\"} %llu\n", name, stage_labels[stage], (unsigned long long)n);
    }
}

void bp_metrics_write(const struct bp_metrics *metrics, const char *const *routes, size_t n_routes,
                      const uint64_t values[BP_GAUGE_N], struct bp_buf *out)
{
    head(out, "blueprint_build_info", "The program that answers.", "gauge");
    bp_buf_addstr(out, "blueprint_build_info{version=\"" BP_VERSION "\"} 1\n");
    write_requests(metrics, routes, n_routes, out);
    for (size_t i = 0; i < BP_COUNTER_N; i++) {
        head(out, counters[i].name, counters[i].help, "counter");
        bp_buf_addf(out, "%s %llu\n", counters[i].name, (unsigned long long)value_of(&metrics->counters[i]));
    }
    for (size_t i = 0; i < BP_GAUGE_N; i++) {
        head(out, gauges[i].name, gauges[i].help, "gauge");
        bp_buf_addf(out, "%s %llu\n", gauges[i].name, (unsigned long long)values[i]);
    }
    write_latency(metrics, out);
}
