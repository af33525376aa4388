#include "tests/api/access_fixture.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/api/server.h"

enum { PATIENCE_MS = 60000, STEP_MS = 20 };

static const char *output_of(const char *command, int *ret_status)
{
    static char text[65536];
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    size_t n = fread(text, 1, sizeof text - 1, pipe);
    text[n] = '\0';
    int status = pclose(pipe);
    *ret_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return keep_text("%s", text);
}

struct made_token make_token(const char *name, const char *scopes, const char *limits)
{
    char token[128], printed_name[128], printed_scopes[128], hash[128];
    int status;
    const char *out = output_of(keep_text("%s --new-token %s", server_program("blueprintd"), name), &status);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(sscanf(out, "token %127s line %127s %127s %127s", token, printed_name, printed_scopes, hash), 4);
    ck_assert_str_eq(printed_name, name);
    ck_assert_str_eq(printed_scopes, "read,plan");
    return (struct made_token){
        .token = keep_text("%s", token),
        .header = keep_text("Authorization: Bearer %s", token),
        .line = keep_text("%s %s %s %s\n", name, scopes, hash, limits),
    };
}

const char *write_file(const char *name, const char *text, mode_t mode)
{
    const char *path = keep_text("%s/%s", server.directory, name), *fresh = keep_text("%s.new", path);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    ck_assert_int_eq(fchmod(fd, mode), 0);
    close(fd);
    ck_assert_int_eq(rename(fresh, path), 0);
    return path;
}

struct made_certificate make_certificate(const char *name)
{
    struct made_certificate made = {
        .certificate = keep_text("%s/%s.pem", server.directory, name),
        .key = keep_text("%s/%s.key", server.directory, name),
    };
    int status;
    output_of(keep_text("umask 077; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
                        "-subj /CN=%s -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout %s -out %s 2>&1",
                        name, made.key, made.certificate),
              &status);
    ck_assert_int_eq(status, 0);
    return made;
}

void access_restart(const char *const *arguments)
{
    if (server.pid)
        server_stop(&server);
    server_restart(&server, arguments);
}

void access_reload(void)
{
    ck_assert_int_eq(kill(server.pid, SIGHUP), 0);
}

static void pause_briefly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000L}, NULL);
}

struct reply wait_for_status(const struct call *call, int status)
{
    struct reply reply = {0};
    for (int waited = 0; waited < PATIENCE_MS; waited += STEP_MS) {
        reply = http_call(call);
        if (reply.status == status)
            return reply;
        pause_briefly();
    }
    ck_abort_msg("%s is answered %d, and not %d: %.300s", call->target, reply.status, status, reply.body);
}

void wait_for_log(const char *text)
{
    for (int waited = 0; waited < PATIENCE_MS; waited += STEP_MS) {
        if (server_logged(&server, text))
            return;
        pause_briefly();
    }
    ck_abort_msg("the log does not say: %s", text);
}

static const char *host_and_port(void)
{
    return strstr(server.url, "://") + 3;
}

pid_t tls_client(const char *text)
{
    int in[2];
    const char *address = host_and_port();
    ck_assert_int_eq(pipe(in), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int null = open("/dev/null", O_WRONLY);
        /* Its own end of the pipe stays open: end of input would end it. */
        if (dup2(in[0], 0) >= 0 && dup2(null, 1) >= 0 && dup2(null, 2) >= 0)
            execlp("openssl", "openssl", "s_client", "-quiet", "-connect", address, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    ck_assert_int_eq(write(in[1], text, strlen(text)), (ssize_t)strlen(text));
    close(in[1]);
    return pid;
}

int tls_try(const char *options, const char **ret_out)
{
    int status;
    *ret_out =
        output_of(keep_text("openssl s_client -connect %s %s </dev/null 2>&1", host_and_port(), options), &status);
    return status;
}

struct reply get_as(const char *target, const struct made_token *token)
{
    return http_call(&(struct call){.method = "GET", .target = target, .headers = {token ? token->header : NULL}});
}
