/* The open connections by descriptor: their deadlines, and the requests on them that wait for an answer.
 *
 * libmicrohttpd could time out on inactivity only, and does not look at the socket of a suspended connection; a thread
 * of ours does both. It lets clients in, cuts a connection whose deadline passed, ends the wait of a client that hung
 * up, and answers a waiter whose time is over.
 *
 * One lock guards it all. It is taken before the locks of the service and never inside them; the thread that closes a
 * descriptor takes it, so a descriptor seen open under it is not somebody else's.
 */
#ifndef BP_HTTP_CONNECTIONS_H
#define BP_HTTP_CONNECTIONS_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "daemon/access/access.h"
#include "daemon/http/call.h"
#include "daemon/http/head.h"
#include "daemon/http/trail.h"
#include "daemon/metrics.h"

/* For the client to take an answer; between requests; for whatever is still under way with a client that hung up. How
 * long a request may take to arrive and its answer to be ready is configured. */
enum {
    BP_DELIVERY_SECONDS = 120,
    BP_IDLE_SECONDS = 75,
    BP_HUNG_UP_SECONDS = 1,
};

/* How many connections there may be that no client made: pulses, and what wakes the HTTP thread. */
enum { BP_OWN_CONNECTIONS = 8 };

enum bp_door { BP_DOOR_TCP, BP_DOOR_UNIX, BP_DOORS };

/* Bytes a second with which a client must take a file at the least. */
#define BP_FILE_RATE (UINT64_C(256) << 10)

/* Beside libmicrohttpd's own state, what we know of a connection and of the one request on it. The HTTP thread owns it
 * but for what `connections.lock` guards. */
struct bp_connection {
    struct bp_call call;
    char *target;         /* owned: the request target, which `call.target` points into */
    const char *received; /* the target in the text that was received */
    struct bp_buf body;
    uint64_t n_read; /* of the body, kept or not */
    struct bp_head head;
    struct bp_answer *refusal; /* decided before the body was read */
    struct bp_trail trail;
    bool started;             /* the handler saw the request */
    unsigned timeout_seconds; /* that the client gives the answer; 0: says nothing */
    struct bp_origin origin;
    struct bp_grant grant; /* of the request, until it is over */

    /* Under the lock. */
    struct bp_connections *all;
    void *handle; /* libmicrohttpd's; NULL until its thread has the connection */
    int fd;
    ino_t socket; /* what the descriptor stands for */
    bool open, own, active, waiting, gone, hung_up;
    struct bp_answer *answer; /* brought while or before it waited; or the handler's own */
    uint32_t serial;
    uint64_t deadline; /* CLOCK_MONOTONIC, ns; of the connection, or of the wait */
    uint64_t patience; /* when a waiter has had enough of waiting for more than a 202; UINT64_MAX: never */
    unsigned answer_seconds, wait_seconds; /* that the waiter has; that it prefers to wait, within those */
    uint64_t network;                      /* that it came from */
    struct bp_connection *next_in_chain;
};

/* What an HTTP thread is seen to do. */
struct bp_turns {
    atomic_uint_fast64_t n_handled; /* turns that handled something, counted by it */
    uint_fast64_t seen_handled;     /* the watcher's, with when it will wake that thread, and how long that took */
    uint64_t nudge_at, nudge_ms;
};

struct bp_connections {
    pthread_mutex_t lock;
    pthread_cond_t no_active; /* CLOCK_MONOTONIC */
    struct bp_connection *by_fd;
    size_t n_fds;
    struct bp_connection **chains; /* n_fds, of the open ones, each network's in one */
    unsigned limit;                /* of clients */
    unsigned per_network;          /* that one may have open; 0: any */
    size_t n_open, n_own, n_active, n_waiting;
    int listeners[BP_DOORS]; /* -1: none; the caller's, to close as well */
    bool full, closed;       /* the doors: until a client leaves, for good */
    int top_fd;              /* no open one is above */
    uint32_t next_serial;
    uint64_t body_bytes; /* allocated for bodies; the HTTP thread's */
    struct bp_ids ids;   /* the HTTP thread's */
    bool draining, stopping;
    int epoll, wake_event;
    atomic_uint_fast64_t turns; /* of the watching thread, a few a second */
    pthread_t watcher;
    unsigned receive_seconds, answer_seconds;
    struct bp_service *service;
    struct bp_access *access;
    struct bp_metrics *metrics;
    struct bp_turns turns_of[BP_DOORS];       /* of the HTTP threads */
    size_t n_threads;                         /* that there are */
    void (*resume)(void *handle);             /* of libmicrohttpd; called under the lock */
    void (*nudge)(void *data, size_t thread); /* wakes that thread */
    /* Takes the descriptor over. */
    void (*accepted)(void *data, enum bp_door door, int fd, const struct sockaddr *address, socklen_t size);
    void *data;
};

/* Makes the table for descriptors below n_fds. Fill in listeners, limits, times, service, access, metrics, ids and
 * callbacks before the start. */
int bp_connections_init(struct bp_connections *connections, size_t n_fds, struct bp_err *err);
int bp_connections_start(struct bp_connections *connections, struct bp_err *err);
void bp_connections_stop(struct bp_connections *connections); /* the thread; what it watches may still be open */
void bp_connections_release(struct bp_connections *connections);

/* Any thread: the connection is about to be handed to libmicrohttpd; a client, or one of our own. False when there
 * is no room for it: too many of our own, of its network, which are counted, or too high a descriptor. `*ret` names it.
 */
bool bp_connection_open(struct bp_connections *connections, int fd, const struct sockaddr *address, bool own,
                        uint64_t *ret);
void bp_connection_drop(struct bp_connections *connections, uint64_t mark); /* it was not taken */

/* HTTP thread. */
struct bp_connection *bp_connection_start(struct bp_connections *connections, int fd, void *handle);
void bp_connection_close(struct bp_connection *connection);
void bp_connection_arriving(struct bp_connection *connection); /* a request has begun to */
bool bp_connection_begin(struct bp_connection *connection);    /* the request is to be run; false when draining */
void bp_connection_end(struct bp_connection *connection);      /* it is over, whether it had begun or not */

/* Keeps n more bytes of the body, which are counted in n_read. -1: body_too_large, out_of_memory; then nothing of it is
 * kept. */
int bp_connection_keep(struct bp_connection *connection, const char *bytes, size_t n, struct bp_err *err);

/* The answer is n bytes long and is given the time for them, at BP_FILE_RATE. */
void bp_connection_take_long(struct bp_connection *connection, uint64_t n);

/* The route gave no answer: calls `suspend` under the lock, unless the answer came already or the client is gone (then
 * false). */
bool bp_connection_wait(struct bp_connection *connection, void (*suspend)(void *handle));

/* Stops new requests; waits until those under way are over, at most until `deadline_ns`; then answers every waiter with
 * 503 and waits as long again as `grace_ns`, then cuts the connections that still have a request. When none has it
 * gives those that had arrived and were not read yet a moment to be answered, cuts the others, and returns once they
 * are closed, or after `grace_ns`. */
void bp_connections_drain(struct bp_connections *connections, uint64_t deadline_ns, uint64_t grace_ns);

#endif
