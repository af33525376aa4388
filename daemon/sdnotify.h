/* What systemd hands over, and what it is told: ready, how it goes, that the watchdog need not bite. All of it does
 * nothing where the daemon was not started by systemd. Main thread.
 */
#ifndef BP_DAEMON_SDNOTIFY_H
#define BP_DAEMON_SDNOTIFY_H

#include "daemon/heartbeat.h"
#include "daemon/http/http.h"

/* Descriptors that listen already, not blocking; -1 for none. */
struct bp_sd_listeners {
    int local, tcp;
};

/* Takes over the sockets of the socket units, at most one of either kind, and of loopback unless it may be beyond.
 * Once. Codes: config_invalid (the message has the socket's name, FileDescriptorName=), network_failed, out_of_memory.
 */
int bp_sd_listeners(bool may_be_beyond_loopback, struct bp_sd_listeners *ret, struct bp_err *err);

enum { BP_SD_PARTICIPANTS = 3 };

struct bp_sdnotify {
    struct bp_participant participants[BP_SD_PARTICIPANTS];
    struct bp_heartbeat heartbeat; /* an interval of zero: no watchdog */
    struct bp_service *service;
    const char *address;
    char status[128];
    uint64_t status_at; /* CLOCK_MONOTONIC, ns: the next one */
    bool complained;
};

/* The daemon is ready. What is handed over must outlive the turns. */
void bp_sdnotify_ready(struct bp_sdnotify *ret, struct bp_store *store, struct bp_service *service,
                       struct bp_http *http);

/* Every bp_sdnotify_tick nanoseconds or so: says how it goes, and feeds the watchdog when everyone turned around. */
void bp_sdnotify_turn(struct bp_sdnotify *sdnotify);
uint64_t bp_sdnotify_tick(const struct bp_sdnotify *sdnotify);

#endif
