#include "daemon/http/pulse.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

/* HEAD, so that the answer ends with its head. */
static const char request[] = "HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
static const char end_of_head[] = "\r\n\r\n";

void bp_pulse_release(struct bp_pulse *pulse)
{
    if (pulse->fd >= 0)
        close(pulse->fd);
    pulse->fd = -1;
}

/* Without descriptors, or where the connection is one too many, it is tried again at the next look. */
static void open_pair(struct bp_pulse *pulse)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair))
        return;
    pulse->fd = pair[0];
    if (!pulse->connect(pulse->data, pair[1]))
        bp_pulse_release(pulse);
}

static void send_request(struct bp_pulse *pulse)
{
    if (pulse->fd < 0)
        open_pair(pulse);
    pulse->n_end = 0;
    if (pulse->fd >= 0 && send(pulse->fd, request, sizeof request - 1, MSG_NOSIGNAL) != (ssize_t)(sizeof request - 1))
        bp_pulse_release(pulse);
}

void bp_pulse_ask(struct bp_pulse *pulse)
{
    pulse->waits = true;
    send_request(pulse);
}

static void look_for_end(struct bp_pulse *pulse, const char *bytes, ssize_t n)
{
    for (ssize_t i = 0; i < n && pulse->waits; i++) {
        pulse->n_end = bytes[i] == end_of_head[pulse->n_end] ? pulse->n_end + 1 : bytes[i] == '\r';
        pulse->waits = pulse->n_end < sizeof end_of_head - 1;
    }
}

/* False when nothing more has come. */
static bool read_some(struct bp_pulse *pulse)
{
    char bytes[512];
    ssize_t n = recv(pulse->fd, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (pulse->is_tls)
        pulse->waits = false;
    else if (n > 0)
        look_for_end(pulse, bytes, n);
    if (n <= 0 || pulse->is_tls)
        bp_pulse_release(pulse);
    return true;
}

bool bp_pulse_has_answered(struct bp_pulse *pulse)
{
    while (pulse->waits && pulse->fd >= 0 && read_some(pulse))
        ;
    if (pulse->waits && pulse->fd < 0)
        send_request(pulse);
    return !pulse->waits;
}
