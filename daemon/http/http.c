/* libmicrohttpd, and nothing else of the daemon, lives here. */
#include "daemon/http/http.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <microhttpd.h>

#include "daemon/http/accept.h"
#include "daemon/http/judge.h"
#include "daemon/http/listen.h"
#include "daemon/http/pulse.h"
#include "daemon/http/routes.h"
#include "daemon/http/tls.h"
#include "daemon/log.h"

/* libmicrohttpd's memory of one connection: the longest head that fits, and what it clears after every request. */
static const size_t connection_memory = 16 * 1024;

/* Bytes that may be allocated for all answers: clients that read slowly hold theirs. */
static const uint64_t answer_budget = UINT64_C(512) << 20;

/* For the last answers to be taken when the daemon stops. */
static const uint64_t grace_ns = UINT64_C(3) * 1000000000;

/* One thread of libmicrohttpd, which listens to nobody: what it has is handed to it. */
struct bp_http_thread {
    struct bp_http *http;
    struct MHD_Daemon *daemon;
    struct bp_pulse pulse;
};

struct bp_http {
    struct bp_http_thread threads[BP_DOORS]; /* of TCP, and of the Unix socket when TCP speaks TLS, else of both */
    pthread_mutex_t turn; /* of two, held by the thread that calls back; taken before all other locks */
    struct bp_connections connections;
    struct bp_access *access;
    struct bp_service *service;
    struct bp_metrics *metrics;
    bool parts_are_in_place;  /* what libmicrohttpd hands out stands in the text that it received */
    bool inherited[BP_DOORS]; /* a listener: it is not ours alone */
    char socket[sizeof((struct sockaddr_un *)0)->sun_path]; /* "" for none */
    struct stat socket_made;
    char address[BP_LISTEN_NAME];
    uint64_t turned; /* turns of the watching thread when it was last asked */
};

/* One daemon calls back from its one thread alone. */
static void take_turn(struct bp_http *http)
{
    if (http->connections.n_threads > 1)
        pthread_mutex_lock(&http->turn);
}

static void give_turn(struct bp_http *http)
{
    if (http->connections.n_threads > 1)
        pthread_mutex_unlock(&http->turn);
}

/* ---- Answers ---- */

static bool add_header(struct MHD_Response *response, const char *name, const char *value)
{
    return !value || !*value || MHD_add_response_header(response, name, value) == MHD_YES;
}

/* What is answered to holders of tokens alone is not for a cache that others share. */
static const char *cache_control(const struct bp_http *http, const struct bp_answer *answer)
{
    if (!answer->immutable)
        return NULL;
    return bp_access_has_tokens(http->access) ? "private, max-age=31536000, immutable"
                                              : "public, max-age=31536000, immutable";
}

/* It closes the descriptor that it is given. */
static struct MHD_Response *response_of_file(const struct bp_answer *answer)
{
    int fd = fcntl(answer->file, F_DUPFD_CLOEXEC, 0);
    struct MHD_Response *response = fd < 0 ? NULL : MHD_create_response_from_fd64(answer->n, fd);
    if (fd >= 0 && !response)
        close(fd);
    return response;
}

static void response_free(void *response)
{
    MHD_destroy_response(response);
}

/* libmicrohttpd's form of the answer; it borrows the body. NULL when memory runs out. */
static struct MHD_Response *response_new(const struct bp_http *http, const struct bp_answer *answer,
                                         const char *request_id, const char *trace)
{
    char retry_after[16] = "";
    if (answer->retry_after)
        snprintf(retry_after, sizeof retry_after, "%u", answer->retry_after);
    struct MHD_Response *response =
        answer->has_file ? response_of_file(answer)
                         : MHD_create_response_from_buffer(answer->n, answer->body, MHD_RESPMEM_PERSISTENT);
    if (!response)
        return NULL;
    if (!add_header(response, "Content-Type", answer->media_type) || !add_header(response, "ETag", answer->etag) ||
        !add_header(response, "Location", answer->location) || !add_header(response, "Link", answer->link) ||
        !add_header(response, "Allow", answer->allow) || !add_header(response, "Retry-After", retry_after) ||
        !add_header(response, "Preference-Applied", answer->applied) ||
        !add_header(response, "WWW-Authenticate", answer->authenticate) ||
        !add_header(response, "Cache-Control", cache_control(http, answer)) ||
        !add_header(response, "Connection", answer->close ? "close" : NULL) ||
        !add_header(response, "X-Request-Id", request_id) || !add_header(response, "traceresponse", trace)) {
        MHD_destroy_response(response);
        return NULL;
    }
    return response;
}

/* The same for everybody: an answer that caches may keep does not say whose it was first. */
static struct MHD_Response *response_shared(const struct bp_http *http, struct bp_answer *answer)
{
    if (!answer->prepared) {
        answer->prepared = response_new(http, answer, NULL, NULL);
        answer->prepared_free = response_free;
    }
    return answer->prepared;
}

/* The connection keeps the answer until the request is over. */
static enum MHD_Result deliver(struct bp_http *http, struct bp_connection *connection, struct bp_answer *answer)
{
    connection->answer = answer;
    if (answer->has_file)
        bp_connection_take_long(connection, answer->n);
    const struct bp_trail *trail = &connection->trail;
    const bool is_shared = answer->immutable && !trail->is_given;
    char trace[BP_TRACEPARENT_LENGTH + 1];
    bp_trail_response(trail, trace);
    struct MHD_Response *response =
        is_shared ? response_shared(http, answer) : response_new(http, answer, trail->ids.request_id, trace);
    if (!response)
        return MHD_NO;
    bp_trail_answered(&connection->trail, answer, http->metrics);
    enum MHD_Result result = MHD_queue_response(connection->handle, (unsigned)answer->status, response);
    if (!is_shared)
        MHD_destroy_response(response);
    return result;
}

/* ---- A request arrives ---- */

static enum MHD_Result collect_field(void *data, enum MHD_ValueKind kind, const char *name, const char *value)
{
    (void)kind;
    bp_head_add(data, name, value);
    return MHD_YES;
}

static void read_head(struct bp_http *http, struct bp_connection *connection, const char *method, const char *version)
{
    struct bp_head *head = &connection->head;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection->handle, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (http->parts_are_in_place)
        bp_head_begin(head, method, connection->received, strlen(connection->target), version);
    MHD_get_connection_values(connection->handle, MHD_HEADER_KIND, collect_field, head);
    bp_head_end(head, method, info ? info->header_size : 0);
}

static enum MHD_Result arrive(struct bp_http *http, struct bp_connection *connection, const char *method,
                              const char *version)
{
    connection->started = true;
    connection->trail.route = bp_routes_n;
    connection->trail.method = bp_metrics_method(method);
    connection->call = (struct bp_call){.service = http->service, .connections = &http->connections};
    read_head(http, connection, method, version);
    bp_trail_name(&connection->trail, &connection->head, &http->connections.ids);
    bp_log_about(&connection->trail.ids);
    if (bp_judge(connection, method, version))
        return MHD_YES;
    bp_connection_begin(connection);
    struct bp_answer *answer = connection->refusal;
    connection->refusal = NULL;
    return deliver(http, connection, answer);
}

/* Mid-body no answer can be given: what is too much is read on and thrown away, up to a point. */
static enum MHD_Result take_body(struct bp_connection *connection, const char *bytes, size_t n)
{
    struct bp_err err = {0};
    connection->n_read += n;
    if (connection->n_read > BP_BODY_DRAIN)
        return MHD_NO;
    if (!connection->refusal && bp_connection_keep(connection, bytes, n, &err))
        bp_judge_refuse(connection, &err, NULL, true);
    return MHD_YES;
}

/* ---- A request is whole ---- */

static void suspend(void *handle)
{
    MHD_suspend_connection(handle);
}

static void resume(void *handle)
{
    MHD_resume_connection(handle);
}

static struct bp_answer *run_route(struct bp_connection *connection)
{
    struct bp_call *call = &connection->call;
    const struct bp_route *route = &bp_routes[connection->trail.route];
    if (route->scope == BP_SCOPE_ADMIN && strcmp(route->method, "GET") != 0)
        bp_service_audit_call(call->service, &call->waiter.caller, route->name);
    call->body = connection->body.data ? connection->body.data : "";
    call->n_body = connection->body.len;
    call->is_encoded = bp_head_is_encoded(&connection->head);
    call->content_type = connection->head.content_type;
    call->preferences = connection->head.preferences;
    call->if_none_match = connection->head.if_none_match;
    return route->run(call);
}

static enum MHD_Result run(struct bp_http *http, struct bp_connection *connection)
{
    struct bp_answer *answer = connection->refusal;
    bool may = bp_connection_begin(connection);
    connection->refusal = NULL;
    if (!may) {
        bp_answer_unref(answer);
        answer = bp_problem_say(BP_E_stopping, "", "the daemon is stopping");
        if (!bp_answer_is_standing(answer))
            answer->close = true;
    }
    if (!answer && bp_answer_bytes() > answer_budget)
        answer = bp_problem_say(BP_E_out_of_memory, "", "too many answers are waiting to be taken");
    if (!answer)
        answer = run_route(connection);
    if (answer)
        return deliver(http, connection, answer);
    if (bp_connection_wait(connection, suspend))
        return MHD_YES;
    return connection->gone ? MHD_NO : deliver(http, connection, connection->answer);
}

static enum MHD_Result handle_request(struct bp_http *http, struct bp_connection *connection, const char *method,
                                      const char *version, const char *bytes, size_t *n_bytes)
{
    if (!connection || !connection->target)
        return MHD_NO;
    enum MHD_Result result;
    if (!connection->started) {
        result = arrive(http, connection, method, version);
    } else if (*n_bytes) {
        result = take_body(connection, bytes, *n_bytes);
        *n_bytes = 0;
    } else if (!connection->active) {
        bp_log_about(&connection->trail.ids);
        result = run(http, connection);
    } else {
        result = connection->gone ? MHD_NO : deliver(http, connection, connection->answer);
    }
    bp_log_about(NULL);
    return result;
}

static enum MHD_Result on_request(void *data, struct MHD_Connection *handle, const char *url, const char *method,
                                  const char *version, const char *bytes, size_t *n_bytes, void **context)
{
    struct bp_http_thread *thread = data;
    struct bp_http *http = thread->http;
    (void)handle;
    (void)url;
    atomic_fetch_add_explicit(&http->connections.turns_of[thread - http->threads].n_handled, 1, memory_order_relaxed);
    take_turn(http);
    enum MHD_Result result = handle_request(http, *context, method, version, bytes, n_bytes);
    give_turn(http);
    return result;
}

/* ---- Connections ---- */

static struct bp_connection *connection_of(struct MHD_Connection *handle)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(handle, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* libmicrohttpd would list the query's parameters in the connection's memory, of which nothing here makes use, and when
 * there is no room for them neither answers nor reads on. So it finds none. */
static void hide_query(const char *target)
{
    char *query = strchr((char *)(uintptr_t)target, '?');
    if (query && query[1])
        query[1] = '\0';
}

/* The request line is there: the clock of the request starts. */
static void *on_target(void *data, const char *target, struct MHD_Connection *handle)
{
    struct bp_http *http = data;
    struct bp_connection *connection = connection_of(handle);
    if (!connection)
        return NULL;
    take_turn(http);
    if (connection->target)
        bp_connection_end(connection); /* of a request that ended before the handler saw it */
    connection->received = target;
    connection->target = strdup(target);
    if (bp_log_wants(BP_LOG_DEBUG))
        connection->trail.target = strndup(target, BP_LOG_VALUE_MAX);
    if (http->parts_are_in_place)
        hide_query(target);
    bp_connection_arriving(connection);
    give_turn(http);
    return connection;
}

static void on_completed(void *data, struct MHD_Connection *handle, void **context,
                         enum MHD_RequestTerminationCode reason)
{
    struct bp_http *http = data;
    struct bp_connection *connection = *context;
    (void)handle;
    take_turn(http);
    if (connection) {
        connection->trail.sent = reason == MHD_REQUEST_TERMINATED_COMPLETED_OK;
        bp_connection_end(connection);
    }
    *context = NULL;
    give_turn(http);
}

static void on_connection(void *data, struct MHD_Connection *handle, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct bp_http *http = data;
    take_turn(http);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *fd = MHD_get_connection_info(handle, MHD_CONNECTION_INFO_CONNECTION_FD);
        *context = bp_connection_start(&http->connections, fd->connect_fd, handle);
    } else {
        bp_connection_close(*context);
        *context = NULL;
    }
    give_turn(http);
}

/* ---- What is handed to libmicrohttpd ---- */

/* Any thread. The descriptor is that thread's, or closed: false. */
static bool hand_over(struct bp_http_thread *thread, int fd, const struct sockaddr *address, socklen_t size, bool own)
{
    struct bp_connections *connections = &thread->http->connections;
    uint64_t mark;
    if (!bp_connection_open(connections, fd, address, own, &mark)) {
        close(fd);
        return false;
    }
    if (MHD_add_connection(thread->daemon, fd, address, size) == MHD_YES)
        return true;
    bp_connection_drop(connections, mark);
    return false;
}

static void on_accepted(void *data, enum bp_door door, int fd, const struct sockaddr *address, socklen_t size)
{
    struct bp_http *http = data;
    hand_over(&http->threads[door % http->connections.n_threads], fd, address, size, false);
}

static bool hand_over_own(void *data, int fd)
{
    const struct sockaddr_un address = {.sun_family = AF_UNIX};
    return hand_over(data, fd, (const struct sockaddr *)&address, sizeof address, true);
}

/* One more connection, whose other end is closed, wakes the thread it is given to. */
static void nudge(void *data, size_t thread)
{
    struct bp_http *http = data;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair))
        return;
    close(pair[1]);
    hand_over_own(&http->threads[thread], pair[0]);
}

static void on_panic(void *data, const char *file, unsigned line, const char *reason)
{
    (void)data;
    bp_log(BP_LOG_ERROR, "libmicrohttpd cannot go on",
           BP_LOG_FIELDS(BP_LOG_TEXT("file", file), BP_LOG_UINT("line", line),
                         BP_LOG_TEXT("reason", reason ? reason : "")));
    abort();
}

/* ---- Start and stop ---- */

/* On what was not inherited. */
static int listen_on(struct bp_http *http, const struct bp_http_options *options, struct bp_err *err)
{
    int *listeners = http->connections.listeners;
    listeners[BP_DOOR_TCP] = options->tcp_listener;
    listeners[BP_DOOR_UNIX] = options->unix_listener;
    if (options->tcp_listener < 0 && bp_listen_tcp(options->listen, options->listen_size, &listeners[BP_DOOR_TCP], err))
        return -1;
    if (options->unix_listener >= 0 || !*options->socket)
        return 0;
    if (bp_listen_unix(options->socket, &listeners[BP_DOOR_UNIX], &http->socket_made, err))
        return -1;
    memcpy(http->socket, options->socket, strlen(options->socket) + 1);
    return 0;
}

/* `flags` and `extra` are what the two differ in. Without a timeout of libmicrohttpd's: the deadlines of ours hold for
 * every connection, and it would read the clock and move the connection in a list at every step. Its limit leaves room
 * for what it has closed and not yet counted. */
static struct MHD_Daemon *start_one(struct bp_http_thread *thread, unsigned flags, struct MHD_OptionItem *extra)
{
    struct bp_http *http = thread->http;
    return MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET | flags,
                            0, NULL, NULL, on_request, thread, MHD_OPTION_CONNECTION_MEMORY_LIMIT, connection_memory,
                            MHD_OPTION_CONNECTION_LIMIT, http->connections.limit + 2 * BP_OWN_CONNECTIONS,
                            MHD_OPTION_URI_LOG_CALLBACK, on_target, http, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
                            http, MHD_OPTION_NOTIFY_CONNECTION, on_connection, http, MHD_OPTION_ARRAY, extra,
                            MHD_OPTION_END);
}

static void stop_threads(struct bp_http *http)
{
    for (size_t i = 0; i < http->connections.n_threads; i++)
        MHD_stop_daemon(http->threads[i].daemon);
}

static int start_threads(struct bp_http *http, bool has_tls, struct bp_err *err)
{
    const size_t n = has_tls && http->connections.listeners[BP_DOOR_UNIX] >= 0 ? 2 : 1;
    struct MHD_OptionItem end = {MHD_OPTION_END, 0, NULL};
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_CERT_CALLBACK2, 0, (void *)(uintptr_t)bp_tls_retrieve},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)BP_TLS_PRIORITIES},
        end,
    };
    MHD_set_panic_func(on_panic, NULL);
    for (size_t i = 0; i < n; i++) {
        const bool speaks_tls = has_tls && i == 0;
        struct bp_http_thread *thread = &http->threads[i];
        thread->http = http;
        thread->pulse = (struct bp_pulse){.connect = hand_over_own, .data = thread, .is_tls = speaks_tls, .fd = -1};
        thread->daemon = start_one(thread, speaks_tls ? MHD_USE_TLS : 0, speaks_tls ? tls : &end);
        if (!thread->daemon) {
            bp_fail(err, BP_E_network_failed, "", "the HTTP server did not start: %s", strerror(errno));
            stop_threads(http);
            return -1;
        }
        http->connections.n_threads++;
    }
    return 0;
}

static void http_free(struct bp_http *http)
{
    bp_connections_release(&http->connections);
    for (int door = 0; door < BP_DOORS; door++)
        if (http->connections.listeners[door] >= 0)
            close(http->connections.listeners[door]);
    if (*http->socket)
        bp_listen_unlink(http->socket, &http->socket_made);
    pthread_mutex_destroy(&http->turn);
    free(http);
}

int bp_http_start(const struct bp_http_options *options, struct bp_http **ret, struct bp_err *err)
{
    size_t n_fds = bp_descriptors();
    struct bp_http *http = calloc(1, sizeof *http);
    if (!http)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for the HTTP server");
    if (bp_connections_init(&http->connections, n_fds, err)) {
        free(http);
        return -1;
    }
    pthread_mutex_init(&http->turn, NULL);
    http->inherited[BP_DOOR_TCP] = options->tcp_listener >= 0;
    http->inherited[BP_DOOR_UNIX] = options->unix_listener >= 0;
    http->access = http->connections.access = options->access;
    http->parts_are_in_place = strcmp(MHD_get_version(), "0.9.75") == 0; /* later ones refuse more themselves */
    http->service = http->connections.service = options->service;
    http->metrics = http->connections.metrics = options->metrics;
    http->connections.per_network = options->connections_per_address;
    http->connections.receive_seconds = options->receive_seconds;
    http->connections.answer_seconds = options->answer_seconds;
    http->connections.resume = resume;
    http->connections.nudge = nudge;
    http->connections.accepted = on_accepted;
    http->connections.data = http;
    http->connections.limit = bp_connection_limit(options->connections, n_fds);
    bp_ids_init(&http->connections.ids);
    if (listen_on(http, options, err) || start_threads(http, options->has_tls, err)) {
        http_free(http);
        return -1;
    }
    bp_listen_name(http->connections.listeners[BP_DOOR_TCP], http->address);
    if (bp_connections_start(&http->connections, err)) {
        stop_threads(http);
        http_free(http);
        return -1;
    }
    *ret = http;
    return 0;
}

const char *bp_http_address(const struct bp_http *http)
{
    return http->address;
}

void bp_http_ask(struct bp_http *http)
{
    http->turned = atomic_load(&http->connections.turns);
    for (size_t i = 0; i < http->connections.n_threads; i++)
        bp_pulse_ask(&http->threads[i].pulse);
}

bool bp_http_has_answered(struct bp_http *http)
{
    bool answered = atomic_load(&http->connections.turns) != http->turned;
    for (size_t i = 0; i < http->connections.n_threads; i++)
        answered &= bp_pulse_has_answered(&http->threads[i].pulse);
    return answered;
}

void bp_http_stop(struct bp_http *http, uint64_t deadline_ns)
{
    if (!http)
        return;
    bp_accept_stop(&http->connections);
    for (int door = 0; door < BP_DOORS; door++)
        if (http->connections.listeners[door] >= 0 && !http->inherited[door])
            shutdown(http->connections.listeners[door], SHUT_RDWR); /* who waits there learns now, not at the end */
    bp_connections_drain(&http->connections, deadline_ns, grace_ns);
    bp_connections_stop(&http->connections);
    for (size_t i = 0; i < http->connections.n_threads; i++)
        bp_pulse_release(&http->threads[i].pulse);
    stop_threads(http);
    http_free(http);
}
