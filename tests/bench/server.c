/* The processes that are measured: the daemon, and a responder that is libmicrohttpd and nothing else. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/digest.h"
#include "tests/bench/bench.h"

/* A child dies with the bench, however that ends. */
static pid_t spawn(int ret_out[2])
{
    if (pipe(ret_out) < 0)
        bench_die("pipe: %s", strerror(errno));
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        bench_die("fork: %s", strerror(errno));
    if (pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGTERM);
    return pid;
}

static uint16_t read_port(int fd, const char *format)
{
    char line[256];
    size_t n = 0;
    unsigned port = 0;
    while (n < sizeof(line) - 1 && read(fd, line + n, 1) == 1 && line[n] != '\n')
        n++;
    line[n] = '\0';
    if (sscanf(line, format, &port) != 1 || port > UINT16_MAX)
        bench_die("the server did not say where it listens: \"%s\"", line);
    return (uint16_t)port;
}

/* A file of one token, with limits that are not reached. */
static void write_tokens(const char *path)
{
    static const char token[] = "bench-token";
    struct bp_digest hash;
    char text[BP_DIGEST_TEXT];
    bp_digest_of(token, sizeof(token) - 1, &hash);
    bp_digest_format(&hash, text);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || dprintf(fd, "bench read,plan %s rate=1000000/s concurrency=100000\n", text) < 0 || close(fd) < 0)
        bench_die("%s: %s", path, strerror(errno));
}

void bench_daemon_start(const char *name, struct bench_server *ret)
{
    const char *build = getenv("BP_BUILD");
    char program[512], database[512], tokens[512];
    int out[2];
    snprintf(tokens, sizeof(tokens), "%s/tokens", bench_directory());
    write_tokens(tokens);
    snprintf(program, sizeof(program), "%s/blueprintd", build ? build : "build");
    snprintf(database, sizeof(database), "%s/%s", bench_directory(), name);
    pid_t pid = spawn(out);
    if (pid == 0) {
        dup2(out[1], STDOUT_FILENO);
        close(out[0]);
        close(out[1]);
        execl(program, program, "--listen", "127.0.0.1:0", "--database", database, "--log-level", "error", "--tokens",
              tokens, (char *)NULL);
        fprintf(stderr, "%s: %s\n", program, strerror(errno));
        _exit(127);
    }
    close(out[1]);
    *ret = (struct bench_server){pid, read_port(out[0], "blueprintd ready http://127.0.0.1:%u")};
    close(out[0]);
}

static enum MHD_Result answer_always(void *data, struct MHD_Connection *connection, const char *url, const char *method,
                                     const char *version, const char *upload, size_t *upload_size, void **state)
{
    static int seen;
    struct bench_answer *answer = data;
    (void)url, (void)method, (void)version, (void)upload;
    if (!*state) {
        *state = &seen;
        return MHD_YES;
    }
    if (*upload_size) {
        *upload_size = 0;
        return MHD_YES;
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(answer->n_body, answer->body, MHD_RESPMEM_PERSISTENT);
    if (answer->type)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer->type);
    if (answer->etag)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ETAG, answer->etag);
    enum MHD_Result queued = MHD_queue_response(connection, answer->status, response);
    MHD_destroy_response(response);
    return queued;
}

/* libmicrohttpd sleeps on exactly 128 events, or a multiple, until something else happens: one more connection. */
static void nudge(struct MHD_Daemon *daemon)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0) {
        close(pair[1]);
        MHD_add_connection(daemon, pair[0], (struct sockaddr *)&address, sizeof(address));
    }
}

static void serve(const struct bench_answer *answer, int out)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sigset_t stop;
    const struct timespec moment = {.tv_nsec = 20000000};
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    struct bench_answer copy = *answer;
    struct MHD_Daemon *daemon =
        MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC, 0, NULL, NULL, answer_always, &copy,
                         MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&address, MHD_OPTION_END);
    const union MHD_DaemonInfo *info = daemon ? MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT) : NULL;
    if (!info)
        _exit(1);
    dprintf(out, "%u\n", info->port);
    while (sigtimedwait(&stop, NULL, &moment) < 0)
        nudge(daemon);
    MHD_stop_daemon(daemon);
    _exit(0);
}

void bench_bare_start(const struct bench_answer *answer, struct bench_server *ret)
{
    int out[2];
    pid_t pid = spawn(out);
    if (pid == 0) {
        close(out[0]);
        serve(answer, out[1]);
    }
    close(out[1]);
    *ret = (struct bench_server){pid, read_port(out[0], "%u")};
    close(out[0]);
}

double bench_server_cpu(const struct bench_server *server)
{
    struct timespec used;
    clockid_t clock;
    if (clock_getcpuclockid(server->pid, &clock) != 0 || clock_gettime(clock, &used) < 0)
        bench_die("the processor time of process %d cannot be read", (int)server->pid);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

void bench_server_stop(struct bench_server *server)
{
    int status;
    kill(server->pid, SIGTERM);
    if (waitpid(server->pid, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        bench_die("process %d did not stop cleanly", (int)server->pid);
    server->pid = 0;
}
