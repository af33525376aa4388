/* The proxy of docs/operating.md before the daemon: the configuration as it stands there, in a real nginx, and what it
 * makes of requests that are hard to read. Where nginx is not installed this is left out, and said to be. */
#include <check.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/api/expect.h"
#include "tests/api/server.h"
#include "tests/http/wire.h"

#define HOST "Host: x\r\n"
#define FIT "POST /v1/fit HTTP/1.1\r\n" HOST "Content-Type: application/json\r\n"
#define NEXT "GET /v1/passes HTTP/1.1\r\n" HOST "\r\n"
#define BYTES(text) text, sizeof(text) - 1

static const char program[] = "/usr/sbin/nginx";

/* `fit` and `next`: how many of either reach the daemon. */
static const struct row {
    const char *name, *bytes;
    size_t n;
    int status; /* of the first answer */
    int fit, next;
} rows[] = {
    {"plain", BYTES(NEXT), 200, 0, 1},
    {"a body", BYTES(FIT "Content-Length: 2\r\n\r\n{}" NEXT), 400, 1, 1},
    {"chunks", BYTES(FIT "Transfer-Encoding: chunked\r\n\r\n2;x=y\r\n{}\r\n0\r\nX: y\r\n\r\n" NEXT), 400, 1, 1},
    {"HTTP/1.0 without a host", BYTES("GET /v1/passes HTTP/1.0\r\n\r\n"), 200, 0, 1},
    {"LF alone", BYTES("GET /v1/passes HTTP/1.1\nHost: x\n\n"), 200, 0, 1},
    {"length with chunked", BYTES(FIT "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" NEXT), 400, 0,
     0},
    {"two lengths", BYTES(FIT "Content-Length: 2\r\nContent-Length: 38\r\n\r\n{}" NEXT), 400, 0, 0},
    {"length that is none", BYTES(FIT "Content-Length: 0x2\r\n\r\n{}" NEXT), 400, 0, 0},
    {"two hosts", BYTES("GET /v1/passes HTTP/1.1\r\n" HOST "Host: y\r\n\r\n"), 400, 0, 0},
    {"space before a colon", BYTES(FIT "Content-Length : 2\r\n\r\n{}" NEXT), 400, 0, 0},
    {"no name", BYTES(FIT "Content-Length: 2\r\n: 0\r\n\r\n{}" NEXT), 400, 0, 0},
    {"another coding", BYTES(FIT "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" NEXT), 501, 0, 0},
    {"folded field", BYTES(FIT "X: a\r\n Content-Length: 2\r\n\r\n{}" NEXT), 400, 0, 0},
    {"CR in a value", BYTES(FIT "X: a\rContent-Length: 2\r\n\r\n{}" NEXT), 400, 0, 0},
    {"NUL in a value", BYTES(FIT "X: a\0b\r\nContent-Length: 2\r\n\r\n{}" NEXT), 400, 0, 0},
    {"NUL in the target", BYTES("GET /v1/passes\0x HTTP/1.1\r\n" HOST "\r\n"), 400, 0, 0},
    {"%00", BYTES("GET /v1/passes%00 HTTP/1.1\r\n" HOST "\r\n"), 400, 0, 0},
    {"size of 2^64 + 2", BYTES(FIT "Transfer-Encoding: chunked\r\n\r\n10000000000000002\r\n{}\r\n0\r\n\r\n"), 400, 0,
     0},
    {"control character", BYTES("GET /v1/passes HTTP/1.1\r\n" HOST "X: \x01\r\n\r\n"), 400, 0, 0},
};

/* A port that was free a moment ago. */
static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    close(fd);
    return ntohs(address.sin_port);
}

/* The nginx block of the docs, its two addresses replaced. */
static const char *configuration(int port)
{
    static char text[65536];
    const char *old[] = {"127.0.0.1:8433", "http://127.0.0.1:7433"};
    const char *fresh[] = {keep_text("127.0.0.1:%d", port), server.url};
    FILE *file = fopen("docs/operating.md", "r");
    ck_assert_msg(file != NULL, "run in the directory of the checkout");
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    char *block = strstr(text, "```nginx\n"), *end = block ? strstr(block + 9, "```") : NULL;
    ck_assert_ptr_nonnull(end);
    *end = '\0';
    const char *whole = block + 9;
    for (size_t i = 0; i < 2; i++) {
        const char *at = strstr(whole, old[i]);
        ck_assert_msg(at != NULL, "%s is not in the block", old[i]);
        whole = keep_text("%.*s%s%s", (int)(at - whole), whole, fresh[i], at + strlen(old[i]));
    }
    return whole;
}

static pid_t start_proxy(int port)
{
    char directory[256];
    ck_assert_ptr_nonnull(realpath(server.directory, directory));
    const char *path = keep_text("%s/nginx.conf", directory);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fprintf(file, "daemon off; master_process off; pid %s/nginx.pid; error_log %s/nginx.log;\nevents {}\nhttp {\n",
            directory, directory);
    static const char *const temporary[] = {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"};
    for (size_t i = 0; i < sizeof temporary / sizeof *temporary; i++)
        fprintf(file, "%s_temp_path %s/%s;\n", temporary[i], directory, temporary[i]);
    fprintf(file, "access_log off;\n%s}\n", configuration(port));
    ck_assert_int_eq(fclose(file), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(program, program, "-e", "stderr", "-p", directory, "-c", path, (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* Until it serves. */
static void await_proxy(const char *url)
{
    snprintf(server.url, sizeof server.url, "%s", url);
    for (int waited = 0; waited < WIRE_WAIT_MS; waited += 20) {
        if (http_get("/healthz").status == 200)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    ck_abort_msg("nginx does not serve");
}

START_TEST(test_proxy__what_gets_through_is_one_request_of_one_reading)
{
    if (access(program, X_OK)) {
        printf("%s is not installed: the proxy of docs/operating.md was not tried\n", program);
        return;
    }
    const int port = free_port();
    const char *daemon = keep_text("%s", server.url), *proxy = keep_text("http://127.0.0.1:%d", port);
    pid_t pid = start_proxy(port);
    await_proxy(proxy);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct wire_answer answer;
        snprintf(server.url, sizeof server.url, "%s", daemon);
        long long fit = wire_handled("fitJob"), next = wire_handled("listPasses");
        snprintf(server.url, sizeof server.url, "%s", proxy);
        int fd = wire_open();
        wire_send(fd, rows[i].bytes, rows[i].n);
        ck_assert_msg(wire_read(fd, &answer, WIRE_WAIT_MS) == WIRE_ANSWER, "%s: no answer", rows[i].name);
        ck_assert_msg(answer.status == rows[i].status, "%s: %d %s", rows[i].name, answer.status, answer.code);
        if (rows[i].fit && rows[i].next)
            wire_expect(fd, 200);
        wire_close(fd);
        snprintf(server.url, sizeof server.url, "%s", daemon);
        ck_assert_msg(wire_handled("fitJob") - fit == rows[i].fit && wire_handled("listPasses") - next == rows[i].next,
                      "%s: %lld and %lld got through", rows[i].name, wire_handled("fitJob") - fit,
                      wire_handled("listPasses") - next);
    }
    int status = 0;
    ck_assert_int_eq(kill(pid, SIGTERM), 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
}
END_TEST

Suite *suite_proxy(void)
{
    Suite *suite = suite_create("http proxy");
    TCase *tcase = server_tcase(suite, "proxy");
    tcase_add_test(tcase, test_proxy__what_gets_through_is_one_request_of_one_reading);
    return suite;
}
