#include "daemon/metrics.h"

#include <string.h>
#include <time.h>

#include "common/base/err.h"
#include "common/base/version.h"
#include "common/pipeline.h"

/* ---- The tables ---- */

enum unit { ONE, NANOSECONDS };

static const struct {
    const char *name, *help;
} counters[] = {
#define BP_COUNTER(suffix, name, help) {name, help},
#include "daemon/metrics.def"
#undef BP_COUNTER
};

static const struct {
    const char *name, *help, *type;
    enum unit unit;
} samples[] = {
#define BP_GAUGE(suffix, name, help) {name, help, "gauge", ONE},
#define BP_SAMPLED(suffix, type, unit, name, help) {name, help, type, unit},
#include "daemon/metrics.def"
#undef BP_GAUGE
#undef BP_SAMPLED
};

static const struct {
    const char *key;
    size_t n;
} labels[] = {
#define BP_LABEL(suffix, n, key) {key, n},
#include "daemon/metrics.def"
#undef BP_LABEL
};

struct family {
    const char *name, *help;
    size_t cells;
    enum bp_label a, b, c;
};
static const struct family families[] = {
#define BP_COUNTERS(suffix, name, a, b, c, help)                                                                       \
    {name, help, BP_CELLS_##suffix, BP_LABEL_##a, BP_LABEL_##b, BP_LABEL_##c},
#include "daemon/metrics.def"
#undef BP_COUNTERS
};

struct bucket {
    uint64_t bound;
    const char *text;
};
static const struct bucket seconds[] = {
#define BP_BUCKET(nanoseconds, seconds) {nanoseconds, seconds},
#include "daemon/metrics.def"
#undef BP_BUCKET
};
static const struct bucket items[] = {
#define BP_BUCKET_ITEMS(n) {n, #n},
#include "daemon/metrics.def"
#undef BP_BUCKET_ITEMS
};
_Static_assert(sizeof items <= sizeof seconds, "a histogram has room for the longest list of buckets");

#define SECONDS NANOSECONDS, seconds, sizeof seconds / sizeof *seconds
#define ITEMS ONE, items, sizeof items / sizeof *items
struct histogram {
    const char *name, *help;
    size_t cells;
    enum bp_label label;
    enum unit unit;
    const struct bucket *buckets;
    size_t n;
};
static const struct histogram histograms[] = {
#define BP_HISTOGRAM(suffix, name, label, buckets, help) {name, help, BP_CELLS_##suffix, BP_LABEL_##label, buckets},
#include "daemon/metrics.def"
#undef BP_HISTOGRAM
};

/* ---- The values of labels ---- */

static const char *const routes[BP_LABEL_ROUTE_N] = {
#define BP_ROUTE(method, pattern, scope, run, name) name,
#include "daemon/http/routes.def"
#undef BP_ROUTE
    "none",
};
static const char *const methods[BP_LABEL_METHOD_N] = {"GET", "HEAD", "POST", "other"};
static const int status_numbers[] = {
#define BP_STATUS(status) status,
#include "daemon/metrics.def"
#undef BP_STATUS
};
static const char *const statuses[BP_LABEL_STATUS_N] = {
#define BP_STATUS(status) #status,
#include "daemon/metrics.def"
#undef BP_STATUS
    "other",
};
static const char *const codes[BP_LABEL_CODE_N] = {
#define BP_ERRCODE(number, name, kind, http_status, title) [number] = #name,
#include "common/base/errcode.def"
#undef BP_ERRCODE
};
static const char *const verdicts[BP_LABEL_VERDICT_N] = {"identical", "divergent"};
static const char *const caches[BP_LABEL_CACHE_N] = {"bodies", "snapshots"};
static const char *const results[BP_LABEL_RESULT_N] = {"hit", "miss"};
static const char *const probes[BP_LABEL_PROBE_N] = {"write", "schema", "disk", "wal", "queue"};
static const char *const kinds[BP_LABEL_KIND_N] = {"collection", "history_replay", "backup"};
static const char *const outcomes[BP_LABEL_OUTCOME_N] = {"done", "failed", "superseded"};
static const char *const none[BP_LABEL_NONE_N] = {""};

static const char *const *const values_of[BP_LABEL_N] = {
    [BP_LABEL_NONE] = none,       [BP_LABEL_ROUTE] = routes,     [BP_LABEL_METHOD] = methods,
    [BP_LABEL_STATUS] = statuses, [BP_LABEL_CODE] = codes,       [BP_LABEL_VERDICT] = verdicts,
    [BP_LABEL_CACHE] = caches,    [BP_LABEL_RESULT] = results,   [BP_LABEL_PROBE] = probes,
    [BP_LABEL_KIND] = kinds,      [BP_LABEL_OUTCOME] = outcomes,
};

static const char *pass_name(size_t index)
{
    if (index == 0)
        return "model";
    return index <= bp_passes_n ? bp_passes[index - 1]->name : NULL;
}

const char *bp_metrics_label(enum bp_label label, size_t index)
{
    if (index >= labels[label].n)
        return NULL;
    return label == BP_LABEL_PASS ? pass_name(index) : values_of[label][index];
}

size_t bp_metrics_method(const char *method)
{
    size_t i = 0;
    while (i < BP_LABEL_METHOD_N - 1 && strcmp(methods[i], method) != 0)
        i++;
    return i;
}

size_t bp_metrics_status(int status)
{
    size_t i = 0;
    while (i < sizeof status_numbers / sizeof *status_numbers && status_numbers[i] != status)
        i++;
    return i;
}

/* ---- Counting ---- */

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
    bp_metrics_add(metrics, counter, 1);
}

void bp_metrics_add(struct bp_metrics *metrics, enum bp_counter counter, uint64_t n)
{
    increment(&metrics->counters[counter], n);
}

static size_t cell_of(const struct family *family, size_t a, size_t b, size_t c)
{
    return family->cells + (a * labels[family->b].n + b) * labels[family->c].n + c;
}

void bp_metrics_count_by(struct bp_metrics *metrics, enum bp_counters which, size_t a, size_t b, size_t c)
{
    const struct family *family = &families[which];
    if (a < labels[family->a].n && b < labels[family->b].n && c < labels[family->c].n)
        increment(&metrics->cells[cell_of(family, a, b, c)], 1);
}

void bp_metrics_observe(struct bp_metrics *metrics, enum bp_histogram which, size_t label, uint64_t value)
{
    const struct histogram *histogram = &histograms[which];
    size_t bucket = 0;
    if (label >= labels[histogram->label].n)
        return;
    atomic_uint_fast64_t *cells = &metrics->cells[histogram->cells + label * BP_HISTOGRAM_CELLS];
    while (bucket < histogram->n && value > histogram->buckets[bucket].bound)
        bucket++;
    increment(&cells[bucket], 1);
    increment(&cells[BP_HISTOGRAM_SUM], value);
}

static uint64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t bp_clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t bp_clock_coarse_ns(void)
{
    return read_clock(CLOCK_MONOTONIC_COARSE);
}

/* ---- The text ---- */

static void write_head(struct bp_buf *out, const char *name, const char *help, const char *type)
{
    bp_buf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_number(struct bp_buf *out, uint64_t value, enum unit unit)
{
    bp_buf_addch(out, ' ');
    bp_buf_addu(out, unit == NANOSECONDS ? value / 1000000000 : value);
    if (unit == NANOSECONDS)
        bp_buf_addf(out, ".%09u", (unsigned)(value % 1000000000));
    bp_buf_addch(out, '\n');
}

void bp_metrics_write_label(struct bp_buf *out, const char *key, const char *value, char before)
{
    bp_buf_addch(out, before);
    bp_buf_addstr(out, key);
    bp_buf_addstr(out, "=\"");
    for (; *value; value++) {
        if (*value == '\n')
            bp_buf_addstr(out, "\\n");
        else if (*value == '\\' || *value == '"')
            bp_buf_addf(out, "\\%c", *value);
        else
            bp_buf_addch(out, *value);
    }
    bp_buf_addch(out, '"');
}

static void write_build(struct bp_buf *out)
{
    static const char name[] = "blueprint_build_info";
    write_head(out, name, "The program that answers; always 1.", "gauge");
    bp_buf_addstr(out, name);
    bp_metrics_write_label(out, "version", BP_VERSION, '{');
    bp_metrics_write_label(out, "compiler", __VERSION__, ',');
    bp_buf_addstr(out, "} 1\n");
}

static void write_member(const struct family *family, const size_t index[3], uint64_t value, struct bp_buf *out)
{
    const enum bp_label of[] = {family->a, family->b, family->c};
    bp_buf_addstr(out, family->name);
    for (size_t i = 0; i < 3 && of[i] != BP_LABEL_NONE; i++)
        bp_metrics_write_label(out, labels[of[i]].key, bp_metrics_label(of[i], index[i]), i ? ',' : '{');
    bp_buf_addch(out, '}');
    write_number(out, value, ONE);
}

static bool is_member(const struct family *family, const size_t index[3])
{
    return bp_metrics_label(family->a, index[0]) && bp_metrics_label(family->b, index[1]) &&
           bp_metrics_label(family->c, index[2]);
}

static void write_family(const struct bp_metrics *metrics, const struct family *family, struct bp_buf *out)
{
    const bool is_sparse = family->c != BP_LABEL_NONE;
    size_t i[3];
    write_head(out, family->name, family->help, "counter");
    for (i[0] = 0; i[0] < labels[family->a].n; i[0]++)
        for (i[1] = 0; i[1] < labels[family->b].n; i[1]++)
            for (i[2] = 0; i[2] < labels[family->c].n; i[2]++) {
                uint64_t value = value_of(&metrics->cells[cell_of(family, i[0], i[1], i[2])]);
                if ((value || !is_sparse) && is_member(family, i))
                    write_member(family, i, value, out);
            }
}

static void write_line(const struct histogram *histogram, const char *suffix, const char *label, const char *le,
                       struct bp_buf *out)
{
    bp_buf_addstr(out, histogram->name);
    bp_buf_addstr(out, suffix);
    if (histogram->label != BP_LABEL_NONE)
        bp_metrics_write_label(out, labels[histogram->label].key, label, '{');
    if (le)
        bp_metrics_write_label(out, "le", le, histogram->label != BP_LABEL_NONE ? ',' : '{');
    if (le || histogram->label != BP_LABEL_NONE)
        bp_buf_addch(out, '}');
}

static void write_buckets(const atomic_uint_fast64_t *cells, const struct histogram *histogram, const char *label,
                          struct bp_buf *out)
{
    uint64_t n = 0, sum = value_of(&cells[BP_HISTOGRAM_SUM]);
    for (size_t i = 0; i <= histogram->n; i++) {
        n += value_of(&cells[i]);
        write_line(histogram, "_bucket", label, i < histogram->n ? histogram->buckets[i].text : "+Inf", out);
        write_number(out, n, ONE);
    }
    write_line(histogram, "_sum", label, NULL, out);
    write_number(out, sum, histogram->unit);
    write_line(histogram, "_count", label, NULL, out);
    write_number(out, n, ONE);
}

static bool was_observed(const atomic_uint_fast64_t *cells)
{
    for (size_t i = 0; i <= BP_BUCKETS_MAX; i++)
        if (value_of(&cells[i]))
            return true;
    return false;
}

static void write_histogram(const struct bp_metrics *metrics, const struct histogram *histogram, struct bp_buf *out)
{
    write_head(out, histogram->name, histogram->help, "histogram");
    for (size_t i = 0; i < labels[histogram->label].n; i++) {
        const atomic_uint_fast64_t *cells = &metrics->cells[histogram->cells + i * BP_HISTOGRAM_CELLS];
        if (histogram->label == BP_LABEL_NONE || was_observed(cells))
            write_buckets(cells, histogram, bp_metrics_label(histogram->label, i), out);
    }
}

void bp_metrics_write(const struct bp_metrics *metrics, const uint64_t values[BP_GAUGE_N], struct bp_buf *out)
{
    write_build(out);
    for (size_t i = 0; i < BP_COUNTERS_N; i++)
        write_family(metrics, &families[i], out);
    for (size_t i = 0; i < BP_COUNTER_N; i++) {
        write_head(out, counters[i].name, counters[i].help, "counter");
        bp_buf_addstr(out, counters[i].name);
        write_number(out, value_of(&metrics->counters[i]), ONE);
    }
    for (size_t i = 0; i < BP_GAUGE_N; i++) {
        if (values[i] == BP_UNKNOWN)
            continue;
        write_head(out, samples[i].name, samples[i].help, samples[i].type);
        bp_buf_addstr(out, samples[i].name);
        write_number(out, values[i], samples[i].unit);
    }
    for (size_t i = 0; i < BP_HISTOGRAM_N; i++)
        write_histogram(metrics, &histograms[i], out);
}
