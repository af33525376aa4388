#include "tests/api/relay.h"

#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/api/server.h"

/* A connection that is passed on. */
struct passage {
    enum relay_harm harm;
    int client, server;
    bool in_file;
    unsigned long at, length, most; /* of the file: passed on so far, in all, to be passed on */
};

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    ck_assert_uint_lt(strlen(path), sizeof address.sun_path);
    memcpy(address.sun_path, path, strlen(path));
    return address;
}

static bool write_all(int fd, const char *bytes, size_t n)
{
    ssize_t written = 1;
    for (; n && written > 0; bytes += written, n -= (size_t)written)
        written = write(fd, bytes, n);
    return n == 0;
}

/* The head of the file's answer, which is a string: from here on the file passes. */
static void begin_file(struct passage *passage, char *head)
{
    char *length = strcasestr(head, "content-length: ");
    if (!length)
        abort();
    length += strlen("content-length: ");
    passage->in_file = true;
    passage->length = strtoul(length, NULL, 10);
    passage->most = passage->harm == RELAY_CUT || passage->harm == RELAY_SHORTEN ? passage->length / 2
                    : passage->harm == RELAY_CUT_LAST                            ? passage->length - 1
                                                                                 : passage->length;
    if (passage->harm == RELAY_SHORTEN) {
        const int digits = (int)strspn(length, "0123456789");
        char shorter[32];
        snprintf(shorter, sizeof shorter, "%0*lu", digits, passage->most);
        memcpy(length, shorter, (size_t)digits);
    }
}

/* Does harm to n bytes of the file; how many of them are passed on. */
static size_t harm(struct passage *passage, char *bytes, size_t n)
{
    const unsigned long middle = passage->length / 2, left = passage->most - passage->at;
    if (passage->harm == RELAY_FLIP && passage->at <= middle && middle < passage->at + n)
        bytes[middle - passage->at] ^= 0x10;
    n = n < left ? n : left;
    passage->at += n;
    return n;
}

/* False when the connection is over. */
static bool pass_answer(struct passage *passage)
{
    char bytes[65536 + 1];
    const ssize_t n = read(passage->server, bytes, sizeof bytes - 1);
    if (n <= 0)
        return false;
    bytes[n] = '\0';
    size_t head = 0;
    if (!passage->in_file && strstr(bytes, "application/vnd.sqlite3")) {
        char *end = strstr(bytes, "\r\n\r\n");
        if (!end)
            abort();
        head = (size_t)(end - bytes) + 4;
        begin_file(passage, bytes);
    }
    const size_t file = passage->in_file ? harm(passage, bytes + head, (size_t)n - head) : (size_t)n - head;
    if (!write_all(passage->client, bytes, head + file))
        return false;
    const bool is_whole = passage->in_file && passage->at == passage->length;
    passage->in_file &= !is_whole;
    return !passage->in_file || passage->at < passage->most;
}

static bool pass_request(const struct passage *passage)
{
    char bytes[4096];
    const ssize_t n = read(passage->client, bytes, sizeof bytes);
    return n > 0 && write_all(passage->server, bytes, (size_t)n);
}

static void pass_on(enum relay_harm harm, int client)
{
    const struct sockaddr_un address = address_of(server.socket);
    struct passage passage = {.harm = harm, .client = client, .server = socket(AF_UNIX, SOCK_STREAM, 0)};
    bool more = connect(passage.server, (const struct sockaddr *)&address, sizeof address) == 0;
    while (more) {
        struct pollfd polled[] = {{.fd = passage.client, .events = POLLIN}, {.fd = passage.server, .events = POLLIN}};
        more = poll(polled, 2, -1) > 0;
        if (more && polled[0].revents)
            more = pass_request(&passage);
        if (more && polled[1].revents)
            more = pass_answer(&passage);
    }
    close(passage.server);
    close(client);
}

struct relay relay_begin(enum relay_harm harm)
{
    struct relay relay = {0};
    snprintf(relay.socket, sizeof relay.socket, "%s/relay", server.directory);
    unlink(relay.socket);
    const struct sockaddr_un address = address_of(relay.socket);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, (const struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(listener, 8), 0);
    relay.pid = fork();
    ck_assert_int_ge(relay.pid, 0);
    if (relay.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGPIPE, SIG_IGN);
        for (;;)
            pass_on(harm, accept(listener, NULL, NULL));
    }
    close(listener);
    return relay;
}

void relay_end(struct relay *relay)
{
    ck_assert_int_eq(kill(relay->pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(relay->pid, NULL, 0), relay->pid);
}
