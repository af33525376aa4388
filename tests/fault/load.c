#include "tests/fault/load.h"

#include <check.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/api/expect.h"
#include "tests/api/server.h"

enum { REQUESTS_A_ROUND = 10000, NOTICE_MS = 5000 };

static pid_t pids[LOAD_CLIENTS];

/* One client, in its process. */
struct client {
    struct load *load;
    struct load_client *shared;
    unsigned short random[3];
    unsigned long first; /* number of its first request: no two clients or rounds have one in common */
    unsigned n_requests; /* new ones */
};

struct load *load_new(void)
{
    void *memory = mmap(NULL, sizeof(struct load), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    return memory;
}

void load_clear(struct load *load)
{
    atomic_store(&load->killing, false);
    for (size_t i = 0; i < LOAD_CLIENTS; i++) {
        atomic_store(&load->clients[i].n_acks, 0);
        atomic_store(&load->clients[i].n_requests, 0);
        atomic_store(&load->clients[i].n_aborted, 0);
    }
}

unsigned load_acks(struct load *load)
{
    unsigned n = 0;
    for (size_t i = 0; i < LOAD_CLIENTS; i++)
        n += atomic_load(&load->clients[i].n_acks);
    return n;
}

struct bp_digest proof_of(json_t *plan)
{
    static const char *const keys[] = {"snapshots", "derivations", "facts", "committed_at", "state"};
    struct bp_digest proof;
    json_t *substance = keep_json(json_object());
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        ck_assert_int_eq(json_object_set(substance, keys[i], at(plan, keep_text("/%s", keys[i]))), 0);
    const char *text = json_text(substance);
    bp_digest_of(text, strlen(text), &proof);
    return proof;
}

static unsigned chance(struct client *client, unsigned below)
{
    return (unsigned)nrand48(client->random) % below;
}

const char *load_request(unsigned long number)
{
    static const char *const recompute[] = {"none", "selective", "full"};
    static const char *const kinds[] = {"reference-queue", "reference-slot"};
    const char *target = "";
    if (number % 5 != 4) /* one in eight does not fit its devices and is rejected */
        target = keep_text(", \"target\": {\"kind\": \"%s\"}, \"deployment\": {\"devices\": 2, \"memory_bytes\": %lu}",
                           kinds[number % 2], number % 8 == 7 ? 1024 : 1UL << 50);
    const char *model = keep_text("{\"transformer\": {\"name\": \"crash\", \"hidden_size\": 64, \"num_hidden_layers\":"
                                  " %lu, \"num_attention_heads\": 8, \"intermediate_size\": 256, \"vocab_size\": 1000,"
                                  " \"activation\": \"gelu\", \"norm\": \"layernorm\", \"position\": \"rope\"}}",
                                  1 + number / 3);
    if (number % 3 == 0)
        return keep_text("{\"model\": %s, \"workload\": {\"mode\": \"inference\", \"phase\": \"prefill\", "
                         "\"batch_size\": 1, \"context_length\": %lu, \"dtype\": \"float16\"}, "
                         "\"strategy\": {\"tensor_parallel\": 2}%s}",
                         model, 16 * (1 + number), target);
    return keep_text("{\"model\": %s, \"workload\": {\"mode\": \"training\", \"sequence_length\": %lu, "
                     "\"micro_batch_size\": 1, \"global_batch_size\": 4, \"dtype\": \"bfloat16\"}, "
                     "\"strategy\": {\"tensor_parallel\": 2, \"recompute\": \"%s\"}%s}",
                     model, 8 * (1 + number), recompute[number % 3], target);
}

static struct reply call(struct client *client, const char *target, const char *body, bool async)
{
    struct reply reply = http_call(&(struct call){.method = "POST",
                                                  .target = target,
                                                  .body = body,
                                                  .n = body ? strlen(body) : 0,
                                                  .headers = {async ? "Prefer: respond-async" : NULL}});
    atomic_fetch_add(&client->shared->n_requests, 1);
    return reply;
}

static void acknowledge(struct client *client, const struct ack *ack)
{
    unsigned n = atomic_load(&client->shared->n_acks);
    ck_assert_uint_lt(n, LOAD_ACKS_MAX);
    client->shared->acks[n] = *ack;
    atomic_store(&client->shared->n_acks, n + 1);
}

/* A failed connection, which only a daemon that is being killed may cause: the client's end. */
static bool is_gone(struct client *client, const struct reply *reply)
{
    for (int waited = 0; reply->status == 0 && waited < NOTICE_MS; waited++) {
        if (atomic_load(&client->load->killing))
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    ck_assert_msg(reply->status != 0, "a connection failed while the daemon was to run");
    return false;
}

static bool unexpected(const char *what, const struct reply *reply)
{
    ck_abort_msg("%s: %d %.600s", what, reply->status, reply->body);
}

static bool post_plan_number(struct client *client, unsigned long number, bool async)
{
    struct ack ack = {.kind = ACK_PLAN, .number = number};
    struct reply reply = call(client, "/v1/plans", load_request(number), async);
    if (is_gone(client, &reply))
        return false;
    if (reply.status == 422) {
        ck_assert_str_eq(text_at(reply.json, "/code"), "capacity_exceeded");
        ack.rejected = true;
        snprintf(ack.id, sizeof ack.id, "%s", text_at(reply.json, "/plan"));
    } else if (reply.status == 200 || reply.status == 201 || (async && reply.status == 202)) {
        if (reply.status == 202)
            ack.kind = ACK_ACCEPTED;
        snprintf(ack.id, sizeof ack.id, "%s", text_at(reply.json, "/id"));
        ack.has_proof = reply.status != 202;
        if (ack.has_proof)
            ack.proof = proof_of(reply.json);
    } else {
        return unexpected("a plan", &reply);
    }
    acknowledge(client, &ack);
    return true;
}

static bool post_new(struct client *client)
{
    return post_plan_number(client, client->first + client->n_requests++, false);
}

static bool post_new_async(struct client *client)
{
    return post_plan_number(client, client->first + client->n_requests++, true);
}

static bool post_again(struct client *client)
{
    if (client->n_requests == 0)
        return true;
    return post_plan_number(client, client->first + chance(client, client->n_requests), chance(client, 2));
}

/* A plan that all clients of the round ask for. */
static bool post_common(struct client *client)
{
    return post_plan_number(
        client, client->first / REQUESTS_A_ROUND * REQUESTS_A_ROUND + REQUESTS_A_ROUND - 1 - chance(client, 16), false);
}

static bool post_replay(struct client *client)
{
    unsigned n = atomic_load(&client->shared->n_acks);
    const struct ack *of = n ? &client->shared->acks[chance(client, n)] : NULL;
    struct ack ack = {.kind = ACK_REPLAY};
    if (!of || of->kind != ACK_PLAN)
        return true;
    struct reply reply = call(client, keep_text("/v1/plans/%s/replays", of->id), NULL, false);
    if (is_gone(client, &reply))
        return false;
    if (reply.status != 201 || strcmp(text_at(reply.json, "/verdict"), "identical") != 0)
        return unexpected("a replay", &reply);
    snprintf(ack.id, sizeof ack.id, "%s", text_at(reply.json, "/id"));
    acknowledge(client, &ack);
    return true;
}

/* Sends half of a request, or all of it, and is gone before the answer. */
static bool post_and_leave(struct client *client)
{
    const struct linger at_once = {.l_onoff = 1};
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(strrchr(server.url, ':') + 1)),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const char *body = load_request(client->first + client->n_requests++);
    const char *text = keep_text("POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                                 "Content-Length: %zu\r\n\r\n%s",
                                 strlen(body), body);
    size_t n = strlen(text) / (1 + chance(client, 2));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        send(fd, text, n, MSG_NOSIGNAL) == (ssize_t)n) {
        atomic_fetch_add(&client->shared->n_requests, 1);
        atomic_fetch_add(&client->shared->n_aborted, 1);
    }
    nanosleep(&(struct timespec){.tv_nsec = chance(client, 2000) * 1000L}, NULL);
    if (chance(client, 2))
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
    return true;
}

static bool (*const moves[])(struct client *) = {
    post_new,    post_new,    post_new,    post_new_async, post_new_async,
    post_common, post_replay, post_replay, post_again,     post_and_leave,
};

static void run(struct client *client)
{
    while (client->n_requests < REQUESTS_A_ROUND / LOAD_CLIENTS - 16 &&
           moves[chance(client, sizeof moves / sizeof *moves)](client)) {
    }
}

void load_begin(struct load *load, unsigned seed, unsigned serial)
{
    for (unsigned i = 0; i < LOAD_CLIENTS; i++) {
        pids[i] = fork();
        ck_assert_int_ge(pids[i], 0);
        if (pids[i])
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct client client = {
            .load = load,
            .shared = &load->clients[i],
            .random = {(unsigned short)seed, (unsigned short)serial, (unsigned short)i},
            .first = (unsigned long)serial * REQUESTS_A_ROUND + i * (REQUESTS_A_ROUND / LOAD_CLIENTS),
        };
        run(&client);
        _exit(0);
    }
}

void load_end(void)
{
    for (unsigned i = 0; i < LOAD_CLIENTS; i++) {
        struct server client = {.pid = pids[i]};
        ck_assert_msg(server_wait(&client) == 0, "client %u saw something that it should not have", i);
    }
}
