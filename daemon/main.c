/* blueprintd: a list of starts and stops. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <systemd/sd-daemon.h>

#include "common/base/version.h"
#include "daemon/config.h"
#include "daemon/http/http.h"
#include "daemon/http/tls.h"
#include "daemon/log.h"
#include "daemon/offline.h"
#include "daemon/reload.h"
#include "daemon/sdnotify.h"
#include "daemon/service/service.h"

static const uint64_t second_ns = UINT64_C(1000000000);

enum { EXIT_STOPPED = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct program {
    int argc; /* the command line, which a reload reads again */
    char *const *argv;
    struct bp_access *access;
    struct bp_store *store;
    struct bp_service *service;
    struct bp_http *http;
    struct bp_metrics metrics;
    struct bp_sdnotify sdnotify;
};

/* Signals are taken by the main thread alone, with sigtimedwait: every thread starts with them blocked. */
static void block_signals(sigset_t *ret)
{
    sigemptyset(ret);
    sigaddset(ret, SIGTERM);
    sigaddset(ret, SIGINT);
    sigaddset(ret, SIGHUP);
    pthread_sigmask(SIG_BLOCK, ret, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file's size limit is an error of the write, as a full disk is */
}

static bool has_tls(const struct bp_daemon_config *config)
{
    return *config->tls_key != '\0';
}

/* Whether a socket may listen beyond loopback. */
static bool may_serve_anyone(const struct bp_daemon_config *config)
{
    return config->may_be_unprotected || (*config->tokens && has_tls(config));
}

/* Who may do what, before anything is listened on. */
static int open_access(struct program *program, const struct bp_daemon_config *config, struct bp_err *err)
{
    struct bp_problems problems = {0};
    struct bp_access_options options = bp_config_access(config);
    int result = bp_access_open(&options, &program->access, &problems);
    for (size_t i = 0; i < problems.n; i++)
        bp_log_err(BP_LOG_ERROR, "the file of tokens", &problems.at[i]);
    bp_problems_release(&problems);
    if (result)
        return bp_fail(err, BP_E_config_invalid, config->tokens, "the file of tokens cannot be used");
    return has_tls(config) ? bp_tls_load(config->tls_certificate, config->tls_key, err) : 0;
}

static int start(struct program *program, const struct bp_daemon_config *config, struct bp_err *err)
{
    if (open_access(program, config, err))
        return -1;
    const struct bp_store_options store = {.path = config->database,
                                           .wal_limit = (uint64_t)config->wal_limit << 20,
                                           .observer = bp_service_store_observer(&program->metrics)};
    struct bp_sd_listeners listeners;
    if (bp_sd_listeners(may_serve_anyone(config), &listeners, err))
        return -1;
    sd_notifyf(0, "STATUS=Opening %s", config->database);
    if (bp_store_open(&store, &program->store, err))
        return -1;
    if (bp_store_is_new(program->store))
        bp_log(BP_LOG_WARNING, "a new database was made", BP_LOG_FIELDS(BP_LOG_TEXT("database", config->database)));
    sd_notify(0, "STATUS=Taking up what was accepted before");
    const struct bp_service_options service = {
        .database = config->database,
        .workers = config->workers,
        .queue = config->queue,
        .audit_days = config->audit_days,
        .store = program->store,
        .metrics = &program->metrics,
        .disk_reserve = (uint64_t)config->disk_reserve << 20,
    };
    if (bp_service_start(&service, &program->service, err) || bp_service_recover(program->service, err))
        return -1;
    const struct bp_http_options http = {
        .unix_listener = listeners.local,
        .tcp_listener = listeners.tcp,
        .listen = (const struct sockaddr *)&config->listen,
        .listen_size = config->listen_size,
        .socket = config->socket,
        .connections = config->connections,
        .connections_per_address = config->connections_per_address,
        .receive_seconds = config->receive_timeout,
        .answer_seconds = config->answer_timeout,
        .has_tls = has_tls(config),
        .access = program->access,
        .service = program->service,
        .metrics = &program->metrics,
    };
    return bp_http_start(&http, &program->http, err);
}

/* The time is for who waits and for what was accepted with a 202 together: the workers take both. What of the latter is
 * not derived by then is on disk and waits for the next start. */
static void stop(struct program *program, unsigned seconds)
{
    uint64_t deadline = bp_clock_ns() + seconds * UINT64_C(1000000000);
    bp_http_stop(program->http, deadline);
    if (program->service)
        bp_service_drain(program->service, deadline);
    bp_service_stop(program->service);
    bp_store_close(program->store);
    bp_service_free(program->service);
    bp_access_close(program->access);
    bp_tls_release();
}

static void announce(struct program *program, const struct bp_daemon_config *config)
{
    const char *address = bp_http_address(program->http);
    printf("blueprintd ready %s://%s\n", has_tls(config) ? "https" : "http", address);
    fflush(stdout);
    bp_sdnotify_ready(&program->sdnotify, program->store, program->service, program->http);
    bp_log(BP_LOG_INFO, "serving",
           BP_LOG_FIELDS(BP_LOG_TEXT("address", address), BP_LOG_TEXT("database", config->database),
                         BP_LOG_UINT("workers", config->workers)));
}

static void reload(const struct program *program, const struct bp_daemon_config *config)
{
    sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)(bp_clock_ns() / 1000));
    bp_reload(program->argc, program->argv, program->access, has_tls(config));
    sd_notify(0, "READY=1");
}

/* Waits for a signal to stop. -1 when the store cannot be trusted any more, which only a new start can mend. */
static int wait_for_end(struct program *program, const struct bp_daemon_config *config, const sigset_t *signals)
{
    uint64_t tick = bp_sdnotify_tick(&program->sdnotify), take_up_at = 0, audit_at = 0;
    const struct timespec moment = {.tv_sec = (time_t)(tick / second_ns), .tv_nsec = (long)(tick % second_ns)};
    for (;;) {
        struct bp_err err = {0};
        bp_sdnotify_turn(&program->sdnotify);
        int signal_number = sigtimedwait(signals, NULL, &moment);
        if (signal_number == SIGHUP) {
            reload(program, config);
        } else if (signal_number > 0) {
            bp_log(BP_LOG_INFO, "stopping", BP_LOG_FIELDS(BP_LOG_TEXT("signal", strsignal(signal_number))));
            return 0;
        }
        if (bp_store_ready(program->store, &err) && err.code == BP_E_storage_failed) {
            bp_log_err(BP_LOG_ERROR, "the store failed", &err);
            return -1;
        }
        if (bp_clock_ns() >= audit_at) {
            audit_at = bp_clock_ns() + second_ns;
            bp_service_audit_tick(program->service);
        }
        if (bp_clock_ns() < take_up_at)
            continue;
        take_up_at = bp_clock_ns() + 5 * second_ns;
        err = (struct bp_err){0};
        if (bp_service_take_up_again(program->service, &err))
            bp_log_err(BP_LOG_ERROR, "accepted jobs could not be taken up again", &err);
        bp_service_tidy_up(program->service);
    }
}

/* Each plan takes a few hundred kilobytes and gives them back: the allocator keeps them for the next one, rather than
 * asking the kernel for zeroed pages again (a tenth of a millisecond a plan). */
static void keep_freed_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, 4 << 20);
    mallopt(M_TRIM_THRESHOLD, 16 << 20);
}

static int run(int argc, char *const *argv, const struct bp_daemon_config *config)
{
    static struct program program;
    program.argc = argc;
    program.argv = argv;
    struct bp_err err = {0};
    sigset_t signals;
    keep_freed_memory();
    bp_log_set_level(config->log_level);
    bp_log_set_target(config->log_target);
    block_signals(&signals);
    if (start(&program, config, &err)) {
        bp_log_err(BP_LOG_ERROR, "the daemon cannot run", &err);
        stop(&program, 0);
        return err.code == BP_E_config_invalid ? EXIT_USAGE : EXIT_FAILED;
    }
    announce(&program, config);
    int failed = wait_for_end(&program, config, &signals);
    sd_notify(0, "STOPPING=1\nSTATUS=Stopping");
    stop(&program, config->stop_timeout);
    bp_log(BP_LOG_INFO, "stopped", NULL);
    return failed ? EXIT_FAILED : EXIT_STOPPED;
}

static int print_help(void)
{
    struct bp_buf text = {0};
    bp_daemon_config_help(&text);
    int status = fputs(bp_buf_string(&text), stdout) < 0 ? EXIT_FAILED : EXIT_STOPPED;
    bp_buf_release(&text);
    return status;
}

static int complain(const struct bp_problems *problems)
{
    for (size_t i = 0; i < problems->n; i++)
        fprintf(stderr, "blueprintd: %s: %s\n", problems->at[i].path, problems->at[i].message);
    if (problems->out_of_memory)
        fprintf(stderr, "blueprintd: no memory for the configuration\n");
    fprintf(stderr, "Try 'blueprintd --help'.\n");
    return EXIT_USAGE;
}

static int offline(const struct bp_daemon_config *config)
{
    struct bp_err err = {0};
    int result = config->action == BP_ACTION_VERIFY      ? bp_offline_verify(config->database, &err)
                 : config->action == BP_ACTION_NEW_TOKEN ? bp_offline_new_token(config->token_name, &err)
                                                         : bp_offline_migrate(config->database, config->dry_run, &err);
    if (result < 0)
        fprintf(stderr, "blueprintd: %s: %s\n", bp_code_name(err.code), err.message);
    return result ? EXIT_FAILED : EXIT_STOPPED;
}

static int check(const struct bp_daemon_config *config)
{
    struct bp_problems problems = {0};
    bp_config_check_files(config, &problems);
    int status = bp_problems_none(&problems) ? EXIT_STOPPED : complain(&problems);
    bp_problems_release(&problems);
    return status;
}

static int act(int argc, char *const *argv, const struct bp_daemon_config *config)
{
    switch (config->action) {
    case BP_ACTION_HELP:
        return print_help();
    case BP_ACTION_VERSION:
        return puts("blueprintd " BP_VERSION) < 0 ? EXIT_FAILED : EXIT_STOPPED;
    case BP_ACTION_CHECK:
        return check(config);
    case BP_ACTION_NEW_TOKEN:
    case BP_ACTION_VERIFY:
    case BP_ACTION_MIGRATE:
        return offline(config);
    default:
        return run(argc, argv, config);
    }
}

int main(int argc, char **argv)
{
    static struct bp_daemon_config config;
    struct bp_problems problems = {0};
    bp_daemon_config_read(argc, argv, &config, &problems);
    int status = bp_problems_none(&problems) ? act(argc, argv, &config) : complain(&problems);
    bp_problems_release(&problems);
    return status;
}
