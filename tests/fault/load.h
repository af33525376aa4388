/* Clients that load the server under test until it is gone, and write down what it acknowledged.
 *
 * Each client is a process of its own; what it was told is in memory that it shares with the test, so that nothing of
 * it is lost with the daemon.
 */
#ifndef BP_TESTS_FAULT_LOAD_H
#define BP_TESTS_FAULT_LOAD_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/base/digest.h"

enum { LOAD_CLIENTS = 4, LOAD_ACKS_MAX = 4096 };

/* One answer that a client read to its end. */
enum ack_kind { ACK_PLAN, ACK_ACCEPTED, ACK_REPLAY }; /* the whole plan; a 202; a replay's verdict */
struct ack {
    enum ack_kind kind;
    bool rejected;           /* the plan, by a check */
    unsigned long number;    /* of the plan's request */
    char id[BP_DIGEST_TEXT]; /* of the plan or the replay */
    bool has_proof;          /* the answer had the plan's substance: proof_of() it */
    struct bp_digest proof;
};

struct load_client {
    atomic_uint n_acks, n_requests, n_aborted;
    struct ack acks[LOAD_ACKS_MAX];
};

/* Zero-initialised shared memory: load_new(). */
struct load {
    atomic_bool killing; /* set before the daemon is killed: from then on a connection may fail */
    struct load_client clients[LOAD_CLIENTS];
};

struct load *load_new(void);
void load_clear(struct load *load);
unsigned load_acks(struct load *load); /* so far, of all clients */

/* The processes; `serial` differs from round to round on one database and makes its requests new ones. */
void load_begin(struct load *load, unsigned seed, unsigned serial);

/* Waits for the clients to notice that the daemon is gone. Each must have seen nothing but what it expected. */
void load_end(void);

/* The request of a number, the same whoever asks for it and however often. */
const char *load_request(unsigned long number);

/* The digest of what a plan says of its snapshots, derivations, facts and time of commit. */
struct bp_digest proof_of(json_t *plan);

#endif
