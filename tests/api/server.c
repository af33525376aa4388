#include "tests/api/server.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/api/http.h"

enum { START_MS = 60000, STOP_MS = 60000, ARGUMENTS_MAX = 24 };

struct server server;
void (*server_prepare)(void);

static const char *build_directory(void)
{
    const char *build = getenv("BP_BUILD");
    return build ? build : "build";
}

const char *server_program(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", build_directory(), name);
    return path;
}

/* In the child: becomes the daemon. `out` is its standard output. */
static void run(const char *database, const char *log, const char *socket, int out, const char *const *arguments)
{
    const char *argv[ARGUMENTS_MAX] = {"blueprintd", "--listen", "127.0.0.1:0", "--database", database};
    size_t n = 5;
    if (*socket) {
        argv[n++] = "--socket";
        argv[n++] = socket;
    }
    for (; arguments && *arguments && n < ARGUMENTS_MAX - 1; arguments++)
        argv[n++] = *arguments;
    int err = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (err >= 0 && dup2(err, 2) >= 0 && dup2(out, 1) >= 0) {
        if (server_prepare)
            server_prepare();
        execv(server_program("blueprintd"), (char *const *)(uintptr_t)argv);
    }
    _exit(127);
}

/* The first line of `fd`, within the time; what else was read is dropped. */
static bool read_line(int fd, char *line, size_t size)
{
    size_t n = 0;
    while (n + 1 < size) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, START_MS) <= 0 || read(fd, line + n, 1) != 1)
            break;
        if (line[n++] == '\n') {
            line[n - 1] = '\0';
            return true;
        }
    }
    line[n] = '\0';
    return false;
}

static void print_log(const char *log)
{
    FILE *file = fopen(log, "r");
    char line[512];
    while (file && fgets(line, sizeof line, file))
        fputs(line, stderr);
    if (file)
        fclose(file);
}

static void launch(struct server *at, const char *const *arguments)
{
    static const char ready[] = "blueprintd ready ";
    int out[2];
    char line[256];
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    at->pid = fork();
    ck_assert_int_ge(at->pid, 0);
    if (at->pid == 0)
        run(at->database, at->log, at->socket, out[1], arguments);
    close(out[1]);
    bool said = read_line(out[0], line, sizeof line);
    close(out[0]);
    if (!said || strncmp(line, ready, sizeof ready - 1) != 0) {
        print_log(at->log);
        ck_abort_msg("the daemon did not get ready: \"%s\"", line);
    }
    snprintf(at->url, sizeof at->url, "%.60s", line + sizeof ready - 1);
}

static void make_directory(struct server *ret)
{
    *ret = (struct server){0};
    snprintf(ret->directory, sizeof ret->directory, "%s/tests/run", build_directory());
    mkdir(ret->directory, 0700);
    snprintf(ret->directory, sizeof ret->directory, "%s/tests/run/api.XXXXXX", build_directory());
    ck_assert_msg(mkdtemp(ret->directory), "%s: %s", ret->directory, strerror(errno));
    snprintf(ret->database, sizeof ret->database, "%s/blueprint.db", ret->directory);
    snprintf(ret->log, sizeof ret->log, "%s/log", ret->directory);
}

void server_start(struct server *ret, const char *const *arguments)
{
    make_directory(ret);
    launch(ret, arguments);
}

void server_restart(struct server *at, const char *const *arguments)
{
    ck_assert_int_eq(at->pid, 0);
    launch(at, arguments);
}

int server_wait(struct server *at)
{
    int status = 0;
    pid_t ended = 0;
    for (int i = 0; i < STOP_MS / 5 && ended == 0; i++) {
        ended = waitpid(at->pid, &status, WNOHANG);
        if (ended == 0)
            nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    ck_assert_msg(ended == at->pid, "the daemon did not stop in time");
    at->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void expect_clean_log(const char *log)
{
    static const char *const complaints[] = {"ERROR: AddressSanitizer", "ERROR: LeakSanitizer",
                                             "runtime error:", "WARNING: ThreadSanitizer", "BUG:"};
    FILE *file = fopen(log, "r");
    char line[1024];
    while (file && fgets(line, sizeof line, file))
        for (size_t i = 0; i < sizeof complaints / sizeof *complaints; i++)
            if (strstr(line, complaints[i])) {
                print_log(log);
                ck_abort_msg("the daemon's log says: %s", line);
            }
    if (file)
        fclose(file);
}

void server_stop(struct server *at)
{
    ck_assert_int_eq(kill(at->pid, SIGTERM), 0);
    int status = server_wait(at);
    if (status != 0)
        print_log(at->log);
    ck_assert_int_eq(status, 0);
    expect_clean_log(at->log);
}

void server_kill(struct server *at)
{
    ck_assert_int_eq(kill(at->pid, SIGKILL), 0);
    ck_assert_int_eq(server_wait(at), -1);
}

void server_start_and_kill(const struct server *at, unsigned us, const char *const *arguments)
{
    struct server other = {.pid = fork()};
    ck_assert_int_ge(other.pid, 0);
    if (other.pid == 0)
        run(at->database, at->log, "", open("/dev/null", O_WRONLY), arguments);
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000L}, NULL);
    ck_assert_int_eq(kill(other.pid, SIGKILL), 0);
    const int status = server_wait(&other);
    ck_assert(status == -1 || (arguments && status == 0));
}

bool server_logged(const struct server *at, const char *text)
{
    char line[4096];
    bool found = false;
    FILE *file = fopen(at->log, "r");
    ck_assert_ptr_nonnull(file);
    while (!found && fgets(line, sizeof line, file))
        found = strstr(line, text) != NULL;
    fclose(file);
    return found;
}

int server_refuses(const char *database, const char *log, const char *const *arguments)
{
    struct server other = {.pid = fork()};
    ck_assert_int_ge(other.pid, 0);
    if (other.pid == 0)
        run(database, log, "", open("/dev/null", O_WRONLY), arguments);
    return server_wait(&other);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status, (void)kind, (void)walk;
    return remove(path);
}

void server_remove(struct server *at)
{
    ck_assert_int_eq(nftw(at->directory, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static void set_up(void)
{
    server_start(&server, NULL);
}

static void set_up_with_socket(void)
{
    make_directory(&server);
    snprintf(server.socket, sizeof server.socket, "%s/socket", server.directory);
    launch(&server, NULL);
}

static void tear_down(void)
{
    if (server.pid)
        server_stop(&server);
    server_remove(&server);
    http_forget();
}

static TCase *make_tcase(Suite *suite, const char *name, void (*begin)(void))
{
    TCase *tcase = tcase_create(name);
    tcase_set_timeout(tcase, 240);
    tcase_add_checked_fixture(tcase, begin, tear_down);
    suite_add_tcase(suite, tcase);
    return tcase;
}

TCase *server_tcase(Suite *suite, const char *name)
{
    return make_tcase(suite, name, set_up);
}

TCase *server_admin_tcase(Suite *suite, const char *name)
{
    return make_tcase(suite, name, set_up_with_socket);
}

static sqlite3 *open_database(const struct server *at, int flags)
{
    sqlite3 *database = NULL;
    ck_assert_int_eq(sqlite3_open_v2(at->database, &database, flags, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_busy_timeout(database, 5000), SQLITE_OK);
    return database;
}

long long server_count(const struct server *at, const char *sql)
{
    sqlite3 *database = open_database(at, SQLITE_OPEN_READONLY);
    sqlite3_stmt *statement = NULL;
    ck_assert_msg(sqlite3_prepare_v2(database, sql, -1, &statement, NULL) == SQLITE_OK, "%s: %s", sql,
                  sqlite3_errmsg(database));
    ck_assert_int_eq(sqlite3_step(statement), SQLITE_ROW);
    long long count = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    ck_assert_int_eq(sqlite3_close(database), SQLITE_OK);
    return count;
}

void server_sql(const struct server *at, const char *sql)
{
    ck_assert_int_eq(at->pid, 0);
    sqlite3 *database = open_database(at, SQLITE_OPEN_READWRITE);
    char *message = NULL;
    ck_assert_msg(sqlite3_exec(database, sql, NULL, NULL, &message) == SQLITE_OK, "%s: %s", sql, message);
    ck_assert_int_gt(sqlite3_changes(database), 0);
    ck_assert_int_eq(sqlite3_close(database), SQLITE_OK);
}

long long server_metric(const char *name)
{
    struct reply reply = http_get("/metrics");
    ck_assert_int_eq(reply.status, 200);
    size_t n = strlen(name);
    for (const char *line = reply.body; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, n) == 0 && line[n] == ' ')
            return strtoll(line + n, NULL, 10);
    }
    ck_abort_msg("/metrics has no %s", name);
}
