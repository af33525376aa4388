#include "daemon/http/connections.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/http/accept.h"

enum { TICK_MS = 250 };
static const uint64_t second = UINT64_C(1000000000);

/* Bytes that may be allocated for all bodies together. */
static const uint64_t body_budget = UINT64_C(256) << 20;

/* In the epoll data. A connection's has its descriptor in the upper half. */
static const uint64_t mark_wake = UINT64_MAX;

static void free_tables(struct bp_connections *connections)
{
    free(connections->by_fd);
    free(connections->chains);
}

int bp_connections_init(struct bp_connections *connections, size_t n_fds, struct bp_err *err)
{
    *connections = (struct bp_connections){.n_fds = n_fds, .top_fd = -1, .listeners = {-1, -1}};
    connections->by_fd = calloc(n_fds, sizeof *connections->by_fd);
    connections->chains = calloc(n_fds, sizeof(struct bp_connection *));
    if (!connections->by_fd || !connections->chains) {
        free_tables(connections);
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for %zu connections", n_fds);
    }
    connections->epoll = epoll_create1(EPOLL_CLOEXEC);
    connections->wake_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = mark_wake};
    if (connections->epoll < 0 || connections->wake_event < 0 ||
        epoll_ctl(connections->epoll, EPOLL_CTL_ADD, connections->wake_event, &event)) {
        bp_fail(err, BP_E_network_failed, "", "no descriptors to watch connections with: %s", strerror(errno));
        free_tables(connections);
        if (connections->epoll >= 0)
            close(connections->epoll);
        if (connections->wake_event >= 0)
            close(connections->wake_event);
        return -1;
    }
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&connections->no_active, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&connections->lock, NULL);
    return 0;
}

/* ---- Of one connection ---- */

static uint64_t mark_of(const struct bp_connection *connection)
{
    return (uint64_t)(uint32_t)connection->fd << 32 | connection->serial;
}

/* Under the lock. NULL when that one is no more. */
static struct bp_connection *marked(struct bp_connections *connections, uint64_t mark)
{
    struct bp_connection *connection = &connections->by_fd[mark >> 32];
    return connection->open && connection->serial == (uint32_t)mark ? connection : NULL;
}

/* Under the lock. */
static void forget(struct bp_connection *connection)
{
    struct bp_connections *all = connection->all;
    bp_origin_forget(&connection->origin);
    bp_network_leave(connection);
    connection->open = false;
    all->n_open--;
    all->n_own -= connection->own;
    while (all->top_fd >= 0 && !all->by_fd[all->top_fd].open)
        all->top_fd--;
    bp_accept_again(all);
}

/* 0: it is not open. */
static ino_t socket_of(int fd)
{
    struct stat status;
    return fstat(fd, &status) ? 0 : status.st_ino;
}

/* libmicrohttpd had no memory to begin it, closed it, and says so to nobody. */
static bool is_dropped(const struct bp_connection *connection)
{
    return !connection->handle && socket_of(connection->fd) != connection->socket;
}

/* Under the lock. */
static bool has_room(struct bp_connections *connections, uint64_t network, bool own)
{
    if (own)
        return connections->n_own < BP_OWN_CONNECTIONS;
    if (bp_network_has_room(connections, network))
        return true;
    bp_metrics_count(connections->metrics, BP_COUNTER_CROWDED);
    return false;
}

/* Under the lock. */
static void open_place(struct bp_connections *connections, const struct bp_connection *fresh)
{
    struct bp_connection *connection = &connections->by_fd[fresh->fd];
    *connection = *fresh;
    connection->serial = connections->next_serial++;
    bp_network_join(connection);
    /* Without a place in the set a hang-up is not seen; the deadlines still hold. */
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data.u64 = mark_of(connection)};
    epoll_ctl(connections->epoll, EPOLL_CTL_ADD, connection->fd, &event);
    connections->n_open++;
    connections->n_own += connection->own;
    if (connection->fd > connections->top_fd)
        connections->top_fd = connection->fd;
}

bool bp_connection_open(struct bp_connections *connections, int fd, const struct sockaddr *address, bool own,
                        uint64_t *ret)
{
    struct bp_connection fresh = {
        .all = connections,
        .fd = fd,
        .open = true,
        .own = own,
        .deadline = bp_clock_ns() + connections->receive_seconds * second,
        .network = bp_network_of(address),
    };
    if (fd < 0 || (size_t)fd >= connections->n_fds)
        return false;
    fresh.socket = socket_of(fd);
    bp_origin_of(fd, address, &fresh.origin);
    pthread_mutex_lock(&connections->lock);
    if (connections->by_fd[fd].open)
        forget(&connections->by_fd[fd]); /* as is_dropped says */
    const bool has = has_room(connections, fresh.network, own);
    if (has) {
        open_place(connections, &fresh);
        *ret = mark_of(&connections->by_fd[fd]);
    }
    pthread_mutex_unlock(&connections->lock);
    return has;
}

void bp_connection_drop(struct bp_connections *connections, uint64_t mark)
{
    pthread_mutex_lock(&connections->lock);
    struct bp_connection *connection = marked(connections, mark);
    if (connection)
        forget(connection);
    pthread_mutex_unlock(&connections->lock);
}

struct bp_connection *bp_connection_start(struct bp_connections *connections, int fd, void *handle)
{
    struct bp_connection *connection = &connections->by_fd[fd];
    pthread_mutex_lock(&connections->lock);
    connection->handle = handle;
    pthread_mutex_unlock(&connections->lock);
    return connection;
}

void bp_connection_close(struct bp_connection *connection)
{
    struct bp_connections *all = connection->all;
    bp_connection_end(connection);
    pthread_mutex_lock(&all->lock);
    forget(connection);
    pthread_mutex_unlock(&all->lock);
}

/* Under the lock. */
static void set_deadline(struct bp_connection *connection, uint64_t now, unsigned seconds)
{
    connection->deadline = now + (connection->hung_up ? BP_HUNG_UP_SECONDS : seconds) * second;
}

void bp_connection_arriving(struct bp_connection *connection)
{
    pthread_mutex_lock(&connection->all->lock);
    set_deadline(connection, bp_clock_coarse_ns(), connection->all->receive_seconds);
    pthread_mutex_unlock(&connection->all->lock);
}

/* Under the lock. */
static void end_wait(struct bp_connection *connection)
{
    struct bp_connections *all = connection->all;
    connection->waiting = false;
    set_deadline(connection, bp_clock_coarse_ns(), BP_DELIVERY_SECONDS);
    all->n_waiting--;
    all->resume(connection->handle);
}

/* bp_waiter.wake of every connection. The waiter is part of its connection. */
static void on_wake(struct bp_waiter *waiter, struct bp_answer *answer)
{
    struct bp_connection *connection =
        (struct bp_connection *)(void *)((char *)waiter - offsetof(struct bp_connection, call.waiter));
    pthread_mutex_lock(&connection->all->lock);
    connection->answer = answer;
    if (connection->waiting)
        end_wait(connection);
    pthread_mutex_unlock(&connection->all->lock);
}

bool bp_connection_begin(struct bp_connection *connection)
{
    struct bp_connections *all = connection->all;
    const uint64_t now = bp_clock_ns();
    pthread_mutex_lock(&all->lock);
    bool may = !all->draining;
    connection->call.waiter = (struct bp_waiter){.wake = on_wake, .caller = connection->grant.caller};
    connection->active = true;
    connection->trail.whole_at = now;
    set_deadline(connection, now, BP_DELIVERY_SECONDS);
    all->n_active++;
    pthread_mutex_unlock(&all->lock);
    return may;
}

void bp_connection_take_long(struct bp_connection *connection, uint64_t n)
{
    pthread_mutex_lock(&connection->all->lock);
    if (!connection->hung_up)
        connection->deadline = bp_clock_ns() + (BP_DELIVERY_SECONDS + n / BP_FILE_RATE) * second;
    pthread_mutex_unlock(&connection->all->lock);
}

int bp_connection_keep(struct bp_connection *connection, const char *bytes, size_t n, struct bp_err *err)
{
    struct bp_connections *all = connection->all;
    const size_t allocated = connection->body.allocated;
    if (connection->n_read > BP_BODY_MAX) {
        bp_fail(err, BP_E_body_too_large, "", "the limit is %llu bytes", (unsigned long long)BP_BODY_MAX);
    } else if (all->body_bytes + n > body_budget) {
        bp_fail(err, BP_E_out_of_memory, "", "too many bodies are being read");
    } else {
        bp_buf_add(&connection->body, bytes, n);
        all->body_bytes += connection->body.allocated - allocated;
        if (!connection->body.failed)
            return 0;
        bp_fail(err, BP_E_out_of_memory, "", "no memory for the body");
    }
    all->body_bytes -= connection->body.allocated;
    bp_buf_release(&connection->body);
    return -1;
}

void bp_connection_end(struct bp_connection *connection)
{
    struct bp_connections *all = connection->all;
    pthread_mutex_lock(&all->lock);
    struct bp_answer *answer = connection->answer;
    connection->answer = NULL;
    if (connection->target && !connection->active)
        bp_metrics_count(all->metrics, BP_COUNTER_UNFINISHED);
    if (connection->active && --all->n_active == 0)
        pthread_cond_broadcast(&all->no_active);
    connection->active = false;
    connection->gone = false;
    set_deadline(connection, bp_clock_coarse_ns(), BP_IDLE_SECONDS);
    pthread_mutex_unlock(&all->lock);
    bp_answer_unref(answer);
    bp_trail_end(&connection->trail);
    bp_answer_unref(connection->refusal);
    connection->refusal = NULL;
    bp_access_release(all->access, &connection->grant);
    free(connection->target);
    connection->target = NULL;
    connection->started = false;
    connection->n_read = 0;
    connection->timeout_seconds = 0;
    connection->head = (struct bp_head){0};
    all->body_bytes -= connection->body.allocated;
    bp_buf_release(&connection->body);
}

/* ---- Waiting ---- */

/* How long the request may wait: as long as the client and the daemon allow. */
static void set_wait(struct bp_connection *connection)
{
    const struct bp_preferences *preferences = &connection->head.preferences;
    unsigned seconds = connection->all->answer_seconds;
    if (connection->timeout_seconds && connection->timeout_seconds < seconds)
        seconds = connection->timeout_seconds;
    unsigned wait = preferences->has_wait && preferences->wait < seconds ? preferences->wait : seconds;
    uint64_t now = bp_clock_ns();
    const unsigned patience = connection->call.waiter.patience_seconds;
    connection->patience = patience                     ? now + patience * second
                           : preferences->respond_async ? now + wait * second
                                                        : UINT64_MAX;
    connection->answer_seconds = preferences->respond_async ? seconds : wait;
    connection->wait_seconds = wait;
    connection->deadline = now + connection->answer_seconds * second;
}

bool bp_connection_wait(struct bp_connection *connection, void (*suspend)(void *handle))
{
    struct bp_connections *all = connection->all;
    pthread_mutex_lock(&all->lock);
    if (!connection->answer && connection->hung_up && bp_service_leave(all->service, &connection->call.waiter))
        connection->gone = true;
    bool waits = !connection->answer && !connection->gone;
    if (waits) {
        connection->waiting = true;
        set_wait(connection);
        all->n_waiting++;
        suspend(connection->handle);
    }
    pthread_mutex_unlock(&all->lock);
    return waits;
}

/* Under the lock: ends a wait from this side. When the service has begun to wake it already, that will end it. */
static void leave(struct bp_connection *connection, struct bp_answer *answer)
{
    if (!bp_service_leave(connection->all->service, &connection->call.waiter)) {
        bp_answer_unref(answer);
        return;
    }
    connection->answer = answer;
    connection->gone = !answer;
    end_wait(connection);
}

/* ---- The watching thread ---- */

/* A client that waits for an answer and hangs up gets none. One that hung up otherwise may have sent a whole request
 * before, so it is given a moment; libmicrohttpd itself does not see the end of a stream that came with its last bytes.
 */
static void on_hang_up(struct bp_connections *connections, uint64_t mark)
{
    pthread_mutex_lock(&connections->lock);
    struct bp_connection *connection = marked(connections, mark);
    if (connection) {
        connection->hung_up = true;
        if (connection->waiting) {
            bp_metrics_count(connections->metrics, BP_COUNTER_HANG_UPS);
            leave(connection, NULL);
        } else if (!connection->active) {
            connection->deadline = bp_clock_ns() + BP_HUNG_UP_SECONDS * second;
        }
    }
    pthread_mutex_unlock(&connections->lock);
}

static struct bp_answer *too_late(const struct bp_connection *connection)
{
    const struct bp_preferences *preferences = &connection->head.preferences;
    struct bp_answer *answer = bp_problem_say(BP_E_deadline_exceeded, "", "the answer was not ready within %u seconds",
                                              connection->answer_seconds);
    if (preferences->has_wait && !preferences->respond_async && !bp_answer_is_standing(answer))
        snprintf(answer->applied, sizeof answer->applied, "wait=%u", connection->wait_seconds);
    return answer;
}

/* Under the lock. A 202 does for the waiter from now on. */
static void lose_patience(struct bp_connection *connection)
{
    struct bp_answer *answer = bp_service_lose_patience(connection->all->service, &connection->call.waiter);
    connection->patience = UINT64_MAX;
    if (!answer)
        return;
    if (answer->status == 202 && connection->head.preferences.has_wait)
        snprintf(answer->applied, sizeof answer->applied, "respond-async, wait=%u", connection->wait_seconds);
    connection->answer = answer;
    end_wait(connection);
}

/* Under the lock. */
static void enforce_deadline(struct bp_connection *connection, uint64_t now)
{
    if (connection->waiting && now >= connection->patience)
        lose_patience(connection);
    if (is_dropped(connection))
        forget(connection);
    if (now < connection->deadline || !connection->handle)
        return;
    connection->deadline = UINT64_MAX;
    bp_metrics_count(connection->all->metrics, BP_COUNTER_DEADLINES);
    if (connection->waiting)
        leave(connection, too_late(connection));
    else
        shutdown(connection->fd, SHUT_RDWR);
}

static void enforce_deadlines(struct bp_connections *connections)
{
    uint64_t now = bp_clock_ns();
    pthread_mutex_lock(&connections->lock);
    for (int fd = 0; fd <= connections->top_fd; fd++)
        if (connections->by_fd[fd].open)
            enforce_deadline(&connections->by_fd[fd], now);
    pthread_mutex_unlock(&connections->lock);
}

/* libmicrohttpd takes events from the kernel 128 at a time, and when there were that many asks for more without looking
 * at them: when there are none it sleeps until something else happens, for ever if nothing does. It is woken when
 * it has so many connections and handled nothing since the last look; ever less often while that goes on, for then
 * nobody may be asking. Its own event may be among the 128.
 */
enum { EVENTS_AT_A_TIME = 128, EVENTS_OF_OTHERS = 8, LOOK_MS = 10 };

static void wake_if_stuck(struct bp_connections *connections, size_t thread, bool can_be)
{
    struct bp_turns *turns = &connections->turns_of[thread];
    uint_fast64_t n_handled = atomic_load_explicit(&turns->n_handled, memory_order_relaxed);
    uint64_t now = bp_clock_ns();
    if (!can_be || n_handled != turns->seen_handled) {
        turns->seen_handled = n_handled;
        turns->nudge_ms = LOOK_MS;
    } else if (now >= turns->nudge_at) {
        connections->nudge(connections->data, thread);
        turns->nudge_ms = turns->nudge_ms < TICK_MS / 2 ? 2 * turns->nudge_ms : TICK_MS;
    } else {
        return;
    }
    turns->nudge_at = now + turns->nudge_ms * (second / 1000);
}

/* How long until the next look, in milliseconds. */
static int wake_who_is_stuck(struct bp_connections *connections)
{
    pthread_mutex_lock(&connections->lock);
    const bool can_be = connections->n_open + EVENTS_OF_OTHERS >= EVENTS_AT_A_TIME;
    pthread_mutex_unlock(&connections->lock);
    for (size_t i = 0; i < connections->n_threads; i++)
        wake_if_stuck(connections, i, can_be);
    return can_be ? LOOK_MS : TICK_MS;
}

static bool is_stopping(struct bp_connections *connections)
{
    pthread_mutex_lock(&connections->lock);
    bool stopping = connections->stopping;
    pthread_mutex_unlock(&connections->lock);
    return stopping;
}

static void on_event(struct bp_connections *connections, uint64_t mark)
{
    for (int door = 0; door < BP_DOORS; door++)
        if (mark == BP_ACCEPT_MARK(door)) {
            bp_accept_clients(connections, (enum bp_door)door);
            return;
        }
    if (mark != mark_wake)
        on_hang_up(connections, mark);
}

static void *watch(void *data)
{
    struct bp_connections *connections = data;
    uint64_t next_tick = 0;
    int wait_ms = TICK_MS;
    pthread_setname_np(pthread_self(), "bp-watch");
    while (!is_stopping(connections)) {
        struct epoll_event events[64];
        int n = epoll_wait(connections->epoll, events, sizeof events / sizeof *events, wait_ms);
        for (int i = 0; i < n; i++)
            on_event(connections, events[i].data.u64);
        if (bp_clock_ns() >= next_tick) {
            enforce_deadlines(connections);
            next_tick = bp_clock_ns() + TICK_MS * (second / 1000);
        }
        atomic_fetch_add(&connections->turns, 1);
        wait_ms = wake_who_is_stuck(connections);
    }
    return NULL;
}

int bp_connections_start(struct bp_connections *connections, struct bp_err *err)
{
    if (bp_accept_start(connections, err))
        return -1;
    int failure = pthread_create(&connections->watcher, NULL, watch, connections);
    if (failure)
        return bp_fail(err, BP_E_internal, "", "no thread to watch connections: %s", strerror(failure));
    return 0;
}

void bp_connections_stop(struct bp_connections *connections)
{
    pthread_mutex_lock(&connections->lock);
    connections->stopping = true;
    pthread_mutex_unlock(&connections->lock);
    if (write(connections->wake_event, &(uint64_t){1}, sizeof(uint64_t)) < 0)
        errno = 0; /* the tick ends the wait as well, a little later */
    pthread_join(connections->watcher, NULL);
}

void bp_connections_release(struct bp_connections *connections)
{
    close(connections->epoll);
    close(connections->wake_event);
    pthread_cond_destroy(&connections->no_active);
    pthread_mutex_destroy(&connections->lock);
    free_tables(connections);
}

/* ---- Draining ---- */

/* Under the lock. True when no request is under way. */
static bool wait_for_none(struct bp_connections *connections, uint64_t until)
{
    struct timespec at = {.tv_sec = (time_t)(until / second), .tv_nsec = (long)(until % second)};
    while (connections->n_active)
        if (pthread_cond_timedwait(&connections->no_active, &connections->lock, &at) == ETIMEDOUT)
            break;
    return connections->n_active == 0;
}

static void answer_all_waiters(struct bp_connections *connections)
{
    for (int fd = 0; fd <= connections->top_fd; fd++) {
        struct bp_connection *connection = &connections->by_fd[fd];
        if (connection->open && connection->waiting)
            leave(connection, bp_problem_say(BP_E_stopping, "", "the daemon stopped before the answer was ready"));
    }
}

/* Under the lock: those with a request, or all. */
static void cut(struct bp_connections *connections, bool all)
{
    for (int fd = 0; fd <= connections->top_fd; fd++)
        if (connections->by_fd[fd].open && (all || connections->by_fd[fd].active))
            shutdown(fd, SHUT_RDWR);
}

/* Under the lock. While there are many the HTTP thread may sleep on what would end it, and the watcher is there yet to
 * wake it. */
static void wait_for_none_open(struct bp_connections *connections, uint64_t until)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    while (connections->n_open && bp_clock_ns() < until) {
        pthread_mutex_unlock(&connections->lock);
        nanosleep(&moment, NULL);
        pthread_mutex_lock(&connections->lock);
    }
}

static uint64_t handled(struct bp_connections *connections)
{
    uint64_t n = 0;
    for (size_t i = 0; i < connections->n_threads; i++)
        n += atomic_load_explicit(&connections->turns_of[i].n_handled, memory_order_relaxed);
    return n;
}

/* Under the lock. Requests that had arrived whole, but were not read yet when the daemon was told to stop, are answered
 * too: until none has been read for a moment. */
static void wait_for_unread(struct bp_connections *connections, uint64_t until)
{
    const struct timespec moment = {.tv_nsec = 50000000};
    for (uint64_t before = handled(connections) + 1; before != handled(connections) && bp_clock_ns() < until;) {
        before = handled(connections);
        pthread_mutex_unlock(&connections->lock);
        nanosleep(&moment, NULL);
        pthread_mutex_lock(&connections->lock);
    }
}

void bp_connections_drain(struct bp_connections *connections, uint64_t deadline_ns, uint64_t grace_ns)
{
    pthread_mutex_lock(&connections->lock);
    connections->draining = true;
    if (!wait_for_none(connections, deadline_ns)) {
        answer_all_waiters(connections);
        while (!wait_for_none(connections, bp_clock_ns() + grace_ns))
            cut(connections, false);
    }
    wait_for_unread(connections, bp_clock_ns() + grace_ns);
    wait_for_none(connections, bp_clock_ns() + grace_ns);
    cut(connections, true);
    wait_for_none_open(connections, bp_clock_ns() + grace_ns);
    pthread_mutex_unlock(&connections->lock);
}
