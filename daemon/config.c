#include "daemon/config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <ini.h>

/* A reader of one value: NULL when it was taken, else what is wrong with it. */
typedef const char *read_value(const char *text, struct bp_daemon_config *config);

static const char *read_uint(const char *text, unsigned least, unsigned most, const char *wrong, unsigned *ret)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || value < least || value > most)
        return wrong;
    *ret = (unsigned)value;
    return NULL;
}

static const char *copy_text(const char *text, char *ret, size_t size, const char *wrong)
{
    size_t n = strlen(text);
    if (n == 0 || n >= size)
        return wrong;
    memcpy(ret, text, n + 1);
    return NULL;
}

static const char *read_address(const char *host, in_port_t port, struct bp_daemon_config *config)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = port};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = port};
    char text[INET6_ADDRSTRLEN];
    if (strcmp(host, "localhost") == 0)
        host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
        inet_ntop(AF_INET, &v4.sin_addr, config->listen_host, sizeof config->listen_host);
        memcpy(&config->listen, &v4, sizeof v4);
        config->listen_size = sizeof v4;
        config->listens_beyond_loopback = (ntohl(v4.sin_addr.s_addr) >> 24) != 127;
        return NULL;
    }
    if (inet_pton(AF_INET6, host, &v6.sin6_addr) == 1) {
        inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
        snprintf(config->listen_host, sizeof config->listen_host, "[%s]", text);
        memcpy(&config->listen, &v6, sizeof v6);
        config->listen_size = sizeof v6;
        config->listens_beyond_loopback = !IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
        return NULL;
    }
    return "the host must be an IP address or localhost";
}

static const char *read_listen(const char *text, struct bp_daemon_config *config)
{
    static const char wrong[] = "must be HOST:PORT, with a port of 0 to 65535";
    char host[64];
    unsigned port;
    const char *colon = strrchr(text, ':');
    if (!colon || read_uint(colon + 1, 0, 65535, wrong, &port))
        return wrong;
    size_t n = (size_t)(colon - text);
    bool bracketed = n >= 2 && text[0] == '[' && text[n - 1] == ']';
    if (bracketed) {
        text++;
        n -= 2;
    }
    if (n >= sizeof host || (!bracketed && memchr(text, ':', n)))
        return wrong;
    memcpy(host, text, n);
    host[n] = '\0';
    return read_address(host, htons((in_port_t)port), config);
}

static const char *read_socket(const char *text, struct bp_daemon_config *config)
{
    _Static_assert(sizeof config->socket == sizeof((struct sockaddr_un *)0)->sun_path, "a socket's path fits");
    return copy_text(text, config->socket, sizeof config->socket, "must be a path of at most 107 bytes");
}

static const char *read_unprotected(const char *text, struct bp_daemon_config *config)
{
    bool yes = strcmp(text, "yes") == 0;
    if (!yes && strcmp(text, "no") != 0)
        return "must be yes or no";
    config->may_be_unprotected = yes;
    return NULL;
}

static const char *read_socket_users(const char *text, struct bp_daemon_config *config)
{
    return bp_peer_rules_read(text, false, &config->peers);
}

static const char *read_socket_groups(const char *text, struct bp_daemon_config *config)
{
    return bp_peer_rules_read(text, true, &config->peers);
}

static const char *read_path(const char *text, char ret[4096])
{
    return copy_text(text, ret, 4096, "must be a path of at most 4095 bytes");
}

static const char *read_tokens(const char *text, struct bp_daemon_config *config)
{
    return read_path(text, config->tokens);
}

static const char *read_tls_certificate(const char *text, struct bp_daemon_config *config)
{
    return read_path(text, config->tls_certificate);
}

static const char *read_tls_key(const char *text, struct bp_daemon_config *config)
{
    return read_path(text, config->tls_key);
}

static const char *read_rate_limit(const char *text, struct bp_daemon_config *config)
{
    return bp_limits_read_rate(text, &config->limits);
}

static const char *read_concurrency_limit(const char *text, struct bp_daemon_config *config)
{
    return bp_limits_read_at_once(text, &config->limits);
}

static const char *read_audit_days(const char *text, struct bp_daemon_config *config)
{
    return read_uint(text, 1, 36500, "must be a number between 1 and 36500", &config->audit_days);
}

static const char *read_database(const char *text, struct bp_daemon_config *config)
{
    return read_path(text, config->database);
}

static const char *read_workers(const char *text, struct bp_daemon_config *config)
{
    return read_uint(text, 1, 256, "must be a number between 1 and 256", &config->workers);
}

static const char *read_queue(const char *text, struct bp_daemon_config *config)
{
    return read_uint(text, 1, 65536, "must be a number between 1 and 65536", &config->queue);
}

static const char *read_connections(const char *text, struct bp_daemon_config *config)
{
    return read_uint(text, 1, 65536, "must be a number between 1 and 65536", &config->connections);
}

static const char *read_connections_per_address(const char *text, struct bp_daemon_config *config)
{
    return read_uint(text, 0, 65536, "must be a number between 0 and 65536", &config->connections_per_address);
}

static const char *read_receive_timeout(const char *text, struct bp_daemon_config *config)
{
    return read_uint(text, 1, 3600, "must be a number of seconds between 1 and 3600", &config->receive_timeout);
}

static const char *read_answer_timeout(const char *text, struct bp_daemon_config *config)
{
    return read_uint(text, 1, 3600, "must be a number of seconds between 1 and 3600", &config->answer_timeout);
}

static const char *read_wal_limit(const char *text, struct bp_daemon_config *config)
{
    return read_uint(text, 16, 1048576, "must be a number of MiB between 16 and 1048576", &config->wal_limit);
}

static const char *read_stop_timeout(const char *text, struct bp_daemon_config *config)
{
    return read_uint(text, 0, 3600, "must be a number of seconds between 0 and 3600", &config->stop_timeout);
}

static const char *read_log_level(const char *text, struct bp_daemon_config *config)
{
    for (int i = 0; bp_log_level_names[i]; i++)
        if (strcmp(bp_log_level_names[i], text) == 0) {
            config->log_level = (enum bp_log_level)i;
            return NULL;
        }
    return "must be debug, info, warning or error";
}

static const char *read_disk_reserve(const char *text, struct bp_daemon_config *config)
{
    return read_uint(text, 0, 1U << 30, "must be a number of MiB between 0 and 1073741824", &config->disk_reserve);
}

static const char *read_log_target(const char *text, struct bp_daemon_config *config)
{
    for (int i = 0; bp_log_target_names[i]; i++)
        if (strcmp(bp_log_target_names[i], text) == 0) {
            config->log_target = (enum bp_log_target)i;
            return NULL;
        }
    return "must be auto, stderr or journal";
}

static const struct key_row {
    const char *key, *argument, *fallback;
    read_value *read;
    const char *help;
} keys[] = {
#define BP_CONFIG_KEY(key, argument, fallback, read, help) {key, argument, fallback, read, help},
#include "daemon/config.def"
#undef BP_CONFIG_KEY
};
enum { N_KEYS = sizeof keys / sizeof *keys };

static const struct flag_row {
    const char *option, *argument;
    enum bp_config_action action;
    const char *help;
} flags[] = {
#define BP_CONFIG_FLAG(option, argument, action, help) {option, argument, action, help},
#include "daemon/config.def"
#undef BP_CONFIG_FLAG
};
enum { N_FLAGS = sizeof flags / sizeof *flags };

static int find_key(const char *name, size_t n)
{
    for (int i = 0; i < N_KEYS; i++)
        if (strlen(keys[i].key) == n && memcmp(keys[i].key, name, n) == 0)
            return i;
    return -1;
}

static int find_flag(const char *name, size_t n)
{
    for (int i = 0; i < N_FLAGS; i++)
        if (strlen(flags[i].option) == n && memcmp(flags[i].option, name, n) == 0)
            return i;
    return -1;
}

/* Longest line of the file that the library reads whole. */
enum { LINE_MOST = 198 };

/* Values given, by key; kept until both sources are read, for the command line goes before the file. */
struct reading {
    struct bp_daemon_config *config;
    struct bp_problems *problems;
    const char *file;
    const char *given[N_KEYS];
    bool in_file[N_KEYS];
};

static int on_ini_pair(void *data, const char *section, const char *name, const char *value)
{
    struct reading *reading = data;
    int key = find_key(name, strlen(name));
    char path[256];
    snprintf(path, sizeof path, "%s: %s%s%s", reading->file, section, *section ? "." : "", name);
    if (key < 0 || *section) {
        bp_problems_add(reading->problems, BP_E_config_invalid, path, "is not a key of the configuration");
        return 1;
    }
    if (reading->in_file[key]) {
        bp_problems_add(reading->problems, BP_E_config_invalid, path, "is given twice");
        return 1;
    }
    reading->in_file[key] = true;
    const char *wrong = keys[key].read(value, reading->config);
    if (wrong)
        bp_problems_add(reading->problems, BP_E_config_invalid, path, "%s", wrong);
    return 1;
}

/* Most bytes of a file that are read: one that has more, or never ends, is no configuration. */
enum { FILE_MOST = 1 << 20 };

/* All of the file, or more than the most. It may be a pipe: it is opened once. False: errno says why not. */
static bool read_text(const char *path, struct bp_buf *ret)
{
    FILE *file = fopen(path, "re");
    char piece[4096];
    for (size_t n; file && ret->len <= FILE_MOST && (n = fread(piece, 1, sizeof piece, file)) > 0;)
        bp_buf_add(ret, piece, n);
    bool failed = !file || ferror(file) || ret->failed;
    if (file)
        fclose(file);
    return !failed;
}

/* The library takes what is past its buffer for another line, and the parts for keys. 0: there is no such line. */
static unsigned long_line(const struct bp_buf *text)
{
    unsigned line = 1;
    for (size_t i = 0, begin = 0; i < text->len; i++)
        if (text->data[i] == '\n') {
            line++;
            begin = i + 1;
        } else if (i - begin == LINE_MOST) {
            return line;
        }
    return 0;
}

static void read_file(struct reading *reading)
{
    struct stat status;
    struct bp_buf text = {0};
    unsigned line = 0;
    if (stat(reading->file, &status) == 0 && S_ISDIR(status.st_mode))
        bp_problems_add(reading->problems, BP_E_config_invalid, reading->file, "is a directory");
    else if (!read_text(reading->file, &text))
        bp_problems_add(reading->problems, BP_E_config_invalid, reading->file, "cannot be read: %s", strerror(errno));
    else if (text.len > FILE_MOST)
        bp_problems_add(reading->problems, BP_E_config_invalid, reading->file, "is larger than %d bytes", FILE_MOST);
    else if (text.len && memchr(text.data, '\0', text.len))
        bp_problems_add(reading->problems, BP_E_config_invalid, reading->file, "has a NUL");
    else if ((line = long_line(&text)) > 0)
        bp_problems_add(reading->problems, BP_E_config_invalid, reading->file, "line %u is longer than %d bytes", line,
                        LINE_MOST);
    else if ((line = (unsigned)ini_parse_string(bp_buf_string(&text), on_ini_pair, reading)) > 0)
        bp_problems_add(reading->problems, BP_E_config_invalid, reading->file, "line %u is not KEY = VALUE", line);
    bp_buf_release(&text);
}

static void set_action(struct reading *reading, const char *argument, enum bp_config_action action)
{
    struct bp_daemon_config *config = reading->config;
    if (action == BP_ACTION_DRY_RUN)
        config->dry_run = true;
    else if (config->action != BP_ACTION_RUN && config->action != action)
        bp_problems_add(reading->problems, BP_E_config_invalid, argument, "is a second thing to do: one at a time");
    else
        config->action = action;
}

static void set_token_name(struct reading *reading, const char *argument, const char *name)
{
    set_action(reading, argument, BP_ACTION_NEW_TOKEN);
    if (bp_token_name_is_valid(name))
        memcpy(reading->config->token_name, name, strlen(name) + 1);
    else
        bp_problems_add(reading->problems, BP_E_config_invalid, argument, "takes a name of letters, digits and ._-");
}

/* One option at argv[i]; returns how many arguments it took. */
static int read_option(struct reading *reading, char *const *argv, int i)
{
    const char *argument = argv[i], *name = argument + 2, *equals = strchr(argument, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    int key = find_key(name, n), flag = find_flag(name, n);
    if (key < 0 && flag < 0) {
        bp_problems_add(reading->problems, BP_E_config_invalid, argument, "is not an option");
        return 1;
    }
    if (flag >= 0 && !flags[flag].argument) {
        if (equals)
            bp_problems_add(reading->problems, BP_E_config_invalid, argument, "takes no value");
        set_action(reading, argument, flags[flag].action);
        return 1;
    }
    const char *value = equals ? equals + 1 : argv[i + 1];
    if (!value)
        bp_problems_add(reading->problems, BP_E_config_invalid, argument, "needs a value");
    else if (key >= 0)
        reading->given[key] = value;
    else if (flags[flag].action == BP_ACTION_NEW_TOKEN)
        set_token_name(reading, argument, value);
    else
        reading->file = value;
    return equals || !value ? 1 : 2;
}

static void read_fallbacks(struct bp_daemon_config *config)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    *config = (struct bp_daemon_config){.workers = processors < 1 ? 1 : processors > 256 ? 256 : (unsigned)processors};
    for (int i = 0; i < N_KEYS; i++)
        if (keys[i].fallback)
            keys[i].read(keys[i].fallback, config);
}

/* What single values cannot be judged by. */
static void judge(const struct bp_daemon_config *config, struct bp_problems *problems)
{
    if (config->dry_run && config->action != BP_ACTION_MIGRATE)
        bp_problems_add(problems, BP_E_config_invalid, "--dry-run", "goes with --migrate");
    if (!*config->tls_certificate != !*config->tls_key)
        bp_problems_add(problems, BP_E_config_invalid, *config->tls_key ? "tls-key" : "tls-certificate",
                        "tls-certificate and tls-key go together");
    if (config->listens_beyond_loopback && !config->may_be_unprotected && (!*config->tokens || !*config->tls_key))
        bp_problems_add(problems, BP_E_config_invalid, "listen",
                        "is not a loopback address: that needs tokens and TLS (keys tokens, tls-certificate, tls-key), "
                        "or listen-beyond-loopback-without-tokens-and-tls = yes");
}

void bp_daemon_config_read(int argc, char *const *argv, struct bp_daemon_config *ret, struct bp_problems *problems)
{
    struct reading reading = {.config = ret, .problems = problems};
    read_fallbacks(ret);
    for (int i = 1; i < argc;) {
        if (strncmp(argv[i], "--", 2) == 0) {
            i += read_option(&reading, argv, i);
        } else {
            bp_problems_add(problems, BP_E_config_invalid, argv[i], "is not an option");
            i++;
        }
    }
    if (reading.file)
        read_file(&reading);
    for (int i = 0; i < N_KEYS; i++) {
        const char *wrong = reading.given[i] ? keys[i].read(reading.given[i], ret) : NULL;
        char path[64];
        snprintf(path, sizeof path, "--%s", keys[i].key);
        if (wrong)
            bp_problems_add(problems, BP_E_config_invalid, path, "%s", wrong);
    }
    judge(ret, problems);
}

static void help_line(struct bp_buf *out, const char *option, const char *argument, const char *help)
{
    char left[64];
    snprintf(left, sizeof left, "--%s%s%s", option, argument ? " " : "", argument ? argument : "");
    bp_buf_addf(out, "  %-31s %s", left, help);
}

void bp_daemon_config_help(struct bp_buf *out)
{
    bp_buf_addstr(out,
                  "usage: blueprintd [OPTION...]\n\nPlans Transformer jobs over HTTP and keeps what it derived.\n\n");
    for (int i = 0; i < N_KEYS; i++) {
        help_line(out, keys[i].key, keys[i].argument, keys[i].help);
        if (keys[i].fallback)
            bp_buf_addf(out, " (%s)", keys[i].fallback);
        bp_buf_addch(out, '\n');
    }
    for (int i = 0; i < N_FLAGS; i++) {
        help_line(out, flags[i].option, flags[i].argument, flags[i].help);
        bp_buf_addch(out, '\n');
    }
    bp_buf_addstr(out, "\nExit: 0 stopped, 1 could not run or go on, 2 usage or configuration.\n");
}
