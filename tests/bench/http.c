/* New plans, repeats, snapshots, memory: over HTTP, on the real daemon. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "tests/bench/bench.h"

enum { ROUNDS = 5, SHORT_ROUNDS = 15, GROUP = 16 };
static const double SHORT = 0.4; /* seconds of a short round */

void bench_commits(void)
{
    const uint64_t n = bench_setting("BP_BENCH_COMMITS", 3000);
    double subject[ROUNDS], baseline[ROUNDS], cpu[ROUNDS];
    char database[600], name[32];
    for (size_t round = 0; round < ROUNDS; round++) {
        struct bench_server daemon;
        snprintf(name, sizeof(name), "commits-%zu.db", round);
        snprintf(database, sizeof(database), "%s/%s", bench_directory(), name);
        bench_daemon_start(name, &daemon);
        subject[round] = bench_load_run(
            &(struct bench_load){.port = daemon.port, .write = bench_write_plan, .count = n, .status = 201}, NULL);
        cpu[round] = bench_server_cpu(&daemon) / (double)n;
        bench_server_stop(&daemon);
        baseline[round] = (double)n / bench_rows_commit(database, (size_t)((n + GROUP - 1) / GROUP));
        remove(database);
    }
    bench_print_row(&(struct bench_row){"new 175B plans durably committed, 32 connections / SQLite alone", "plans/s",
                                        subject, baseline, ROUNDS, 0.4});
    bench_note("processor time of the daemon: %.0f us a plan", bench_median(cpu, ROUNDS) * 1e6);
}

/* Subject and baseline in turns, answers a second. `load` lacks the port. */
static void compare(const char *name, const struct bench_server *daemon, struct bench_load load,
                    const struct bench_answer *answer, double target)
{
    double subject[SHORT_ROUNDS], baseline[SHORT_ROUNDS], cpu, bare_cpu;
    uint64_t n = 0, n_bare = 0;
    struct bench_server bare;
    bench_bare_start(answer, &bare);
    cpu = bench_server_cpu(daemon);
    bare_cpu = bench_server_cpu(&bare);
    for (size_t round = 0; round < SHORT_ROUNDS; round++) {
        load.port = daemon->port;
        subject[round] = bench_load_run(&load, &n);
        load.port = bare.port;
        baseline[round] = bench_load_run(&load, &n_bare);
    }
    cpu = (bench_server_cpu(daemon) - cpu) / (double)n;
    bare_cpu = (bench_server_cpu(&bare) - bare_cpu) / (double)n_bare;
    bench_server_stop(&bare);
    bench_print_row(&(struct bench_row){name, "answers/s", subject, baseline, SHORT_ROUNDS, target});
    bench_note("processor time of the server: %.2f us an answer / %.2f us", cpu * 1e6, bare_cpu * 1e6);
}

void bench_repeats(void)
{
    struct bench_server daemon;
    char request[BENCH_REQUEST_MAX];
    struct bench_answer bare = {.status = 200, .type = "application/json"};
    bench_daemon_start("repeats.db", &daemon);
    const size_t n = bench_write_same(NULL, 0, request, sizeof(request));
    free(bench_ask(daemon.port, request, n, 201, NULL, NULL));
    bare.body = bench_ask(daemon.port, request, n, 200, &bare.n_body, NULL);
    char name[96];
    snprintf(name, sizeof(name), "the same request again (%zu bytes) / bare POST", bare.n_body);
    compare(name, &daemon, (struct bench_load){.write = bench_write_same, .seconds = SHORT, .status = 200}, &bare, 0.5);
    free(bare.body);
    bench_server_stop(&daemon);
}

/* The digest of a stage, from the answer to a POST. */
static void find_digest(const char *answer, const char *stage, char *into, size_t room)
{
    json_t *plan = json_loads(answer, 0, NULL);
    const json_t *rows = json_object_get(plan, "snapshots");
    into[0] = '\0';
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (strcmp(json_string_value(json_object_get(row, "stage")), stage) == 0)
            snprintf(into, room, "%s", json_string_value(json_object_get(row, "digest")));
    }
    json_decref(plan);
    if (!into[0])
        bench_die("the plan has no %s snapshot", stage);
}

static size_t write_text(void *data, uint64_t index, char *into, size_t room)
{
    (void)index;
    return (size_t)snprintf(into, room, "%s", (const char *)data);
}

static void compare_snapshot(const struct bench_server *daemon, const char *digest, const char *stage)
{
    char get[512], match[600], etag[128], name[96];
    snprintf(etag, sizeof(etag), "\"%s\"", digest);
    snprintf(get, sizeof(get), "GET /v1/snapshots/%s HTTP/1.1\r\nHost: localhost\r\n" BENCH_AUTHORIZATION "\r\n",
             digest);
    snprintf(match, sizeof(match),
             "GET /v1/snapshots/%s HTTP/1.1\r\nHost: localhost\r\n" BENCH_AUTHORIZATION "If-None-Match: %s\r\n\r\n",
             digest, etag);
    struct bench_answer bare = {.status = 200, .type = "application/json", .etag = etag};
    bare.body = bench_ask(daemon->port, get, strlen(get), 200, &bare.n_body, NULL);
    snprintf(name, sizeof(name), "GET of the %s snapshot (%zu bytes) / bare GET", stage, bare.n_body);
    compare(name, daemon, (struct bench_load){.write = write_text, .data = get, .seconds = SHORT, .status = 200}, &bare,
            0.5);
    free(bare.body);
    bare = (struct bench_answer){.status = 304, .etag = etag};
    snprintf(name, sizeof(name), "304 for the %s snapshot / bare 304", stage);
    compare(name, daemon, (struct bench_load){.write = write_text, .data = match, .seconds = SHORT, .status = 304},
            &bare, 0.9);
}

void bench_snapshots(void)
{
    struct bench_server daemon;
    char request[BENCH_REQUEST_MAX], digest[96];
    bench_daemon_start("snapshots.db", &daemon);
    char *plan = bench_ask(daemon.port, request, bench_write_same(NULL, 0, request, sizeof(request)), 201, NULL, NULL);
    static const char *const stages[] = {"model", "distributed"};
    for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); i++) {
        find_digest(plan, stages[i], digest, sizeof(digest));
        compare_snapshot(&daemon, digest, stages[i]);
    }
    free(plan);
    bench_server_stop(&daemon);
}

/* Of a process, in MiB. */
static double resident(pid_t pid)
{
    char path[64], line[256];
    double kib = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *status = fopen(path, "r");
    while (status && fgets(line, sizeof(line), status))
        if (sscanf(line, "VmRSS: %lf", &kib) == 1)
            break;
    if (status)
        fclose(status);
    return kib / 1024;
}

void bench_memory(void)
{
    const uint64_t plans = bench_setting("BP_BENCH_PLANS", 100000), step = plans / 10 ? plans / 10 : 1;
    struct bench_server daemon;
    double at[11] = {0};
    bench_daemon_start("memory.db", &daemon);
    for (uint64_t i = 0; i < 10; i++) {
        const double rate = bench_load_run(
            &(struct bench_load){
                .port = daemon.port, .write = bench_write_inference, .first = i * step, .count = step, .status = 201},
            NULL);
        at[i + 1] = resident(daemon.pid);
        bench_note("%llu plans: %.1f MiB resident, %.0f plans/s", (unsigned long long)((i + 1) * step), at[i + 1],
                   rate);
    }
    bench_server_stop(&daemon);
    static const struct {
        unsigned percent, step;
    } shown[] = {{50, 5}, {100, 10}};
    for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++) {
        char name[96];
        snprintf(name, sizeof(name), "resident memory after %u %% / 10 %% of %llu plans", shown[i].percent,
                 (unsigned long long)(step * 10));
        double subject = at[shown[i].step], baseline = at[1];
        bench_print_row(&(struct bench_row){name, "MiB", &subject, &baseline, 1, 0});
    }
}
