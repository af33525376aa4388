#include "tests/api/command.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/api/expect.h"

static const char *contents(const char *path)
{
    static char text[1 << 20];
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    return keep_text("%s", text);
}

void become(const char *const *words, const char *in, const char *out, const char *err)
{
    const char *argv[WORDS_MAX + 2] = {"blueprint"};
    for (size_t i = 0; i < WORDS_MAX && words[i]; i++)
        argv[i + 1] = words[i];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(open(in, O_RDONLY), 0) >= 0 && dup2(open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600), 1) >= 0 &&
        dup2(open(err, O_WRONLY | O_CREAT | O_TRUNC, 0600), 2) >= 0)
        execv(server_program("blueprint"), (char *const *)(uintptr_t)argv);
    _exit(127);
}

struct run run(const char *const words[WORDS_MAX], const char *input)
{
    const char *in = keep_text("%s/cli.in", server.directory), *out = keep_text("%s/cli.out", server.directory);
    const char *err = keep_text("%s/cli.err", server.directory);
    FILE *file = fopen(in, "w");
    ck_assert(file && fputs(input ? input : "", file) >= 0 && fclose(file) == 0);
    struct server child = {.pid = fork()};
    ck_assert_int_ge(child.pid, 0);
    if (child.pid == 0)
        become(words, in, out, err);
    struct run result = {.status = server_wait(&child)};
    result.out = contents(out);
    result.err = contents(err);
    ck_assert_ptr_null(strstr(result.err, "Sanitizer"));
    return result;
}

void expect_status(const struct run *run, int status)
{
    ck_assert_msg(run->status == status, "exit status %d, expected %d\n%.1500s\n%.1500s", run->status, status, run->out,
                  run->err);
}

void expect_text(const char *text, const char *wanted)
{
    ck_assert_msg(strstr(text, wanted), "no \"%s\" in:\n%.3000s", wanted, text);
}

/* A terminal and the name of its other end; -1 where the system has none to give. */
static int open_terminal(const char **ret_name)
{
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0 && (*ret_name = ptsname(terminal)))
        return terminal;
    if (terminal >= 0)
        close(terminal);
    return -1;
}

bool terminals_exist(void)
{
    const char *name;
    int terminal = open_terminal(&name);
    if (terminal >= 0)
        close(terminal);
    return terminal >= 0;
}

struct run run_on_terminal(const char *const words[WORDS_MAX])
{
    static char text[1 << 16];
    const char *in = keep_text("%s/cli.in", server.directory), *err = keep_text("%s/cli.err", server.directory);
    FILE *file = fopen(in, "w");
    ck_assert(file && fclose(file) == 0);
    const char *name = NULL;
    int terminal = open_terminal(&name);
    ck_assert_int_ge(terminal, 0);
    name = keep_text("%s", name);
    int held = open(name, O_RDWR | O_NOCTTY); /* what was written waits to be read as long as it is open */
    ck_assert_int_ge(held, 0);
    struct server child = {.pid = fork()};
    ck_assert_int_ge(child.pid, 0);
    if (child.pid == 0)
        become(words, in, name, err);
    size_t n = 0;
    struct run result = {.status = server_wait(&child)};
    ck_assert_int_eq(fcntl(terminal, F_SETFL, O_NONBLOCK), 0);
    while (n < sizeof text - 1) {
        ssize_t got = read(terminal, text + n, sizeof text - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    text[n] = '\0';
    close(held);
    close(terminal);
    result.out = keep_text("%s", text);
    result.err = contents(err);
    return result;
}

const char *request_file(json_t *request)
{
    const char *path = keep_text("%s/request.json", server.directory);
    FILE *file = fopen(path, "w");
    ck_assert(file && fputs(json_text(request), file) >= 0 && fclose(file) == 0);
    return path;
}
