/* Who a request comes from, whether it may do what it asks for, and how much of it.
 *
 * Over TCP a caller is who its bearer token says; where the daemon has no tokens, and so serves loopback only or was
 * told to go without in so many words, anybody may read and plan. Over a Unix socket a caller is the user that the
 * kernel names; who shows a token there is judged by the token alone.
 *
 * Each caller has its own allowance of requests: a token its own or the daemon's, others the daemon's, by user or by
 * address (an IPv6 network of 64 bits counts as one). What is kept of callers without a token is bounded: past
 * BP_CALLERS_MAX of them with requests under way the rest share one allowance.
 *
 * bp_access_open, _reload and _close: main thread; a reload may run while requests are admitted. The rest: any thread.
 * One lock, taken inside all others and never while something waits.
 */
#ifndef BP_ACCESS_ACCESS_H
#define BP_ACCESS_ACCESS_H

#include <stdint.h>
#include <sys/socket.h>

#include "daemon/access/caller.h"
#include "daemon/access/limit.h"
#include "daemon/access/peers.h"
#include "daemon/access/scope.h"

enum { BP_CALLERS_MAX = 1024 };

struct bp_access;
struct bp_allowance;

/* Borrowed for the call. */
struct bp_access_options {
    const char *tokens; /* path of the file of tokens; "" for none */
    const struct bp_peer_rules *peers;
    const struct bp_limits *limits; /* of callers that have none of their own */
};

/* What is wrong with the file of tokens is added to `problems`. -1 then, or when memory ran out. */
int bp_access_open(const struct bp_access_options *options, struct bp_access **ret, struct bp_problems *problems);

/* Reads the file of tokens again and takes the rules and limits. On failure everything stays as it was. A token that
 * is still there, by its name, keeps what it has used of its allowance; requests that were admitted go on. Whether
 * there are tokens at all cannot change. */
int bp_access_reload(struct bp_access *access, const struct bp_access_options *options, struct bp_problems *problems);

/* Nothing that was admitted may be left. NULL does nothing. */
void bp_access_close(struct bp_access *access);

/* True when TCP callers need a token. */
bool bp_access_has_tokens(const struct bp_access *access);

/* The token that a connection showed last and that was accepted, so that the next request with the same one is neither
 * hashed nor looked for again, which costs more than all else of admission and grows with the number of tokens. Its
 * text is compared in constant time and counts only with the tokens it was found among: a reload makes it as none. It
 * is in memory, in the clear, as long as the connection is open, where else only the hash would be: whoever reads the
 * memory of the daemon reads the tokens of open connections from their requests as well. A longer token is hashed each
 * time. */
enum { BP_SHOWN_MAX = 96 };
struct bp_shown {
    uint64_t generation; /* of the tokens; 0: nothing is shown */
    size_t token;        /* its index */
    size_t n;
    char text[BP_SHOWN_MAX];
};

/* Where a connection comes from, and what it showed. */
struct bp_origin {
    bool is_unix, has_peer;
    struct bp_peer peer;          /* of a Unix socket, when has_peer */
    char who[BP_CALLER_WHO];      /* without a token */
    char from[BP_CALLER_FROM];    /* the address, or "unix" */
    char network[BP_CALLER_FROM]; /* that an allowance is of */
    struct bp_shown shown;
};

/* Of a connected socket and its peer's address. */
void bp_origin_of(int fd, const struct sockaddr *address, struct bp_origin *ret);

/* What limits count as one address: an IPv4 address, an IPv6 network of 64 bits, which is what one host is given.
 * UINT64_MAX: neither. */
uint64_t bp_network_of(const struct sockaddr *address);

/* The connection is closed: wipes what it showed. */
void bp_origin_forget(struct bp_origin *origin);

/* Zero-initialise. Of a request that was admitted; the caller borrows from it and from the origin. */
struct bp_grant {
    struct bp_allowance *allowance; /* NULL: nothing to give back */
    struct bp_caller caller;
};

/* What goes with a refusal. */
struct bp_refusal {
    unsigned retry_after;     /* seconds; 0: none */
    const char *authenticate; /* of WWW-Authenticate; static; or NULL */
};

/* Whether a request with this Authorization field (NULL: none) may do what needs `scope`; BP_SCOPE_NONE: no more than
 * be known. -1: unauthenticated, peer_refused, scope_missing, rate_limited, concurrency_limited; then nothing is taken.
 * Remembers in the origin what it showed: one thread at a time for each. */
int bp_access_admit(struct bp_access *access, struct bp_origin *origin, const char *authorization, enum bp_scope scope,
                    uint64_t now_ns, struct bp_grant *ret, struct bp_refusal *ret_refusal, struct bp_err *err);

/* The request is over. */
void bp_access_release(struct bp_access *access, struct bp_grant *grant);

#endif
