/* The requests that the bench sends. */
#include <stdio.h>
#include <string.h>

#include "tests/bench/bench.h"

/* The golden case gpt3-175b-selective-sequence-parallel, on the queue target; the global batch makes it another plan,
 * of which only the model's snapshot is shared. */
static const char training[] =
    "{\"model\": {\"name\": \"gpt3-175b\"}, \"workload\": {\"mode\": \"training\", \"sequence_length\": 2048,"
    " \"micro_batch_size\": 1, \"global_batch_size\": %llu, \"dtype\": \"float16\"}, \"strategy\":"
    " {\"tensor_parallel\": 8, \"recompute\": \"selective\", \"sequence_parallel\": true, \"pipeline_parallel\": 8,"
    " \"data_parallel\": 1, \"pipeline_schedule\": \"interleaved\", \"virtual_stages\": 3},"
    " \"target\": {\"kind\": \"reference-queue\"}, \"deployment\": {\"devices\": 8, \"memory_bytes\": 85899345920}}";

static const char inference[] =
    "{\"model\": {\"name\": \"llama-3.1-8b\"}, \"workload\": {\"mode\": \"inference\", \"phase\": \"decode\","
    " \"batch_size\": %llu, \"context_length\": 512, \"dtype\": \"bfloat16\"}, \"strategy\": {\"tensor_parallel\": 2}}";

static size_t checked(int n, size_t room)
{
    if (n < 0 || (size_t)n >= room)
        bench_die("a request does not fit");
    return (size_t)n;
}

size_t bench_plan_body(uint64_t index, char *into, size_t room)
{
    return checked(snprintf(into, room, training, (unsigned long long)(64 + index)), room);
}

static size_t post(const char *body, char *into, size_t room)
{
    return checked(snprintf(into, room,
                            "POST /v1/plans HTTP/1.1\r\nHost: localhost\r\n" BENCH_AUTHORIZATION
                            "Content-Type: application/json\r\n"
                            "Content-Length: %zu\r\n\r\n%s",
                            strlen(body), body),
                   room);
}

size_t bench_write_plan(void *data, uint64_t index, char *into, size_t room)
{
    char body[BENCH_REQUEST_MAX / 2];
    (void)data;
    bench_plan_body(index, body, sizeof(body));
    return post(body, into, room);
}

size_t bench_write_inference(void *data, uint64_t index, char *into, size_t room)
{
    char body[BENCH_REQUEST_MAX / 2];
    (void)data;
    checked(snprintf(body, sizeof(body), inference, (unsigned long long)(1 + index)), sizeof(body));
    return post(body, into, room);
}

size_t bench_write_same(void *data, uint64_t index, char *into, size_t room)
{
    (void)index;
    return bench_write_plan(data, 0, into, room);
}
