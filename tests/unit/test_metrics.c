/* The metrics: what is counted is said, once, in the text format. */
#include <check.h>
#include <ctype.h>
#include <pthread.h>
#include <string.h>

#include "common/pipeline.h"
#include "daemon/http/routes.h"
#include "daemon/metrics.h"

static const char *write_text(const struct bp_metrics *metrics, const uint64_t values[BP_GAUGE_N], struct bp_buf *out)
{
    bp_buf_clear(out);
    bp_metrics_write(metrics, values, out);
    return bp_buf_string(out);
}

static void expect_line(const char *text, const char *line)
{
    const char *at = strstr(text, line);
    ck_assert_msg(at && (at == text || at[-1] == '\n') && at[strlen(line)] == '\n', "no line %s", line);
}

START_TEST(test_metrics__what_is_counted_is_said)
{
    static struct bp_metrics metrics;
    static const char *const lines[] = {
        "blueprint_http_requests_total{route=\"createPlan\",method=\"POST\",status=\"200\"} 2",
        "blueprint_http_requests_total{route=\"none\",method=\"other\",status=\"other\"} 1",
        "blueprint_problems_total{code=\"queue_full\"} 1",
        "blueprint_problems_total{code=\"internal\"} 0",
        "blueprint_replays_total{verdict=\"divergent\"} 1",
        "blueprint_replays_total{verdict=\"identical\"} 0",
        "blueprint_cache_lookups_total{cache=\"snapshots\",result=\"miss\"} 1",
        "blueprint_cache_lookups_total{cache=\"bodies\",result=\"hit\"} 0",
        "blueprint_plans_derived_total 1",
        "blueprint_queue_depth 17",
        "process_cpu_seconds_total 1.500000000",
        "# TYPE process_cpu_seconds_total counter",
        "# TYPE blueprint_queue_depth gauge",
    };
    uint64_t values[BP_GAUGE_N] = {[BP_GAUGE_QUEUE_DEPTH] = 17, [BP_GAUGE_CPU] = 1500000000};
    struct bp_buf out = {0};
    for (int i = 0; i < 2; i++)
        bp_metrics_count_by(&metrics, BP_COUNTERS_HTTP_REQUESTS, 0, bp_metrics_method("POST"), bp_metrics_status(200));
    bp_metrics_count_by(&metrics, BP_COUNTERS_HTTP_REQUESTS, bp_routes_n, bp_metrics_method("BREW\"\n"),
                        bp_metrics_status(299));
    bp_metrics_count_by(&metrics, BP_COUNTERS_PROBLEMS, BP_E_queue_full, 0, 0);
    bp_metrics_count_by(&metrics, BP_COUNTERS_REPLAYS, BP_REPLAY_DIVERGENT, 0, 0);
    bp_metrics_count_by(&metrics, BP_COUNTERS_CACHE, BP_CACHE_SNAPSHOTS, BP_CACHE_MISS, 0);
    bp_metrics_count(&metrics, BP_COUNTER_PLANS_DERIVED);
    const char *text = write_text(&metrics, values, &out);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        expect_line(text, lines[i]);
    ck_assert_ptr_null(strstr(text, "BREW"));
    bp_buf_release(&out);
}
END_TEST

START_TEST(test_metrics__a_histogram_counts_up_and_sums)
{
    static struct bp_metrics metrics;
    static const uint64_t values[BP_GAUGE_N];
    static const char *const lines[] = {
        "# TYPE blueprint_pass_seconds histogram",
        "blueprint_pass_seconds_bucket{pass=\"bind-reference-slot\",le=\"0.0005\"} 0",
        "blueprint_pass_seconds_bucket{pass=\"bind-reference-slot\",le=\"0.001\"} 1",
        "blueprint_pass_seconds_bucket{pass=\"bind-reference-slot\",le=\"30\"} 1",
        "blueprint_pass_seconds_bucket{pass=\"bind-reference-slot\",le=\"+Inf\"} 2",
        "blueprint_pass_seconds_sum{pass=\"bind-reference-slot\"} 40.001000000",
        "blueprint_pass_seconds_count{pass=\"bind-reference-slot\"} 2",
        "blueprint_store_commit_units_bucket{le=\"4\"} 1",
        "blueprint_store_commit_units_bucket{le=\"64\"} 1",
        "blueprint_store_commit_units_bucket{le=\"+Inf\"} 2",
        "blueprint_store_commit_units_sum 104",
        "blueprint_store_commit_units_count 2",
        "blueprint_store_commit_seconds_count 0",
    };
    struct bp_buf out = {0};
    bp_metrics_observe(&metrics, BP_HISTOGRAM_PASS_SECONDS, bp_passes_n, 1000000);
    bp_metrics_observe(&metrics, BP_HISTOGRAM_PASS_SECONDS, bp_passes_n, UINT64_C(40000000000));
    bp_metrics_observe(&metrics, BP_HISTOGRAM_COMMIT_UNITS, 0, 4);
    bp_metrics_observe(&metrics, BP_HISTOGRAM_COMMIT_UNITS, 0, 100);
    const char *text = write_text(&metrics, values, &out);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        expect_line(text, lines[i]);
    ck_assert_ptr_null(strstr(text, "pass=\"model\"")); /* never observed */
    bp_buf_release(&out);
}
END_TEST

START_TEST(test_metrics__a_value_that_cannot_be_had_is_left_out)
{
    static struct bp_metrics metrics;
    uint64_t values[BP_GAUGE_N] = {[BP_GAUGE_RESIDENT] = BP_UNKNOWN};
    struct bp_buf out = {0};
    const char *text = write_text(&metrics, values, &out);
    ck_assert_ptr_null(strstr(text, "process_resident_memory_bytes"));
    expect_line(text, "process_open_fds 0");
    bp_buf_release(&out);
}
END_TEST

START_TEST(test_metrics__an_index_past_its_label_counts_nothing)
{
    static struct bp_metrics metrics, before;
    bp_metrics_count_by(&metrics, BP_COUNTERS_HTTP_REQUESTS, BP_LABEL_ROUTE_N, 0, 0);
    bp_metrics_count_by(&metrics, BP_COUNTERS_HTTP_REQUESTS, 0, BP_LABEL_METHOD_N, 0);
    bp_metrics_count_by(&metrics, BP_COUNTERS_HTTP_REQUESTS, 0, 0, BP_LABEL_STATUS_N);
    bp_metrics_count_by(&metrics, BP_COUNTERS_PROBLEMS, SIZE_MAX, 0, 0);
    bp_metrics_observe(&metrics, BP_HISTOGRAM_PASS_SECONDS, BP_LABEL_PASS_N, 1);
    ck_assert_int_eq(memcmp(&metrics, &before, sizeof metrics), 0);
}
END_TEST

START_TEST(test_metrics__every_member_has_a_cell_of_its_own)
{
    static struct bp_metrics metrics;
    static const uint64_t values[BP_GAUGE_N];
    struct bp_buf out = {0};
    size_t n = 0, lines = 0;
    for (size_t a = 0; bp_metrics_label(BP_LABEL_ROUTE, a); a++)
        for (size_t b = 0; bp_metrics_label(BP_LABEL_METHOD, b); b++)
            for (size_t c = 0; bp_metrics_label(BP_LABEL_STATUS, c); c++, n++)
                bp_metrics_count_by(&metrics, BP_COUNTERS_HTTP_REQUESTS, a, b, c);
    for (const char *at = write_text(&metrics, values, &out); (at = strstr(at, "blueprint_http_requests_total{")); at++)
        lines += strncmp(strchr(at, '}'), "} 1\n", 4) == 0;
    ck_assert_uint_eq(lines, n);
    /* The last cell of the last family is within the array. */
    size_t codes = 0;
    for (size_t i = 0; i < BP_LABEL_CODE_N; i++)
        codes += bp_metrics_label(BP_LABEL_CODE, i) != NULL;
    ck_assert_uint_ge(codes, 40);
    bp_buf_release(&out);
}
END_TEST

START_TEST(test_metrics__label_values_are_escaped)
{
    static const struct {
        const char *value, *text;
    } rows[] = {
        {"plain", "{key=\"plain\""},
        {"", "{key=\"\""},
        {"a\"b\\c\nd", "{key=\"a\\\"b\\\\c\\nd\""},
        {"\"} 1\nforged_total 2\n#", "{key=\"\\\"} 1\\nforged_total 2\\n#\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bp_buf out = {0};
        bp_metrics_write_label(&out, "key", rows[i].value, '{');
        ck_assert_str_eq(bp_buf_string(&out), rows[i].text);
        bp_buf_release(&out);
    }
}
END_TEST

START_TEST(test_metrics__labels_are_those_of_the_tables)
{
    for (size_t i = 0; i < bp_routes_n; i++)
        ck_assert_str_eq(bp_metrics_label(BP_LABEL_ROUTE, i), bp_routes[i].name);
    ck_assert_str_eq(bp_metrics_label(BP_LABEL_ROUTE, bp_routes_n), "none");
    ck_assert_ptr_null(bp_metrics_label(BP_LABEL_ROUTE, bp_routes_n + 1));
    /* There is room for every pass, and none of the list is left without a name. */
    ck_assert_uint_lt(bp_passes_n, BP_LABEL_PASS_N);
    for (size_t i = 0; i < bp_passes_n; i++)
        ck_assert_str_eq(bp_metrics_label(BP_LABEL_PASS, i + 1), bp_passes[i]->name);
    ck_assert_ptr_null(bp_metrics_label(BP_LABEL_PASS, bp_passes_n + 1));
    ck_assert_str_eq(bp_metrics_label(BP_LABEL_STATUS, bp_metrics_status(503)), "503");
    ck_assert_str_eq(bp_metrics_label(BP_LABEL_STATUS, bp_metrics_status(999)), "other");
    ck_assert_str_eq(bp_metrics_label(BP_LABEL_CODE, BP_E_wal_full), "wal_full");
    ck_assert_ptr_null(bp_metrics_label(BP_LABEL_CODE, BP_OK));
}
END_TEST

/* The status of every error that an answer can carry is counted as itself. */
START_TEST(test_metrics__no_status_of_the_error_table_is_other)
{
    for (size_t i = 0; i < BP_LABEL_CODE_N; i++)
        if (bp_metrics_label(BP_LABEL_CODE, i))
            ck_assert_str_ne(bp_metrics_label(BP_LABEL_STATUS, bp_metrics_status(bp_code_status((enum bp_code)i))),
                             "other");
}
END_TEST

enum { THREADS = 4, ROUNDS = 20000 };

static void *count_along(void *data)
{
    for (int i = 0; i < ROUNDS; i++) {
        bp_metrics_count(data, BP_COUNTER_PLANS_DERIVED);
        bp_metrics_observe(data, BP_HISTOGRAM_COMMIT_UNITS, 0, 3);
    }
    return NULL;
}

START_TEST(test_metrics__threads_lose_no_count)
{
    static struct bp_metrics metrics;
    static const uint64_t values[BP_GAUGE_N];
    pthread_t threads[THREADS];
    char line[96];
    struct bp_buf out = {0};
    for (size_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, count_along, &metrics), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    const char *text = write_text(&metrics, values, &out);
    snprintf(line, sizeof line, "blueprint_plans_derived_total %d", THREADS * ROUNDS);
    expect_line(text, line);
    snprintf(line, sizeof line, "blueprint_store_commit_units_sum %d", 3 * THREADS * ROUNDS);
    expect_line(text, line);
    bp_buf_release(&out);
}
END_TEST

/* Names as the format has them, each said once, with a help of its own, and as long as it takes. */
START_TEST(test_metrics__every_family_has_one_head)
{
    static struct bp_metrics metrics;
    static const uint64_t values[BP_GAUGE_N];
    struct bp_buf out = {0};
    size_t n = 0;
    const char *text = write_text(&metrics, values, &out);
    for (const char *at = text; (at = strstr(at, "# TYPE ")); n++) {
        char help[128], type[128];
        at += strlen("# TYPE ");
        int length = (int)strcspn(at, " ");
        snprintf(help, sizeof help, "# HELP %.*s ", length, at);
        snprintf(type, sizeof type, "# TYPE %.*s ", length, at);
        ck_assert_msg(strstr(text, help) && !strstr(strstr(text, help) + 1, help), "%s", help);
        ck_assert_msg(!strstr(strstr(text, type) + 1, type), "%s", type);
        ck_assert_msg(strstr(text, help)[strlen(help)] != '\n', "%s is not explained", help);
        for (int i = 0; i < length; i++)
            ck_assert_msg(islower((unsigned char)at[i]) || at[i] == '_', "%.*s", length, at);
    }
    ck_assert_uint_eq(n, 1 + BP_COUNTER_N + BP_COUNTERS_N + BP_GAUGE_N + BP_HISTOGRAM_N);
    bp_buf_release(&out);
}
END_TEST

Suite *suite_metrics(void)
{
    Suite *suite = suite_create("metrics");
    TCase *tcase = tcase_create("metrics");
    tcase_add_test(tcase, test_metrics__what_is_counted_is_said);
    tcase_add_test(tcase, test_metrics__a_histogram_counts_up_and_sums);
    tcase_add_test(tcase, test_metrics__a_value_that_cannot_be_had_is_left_out);
    tcase_add_test(tcase, test_metrics__an_index_past_its_label_counts_nothing);
    tcase_add_test(tcase, test_metrics__every_member_has_a_cell_of_its_own);
    tcase_add_test(tcase, test_metrics__label_values_are_escaped);
    tcase_add_test(tcase, test_metrics__labels_are_those_of_the_tables);
    tcase_add_test(tcase, test_metrics__no_status_of_the_error_table_is_other);
    tcase_add_test(tcase, test_metrics__threads_lose_no_count);
    tcase_add_test(tcase, test_metrics__every_family_has_one_head);
    suite_add_tcase(suite, tcase);
    return suite;
}
