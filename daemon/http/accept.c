#include "daemon/http/accept.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "daemon/log.h"

/* Descriptors kept for what is no client: database, locks, listeners, epoll sets, the log, connections of our own. */
enum { RESERVED_FDS = 128, FDS_WANTED = 8192, FDS_MOST = 65536 };

/* Clients taken from one door before the other, and the deadlines, are looked at. */
enum { AT_A_TIME = 64 };

size_t bp_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return 1024;
    rlim_t wanted = limit.rlim_max < FDS_WANTED ? limit.rlim_max : FDS_WANTED;
    if (limit.rlim_cur < wanted) {
        struct rlimit raised = {.rlim_cur = wanted, .rlim_max = limit.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
            limit.rlim_cur = wanted;
    }
    return limit.rlim_cur < FDS_MOST ? (size_t)limit.rlim_cur : FDS_MOST;
}

unsigned bp_connection_limit(unsigned wanted, size_t n_fds)
{
    unsigned most = n_fds > 2 * RESERVED_FDS ? (unsigned)n_fds - RESERVED_FDS : RESERVED_FDS;
    if (wanted > most)
        bp_log(BP_LOG_WARNING, "there are descriptors for fewer connections than configured",
               BP_LOG_FIELDS(BP_LOG_UINT("connections", most)));
    return wanted && wanted < most ? wanted : most;
}

/* ---- Of one network ---- */

/* The multiplier is not known outside, so that nobody can choose networks that share a chain. */
static struct bp_connection **chain_of(struct bp_connections *connections, uint64_t network)
{
    return &connections->chains[(network * (connections->ids.seed | 1) >> 32) % connections->n_fds];
}

static bool is_counted(const struct bp_connections *connections, uint64_t network)
{
    return connections->per_network && network != UINT64_MAX;
}

bool bp_network_has_room(struct bp_connections *connections, uint64_t network)
{
    unsigned n = 0;
    if (!is_counted(connections, network))
        return true;
    for (const struct bp_connection *at = *chain_of(connections, network); at; at = at->next_in_chain)
        n += at->network == network;
    return n < connections->per_network;
}

void bp_network_join(struct bp_connection *connection)
{
    if (!is_counted(connection->all, connection->network))
        return;
    struct bp_connection **chain = chain_of(connection->all, connection->network);
    connection->next_in_chain = *chain;
    *chain = connection;
}

void bp_network_leave(struct bp_connection *connection)
{
    if (!is_counted(connection->all, connection->network))
        return;
    struct bp_connection **at = chain_of(connection->all, connection->network);
    while (*at != connection)
        at = &(*at)->next_in_chain;
    *at = connection->next_in_chain;
}

/* ---- The doors ---- */

/* Under the lock, or before the watching thread runs. */
static int set_doors(struct bp_connections *connections, int operation)
{
    int result = 0;
    for (int door = 0; door < BP_DOORS; door++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = BP_ACCEPT_MARK(door)};
        if (connections->listeners[door] >= 0)
            result |= epoll_ctl(connections->epoll, operation, connections->listeners[door], &event);
    }
    return result;
}

int bp_accept_start(struct bp_connections *connections, struct bp_err *err)
{
    if (set_doors(connections, EPOLL_CTL_ADD))
        return bp_fail(err, BP_E_network_failed, "", "the listeners cannot be watched: %s", strerror(errno));
    return 0;
}

/* Under the lock. */
static bool has_room(const struct bp_connections *connections)
{
    return connections->n_open - connections->n_own < connections->limit;
}

void bp_accept_again(struct bp_connections *connections)
{
    if (!connections->full || connections->closed || !has_room(connections))
        return;
    connections->full = false;
    set_doors(connections, EPOLL_CTL_ADD);
}

void bp_accept_stop(struct bp_connections *connections)
{
    pthread_mutex_lock(&connections->lock);
    if (!connections->full)
        set_doors(connections, EPOLL_CTL_DEL);
    connections->closed = true;
    pthread_mutex_unlock(&connections->lock);
}

/* Only this thread lets clients in, so the room is there until it does. */
static bool may_accept(struct bp_connections *connections)
{
    pthread_mutex_lock(&connections->lock);
    const bool may = !connections->closed && has_room(connections);
    if (!may && !connections->closed && !connections->full) {
        connections->full = true;
        set_doors(connections, EPOLL_CTL_DEL);
    }
    pthread_mutex_unlock(&connections->lock);
    return may;
}

void bp_accept_clients(struct bp_connections *connections, enum bp_door door)
{
    for (int i = 0; i < AT_A_TIME && may_accept(connections); i++) {
        struct sockaddr_storage address = {0};
        socklen_t size = sizeof address;
        int fd =
            accept4(connections->listeners[door], (struct sockaddr *)&address, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            connections->accepted(connections->data, door, fd, (struct sockaddr *)&address, size);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != ECONNABORTED && errno != EINTR) {
            nanosleep(&(struct timespec){.tv_nsec = 25000000}, NULL); /* no descriptors: do not spin on it */
            return;
        }
    }
}
