/* A daemon under test: the real program, on a fresh database file, on a port of its own.
 *
 * Every test of these suites runs in a process of its own and starts one daemon in its fixture; what a failed test
 * leaves running dies with that process. A helper that cannot do its work fails the test.
 */
#ifndef BP_TESTS_API_SERVER_H
#define BP_TESTS_API_SERVER_H

#include <check.h>
#include <stdbool.h>
#include <sys/types.h>

struct server {
    pid_t pid; /* 0: not running */
    char directory[128], database[160], log[160], url[64];
    const char *cacert; /* the test's: what https calls trust; NULL: the system's */
    char socket[160];   /* the Unix socket over which the test may do everything, or "" */
};

/* The server that a test's fixture started. */
extern struct server server;

/* What a daemon's process does before it becomes the daemon; NULL: nothing. */
extern void (*server_prepare)(void);

/* Makes a directory, and starts a daemon on a database in it. `arguments` (NULL-terminated, or NULL) come last on the
 * command line. */
void server_start(struct server *ret, const char *const *arguments);

/* Starts the daemon again on the database it had. */
void server_restart(struct server *at, const char *const *arguments);

/* Whether a line of the daemon's log has that text. */
bool server_logged(const struct server *at, const char *text);

/* SIGTERM; the daemon must end with status 0 and without a sanitizer's complaint. */
void server_stop(struct server *at);
void server_kill(struct server *at); /* SIGKILL, as a crash */

/* Starts the daemon on the database it had and kills it `us` microseconds later, wherever it had come. With arguments
 * that make it do something else than serve it may have done that. */
void server_start_and_kill(const struct server *at, unsigned us, const char *const *arguments);

/* Waits until it ended and returns its exit status; -1 when a signal ended it. */
int server_wait(struct server *at);

/* Starts a daemon that is expected to give up, and returns its exit status. Its standard error is in `log`. */
int server_refuses(const char *database, const char *log, const char *const *arguments);

void server_remove(struct server *at); /* its directory */

/* A program of the build directory: "blueprint", "blueprintd". Static storage. */
const char *server_program(const char *name);

/* A test case, of that name in `suite`, whose tests find `server` running. */
TCase *server_tcase(Suite *suite, const char *name);

/* The same, with a Unix socket besides the port: what is asked of /v1/admin goes over it. */
TCase *server_admin_tcase(Suite *suite, const char *name);

/* One integer that the database answers, read from outside as the shell would. */
long long server_count(const struct server *at, const char *sql);

/* Runs SQL that writes; the daemon must not be running. */
void server_sql(const struct server *at, const char *sql);

/* A counter or gauge of /metrics, without labels. */
long long server_metric(const char *name);

#endif
