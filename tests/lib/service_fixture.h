/* A service on a real store, and clients that wait. For tests: every failure here ends the test. */
#ifndef BP_TESTS_SERVICE_FIXTURE_H
#define BP_TESTS_SERVICE_FIXTURE_H

#include <semaphore.h>

#include "daemon/service/internal.h"
#include "tests/lib/store_fixture.h"

struct service_fixture {
    struct store_fixture store;
    struct bp_metrics metrics;
    struct bp_service *service;
    struct bp_job blocker; /* keeps the one worker busy */
    sem_t blocked, unblocked;
};

/* One worker, a queue of `queue` jobs. Takes up what the store has. */
void service_fixture_init(struct service_fixture *fixture, unsigned queue);
void service_fixture_release(struct service_fixture *fixture);

/* Stops it as the daemon does, and starts it on the same store. */
void service_fixture_stop(struct service_fixture *fixture);
void service_fixture_start(struct service_fixture *fixture, unsigned queue);

/* The worker does nothing from here until it is let go. */
void service_fixture_block(struct service_fixture *fixture);
void service_fixture_unblock(struct service_fixture *fixture);

uint64_t service_fixture_count(const struct service_fixture *fixture, enum bp_counter counter);
uint64_t service_fixture_lookups(const struct service_fixture *fixture, enum bp_cache_kind cache,
                                 enum bp_cache_result result);

/* A client. `answer` is what it got, given back by client_done. */
struct client {
    struct bp_waiter waiter; /* first */
    sem_t woken;
    struct bp_answer *answer;
    bool waits; /* was told to wait */
};
void client_post(struct service_fixture *fixture, struct client *client, const char *body, bool async);
void client_post_patiently(struct service_fixture *fixture, struct client *client, const char *body);
void client_ask_ready(struct service_fixture *fixture, struct client *client);
/* Takes what another call gave; waits when that is NULL. */
void client_begin(struct client *client);
void client_take(struct client *client, struct bp_answer *answer);
void client_wait(struct client *client);
bool client_was_woken(struct client *client);
void client_done(struct client *client);

/* The value of a member of the answer's body, by jansson; "" when it is not a string there. Keep no longer than until
 * the next call. */
const char *answer_text(const struct bp_answer *answer, const char *key);

/* Whether that text is in the answer's body. */
bool answer_has(const struct bp_answer *answer, const char *text);

/* A training request of llama-2-7b with that sequence length, and that much memory for its queue target (0: no target).
 */
const char *request_text(unsigned sequence_length, uint64_t memory_bytes);

#endif
