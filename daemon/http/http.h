/* The HTTP server: one epoll thread of libmicrohttpd, and one of ours that lets clients in and watches them. With TLS
 * the Unix socket, which speaks plain HTTP, has a thread of libmicrohttpd of its own; the two take turns, so what is
 * said to be of the HTTP thread is of one thread at a time.
 */
#ifndef BP_HTTP_HTTP_H
#define BP_HTTP_HTTP_H

#include <sys/socket.h>

#include "daemon/access/access.h"
#include "daemon/service/service.h"

struct bp_http;

struct bp_http_options {
    const struct sockaddr *listen;
    socklen_t listen_size;
    const char *socket;               /* path of a Unix socket to serve on as well; "" for none */
    int unix_listener;                /* or one that listens already, which is taken over; -1 for none */
    int tcp_listener;                 /* one that listens already, taken over in place of `listen`; -1 for none */
    unsigned connections;             /* open at a time; 0: as many as descriptors allow */
    unsigned connections_per_address; /* of them from one address; 0: no limit of their own */
    unsigned receive_seconds;         /* for a request to arrive */
    unsigned answer_seconds;          /* for its answer to be ready */
    bool has_tls;                     /* TCP speaks TLS, with what bp_tls_load took */
    struct bp_access *access;
    struct bp_service *service;
    struct bp_metrics *metrics;
};

/* Serves from now on. Codes: network_failed, out_of_memory, internal. */
int bp_http_start(const struct bp_http_options *options, struct bp_http **ret, struct bp_err *err);

/* The address it serves on, as in a URL: 127.0.0.1:7433, [::1]:7433. */
const char *bp_http_address(const struct bp_http *http);

/* Asks both threads to turn around once: the epoll thread by a request of our own. Whether both have since. Never
 * waits for them. One thread. */
void bp_http_ask(struct bp_http *http);
bool bp_http_has_answered(struct bp_http *http);

/* Takes no more connections or requests, lets those under way end, answers 503 to who still waits at the deadline (of
 * CLOCK_MONOTONIC), then stops and frees everything. The service must still run. NULL does nothing. */
void bp_http_stop(struct bp_http *http, uint64_t deadline_ns);

#endif
