#include "daemon/sdnotify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <systemd/sd-daemon.h>

#include "daemon/log.h"

static const uint64_t second = UINT64_C(1000000000);

/* The HTTP server closes a connection that is idle for longer, the heartbeat's among them. */
static const uint64_t longest_interval = UINT64_C(30) * 1000000000;

/* ---- Sockets ---- */

static bool is_loopback(int fd)
{
    struct sockaddr_storage bound = {0};
    socklen_t size = sizeof bound;
    if (getsockname(fd, (struct sockaddr *)&bound, &size))
        return false;
    if (bound.ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)&bound)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)&bound)->sin_addr.s_addr) >> 24 == 127;
}

static int take_over(int fd, const char *name, bool may_be_beyond_loopback, struct bp_sd_listeners *listeners,
                     struct bp_err *err)
{
    bool is_local = sd_is_socket_unix(fd, SOCK_STREAM, 1, NULL, 0) > 0;
    int *place = is_local ? &listeners->local : &listeners->tcp;
    if (!is_local && sd_is_socket_inet(fd, AF_UNSPEC, SOCK_STREAM, 1, 0) <= 0)
        return bp_fail(err, BP_E_config_invalid, "",
                       "\"%s\", taken over from systemd, is neither a Unix nor a TCP socket that listens", name);
    if (!is_local && !may_be_beyond_loopback && !is_loopback(fd))
        return bp_fail(err, BP_E_config_invalid, "",
                       "\"%s\", taken over from systemd, listens beyond loopback: that needs tokens and "
                       "TLS, or listen-beyond-loopback-without-tokens-and-tls = yes",
                       name);
    if (*place >= 0)
        return bp_fail(err, BP_E_config_invalid, "", "\"%s\", taken over from systemd, is a second socket of its kind",
                       name);
    if (fcntl(fd, F_SETFL, O_NONBLOCK))
        return bp_fail(err, BP_E_network_failed, "", "%s", strerror(errno));
    *place = fd;
    return 0;
}

int bp_sd_listeners(bool may_be_beyond_loopback, struct bp_sd_listeners *ret, struct bp_err *err)
{
    struct bp_sd_listeners listeners = {-1, -1};
    char **names = NULL;
    int result = 0, n = sd_listen_fds_with_names(1, &names);
    if (n < 0)
        result = bp_fail(err, n == -ENOMEM ? BP_E_out_of_memory : BP_E_config_invalid, "", "the sockets of systemd: %s",
                         strerror(-n));
    for (int i = 0; i < n; i++) {
        if (result == 0)
            result = take_over(SD_LISTEN_FDS_START + i, names[i], may_be_beyond_loopback, &listeners, err);
        free(names[i]);
    }
    free(names);
    if (result == 0)
        *ret = listeners;
    return result;
}

/* ---- Who must turn around ---- */

static void ask_http(void *data)
{
    bp_http_ask(data);
}

static bool http_has_answered(void *data, uint64_t now_ns)
{
    (void)now_ns;
    return bp_http_has_answered(data);
}

static void ask_writer(void *data)
{
    bp_store_ask(data);
}

static bool writer_has_answered(void *data, uint64_t now_ns)
{
    (void)now_ns;
    return bp_store_has_answered(data);
}

static void ask_workers(void *data)
{
    bp_service_ask(data);
}

static bool workers_get_on(void *data, uint64_t now_ns)
{
    return bp_service_gets_on(data, now_ns);
}

/* A third of what the watchdog allows; 0 for no watchdog. */
static uint64_t watchdog_interval(void)
{
    uint64_t usec = 0;
    int enabled = sd_watchdog_enabled(0, &usec);
    if (enabled < 0)
        bp_log(BP_LOG_WARNING, "WATCHDOG_USEC is not understood: no watchdog is fed", NULL);
    if (enabled <= 0)
        return 0;
    uint64_t interval = usec > longest_interval / 1000 * 3 ? longest_interval : usec * 1000 / 3;
    return interval ? interval : 1;
}

/* ---- What is told ---- */

static void say_status(struct bp_sdnotify *sdnotify, const char *status)
{
    if (strcmp(status, sdnotify->status) == 0)
        return;
    snprintf(sdnotify->status, sizeof sdnotify->status, "%s", status);
    sd_notifyf(0, "STATUS=%s", status);
}

static void say_how_it_goes(struct bp_sdnotify *sdnotify)
{
    uint64_t gauges[BP_GAUGE_N] = {0};
    char status[sizeof sdnotify->status];
    bp_service_gauges(sdnotify->service, gauges);
    snprintf(status, sizeof status, "Serving %s: %" PRIu64 " plans in flight, %" PRIu64 " of %" PRIu64 " workers busy",
             sdnotify->address, gauges[BP_GAUGE_IN_FLIGHT], gauges[BP_GAUGE_WORKERS_BUSY], gauges[BP_GAUGE_WORKERS]);
    say_status(sdnotify, status);
}

static void complain(struct bp_sdnotify *sdnotify)
{
    const char *who = sdnotify->heartbeat.silent;
    char status[sizeof sdnotify->status];
    snprintf(status, sizeof status, "The %s did not turn around: the watchdog is not fed", who);
    say_status(sdnotify, status);
    if (!sdnotify->complained)
        bp_log(BP_LOG_ERROR, "no sign of life, the watchdog is not fed", BP_LOG_FIELDS(BP_LOG_TEXT("of", who)));
    sdnotify->complained = true;
}

static void feed(struct bp_sdnotify *sdnotify)
{
    sd_notify(0, "WATCHDOG=1");
    if (!sdnotify->complained)
        return;
    bp_log(BP_LOG_WARNING, "everyone turns around again, the watchdog is fed", NULL);
    sdnotify->complained = false;
    sdnotify->status_at = 0;
}

void bp_sdnotify_ready(struct bp_sdnotify *ret, struct bp_store *store, struct bp_service *service,
                       struct bp_http *http)
{
    *ret = (struct bp_sdnotify){
        .participants = {{"HTTP server", ask_http, http_has_answered, http},
                         {"writer", ask_writer, writer_has_answered, store},
                         {"workers", ask_workers, workers_get_on, service}},
        .service = service,
        .address = bp_http_address(http),
    };
    ret->heartbeat = (struct bp_heartbeat){
        .participants = ret->participants,
        .n = BP_SD_PARTICIPANTS,
        .interval_ns = watchdog_interval(),
    };
    sd_notify(0, "READY=1");
}

void bp_sdnotify_turn(struct bp_sdnotify *sdnotify)
{
    struct bp_heartbeat *heartbeat = &sdnotify->heartbeat;
    uint64_t now = bp_clock_ns();
    if (heartbeat->interval_ns) {
        if (bp_heartbeat_turn(heartbeat, now))
            feed(sdnotify);
        if (heartbeat->under_way && now - heartbeat->begun_at >= heartbeat->interval_ns) {
            complain(sdnotify);
            return;
        }
    }
    if (now >= sdnotify->status_at) {
        say_how_it_goes(sdnotify);
        sdnotify->status_at = now + 5 * second;
    }
}

uint64_t bp_sdnotify_tick(const struct bp_sdnotify *sdnotify)
{
    uint64_t quarter = sdnotify->heartbeat.interval_ns / 4;
    return quarter && quarter < second ? quarter : second;
}
