/* What two hours of a busy day send, as fast as it goes: valid, invalid and given up, over and over on one database. In
 * the end the daemon holds no more descriptors or memory than half-way through, and the file is whole.
 *
 * BP_SOAK_REQUESTS: how many requests in all; 4000 unless set, 1000000 with BP_LONG. BP_SOAK_SEED: of the clients'
 * choices.
 */
#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/api/expect.h"
#include "tests/api/server.h"
#include "tests/fault/inspect.h"
#include "tests/fault/load.h"
#include "tests/http/wire.h"

enum { CLIENTS = 4, PARTS = 4, LEFT_OPEN = 8, FORGET_EVERY = 200, IDS = 64, ACKS = 4096, HUNDRED = 100 };

/* No two clients ask for the same, but for what all do. */
static const unsigned long PLANS_A_CLIENT = 80000;

/* Fewer say nothing of memory: caches and the allocator's pools are still filling. */
enum { ENOUGH_FOR_MEMORY = 100000 };

enum kind { VALID, REFUSED, GIVEN_UP, KINDS };

/* In memory that the clients share with the test. */
struct tally {
    atomic_ulong n[CLIENTS][KINDS], new_plans[CLIENTS];
    atomic_uint n_acks[CLIENTS];
    struct ack acks[CLIENTS][ACKS];
};

/* One client, in its process. */
struct client {
    struct tally *tally;
    unsigned index;
    unsigned short random[3];
    int fd;                  /* -1: to be opened */
    int open[LEFT_OPEN];     /* connections that say no more; -1: none */
    unsigned long next_plan; /* number of its next new plan */
    unsigned n_known;
    struct ack known[IDS]; /* of its plans */
    char digests[IDS][BP_DIGEST_TEXT];
};

static unsigned chance(struct client *client, unsigned below)
{
    return (unsigned)nrand48(client->random) % below;
}

static void count(struct client *client, enum kind kind)
{
    atomic_fetch_add(&client->tally->n[client->index][kind], 1);
}

/* ---- Requests that are answered ---- */

/* The answer to a request on the client's connection, which stays open unless the answer says otherwise. */
static struct wire_answer ask(struct client *client, const char *request, size_t n)
{
    struct wire_answer answer = {0};
    if (client->fd < 0)
        client->fd = wire_open();
    wire_send(client->fd, request, n);
    if (wire_read(client->fd, &answer, WIRE_WAIT_MS) != WIRE_ANSWER)
        ck_abort_msg("no answer to %.300s", request);
    if (answer.says_close) {
        wire_close(client->fd);
        client->fd = -1;
    }
    return answer;
}

static void expect(struct client *client, enum kind kind, const char *request, int status, int other)
{
    struct wire_answer answer = ask(client, request, strlen(request));
    ck_assert_msg(answer.status == status || answer.status == other, "%d %s to %.600s", answer.status, answer.code,
                  request);
    count(client, kind);
}

static void get(struct client *client, const char *target, int status, int other)
{
    expect(client, VALID, keep_text("GET %s HTTP/1.1\r\nHost: x\r\n\r\n", target), status, other);
}

static void remember(struct client *client, const struct wire_answer *answer, unsigned long number)
{
    struct ack ack = {.kind = ACK_PLAN, .rejected = answer->status == 422, .number = number};
    unsigned n = atomic_load(&client->tally->n_acks[client->index]);
    snprintf(ack.id, sizeof ack.id, "%.71s", answer->id);
    if (n < ACKS) {
        client->tally->acks[client->index][n] = ack;
        atomic_store(&client->tally->n_acks[client->index], n + 1);
    }
    unsigned slot = client->n_known < IDS ? client->n_known++ : chance(client, IDS);
    client->known[slot] = ack;
    snprintf(client->digests[slot], sizeof client->digests[slot], "%.71s", answer->digest);
}

/* One of its plans that committed, or NULL. */
static const struct ack *committed_one(struct client *client)
{
    const struct ack *ack = &client->known[chance(client, client->n_known)];
    return ack->rejected ? NULL : ack;
}

static void post_new(struct client *client)
{
    unsigned long number = client->next_plan++;
    const char *request = wire_post("/v1/plans", "", load_request(number));
    struct wire_answer answer = ask(client, request, strlen(request));
    ck_assert_msg(answer.status == 201 || answer.status == 422, "%d %s", answer.status, answer.code);
    remember(client, &answer, number);
    count(client, VALID);
    atomic_fetch_add(&client->tally->new_plans[client->index], 1);
}

static void post_again(struct client *client)
{
    static const char *const headers[] = {"",
                                          "",
                                          "Prefer: wait=60\r\n",
                                          "Prefer: respond-async\r\n",
                                          "Request-Timeout: 60\r\n",
                                          "Prefer: respond-async, wait=60\r\n"};
    const struct ack *of = &client->known[chance(client, client->n_known)];
    expect(client, VALID, wire_post("/v1/plans", headers[chance(client, 6)], load_request(of->number)),
           of->rejected ? 422 : 200, 0);
}

/* What all clients ask for, at about the same time. */
static void post_common(struct client *client)
{
    static const char *const headers[] = {"", "Prefer: respond-async\r\n"};
    unsigned long number = CLIENTS * PLANS_A_CLIENT + client->next_plan % PLANS_A_CLIENT / 8;
    const char *request = wire_post("/v1/plans", headers[chance(client, 2)], load_request(number));
    struct wire_answer answer = ask(client, request, strlen(request));
    ck_assert_msg((answer.status >= 200 && answer.status <= 202) || answer.status == 422, "%d %s", answer.status,
                  answer.code);
    count(client, VALID);
}

static void read_something(struct client *client)
{
    static const char *const fixed[] = {"/healthz",
                                        "/v1/plans?limit=5",
                                        "/v1/passes",
                                        "/v1/models",
                                        "/v1/plans?state=rejected&limit=3",
                                        "/v1/models/llama-2-7b"};
    const struct ack *of = committed_one(client), *other = committed_one(client);
    if (!of || !other)
        return;
    const char *digest = client->digests[of - client->known];
    switch (chance(client, 6)) {
    case 0:
        get(client, keep_text("/v1/plans/%s", of->id), 200, 0);
        break;
    case 1:
        get(client, keep_text("/v1/snapshots/%s", digest), 200, 0);
        break;
    case 2:
        get(client, keep_text("/v1/snapshots/%s/lineage?direction=descendants&limit=5", digest), 200, 0);
        break;
    case 3:
        get(client, keep_text("/v1/plans/%s/diff/%s", of->id, other->id), 200, 0);
        break;
    case 4:
        get(client, keep_text("/v1/plans/%s/capacity", of->id), 200, 0);
        break;
    default:
        get(client, fixed[chance(client, sizeof fixed / sizeof *fixed)], 200, 0);
    }
}

static void replay(struct client *client)
{
    const struct ack *of = committed_one(client);
    if (of)
        expect(client, VALID,
               keep_text("POST /v1/plans/%s/replays HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", of->id), 201, 0);
}

/* ---- Requests that are refused ---- */

static const struct {
    const char *target, *headers, *body;
    int status;
} refusals[] = {
    {"/v1/plans", "", "{", 400},
    {"/v1/plans", "", "{\"model\": {\"name\": \"none such\"}, \"workload\": {}, \"strategy\": {}}", 400},
    {"/v1/plans", "", "[1, 2, 3]", 400},
    {"/v1/plans", "", "\xff\xfe", 400},
    {"/v1/plans", "X: a\r\n b\r\n", "{}", 400},
    {"/v1/plans", "Content-Length: 7\r\n", "{}", 400},
    {"/v1/plans", "Transfer-Encoding: chunked\r\n", "{}", 400},
    {"/v1/plans", "Request-Timeout: never\r\n", "{}", 400},
    {"/v1/plans", "Expect: something\r\n", "{}", 417},
    {"/v1/plans", "Content-Encoding: gzip\r\n", "{}", 415},
    {"/v1/plans?x=1", "", "{}", 400},
    {"/v1/plans/%00", "", "{}", 400},
    {"/v1/nothing", "", "{}", 404},
    {"/healthz", "", "{}", 405},
    {"/v1/plans/00000000/replays", "", "", 404},
    {"/v1/fit", "", "{\"memory_bytes\": -1}", 400},
};

static void be_refused(struct client *client)
{
    unsigned i = chance(client, sizeof refusals / sizeof *refusals);
    expect(client, REFUSED, wire_post(refusals[i].target, refusals[i].headers, refusals[i].body), refusals[i].status,
           0);
}

static void be_too_large(struct client *client)
{
    static char filler[20000];
    memset(filler, 'a', sizeof filler - 1);
    expect(client, REFUSED, keep_text("GET /%.13000s HTTP/1.1\r\nHost: x\r\n\r\n", filler), 431, 0);
}

/* ---- Requests that are given up ---- */

static void give_up(struct client *client)
{
    const char *request = wire_post("/v1/plans", "", load_request(client->next_plan++));
    size_t n = strlen(request);
    int fd = wire_open();
    wire_send(fd, request, chance(client, 2) ? n : chance(client, (unsigned)n));
    nanosleep(&(struct timespec){.tv_nsec = chance(client, 2000) * 1000L}, NULL);
    if (chance(client, 2))
        wire_reset(fd);
    else
        wire_close(fd);
    count(client, GIVEN_UP);
}

/* Says half of something and then nothing more; an older one of the kind goes. */
static void fall_silent(struct client *client)
{
    static const char *const halves[] = {"", "GET /",
                                         "POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"};
    int *slot = &client->open[chance(client, LEFT_OPEN)];
    if (*slot >= 0)
        wire_reset(*slot);
    *slot = wire_open();
    wire_send_text(*slot, halves[chance(client, 3)]);
    count(client, GIVEN_UP);
}

static const struct {
    unsigned weight; /* of a hundred */
    void (*move)(struct client *client);
} moves[] = {
    {2, post_new},    {40, post_again},  {2, post_common}, {35, read_something}, {1, replay},
    {14, be_refused}, {1, be_too_large}, {3, give_up},     {2, fall_silent},
};

static unsigned long done_by(const struct tally *tally, unsigned client)
{
    unsigned long n = 0;
    for (int kind = 0; kind < KINDS; kind++)
        n += atomic_load(&tally->n[client][kind]);
    return n;
}

static void run_client(struct client *client, unsigned long until)
{
    post_new(client);
    for (unsigned long moved = 0; done_by(client->tally, client->index) < until; moved++) {
        unsigned at = chance(client, HUNDRED);
        size_t i = 0;
        while (at >= moves[i].weight)
            at -= moves[i++].weight;
        moves[i].move(client);
        if (moved % FORGET_EVERY == 0)
            http_forget();
    }
}

/* Each in a process of its own, on until it has sent `until` requests since the beginning. */
static void run_clients(struct tally *tally, unsigned seed, int part, unsigned long until)
{
    pid_t pids[CLIENTS];
    for (unsigned i = 0; i < CLIENTS; i++) {
        pids[i] = fork();
        ck_assert_int_ge(pids[i], 0);
        if (pids[i])
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct client client = {
            .tally = tally,
            .index = i,
            .random = {(unsigned short)seed, (unsigned short)part, (unsigned short)i},
            .fd = -1,
            .next_plan = i * PLANS_A_CLIENT + (unsigned long)part * (PLANS_A_CLIENT / PARTS),
        };
        memset(client.open, 0xff, sizeof client.open);
        run_client(&client, until);
        _exit(0);
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        int status = -1;
        ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "client %u saw what it should not have", i);
    }
}

/* ---- What the daemon holds ---- */

struct holding {
    size_t descriptors;
    unsigned long resident_kib;
};

/* When nobody is there any more. */
static struct holding holding_of_daemon(void)
{
    struct holding holding = {0};
    char line[256];
    wire_await_at_most("blueprint_plans_in_flight", 0);
    wire_await_at_most("blueprint_connections", 1);
    wire_await_at_most("blueprint_waiters", 0);
    wire_await_at_most("blueprint_body_bytes", 0);
    DIR *directory = opendir(keep_text("/proc/%d/fd", (int)server.pid));
    ck_assert_ptr_nonnull(directory);
    while (readdir(directory))
        holding.descriptors++;
    closedir(directory);
    FILE *status = fopen(keep_text("/proc/%d/status", (int)server.pid), "r");
    ck_assert_ptr_nonnull(status);
    while (fgets(line, sizeof line, status))
        sscanf(line, "VmRSS: %lu", &holding.resident_kib);
    fclose(status);
    return holding;
}

static void expect_flat(const struct holding *half, const struct holding *end, unsigned long n)
{
    /* A connection or two may still be on its way out. */
    ck_assert_msg(end->descriptors <= half->descriptors + 2, "%zu descriptors and then %zu", half->descriptors,
                  end->descriptors);
    if (n >= ENOUGH_FOR_MEMORY)
        ck_assert_msg(end->resident_kib <= half->resident_kib + half->resident_kib / 10 + 4096, "%lu KiB and then %lu",
                      half->resident_kib, end->resident_kib);
}

static void expect_whole(const struct tally *tally)
{
    size_t n = 0;
    struct ack *acks = calloc(CLIENTS * ACKS, sizeof *acks);
    ck_assert_ptr_nonnull(acks);
    for (unsigned i = 0; i < CLIENTS; i++)
        for (unsigned k = 0; k < atomic_load(&tally->n_acks[i]); k++)
            acks[n++] = tally->acks[i][k];
    struct inspection inspection = inspect(server.database, acks, n);
    free(acks);
    ck_assert_msg(inspection.n_faults == 0, "%u faults, the first: %s", inspection.n_faults, inspection.first);
    printf("  in the file: %lu plans, %lu snapshots, %lu edges; %zu acknowledgements looked up\n", inspection.n_plans,
           inspection.n_snapshots, inspection.n_edges, n);
}

static unsigned long number_from(const char *variable, unsigned long fallback)
{
    const char *text = getenv(variable);
    return text ? strtoul(text, NULL, 10) : fallback;
}

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

START_TEST(test_soak__memory_and_descriptors_stay_flat_and_the_database_whole)
{
    const unsigned long n = number_from("BP_SOAK_REQUESTS", getenv("BP_LONG") ? 1000000 : 4000);
    const unsigned seed = (unsigned)number_from("BP_SOAK_SEED", (unsigned long)time(NULL));
    struct tally *tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(tally, MAP_FAILED);
    struct holding at[PARTS + 1] = {holding_of_daemon()};
    const double start = now();
    for (int part = 0; part < PARTS; part++) {
        run_clients(tally, seed, part, n / CLIENTS * (unsigned long)(part + 1) / PARTS);
        at[part + 1] = holding_of_daemon();
    }
    const double seconds = now() - start;
    unsigned long of[KINDS] = {0}, new_plans = 0;
    for (unsigned i = 0; i < CLIENTS; i++) {
        new_plans += atomic_load(&tally->new_plans[i]);
        for (int kind = 0; kind < KINDS; kind++)
            of[kind] += atomic_load(&tally->n[i][kind]);
    }
    printf("soak, seed %u: %lu requests in %.0f s: %lu valid, %lu of them new plans, %lu refused, %lu given up\n", seed,
           of[VALID] + of[REFUSED] + of[GIVEN_UP], seconds, of[VALID], new_plans, of[REFUSED], of[GIVEN_UP]);
    for (int part = 0; part <= PARTS; part++)
        printf("  after %d/%d: %lu KiB resident, %zu descriptors\n", part, PARTS, at[part].resident_kib,
               at[part].descriptors);
    expect_flat(&at[PARTS / 2], &at[PARTS], n);
    ck_assert_int_eq(server_metric("blueprint_plans_failed_total"), 0);
    ck_assert_int_eq(server_metric("blueprint_snapshots_corrupt_total"), 0);
    server_stop(&server);
    expect_whole(tally);
    fflush(stdout);
}
END_TEST

Suite *suite_soak(void)
{
    Suite *suite = suite_create("soak");
    TCase *tcase = server_tcase(suite, "soak");
    tcase_set_timeout(tcase, 3 * 3600);
    tcase_add_test(tcase, test_soak__memory_and_descriptors_stay_flat_and_the_database_whole);
    return suite;
}
