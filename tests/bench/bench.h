/* The bench: every measure stands beside a baseline of the same run, driven by the same generator, the two in turns.
 *
 * One thread; child processes are the daemon and the bare responder, and whoever started one stops it. A failure of the
 * set-up ends the program, which takes its children with it.
 */
#ifndef BP_TESTS_BENCH_BENCH_H
#define BP_TESTS_BENCH_BENCH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Says why on stderr, stops what was started, exits 1. */
void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

double bench_now(void); /* seconds, monotonic */

/* The median of n numbers, which it sorts. */
double bench_median(double *at, size_t n);

/* A number from the environment, or its default. */
uint64_t bench_setting(const char *name, uint64_t fallback);

/* One line of the table: medians of n rounds, and the median of each round's ratio, since two rounds side by side meet
 * the same machine. `target` is of the ratio; 0: there is none. The numbers are sorted. */
enum { BENCH_ROUNDS_MAX = 512 };
struct bench_row {
    const char *name, *unit;
    double *subject, *baseline;
    size_t n;
    double target;
};
void bench_print_heading(void);
void bench_print_row(const struct bench_row *row);
void bench_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A directory for throw-away files below the build directory; removed at exit. */
const char *bench_directory(void);

/* --- the processes that are measured --- */

struct bench_server {
    pid_t pid;
    uint16_t port;
};

/* The line of a request's head that shows the daemon's token. */
#define BENCH_AUTHORIZATION "Authorization: Bearer bench-token\r\n"

/* The real daemon on a new database `name` in the bench's directory. It asks for its token and counts against limits,
 * as one does that serves others. */
void bench_daemon_start(const char *name, struct bench_server *ret);

/* A responder of nothing but libmicrohttpd, one epoll thread, that reads the body and answers always the same. */
struct bench_answer {
    unsigned status;
    const char *type, *etag; /* NULL: no such header */
    char *body;
    size_t n_body;
};
void bench_bare_start(const struct bench_answer *answer, struct bench_server *ret);

/* Seconds of processor time that it has used: what a busy machine changes least. */
double bench_server_cpu(const struct bench_server *server);

void bench_server_stop(struct bench_server *server); /* SIGTERM, and waits; it must exit 0 */

/* --- the load generator --- */

/* Writes request `index` into `into`, which has `room` bytes; returns its length. */
typedef size_t bench_write(void *data, uint64_t index, char *into, size_t room);

enum { BENCH_CONNECTIONS = 32, BENCH_CONNECTIONS_MAX = 256, BENCH_REQUEST_MAX = 8192 };

/* How long each answer took, in seconds. Zero-initialise; free `at`. */
struct bench_times {
    double *at;
    size_t n, room;
};

/* Keeps `connections` (0: 32) keep-alive connections busy, one request in flight on each, until `count` answers came
 * (0: until `seconds` are over). Every answer must have `status`. Returns answers a second; adds their number to
 * `completed` and their times to `times` (or NULL). */
struct bench_load {
    uint16_t port;
    bench_write *write;
    void *data;
    uint64_t first, count;
    double seconds;
    unsigned status, connections;
    struct bench_times *times;
};
double bench_load_run(const struct bench_load *load, uint64_t *completed);

/* One request: its answer's body (malloced, NUL-terminated) and, with `ret_header`, its header. */
char *bench_ask(uint16_t port, const char *request, size_t n, unsigned status, size_t *ret_n, char **ret_header);

/* --- the sections --- */

void bench_derivation(void);
void bench_fit(void);
void bench_commits(void);
void bench_repeats(void);
void bench_snapshots(void);
void bench_latency(void);
void bench_memory(void);

/* The requests they send. `index` makes them different plans. */
size_t bench_plan_body(uint64_t index, char *into, size_t room);
bench_write bench_write_plan;      /* POST of the 175B training plan; all but the model's snapshot differ by index */
bench_write bench_write_inference; /* POST of a small one */
bench_write bench_write_same;      /* POST of plan 0, whatever the index */

/* Seconds it takes SQLite alone to commit the rows of `database` again, `groups` transactions. */
double bench_rows_commit(const char *database, size_t groups);

#endif
