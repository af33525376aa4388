/* How long an answer takes when there are few clients and when there are many, beside a responder that does nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"

enum { ROUNDS = 3 };
static const double ROUND = 0.7; /* seconds */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* In milliseconds; sorts. */
static double percentile(struct bench_times *times, double part)
{
    if (times->n == 0)
        bench_die("there was no answer");
    qsort(times->at, times->n, sizeof(*times->at), compare);
    return times->at[(size_t)(part * (double)(times->n - 1))] * 1e3;
}

/* One line: `load` on the daemon, and on a responder that gives the same answers, in turns. */
static void measure(const char *name, const struct bench_server *daemon, struct bench_load *load,
                    const struct bench_answer *answer)
{
    struct bench_server bare;
    struct bench_times times = {0}, bare_times = {0};
    const unsigned status = load->status;
    bench_bare_start(answer, &bare);
    load->seconds = ROUND;
    for (size_t round = 0; round < ROUNDS; round++) {
        uint64_t n = 0;
        load->port = daemon->port;
        load->times = &times;
        load->status = status;
        bench_load_run(load, &n);
        load->first += n + load->connections;
        load->port = bare.port;
        load->times = &bare_times;
        load->status = answer->status;
        bench_load_run(load, NULL);
    }
    load->status = status;
    bench_server_stop(&bare);
    printf("%-44s %11u %10.3f %10.3f %10.3f %10.3f\n", name, load->connections, percentile(&times, 0.5),
           percentile(&times, 0.99), percentile(&bare_times, 0.5), percentile(&bare_times, 0.99));
    fflush(stdout);
    free(times.at);
    free(bare_times.at);
}

static size_t write_text(void *data, uint64_t index, char *into, size_t room)
{
    (void)index;
    return (size_t)snprintf(into, room, "%s", (const char *)data);
}

/* The snapshot of the last stage that an answer to a POST names. */
static void write_get(const char *answer, char *into, size_t room)
{
    static const char key[] = "\"digest\":\"";
    const char *digest = NULL;
    for (const char *at = answer; (at = strstr(at, key)) != NULL; at++)
        digest = at + sizeof(key) - 1;
    if (!digest)
        bench_die("the plan has no snapshot");
    snprintf(into, room, "GET /v1/snapshots/%.71s HTTP/1.1\r\nHost: localhost\r\n" BENCH_AUTHORIZATION "\r\n", digest);
}

void bench_latency(void)
{
    static const unsigned connections[] = {1, 32, 256};
    struct bench_server daemon;
    char request[BENCH_REQUEST_MAX], get[256];
    struct bench_answer plan = {.status = 200, .type = "application/json"}, snapshot = plan;
    bench_daemon_start("latency.db", &daemon);
    const size_t n = bench_write_same(NULL, 0, request, sizeof(request));
    free(bench_ask(daemon.port, request, n, 201, NULL, NULL));
    plan.body = bench_ask(daemon.port, request, n, 200, &plan.n_body, NULL);
    write_get(plan.body, get, sizeof(get));
    snapshot.body = bench_ask(daemon.port, get, strlen(get), 200, &snapshot.n_body, NULL);
    printf("%-44s %11s %10s %10s %10s %10s\n", "latency, ms", "connections", "p50", "p99", "bare p50", "bare p99");
    const struct {
        const char *name;
        struct bench_load load;
        const struct bench_answer *bare;
    } kinds[] = {
        {"new 175B plan, durably committed", {.write = bench_write_plan, .first = 1, .status = 201}, &plan},
        {"the same request again", {.write = bench_write_same, .status = 200}, &plan},
        {"GET of its last snapshot", {.write = write_text, .data = get, .status = 200}, &snapshot},
    };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct bench_load load = kinds[i].load;
        for (size_t k = 0; k < sizeof(connections) / sizeof(connections[0]); k++) {
            load.connections = connections[k];
            measure(kinds[i].name, &daemon, &load, kinds[i].bare);
        }
    }
    free(plan.body);
    free(snapshot.body);
    bench_server_stop(&daemon);
}
