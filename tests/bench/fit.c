/* Whether a job fits: the time of the search, on one thread. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/json.h"
#include "common/view/capacity_write.h"
#include "tests/bench/bench.h"

/* Llama-3.1-405B in training on 512 devices of 80 GiB, from different starts. */
static const struct {
    const char *name, *strategy;
} starts[] = {
    {"tensor 8, data 64", "\"tensor_parallel\": 8, \"data_parallel\": 64"},
    {"tensor 8, pipeline 2, data 32", "\"tensor_parallel\": 8, \"sequence_parallel\": true, \"pipeline_parallel\": 2, "
                                      "\"data_parallel\": 32"},
    {"tensor 8, pipeline 16 by hand, data 4",
     "\"tensor_parallel\": 8, \"sequence_parallel\": true, \"pipeline_parallel\": 16, \"data_parallel\": 4, "
     "\"pipeline_layers\": [7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7]"},
    {"pipeline 1, data 512", "\"data_parallel\": 512"},
};

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* One request, from its text to the answer's: of it the search alone in `ret_search`. */
static double answer(const char *text, double *ret_search, size_t *ret_suggestions)
{
    static struct bp_whole_job job;
    struct bp_arena arena = {0};
    struct bp_problems problems = {0};
    struct bp_config config = {0};
    struct bp_json_position position;
    struct bp_fit fit;
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    const double start = cpu_seconds();
    json_t *request = bp_json_parse(text, strlen(text), &position, NULL);
    if (!request || bp_whole_job_read(request, &arena, &problems, &job, &config) < 0 || !bp_problems_none(&problems))
        bench_die("the fit request is refused");
    const double before = cpu_seconds();
    if (bp_fit_of(&job, &arena, &fit, NULL) < 0)
        bench_die("the job cannot be derived");
    *ret_search = cpu_seconds() - before;
    const struct bp_capacity_answer parts = {.job = &job, .fit = &fit, .config = &config};
    if (bp_capacity_write(&writer, &parts, NULL) < 0 || bp_writer_finish(&writer, NULL) < 0)
        bench_die("the answer cannot be written");
    const double seconds = cpu_seconds() - start;
    *ret_suggestions = fit.n_suggestions;
    json_decref(request);
    bp_buf_release(&body);
    bp_problems_release(&problems);
    bp_arena_release(&arena);
    return seconds;
}

void bench_fit(void)
{
    enum { ROUNDS = 201 };
    static double whole[ROUNDS], search[ROUNDS];
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        char text[1024];
        size_t n = 0;
        snprintf(text, sizeof text,
                 "{\"model\": {\"name\": \"llama-3.1-405b\"}, \"workload\": {\"mode\": \"training\", "
                 "\"sequence_length\": 8192, \"micro_batch_size\": 1, \"global_batch_size\": 512, \"dtype\": "
                 "\"bfloat16\"}, \"strategy\": {%s}, \"memory_bytes\": 85899345920, \"reserve_bytes\": 4294967296}",
                 starts[i].strategy);
        for (size_t round = 0; round < ROUNDS; round++)
            whole[round] = answer(text, &search[round], &n);
        bench_note("fit of 405B on 512, %s: %zu suggestions, search %.0f us, all %.0f us (target 1000)", starts[i].name,
                   n, bench_median(search, ROUNDS) * 1e6, bench_median(whole, ROUNDS) * 1e6);
    }
}
