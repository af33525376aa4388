/* Somebody who waits for an answer that a worker or the store's writer will bring. */
#ifndef BP_SERVICE_WAITER_H
#define BP_SERVICE_WAITER_H

#include <stdbool.h>

#include "daemon/access/caller.h"
#include "daemon/service/answer.h"

struct bp_errand;
struct bp_claim;

/* Owned by whoever waits, who zero-initialises it but for `wake` and `caller`, and keeps it until it was woken or has
 * left. */
struct bp_waiter {
    /* Called once, from any thread, with a reference to the answer; no lock of the service is held. */
    void (*wake)(struct bp_waiter *waiter, struct bp_answer *answer);

    struct bp_caller caller; /* who waits, for the audit */

    /* The service's: what it waits for, and its place there. */
    struct bp_claim *claim;
    struct bp_errand *errand;
    struct bp_waiter *next;
    bool is_claimant;
    bool asks_ready;           /* under the lock of the readiness while it waits */
    unsigned patience_seconds; /* after which bp_service_lose_patience is to be asked; 0: as the client says */
    bool wants_acceptance;     /* answered once the job is on disk; under the claims' lock while it waits */
    bool has_body;             /* `body` is set: the answer may be kept for it */
    struct bp_digest body;     /* of the raw body */
    char *model_extra;         /* JSON members of the answer's `model`; owned; or NULL */
};

#endif
