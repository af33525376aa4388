#include "tests/http/wire.h"

#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "tests/api/expect.h"
#include "tests/api/server.h"

enum { FDS_MAX = 32768 };

/* What came and was not looked at yet, by descriptor. */
static struct bp_buf pending[FDS_MAX];

int wire_open(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(strrchr(server.url, ':') + 1)),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_msg(fd >= 0 && fd < FDS_MAX, "no socket: %s", strerror(errno));
    ck_assert_msg(connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "connect: %s", strerror(errno));
    bp_buf_clear(&pending[fd]);
    return fd;
}

bool wire_send(int fd, const char *bytes, size_t n)
{
    while (n) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        bytes += sent;
        n -= (size_t)sent;
    }
    return true;
}

bool wire_send_text(int fd, const char *text)
{
    return wire_send(fd, text, strlen(text));
}

void wire_close(int fd)
{
    bp_buf_release(&pending[fd]);
    close(fd);
}

void wire_reset(int fd)
{
    const struct linger at_once = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    wire_close(fd);
}

/* ---- Reading ---- */

enum came { CAME, ENDED, NOTHING };

static enum came receive(int fd, int wait_ms)
{
    char piece[65536];
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int n = poll(&ready, 1, wait_ms);
    if (n <= 0)
        return NOTHING;
    ssize_t got = recv(fd, piece, sizeof piece, 0);
    if (got <= 0)
        return ENDED;
    bp_buf_add(&pending[fd], piece, (size_t)got);
    ck_assert(!pending[fd].failed);
    return CAME;
}

/* The value of a field of the head, as text in `ret`; "" when it is not there. */
static void field(const char *head, const char *name, char *ret, size_t size)
{
    size_t n = strlen(name);
    *ret = '\0';
    for (const char *line = strchr(head, '\n'); line; line = strchr(line + 1, '\n'))
        if (strncasecmp(line + 1, name, n) == 0 && line[1 + n] == ':') {
            const char *value = line + 2 + n + strspn(line + 2 + n, " ");
            snprintf(ret, size, "%.*s", (int)strcspn(value, "\r\n"), value);
            return;
        }
}

/* The text of the first member that begins so; "" without one. */
static void member(const char *body, size_t n, const char *key, char *ret, size_t size)
{
    const char *at = n ? memmem(body, n, key, strlen(key)) : NULL;
    *ret = '\0';
    if (at)
        snprintf(ret, size, "%.*s", (int)strcspn(at + strlen(key), "\""), at + strlen(key));
}

static void consume(struct bp_buf *buf, size_t n)
{
    size_t left = buf->len - n;
    char *rest = malloc(left + 1);
    ck_assert_ptr_nonnull(rest);
    memcpy(rest, buf->data + n, left);
    bp_buf_clear(buf);
    bp_buf_add(buf, rest, left);
    free(rest);
}

/* Takes a whole answer out of what came. */
static bool take(struct bp_buf *buf, struct wire_answer *ret)
{
    char text[64];
    const char *bytes = bp_buf_string(buf), *end = buf->len ? strstr(bytes, "\r\n\r\n") : NULL;
    if (!end)
        return false;
    char *head = keep_text("%.*s", (int)(end - bytes + 2), bytes);
    ck_assert_msg(strncmp(head, "HTTP/1.1 ", 9) == 0 || strncmp(head, "HTTP/1.0 ", 9) == 0, "%.200s", head);
    struct wire_answer answer = {.status = atoi(head + 9)};
    field(head, "content-length", text, sizeof text);
    answer.n = strtoul(text, NULL, 10);
    size_t n_head = (size_t)(end - bytes) + 4;
    if (buf->len < n_head + answer.n)
        return false;
    field(head, "connection", text, sizeof text);
    answer.says_close = strcasecmp(text, "close") == 0;
    field(head, "content-type", text, sizeof text);
    answer.is_ours = *text != '\0';
    field(head, "retry-after", answer.retry_after, sizeof answer.retry_after);
    field(head, "preference-applied", answer.applied, sizeof answer.applied);
    if (answer.status >= 400)
        member(bytes + n_head, answer.n, "\"code\":\"", answer.code, sizeof answer.code);
    member(bytes + n_head, answer.n, answer.status >= 400 ? "\"plan\":\"" : "\"id\":\"", answer.id, sizeof answer.id);
    member(bytes + n_head, answer.n, "\"digest\":\"", answer.digest, sizeof answer.digest);
    consume(buf, n_head + answer.n);
    *ret = answer;
    return true;
}

enum wire_event wire_read(int fd, struct wire_answer *ret, int wait_ms)
{
    while (!take(&pending[fd], ret))
        switch (receive(fd, wait_ms)) {
        case NOTHING:
            return WIRE_SILENCE;
        case ENDED:
            ck_assert_msg(pending[fd].len == 0, "an answer breaks off: %.300s", bp_buf_string(&pending[fd]));
            return WIRE_CLOSED;
        case CAME:
            break;
        }
    return WIRE_ANSWER;
}

bool wire_closes(int fd)
{
    enum came came = CAME;
    while (came == CAME)
        came = receive(fd, WIRE_WAIT_MS);
    return came == ENDED;
}

struct wire_answer wire_expect(int fd, int status)
{
    struct wire_answer answer = {0};
    enum wire_event event = wire_read(fd, &answer, WIRE_WAIT_MS);
    ck_assert_msg(event == WIRE_ANSWER, "%s instead of %d", event == WIRE_CLOSED ? "the end" : "nothing", status);
    ck_assert_msg(answer.status == status, "%d %s instead of %d", answer.status, answer.code, status);
    return answer;
}

/* ---- Requests ---- */

const char *wire_post(const char *target, const char *headers, const char *body)
{
    return keep_text("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n%s",
                     target, strlen(body), headers, body);
}

/* Three kinds of block on 1024 ranks, each task of which lists them. */
#define WIDE "\"num_attention_heads\": 1024, \"intermediate_size\": 8192, \"activation\": \"gelu\""
const char *wire_slow_plan(int i)
{
    return keep_text(
        "{\"model\": {\"transformer\": {\"name\": \"wide\", \"hidden_size\": 8192, \"num_hidden_layers\": 3,"
        " \"vocab_size\": 1000, \"norm\": \"layernorm\", \"position\": \"rope\", \"kinds\": ["
        "{\"name\": \"global\", " WIDE "}, {\"name\": \"sliding\", \"sliding_window\": 64, " WIDE "},"
        " {\"name\": \"chunked\", \"sliding_window\": 64, \"chunked_attention\": true, " WIDE "}],"
        " \"layers\": [{\"count\": 1, \"kind\": \"global\"}, {\"count\": 1, \"kind\": \"sliding\"},"
        " {\"count\": 1, \"kind\": \"chunked\"}]}},"
        " \"workload\": {\"mode\": \"training\", \"sequence_length\": 1024, \"micro_batch_size\": 1,"
        " \"global_batch_size\": %d, \"dtype\": \"bfloat16\"},"
        " \"strategy\": {\"tensor_parallel\": 1024, \"sequence_parallel\": true, \"recompute\": \"full\"},"
        " \"target\": {\"kind\": \"reference-slot\"},"
        " \"deployment\": {\"devices\": 1024, \"memory_bytes\": 1125899906842624}}",
        i + 1);
}

/* ---- What the daemon counts ---- */

long long wire_handled(const char *route)
{
    static const char family[] = "blueprint_http_requests_total{";
    const char *wanted = keep_text("route=\"%s\"", route ? route : "");
    struct reply reply = http_get("/metrics");
    long long sum = 0;
    ck_assert_int_eq(reply.status, 200);
    for (const char *at = strstr(reply.body, family); at; at = strstr(at + 1, family)) {
        const char *end = strchr(at, '}');
        ck_assert_ptr_nonnull(end);
        const char *labels = keep_text("%.*s", (int)(end - at), at);
        if (route ? strstr(labels, wanted) != NULL : !strstr(labels, "route=\"getMetrics\""))
            sum += strtoll(end + 1, NULL, 10);
    }
    return sum;
}

static void await(const char *metric, bool at_least, long long bound)
{
    for (int waited = 0; waited < WIRE_WAIT_MS; waited += 5) {
        long long value = server_metric(metric);
        if (at_least ? value >= bound : value <= bound)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    ck_abort_msg("%s does not come to %lld", metric, bound);
}

void wire_await_at_least(const char *metric, long long least)
{
    await(metric, true, least);
}

void wire_await_at_most(const char *metric, long long most)
{
    await(metric, false, most);
}
