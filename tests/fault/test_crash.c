/* kill -9 at random points under load: what was acknowledged is there, and nothing is half there.
 *
 * A round: clients load the daemon; after a random number of acknowledgements and a random moment it is killed. In one
 * round of four it is started again and killed within its start. Then it is started, has to finish what it accepted,
 * and is looked at over HTTP and, from outside, in its file. Rounds follow each other on one database, DATABASE_ROUNDS
 * at most. BP_CRASH_ROUNDS: how many rounds in all; 20 unless set, 200 with BP_LONG. BP_CRASH_SEED: of the clients'
 * choices and of the moments; the machine's own timing stays its own.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/api/expect.h"
#include "tests/api/server.h"
#include "tests/fault/inspect.h"
#include "tests/fault/load.h"

enum { DATABASE_ROUNDS = 20, ACKS_MOST = 100, SETTLE_MS = 60000, REPLAYS_A_ROUND = 3 };

/* Over all tests of the suite, each a process: in shared memory. */
static struct totals {
    unsigned long rounds, start_kills, requests, aborted, acks[3], rejected, replays_after, given_up, plans, snapshots,
        edges;
} * totals;

static struct load *load;
static unsigned short randomness[3];

/* A crash within a start in this round; and in any round on this database. */
static bool crashed_twice, ever_crashed_twice;

/* What was acknowledged on this database. */
static struct ack *acks;
static size_t n_acks, acks_allocated;

static unsigned number_from(const char *variable, unsigned fallback)
{
    const char *text = getenv(variable);
    return text ? (unsigned)strtoul(text, NULL, 10) : fallback;
}

static unsigned rounds_in_all(void)
{
    return number_from("BP_CRASH_ROUNDS", getenv("BP_LONG") ? 200 : 20);
}

static unsigned chance(unsigned below)
{
    return (unsigned)nrand48(randomness) % below;
}

static void nap_us(unsigned us)
{
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000L}, NULL);
}

/* Moves the clients' acknowledgements to those of the database. */
static void collect(void)
{
    for (size_t i = 0; i < LOAD_CLIENTS; i++) {
        const struct load_client *client = &load->clients[i];
        const size_t n = client->n_acks;
        if (n_acks + n > acks_allocated) {
            acks_allocated = 2 * (n_acks + n);
            acks = realloc(acks, acks_allocated * sizeof *acks);
            ck_assert_ptr_nonnull(acks);
        }
        for (size_t j = 0; j < n; j++) {
            totals->acks[client->acks[j].kind]++;
            totals->rejected += client->acks[j].rejected;
            acks[n_acks++] = client->acks[j];
        }
        totals->requests += client->n_requests;
        totals->aborted += client->n_aborted;
    }
}

static void crash(unsigned seed, unsigned serial)
{
    const unsigned wanted = chance(ACKS_MOST), moment_us = chance(8000);
    load_clear(load);
    load_begin(load, seed, serial);
    for (int waited = 0; load_acks(load) < wanted && waited < SETTLE_MS * 2; waited++)
        nap_us(500);
    nap_us(moment_us);
    atomic_store(&load->killing, true);
    server_kill(&server);
    load_end();
    collect();
}

static void wait_until_settled(void)
{
    for (int waited = 0; waited < SETTLE_MS; waited += 5) {
        if (server_count(&server, "SELECT count(*) FROM jobs WHERE state IN ('queued', 'running')") == 0)
            return;
        nap_us(5000);
    }
    ck_abort_msg("what was accepted is not done in time");
}

/* For a plan that was given up. */
static void ask_again(const struct ack *ack)
{
    struct reply reply = http_post("/v1/plans", load_request(ack->number));
    ck_assert_msg(reply.status == 201 || reply.status == 200 ||
                      (reply.status == 422 && strcmp(text_at(reply.json, "/code"), "capacity_exceeded") == 0),
                  "status %d: %.300s", reply.status, reply.body);
    totals->given_up++;
}

/* What one client was told must be what anybody is told now. */
static void ask_for(const struct ack *ack)
{
    const bool replay = ack->kind == ACK_REPLAY;
    struct reply reply = http_get("/v1/%s/%s", replay ? "replays" : "plans", ack->id);
    ck_assert_msg(reply.status == 200, "%s was acknowledged: %d %.300s", ack->id, reply.status, reply.body);
    ck_assert_str_eq(text_at(reply.json, "/id"), ack->id);
    if (replay) {
        ck_assert_str_eq(text_at(reply.json, "/verdict"), "identical");
        return;
    }
    const char *state = text_at(reply.json, "/state");
    if (ack->kind == ACK_ACCEPTED && crashed_twice && strcmp(state, "failed") == 0) {
        ask_again(ack);
        return;
    }
    ck_assert_msg(strcmp(state, "rejected") == 0 || (strcmp(state, "committed") == 0 && !ack->rejected), "%s is %s",
                  ack->id, state);
    if (ack->has_proof) {
        struct bp_digest proof = proof_of(reply.json);
        ck_assert_msg(bp_digest_equal(&proof, &ack->proof), "%s is not what was acknowledged: %.600s", ack->id,
                      reply.body);
    }
}

static void replay_some(void)
{
    for (int i = 0; i < REPLAYS_A_ROUND && n_acks; i++) {
        const struct ack *ack = &acks[chance((unsigned)n_acks)];
        if (ack->kind == ACK_REPLAY)
            continue;
        struct reply reply = http_post(keep_text("/v1/plans/%s/replays", ack->id), NULL);
        ck_assert_msg(reply.status == 201, "status %d: %.300s", reply.status, reply.body);
        ck_assert_msg(strcmp(text_at(reply.json, "/verdict"), "identical") == 0, "%.1000s", reply.body);
        totals->replays_after++;
    }
}

static struct inspection one_round(unsigned seed, unsigned serial)
{
    const size_t before = n_acks;
    crash(seed, serial);
    crashed_twice = chance(4) == 0;
    ever_crashed_twice |= crashed_twice;
    if (crashed_twice) {
        server_start_and_kill(&server, chance(30000), NULL);
        totals->start_kills++;
    }
    server_restart(&server, NULL);
    wait_until_settled();
    if (!ever_crashed_twice)
        ck_assert_int_eq(server_count(&server, "SELECT count(*) FROM jobs WHERE state = 'failed'"), 0);
    for (size_t i = before; i < n_acks; i++)
        ask_for(&acks[i]);
    replay_some();
    struct inspection inspection = inspect(server.database, acks, n_acks);
    ck_assert_msg(inspection.n_faults == 0, "round %u of seed %u: %u faults, first: %s", serial, seed,
                  inspection.n_faults, inspection.first);
    totals->rounds++;
    http_forget();
    return inspection;
}

static void report(void)
{
    const struct totals *t = totals;
    printf(
        "check-crash: %lu rounds of kill -9 under load and %lu more during a start: %lu requests, of them %lu given "
        "up by the client; acknowledged: %lu plans (%lu of them rejected), %lu accepted for later, %lu replays; lost: "
        "0; given up after two crashes and derived when asked for again: %lu. In the files: %lu plans, %lu snapshots, "
        "%lu edges, all whole; replayed afterwards: %lu, all identical\n",
        t->rounds, t->start_kills, t->requests, t->aborted, t->acks[ACK_PLAN], t->rejected, t->acks[ACK_ACCEPTED],
        t->acks[ACK_REPLAY], t->given_up, t->plans, t->snapshots, t->edges, t->replays_after);
    fflush(stdout);
}

START_TEST(test_crash__what_was_acknowledged_survives_and_nothing_is_half_there)
{
    const unsigned seed = number_from("BP_CRASH_SEED", (unsigned)time(NULL)) + (unsigned)_i;
    const unsigned left = rounds_in_all() - (unsigned)_i * DATABASE_ROUNDS;
    const unsigned n = left < DATABASE_ROUNDS ? left : DATABASE_ROUNDS;
    struct inspection last = {0};
    memcpy(randomness, &(unsigned short[]){(unsigned short)seed, (unsigned short)(seed >> 16), 7}, sizeof randomness);
    load = load_new();
    for (unsigned i = 0; i < n; i++)
        last = one_round(seed, i);
    totals->plans += last.n_plans;
    totals->snapshots += last.n_snapshots;
    totals->edges += last.n_edges;
    munmap(load, sizeof *load);
    free(acks);
    report();
}
END_TEST

/* The inspection that found nothing above does find things: each of these is one. */
static const struct {
    const char *sql, *finds;
} losses[] = {
    {"DELETE FROM plans", "was acknowledged and is not there"},
    {"UPDATE plans SET state = 'rejected'", "was acknowledged and is rejected"},
    {"DELETE FROM plan_snapshots WHERE position = 3", "committed plans without"},
    {"UPDATE plan_snapshots SET position = 9 WHERE position = 3", "positions have gaps"},
    {"DELETE FROM plan_derivations WHERE position = 1", "lack a derivation"},
    {"UPDATE plans SET facts = NULL", "or without facts"},
    {"UPDATE snapshots SET data = zeroblob(9) WHERE seq = 2", "does not have its digest"},
    {"UPDATE snapshots SET digest = zeroblob(32) WHERE seq = 2", "does not have its digest"},
    {"DELETE FROM snapshots WHERE seq = 4", "refer to rows that are not there"},
    {"DELETE FROM edges WHERE source = 1", "without their edge"},
    {"UPDATE edges SET target = 4 WHERE target = 3", "without their edge"},
    {"UPDATE derivations SET source = 1 WHERE source = 3", "without their edge"},
    {"DELETE FROM replays", "was acknowledged and is not there"},
    {"UPDATE replays SET verdict = 'divergent'", "was acknowledged and is divergent"},
    {"UPDATE jobs SET state = 'queued'", "jobs that are under way"},
    {"DROP TRIGGER audit_rows_go_oldest_first; DELETE FROM audit WHERE action = 'accept'",
     "plans without the record of who asked"},
    {"DROP TRIGGER audit_rows_go_oldest_first; DELETE FROM audit WHERE action = 'replay'",
     "replays without the record"},
    {"INSERT INTO audit VALUES (99, 1, 1, 1, 'uid:1', 'unix', 'repeat', NULL)", "gaps in the audit"},
};

static bool says(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

START_TEST(test_crash__the_inspection_finds_what_is_lost)
{
    json_t *request = with_target(small_request(), "reference-queue", 2, INT64_C(1) << 34);
    const char *body = json_text(request);
    struct ack told[2] = {{.kind = ACK_PLAN}, {.kind = ACK_REPLAY}};
    struct reply reply = http_call(&(struct call){.method = "POST",
                                                  .target = "/v1/plans",
                                                  .body = body,
                                                  .n = strlen(body),
                                                  .headers = {"Prefer: respond-async"}});
    ck_assert_int_eq(reply.status, 202);
    snprintf(told[0].id, sizeof told[0].id, "%s", text_at(reply.json, "/id"));
    wait_until_settled();
    reply = http_post(keep_text("/v1/plans/%s/replays", told[0].id), NULL);
    ck_assert_int_eq(reply.status, 201);
    snprintf(told[1].id, sizeof told[1].id, "%s", text_at(reply.json, "/id"));
    server_stop(&server);
    struct inspection inspection = inspect(server.database, told, 2);
    ck_assert_msg(inspection.n_faults == 0, "%s", inspection.first);
    server_sql(&server, losses[_i].sql);
    inspection = inspect(server.database, told, 2);
    ck_assert_msg(inspection.n_faults > 0, "%s: nothing was found", losses[_i].sql);
    ck_assert_msg(inspection.n_faults > 1 || says(inspection.first, losses[_i].finds), "%s: found \"%s\"",
                  losses[_i].sql, inspection.first);
}
END_TEST

Suite *suite_crash(void)
{
    Suite *suite = suite_create("crash");
    const unsigned rounds = rounds_in_all();
    totals = mmap(NULL, sizeof *totals, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (totals == MAP_FAILED)
        abort();
    TCase *tcase = server_tcase(suite, "crash");
    tcase_add_loop_test(tcase, test_crash__the_inspection_finds_what_is_lost, 0, (int)(sizeof losses / sizeof *losses));
    tcase_add_loop_test(tcase, test_crash__what_was_acknowledged_survives_and_nothing_is_half_there, 0,
                        (int)((rounds + DATABASE_ROUNDS - 1) / DATABASE_ROUNDS));
    return suite;
}
