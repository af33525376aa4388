#include "tests/api/http.h"

#include <check.h>
#include <ctype.h>
#include <curl/curl.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "tests/api/server.h"

enum { CALL_TIMEOUT_S = 120, RECORDED_REQUEST_MAX = 65536 };

static struct bp_arena arena;
static json_t *kept; /* an array, so that one reference holds all */

char *keep_text(const char *format, ...)
{
    va_list args;
    char *text = NULL;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    ck_assert_int_ge(n, 0);
    char *copy = bp_arena_strndup(&arena, text, (size_t)n);
    free(text);
    ck_assert_ptr_nonnull(copy);
    return copy;
}

json_t *keep_json(json_t *value)
{
    ck_assert_ptr_nonnull(value);
    if (!kept)
        kept = json_array();
    ck_assert_int_eq(json_array_append_new(kept, value), 0);
    return value;
}

void http_forget(void)
{
    json_decref(kept);
    kept = NULL;
    bp_arena_release(&arena);
    curl_global_cleanup();
}

/* --- one transfer */

struct transfer {
    CURL *handle;
    struct curl_slist *headers;
    struct bp_buf body, head;
};

static size_t receive(char *bytes, size_t size, size_t n, void *data)
{
    bp_buf_add(data, bytes, size * n);
    return size * n;
}

static bool has_content_type(const struct call *call)
{
    for (size_t i = 0; i < 4 && call->headers[i]; i++)
        if (strncasecmp(call->headers[i], "content-type", 12) == 0)
            return true;
    return false;
}

static void transfer_begin(struct transfer *transfer, const struct call *call)
{
    CURL *handle = curl_easy_init();
    ck_assert_ptr_nonnull(handle);
    *transfer = (struct transfer){.handle = handle};
    char url[4096];
    snprintf(url, sizeof url, "%s%s", call->socket ? "http://localhost" : server.url, call->target);
    curl_easy_setopt(handle, CURLOPT_URL, url);
    curl_easy_setopt(handle, CURLOPT_UNIX_SOCKET_PATH, call->socket);
    if (server.cacert)
        curl_easy_setopt(handle, CURLOPT_CAINFO, server.cacert);
    curl_easy_setopt(handle, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(handle, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle, CURLOPT_TIMEOUT, (long)CALL_TIMEOUT_S);
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(handle, CURLOPT_WRITEDATA, &transfer->body);
    curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, receive);
    curl_easy_setopt(handle, CURLOPT_HEADERDATA, &transfer->head);
    if (call->body) {
        curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->n);
        curl_easy_setopt(handle, CURLOPT_POSTFIELDS, call->body);
        transfer->headers = curl_slist_append(transfer->headers, "Expect:");
        if (!has_content_type(call))
            transfer->headers = curl_slist_append(transfer->headers, "Content-Type: application/json");
    }
    for (size_t i = 0; i < 4 && call->headers[i]; i++)
        transfer->headers = curl_slist_append(transfer->headers, call->headers[i]);
    curl_easy_setopt(handle, CURLOPT_HTTPHEADER, transfer->headers);
    curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, call->method);
    if (strcmp(call->method, "HEAD") == 0)
        curl_easy_setopt(handle, CURLOPT_NOBODY, 1L);
}

static const char *kept_copy(const struct bp_buf *buf)
{
    ck_assert(!buf->failed);
    const char *copy = bp_arena_strndup(&arena, buf->data ? buf->data : "", buf->len);
    ck_assert_ptr_nonnull(copy);
    return copy;
}

static bool media_is_json(const struct reply *reply)
{
    const char *media = http_header(reply, "content-type");
    return media &&
           (strncmp(media, "application/json", 16) == 0 || strncmp(media, "application/problem+json", 24) == 0);
}

static struct reply transfer_end(struct transfer *transfer, bool succeeded)
{
    struct reply reply = {
        .body = kept_copy(&transfer->body), .n = transfer->body.len, .headers = kept_copy(&transfer->head)};
    long status = 0;
    curl_easy_getinfo(transfer->handle, CURLINFO_RESPONSE_CODE, &status);
    reply.status = succeeded ? (int)status : 0;
    curl_slist_free_all(transfer->headers);
    curl_easy_cleanup(transfer->handle);
    bp_buf_release(&transfer->body);
    bp_buf_release(&transfer->head);
    if (succeeded && reply.n && media_is_json(&reply)) { /* what was cut off need not parse */
        json_error_t error;
        json_t *json = json_loadb(reply.body, reply.n, JSON_REJECT_DUPLICATES, &error);
        ck_assert_msg(json, "the answer is not JSON: %s: %.300s", error.text, reply.body);
        reply.json = keep_json(json);
    }
    return reply;
}

const char *http_header(const struct reply *reply, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = reply->headers; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncasecmp(line, name, n) != 0 || line[n] != ':')
            continue;
        const char *value = line + n + 1 + strspn(line + n + 1, " ");
        return keep_text("%.*s", (int)strcspn(value, "\r\n"), value);
    }
    return NULL;
}

/* --- the record */

static json_t *recorded_headers(const struct reply *reply)
{
    json_t *headers = json_object();
    for (const char *line = reply->headers; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        size_t n = strcspn(line, ":\r\n");
        if (line[n] != ':')
            continue;
        char *name = keep_text("%.*s", (int)n, line);
        for (char *c = name; *c; c++)
            *c = (char)tolower((unsigned char)*c);
        json_object_set_new(headers, name, json_string(http_header(reply, name)));
    }
    return headers;
}

static void record(const struct call *call, const struct reply *reply)
{
    const char *path = getenv("BP_RECORD");
    if (!path || reply->status == 0)
        return;
    bool has_request = call->body && call->n <= RECORDED_REQUEST_MAX;
    json_t *request = has_request ? json_stringn(call->body, call->n) : NULL; /* NULL as well when it is not UTF-8 */
    json_t *body = json_stringn(reply->body, reply->n);
    ck_assert_msg(body, "the answer to %s %s is not UTF-8", call->method, call->target);
    json_t *line = json_pack("{s:s, s:s, s:i, s:o, s:o, s:o}", "method", call->method, "target", call->target, "status",
                             reply->status, "headers", recorded_headers(reply), "request",
                             request ? request : json_null(), "body", body);
    ck_assert_ptr_nonnull(line);
    char *text = json_dumps(line, JSON_COMPACT);
    json_decref(line);
    /* One write, so that lines of tests that run at the same time do not mix. */
    char *whole = keep_text("%s\n", text);
    free(text);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, whole, strlen(whole)), (ssize_t)strlen(whole));
    close(fd);
}

/* --- calls */

struct reply http_call(const struct call *call)
{
    struct transfer transfer;
    transfer_begin(&transfer, call);
    CURLcode code = curl_easy_perform(transfer.handle);
    struct reply reply = transfer_end(&transfer, code == CURLE_OK);
    record(call, &reply);
    return reply;
}

static void perform_all(CURLM *multi)
{
    int running = 0;
    do {
        ck_assert_int_eq(curl_multi_perform(multi, &running), CURLM_OK);
        if (running)
            ck_assert_int_eq(curl_multi_poll(multi, NULL, 0, 1000, NULL), CURLM_OK);
    } while (running);
}

void http_call_together(const struct call *calls, size_t n, struct reply *ret)
{
    CURLM *multi = curl_multi_init();
    struct transfer *transfers = bp_arena_array(&arena, n, sizeof *transfers);
    bool *succeeded = bp_arena_array(&arena, n, sizeof *succeeded);
    ck_assert(multi && transfers && succeeded);
    for (size_t i = 0; i < n; i++) {
        transfer_begin(&transfers[i], &calls[i]);
        curl_easy_setopt(transfers[i].handle, CURLOPT_PRIVATE, &succeeded[i]);
        curl_multi_add_handle(multi, transfers[i].handle);
    }
    perform_all(multi);
    int left = 0;
    for (CURLMsg *message; (message = curl_multi_info_read(multi, &left));) {
        bool *mark = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&mark);
        *mark = message->data.result == CURLE_OK;
    }
    for (size_t i = 0; i < n; i++) {
        curl_multi_remove_handle(multi, transfers[i].handle);
        ret[i] = transfer_end(&transfers[i], succeeded[i]);
        record(&calls[i], &ret[i]);
    }
    curl_multi_cleanup(multi);
}

struct reply http_get(const char *format, ...)
{
    char target[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(target, sizeof target, format, args);
    va_end(args);
    return http_call(&(struct call){.method = "GET", .target = keep_text("%s", target)});
}

struct reply http_post(const char *target, const char *body)
{
    return http_call(&(struct call){.method = "POST", .target = target, .body = body, .n = body ? strlen(body) : 0});
}

const char *http_raw(const char *bytes, size_t n, int wait_ms)
{
    struct bp_buf answer = {0};
    const char *port = strrchr(server.url, ':');
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port + 1)), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    /* The server may close before it has read everything. */
    if (send(fd, bytes, n, MSG_NOSIGNAL) < 0)
        n = 0;
    char piece[4096];
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    for (ssize_t got; poll(&ready, 1, wait_ms) > 0 && (got = recv(fd, piece, sizeof piece, 0)) > 0;)
        bp_buf_add(&answer, piece, (size_t)got);
    close(fd);
    const char *text = kept_copy(&answer);
    bp_buf_release(&answer);
    return text;
}
