#include "client/http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <curl/curl.h>

#include "client/print.h"
#include "common/base/version.h"

struct bp_server {
    CURL *curl;
    const char *address;
    const char *socket; /* the path of a unix socket, or NULL */
    const char *token, *cacert;
    char message[CURL_ERROR_SIZE];
};

/* What follows the prefix, whatever its case, or NULL. */
static const char *after(const char *text, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncasecmp(text, prefix, n) == 0 ? text + n : NULL;
}

bool bp_server_is_address(const char *address)
{
    const char *socket = strncmp(address, "unix:", 5) == 0 ? address + 5 : NULL, *host = after(address, "http://");
    if (socket)
        return *socket != '\0';
    if (host || (host = after(address, "https://")))
        return *host && *host != '/';
    const char *port = strrchr(address, ':');
    return port && port != address && port[1] && !port[1 + strspn(port + 1, "0123456789")] && !strchr(address, '/');
}

bool bp_server_keeps_secrets(const char *address)
{
    if (strncmp(address, "unix:", 5) == 0 || after(address, "https://"))
        return true;
    const char *host = after(address, "http://");
    if (!host)
        host = address;
    size_t n = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/");
    static const char *const loopback[] = {"localhost", "[::1]"};
    for (size_t i = 0; i < sizeof loopback / sizeof *loopback; i++)
        if (strlen(loopback[i]) == n && strncasecmp(host, loopback[i], n) == 0)
            return true;
    /* An address, not a name that begins like one. */
    return strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == n;
}

struct bp_server *bp_server_new(const char *address, const char *token, const char *cacert)
{
    struct bp_server *server = calloc(1, sizeof *server);
    if (!server)
        return NULL;
    server->address = address;
    server->token = token;
    server->cacert = cacert;
    server->socket = strncmp(address, "unix:", 5) == 0 ? address + 5 : NULL;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK)
        server->curl = curl_easy_init();
    if (!server->curl) {
        free(server);
        return NULL;
    }
    return server;
}

void bp_server_free(struct bp_server *server)
{
    if (!server)
        return;
    curl_easy_cleanup(server->curl);
    curl_global_cleanup();
    free(server);
}

void bp_target_escape(struct bp_buf *out, const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        bool plain = (*at >= '0' && *at <= '9') || (*at >= 'A' && *at <= 'Z') || (*at >= 'a' && *at <= 'z') ||
                     strchr("-._~:", *at);
        if (plain)
            bp_buf_addch(out, (char)*at);
        else
            bp_buf_addf(out, "%%%02X", *at);
    }
}

static void url_of(const struct bp_server *server, const char *target, struct bp_buf *out)
{
    if (server->socket) {
        bp_buf_addstr(out, "http://localhost");
    } else {
        size_t n = strlen(server->address);
        while (n && server->address[n - 1] == '/')
            n--;
        if (!strstr(server->address, "://"))
            bp_buf_addstr(out, "http://");
        bp_buf_add(out, server->address, n);
    }
    bp_buf_addstr(out, target);
}

/* Where the body goes. */
struct intake {
    CURL *curl;
    struct bp_buf *body;
    int file;        /* for the body of a 200; -1: none */
    int write_errno; /* what kept it from being written there */
};

static size_t write_file(struct intake *intake, const char *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t written = write(intake->file, bytes + at, n - at);
        if (written < 0 && errno != EINTR) {
            intake->write_errno = errno;
            return 0;
        }
        at += written > 0 ? (size_t)written : 0;
    }
    return n;
}

static size_t take_body(char *bytes, size_t size, size_t n, void *data)
{
    struct intake *intake = data;
    long status = 0;
    if (intake->file >= 0 && curl_easy_getinfo(intake->curl, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK &&
        status == 200)
        return write_file(intake, bytes, size * n);
    if (n > BP_ANSWER_MAX - intake->body->len)
        return 0;
    bp_buf_add(intake->body, bytes, size * n);
    return intake->body->failed ? 0 : n;
}

/* The line on the terminal while a request waits. */
struct progress {
    CURL *curl;
    const char *address;
    bool shown;
};

static int show_progress(void *data, curl_off_t down_total, curl_off_t down, curl_off_t up_total, curl_off_t up)
{
    (void)down_total, (void)down, (void)up_total, (void)up;
    struct progress *progress = data;
    curl_off_t microseconds = 0;
    curl_easy_getinfo(progress->curl, CURLINFO_TOTAL_TIME_T, &microseconds);
    if (microseconds < 300000)
        return 0;
    struct bp_buf address = {0};
    bp_text_add(&address, progress->address);
    fprintf(stderr, "\rwaiting for %s: %lld s", bp_buf_string(&address), (long long)(microseconds / 1000000));
    fflush(stderr);
    bp_buf_release(&address);
    progress->shown = true;
    return 0;
}

static void hide_progress(const struct progress *progress)
{
    if (progress->shown)
        fprintf(stderr, "\r%*s\r", (int)strlen(progress->address) + 40, "");
}

/* Returns the first failure of the options, which are set whatever fails. */
static CURLcode set_options(struct bp_server *server, const char *url, const char *method, const struct bp_buf *body,
                            struct curl_slist *headers, struct intake *intake)
{
    CURL *curl = server->curl;
    bool is_file = intake->file >= 0;
    curl_easy_reset(curl);
    CURLcode codes[] = {
        curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, server->message),
        curl_easy_setopt(curl, CURLOPT_URL, url),
        curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L),
        curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https"),
        server->cacert ? curl_easy_setopt(curl, CURLOPT_CAINFO, server->cacert) : CURLE_OK,
        curl_easy_setopt(curl, CURLOPT_PROXY, ""),
        curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, server->socket),
        curl_easy_setopt(curl, CURLOPT_USERAGENT, "blueprint/" BP_VERSION),
        curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers),
        curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, BP_CONNECT_SECONDS),
        curl_easy_setopt(curl, CURLOPT_TIMEOUT, is_file ? 0L : BP_TIMEOUT_SECONDS),
        curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, is_file ? 1L : 0L),
        curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, BP_TIMEOUT_SECONDS),
        curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body),
        curl_easy_setopt(curl, CURLOPT_WRITEDATA, intake),
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method),
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i] != CURLE_OK)
            return codes[i];
    if (strcmp(method, "POST") != 0)
        return CURLE_OK;
    CURLcode code = curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)(body ? body->len : 0));
    return code != CURLE_OK ? code : curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body && body->len ? body->data : "");
}

static int fail_of(const struct bp_server *server, CURLcode code, const struct intake *intake, struct bp_err *err)
{
    if (code == CURLE_OUT_OF_MEMORY || intake->body->failed)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for the answer of %s", server->address);
    if (intake->write_errno)
        return bp_fail(err, BP_E_storage_failed, "", "%s", strerror(intake->write_errno));
    if (code == CURLE_WRITE_ERROR)
        return bp_fail(err, BP_E_network_failed, "", "the answer of %s is larger than %lu bytes", server->address,
                       BP_ANSWER_MAX);
    return bp_fail(err, BP_E_network_failed, "", "%s: %s", server->address,
                   server->message[0] ? server->message : curl_easy_strerror(code));
}

/* NULL when memory ran out. */
static struct curl_slist *headers_of(const struct bp_server *server, bool has_body)
{
    struct bp_buf token = {0};
    if (server->token)
        bp_buf_addf(&token, "Authorization: Bearer %s", server->token);
    const char *const lines[] = {
        "Accept: application/json, application/problem+json",
        /* Without a body curl would still name a type, that of a form. */
        has_body ? "Content-Type: application/json" : "Content-Type:",
        server->token ? bp_buf_string(&token) : NULL,
    };
    struct curl_slist *headers = NULL;
    bool failed = token.failed;
    for (size_t i = 0; i < sizeof lines / sizeof *lines && lines[i] && !failed; i++) {
        struct curl_slist *longer = curl_slist_append(headers, lines[i]);
        failed = !longer;
        headers = longer ? longer : headers;
    }
    bp_buf_release(&token);
    if (!failed)
        return headers;
    curl_slist_free_all(headers);
    return NULL;
}

static int call(struct bp_server *server, const char *method, const char *target, const struct bp_buf *body, int file,
                struct bp_reply *ret, struct bp_err *err)
{
    struct bp_reply answer = {0};
    struct intake intake = {.curl = server->curl, .body = &answer.body, .file = file};
    struct bp_buf url = {0};
    struct curl_slist *headers = headers_of(server, body != NULL);
    url_of(server, target, &url);
    server->message[0] = '\0';
    CURLcode code = CURLE_OUT_OF_MEMORY;
    struct progress line = {.curl = server->curl, .address = server->address};
    if (headers && bp_buf_string(&url)[0])
        code = set_options(server, url.data, method, body, headers, &intake);
    if (code == CURLE_OK && isatty(STDERR_FILENO)) {
        curl_easy_setopt(server->curl, CURLOPT_XFERINFOFUNCTION, show_progress);
        curl_easy_setopt(server->curl, CURLOPT_XFERINFODATA, &line);
        curl_easy_setopt(server->curl, CURLOPT_NOPROGRESS, 0L);
    }
    if (code == CURLE_OK)
        code = curl_easy_perform(server->curl);
    hide_progress(&line);
    if (code == CURLE_OK)
        code = curl_easy_getinfo(server->curl, CURLINFO_RESPONSE_CODE, &answer.status);
    curl_slist_free_all(headers);
    bp_buf_release(&url);
    if (code != CURLE_OK) {
        fail_of(server, code, &intake, err);
        bp_buf_release(&answer.body);
        return -1;
    }
    *ret = answer;
    return 0;
}

int bp_server_call(struct bp_server *server, const char *method, const char *target, const struct bp_buf *body,
                   struct bp_reply *ret, struct bp_err *err)
{
    return call(server, method, target, body, -1, ret, err);
}

int bp_server_fetch(struct bp_server *server, const char *target, int file, struct bp_reply *ret, struct bp_err *err)
{
    return call(server, "GET", target, NULL, file, ret, err);
}
