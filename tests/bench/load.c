/* The load generator: one thread, epoll, keep-alive. It looks at the status and the length of an answer, no more. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/bench/bench.h"

enum { HEAD_MAX = 4096, CHUNK = 256 * 1024 };

struct connection {
    int fd;
    char head[HEAD_MAX + 1];
    size_t n_head;
    uint64_t body_left;
    bool in_body;
    double since; /* the request was sent */
};

static int dial(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
        bench_die("connecting to port %u: %s", port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

static void send_all(int fd, const char *at, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            bench_die("sending: %s", strerror(errno));
        at += sent;
        n -= (size_t)sent;
    }
}

static uint64_t content_length(const char *head)
{
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line + 2, "\r\n"))
        if (strncasecmp(line + 2, "content-length:", 15) == 0)
            return strtoull(line + 17, NULL, 10);
    return 0;
}

/* Takes what came in; true when an answer is whole. */
static bool take(struct connection *connection, const char *at, size_t n, unsigned status)
{
    if (!connection->in_body) {
        const size_t room = HEAD_MAX - connection->n_head, part = n < room ? n : room;
        memcpy(connection->head + connection->n_head, at, part);
        connection->head[connection->n_head + part] = '\0';
        char *end = strstr(connection->head, "\r\n\r\n");
        if (!end) {
            connection->n_head += part;
            if (connection->n_head == HEAD_MAX)
                bench_die("an answer's header is larger than %d bytes", HEAD_MAX);
            return false;
        }
        end[2] = '\0';
        const unsigned actual = (unsigned)strtoul(connection->head + 9, NULL, 10);
        if (actual != status)
            bench_die("answered %u, expected %u: %.200s", actual, status, connection->head);
        const size_t used = (size_t)(end + 4 - connection->head) - connection->n_head;
        connection->body_left = status == 304 ? 0 : content_length(connection->head);
        connection->in_body = true;
        n -= used;
    }
    if (n > connection->body_left)
        bench_die("%zu bytes after the end of an answer", n - (size_t)connection->body_left);
    connection->body_left -= n;
    return connection->body_left == 0;
}

struct run {
    const struct bench_load *load;
    uint64_t next, last, completed; /* requests: the next to send, one past the last */
    double deadline;
    unsigned open; /* requests in flight */
};

static void keep_time(struct bench_times *times, double seconds)
{
    if (times->n == times->room) {
        times->room = times->room * 2 + 4096;
        times->at = realloc(times->at, times->room * sizeof(*times->at));
        if (!times->at)
            bench_die("out of memory");
    }
    times->at[times->n++] = seconds;
}

static void send_next(struct run *run, struct connection *connection)
{
    char request[BENCH_REQUEST_MAX];
    if (run->load->count ? run->next == run->last : bench_now() >= run->deadline)
        return;
    connection->n_head = 0;
    connection->in_body = false;
    connection->since = bench_now();
    send_all(connection->fd, request, run->load->write(run->load->data, run->next++, request, sizeof(request)));
    run->open++;
}

static void receive(struct run *run, struct connection *connection)
{
    static char chunk[CHUNK];
    ssize_t n = recv(connection->fd, chunk, sizeof(chunk), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0)
        bench_die("the server closed a connection: %s", n < 0 ? strerror(errno) : "end of file");
    if (!take(connection, chunk, (size_t)n, run->load->status))
        return;
    if (run->load->times)
        keep_time(run->load->times, bench_now() - connection->since);
    run->completed++;
    run->open--;
    send_next(run, connection);
}

double bench_load_run(const struct bench_load *load, uint64_t *completed)
{
    static struct connection connections[BENCH_CONNECTIONS_MAX];
    struct epoll_event events[BENCH_CONNECTIONS];
    const size_t n_connections = load->connections ? load->connections : BENCH_CONNECTIONS;
    struct run run = {.load = load, .next = load->first, .last = load->first + load->count};
    int poll = epoll_create1(EPOLL_CLOEXEC);
    for (size_t i = 0; i < n_connections; i++) {
        connections[i].fd = dial(load->port);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connections[i]};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, connections[i].fd, &event) < 0)
            bench_die("epoll_ctl: %s", strerror(errno));
    }
    const double start = bench_now();
    run.deadline = start + load->seconds;
    for (size_t i = 0; i < n_connections; i++)
        send_next(&run, &connections[i]);
    while (run.open > 0) {
        int n = epoll_wait(poll, events, BENCH_CONNECTIONS, 30000);
        if (n == 0)
            bench_die("no answer in 30 seconds");
        for (int i = 0; i < n; i++)
            receive(&run, events[i].data.ptr);
    }
    const double seconds = bench_now() - start;
    for (size_t i = 0; i < n_connections; i++)
        close(connections[i].fd);
    close(poll);
    if (completed)
        *completed += run.completed;
    return (double)run.completed / seconds;
}

char *bench_ask(uint16_t port, const char *request, size_t n, unsigned status, size_t *ret_n, char **ret_header)
{
    static struct connection connection;
    size_t used = 0, room = CHUNK;
    char *answer = malloc(room);
    bool whole = false;
    connection = (struct connection){.fd = dial(port)};
    send_all(connection.fd, request, n);
    while (!whole) {
        if (room - used < 2)
            answer = realloc(answer, room *= 2);
        if (!answer)
            bench_die("out of memory");
        ssize_t got = recv(connection.fd, answer + used, room - used - 1, 0);
        if (got <= 0)
            bench_die("the server closed a connection");
        whole = take(&connection, answer + used, (size_t)got, status);
        used += (size_t)got;
    }
    close(connection.fd);
    answer[used] = '\0';
    const size_t n_header = (size_t)(strstr(answer, "\r\n\r\n") - answer) + 4;
    if (ret_header)
        *ret_header = strndup(answer, n_header);
    memmove(answer, answer + n_header, used - n_header + 1);
    if (ret_n)
        *ret_n = used - n_header;
    return answer;
}
