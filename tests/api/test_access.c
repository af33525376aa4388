/* Who may ask for what: tokens, users of the Unix socket, limits, reloads; over real sockets. */
#include <curl/curl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/access/scope.h"
#include "tests/api/access_fixture.h"
#include "tests/api/command.h"
#include "tests/api/expect.h"

static struct made_token reader, planner, admin;
static const char *tokens;

/* Serves with three tokens, each of one scope. */
static void restart_with_tokens(void)
{
    reader = make_token("reader", "read", "");
    planner = make_token("planner", "plan", "");
    admin = make_token("admin", "admin", "");
    tokens = write_file("tokens", keep_text("%s%s%s", reader.line, planner.line, admin.line), 0640);
    access_restart((const char *const[]){"--tokens", tokens, NULL});
}

/* ---- Tokens ---- */

static const char *name_of(enum bp_scope wanted)
{
#define BP_SCOPE(suffix, bit, name, what)                                                                              \
    if (wanted == BP_SCOPE_##suffix)                                                                                   \
        return name;
#include "daemon/access/scope.def"
#undef BP_SCOPE
    return "none";
}

struct route {
    const char *method, *pattern;
    enum bp_scope scope;
};
static const struct route routes[] = {
#define BP_ROUTE(method, pattern, scope, run, name) {method, pattern, BP_SCOPE_##scope},
#include "daemon/http/routes.def"
#undef BP_ROUTE
};
enum { N_ROUTES = sizeof routes / sizeof *routes };

/* The pattern with something in the places of its names. */
static const char *target_of(const char *pattern)
{
    char target[512] = "";
    for (const char *at = pattern; *at; at++) {
        size_t n = strlen(target);
        if (*at == '{') {
            memset(target + n, 'f', 64);
            target[n + 64] = '\0';
            at = strchr(at, '}');
        } else {
            target[n] = *at;
            target[n + 1] = '\0';
        }
    }
    return keep_text("%s", target);
}

static struct reply ask(const struct route *route, const char *header)
{
    return http_call(&(struct call){.method = route->method, .target = target_of(route->pattern), .headers = {header}});
}

START_TEST(test_access__every_route_asks_for_its_scope_and_no_other)
{
    restart_with_tokens();
    const struct {
        enum bp_scope scope;
        const char *header;
    } holders[] = {{BP_SCOPE_READ, reader.header}, {BP_SCOPE_PLAN, planner.header}, {BP_SCOPE_ADMIN, admin.header}};
    for (size_t i = 0; i < N_ROUTES; i++) {
        bool is_open = routes[i].scope == BP_SCOPE_NONE;
        struct reply reply = ask(&routes[i], NULL);
        if (is_open)
            ck_assert_int_eq(reply.status, 200);
        else
            expect_problem(&reply, 401, "unauthenticated");
        for (size_t k = 0; k < sizeof holders / sizeof *holders; k++) {
            reply = ask(&routes[i], holders[k].header);
            if (is_open || holders[k].scope == routes[i].scope) {
                ck_assert_msg(reply.status != 401 && reply.status != 403, "%s %s as %s: %d", routes[i].method,
                              routes[i].pattern, name_of(holders[k].scope), reply.status);
                continue;
            }
            expect_problem(&reply, 403, "scope_missing");
            expect_text(http_header(&reply, "www-authenticate"), keep_text("scope=\"%s\"", name_of(routes[i].scope)));
        }
    }
}
END_TEST

START_TEST(test_access__without_a_token_of_ours_there_is_a_challenge_and_nothing_else)
{
    restart_with_tokens();
    struct reply reply = get_as("/v1/plans", NULL);
    expect_problem(&reply, 401, "unauthenticated");
    ck_assert_str_eq(http_header(&reply, "www-authenticate"), "Bearer realm=\"blueprintd\"");
    static const char *const wrong[] = {"Authorization: Bearer bp_0123",
                                        "Authorization: Basic cmVhZGVyOg==", "Authorization: Bearer",
                                        "Authorization: reader"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        reply = http_call(&(struct call){.method = "GET", .target = "/v1/plans", .headers = {wrong[i]}});
        expect_problem(&reply, 401, "unauthenticated");
        ck_assert_ptr_nonnull(http_header(&reply, "www-authenticate"));
    }
    /* The hash in the file is no token. */
    const char *hash = strstr(reader.line, "sha256:");
    reply = http_call(&(struct call){
        .method = "GET", .target = "/v1/plans", .headers = {keep_text("Authorization: Bearer %.71s", hash)}});
    expect_problem(&reply, 401, "unauthenticated");
    /* Which resources there are is not for everybody either. */
    reply = get_as("/nowhere", NULL);
    expect_problem(&reply, 401, "unauthenticated");
    reply = get_as("/nowhere", &reader);
    expect_problem(&reply, 404, "not_found");
    reply = http_call(&(struct call){.method = "DELETE", .target = "/v1/plans"});
    expect_problem(&reply, 401, "unauthenticated");
    reply = http_call(&(struct call){.method = "DELETE", .target = "/v1/plans", .headers = {reader.header}});
    expect_problem(&reply, 405, "method_not_allowed");
    /* Two of them can be read in two ways. */
    reply = http_call(&(struct call){
        .method = "GET", .target = "/v1/plans", .headers = {reader.header, "Authorization: Bearer other"}});
    expect_problem(&reply, 400, "bad_framing");
}
END_TEST

START_TEST(test_access__what_needs_a_token_is_not_for_shared_caches)
{
    json_t *plan = plan_of(small_request(), 201);
    const char *target = keep_text("/v1/snapshots/%s", digest_of(plan, "model"));
    struct reply reply = http_get("%s", target);
    expect_text(http_header(&reply, "cache-control"), "public");
    restart_with_tokens();
    reply = get_as(target, &reader);
    ck_assert_int_eq(reply.status, 200);
    expect_text(http_header(&reply, "cache-control"), "private");
    ck_assert_ptr_null(strstr(http_header(&reply, "cache-control"), "public"));
}
END_TEST

/* ---- Reloading tokens ---- */

START_TEST(test_access__tokens_are_reloaded_while_connections_stay_open)
{
    restart_with_tokens();
    struct made_token fresh = make_token("fresh", "read", "");
    /* A connection that is kept: what it was let in with counts for nothing in its next request. */
    CURL *kept = curl_easy_init();
    struct curl_slist *headers = curl_slist_append(NULL, reader.header);
    long status = 0, connects = 0;
    FILE *null = fopen("/dev/null", "w");
    curl_easy_setopt(kept, CURLOPT_URL, keep_text("%s/v1/plans", server.url));
    curl_easy_setopt(kept, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(kept, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(kept, CURLOPT_WRITEDATA, null);
    ck_assert_int_eq(curl_easy_perform(kept), CURLE_OK);
    curl_easy_getinfo(kept, CURLINFO_RESPONSE_CODE, &status);
    ck_assert_int_eq(status, 200);
    write_file("tokens", fresh.line, 0640);
    access_reload();
    wait_for_status(&(struct call){.method = "GET", .target = "/v1/plans", .headers = {fresh.header}}, 200);
    ck_assert_int_eq(curl_easy_perform(kept), CURLE_OK);
    curl_easy_getinfo(kept, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(kept, CURLINFO_NUM_CONNECTS, &connects);
    ck_assert_int_eq(status, 401);
    ck_assert_int_eq(connects, 0);
    curl_easy_cleanup(kept);
    curl_slist_free_all(headers);
    fclose(null);
}
END_TEST

START_TEST(test_access__a_bad_file_of_tokens_leaves_the_old_ones_in_force)
{
    restart_with_tokens();
    write_file("tokens", keep_text("%snonsense\n", planner.line), 0640);
    access_reload();
    wait_for_log("line 2: ");
    ck_assert_int_eq(get_as("/v1/plans", &reader).status, 200);
    write_file("tokens", planner.line, 0644);
    access_reload();
    wait_for_log("has mode 644");
    ck_assert_int_eq(get_as("/v1/plans", &reader).status, 200);
    ck_assert_int_eq(unlink(tokens), 0);
    access_reload();
    wait_for_log("cannot be opened");
    ck_assert_int_eq(get_as("/v1/plans", &reader).status, 200);
    write_file("tokens", planner.line, 0600);
    access_reload();
    wait_for_status(&(struct call){.method = "GET", .target = "/v1/plans", .headers = {reader.header}}, 401);
}
END_TEST

START_TEST(test_access__the_log_level_and_limits_are_reloaded)
{
    const char *file = write_file("blueprintd.ini", "log-level = error\n", 0600);
    access_restart((const char *const[]){"--config", file, NULL});
    ck_assert_int_eq(http_get("/v1/plans").status, 200);
    access_reload();
    write_file("blueprintd.ini", "log-level = info\nrate-limit = 2/h\n", 0600);
    access_reload();
    wait_for_log("\"reloaded\"");
    ck_assert_int_eq(http_get("/v1/plans").status, 200);
    ck_assert_int_eq(http_get("/v1/plans").status, 200);
    struct reply reply = http_get("/v1/plans");
    expect_problem(&reply, 429, "rate_limited");
    /* A configuration that is wrong changes nothing; nor does one that would open the door. */
    write_file("blueprintd.ini", "rate-limit = 0/h\n", 0600);
    access_reload();
    wait_for_log("a rate is N/s");
    ck_assert_int_eq(http_get("/v1/plans").status, 429);
    write_file("blueprintd.ini", keep_text("tokens = %s\n", file), 0600);
    access_reload();
    wait_for_log("without a new start");
    ck_assert_int_eq(http_get("/healthz").status, 200);
}
END_TEST

/* ---- Limits ---- */

START_TEST(test_access__a_rate_that_is_used_up_says_when_to_come_again)
{
    struct made_token slow = make_token("slow", "read", "rate=2/h"), other = make_token("other", "read", "");
    tokens = write_file("tokens", keep_text("%s%s", slow.line, other.line), 0600);
    access_restart((const char *const[]){"--tokens", tokens, NULL});
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    ck_assert_int_eq(get_as("/v1/plans", &slow).status, 200);
    ck_assert_int_eq(get_as("/nowhere", &slow).status, 404);
    struct reply reply = get_as("/v1/plans", &slow);
    clock_gettime(CLOCK_MONOTONIC, &after);
    expect_problem(&reply, 429, "rate_limited");
    long wait = strtol(http_header(&reply, "retry-after"), NULL, 10);
    ck_assert_int_le(wait, 1800);
    ck_assert_int_ge(wait, 1800 - (after.tv_sec - before.tv_sec) - 1);
    ck_assert_int_eq(get_as("/v1/plans", &other).status, 200); /* nobody else's */
    ck_assert_int_eq(get_as("/healthz", &slow).status, 200);   /* open to everyone */
}
END_TEST

START_TEST(test_access__requests_under_way_are_limited_and_the_place_comes_back)
{
    struct made_token single = make_token("single", "read,plan", "concurrency=1");
    tokens = write_file("tokens", single.line, 0600);
    access_restart((const char *const[]){"--tokens", tokens, NULL});
    const char *half = keep_text("POST /v1/plans HTTP/1.1\r\nHost: x\r\n%s\r\nContent-Type: application/json\r\n"
                                 "Content-Length: 100\r\n\r\n{",
                                 single.header);
    pid_t holder = fork();
    ck_assert_int_ge(holder, 0);
    if (holder == 0) {
        http_raw(half, strlen(half), 60000);
        _exit(0);
    }
    struct call call = {.method = "GET", .target = "/v1/plans", .headers = {single.header}};
    struct reply reply = wait_for_status(&call, 429);
    expect_problem(&reply, 429, "concurrency_limited");
    ck_assert_str_eq(http_header(&reply, "retry-after"), "1");
    ck_assert_int_eq(kill(holder, SIGKILL), 0);
    waitpid(holder, NULL, 0);
    wait_for_status(&call, 200);
}
END_TEST

/* ---- The Unix socket ---- */

static struct reply over(const char *path, const char *method, const char *target, const char *header)
{
    return http_call(&(struct call){.method = method, .target = target, .headers = {header}, .socket = path});
}

START_TEST(test_access__users_of_the_socket_have_what_the_rules_say)
{
    const char *path = keep_text("%s/socket", server.directory);
    const char *me = keep_text("%u:read", (unsigned)geteuid()), *mine = keep_text("%u:plan", (unsigned)getegid());
    access_restart((const char *const[]){"--socket", path, "--socket-users", me, NULL});
    ck_assert_int_eq(over(path, "GET", "/v1/plans", NULL).status, 200);
    struct reply reply = over(path, "POST", "/v1/fit", NULL);
    expect_problem(&reply, 403, "scope_missing");
    access_restart((const char *const[]){"--socket", path, "--socket-groups", mine, NULL});
    ck_assert_int_eq(over(path, "POST", "/v1/fit", NULL).status, 415);
    reply = over(path, "GET", "/v1/plans", NULL);
    expect_problem(&reply, 403, "scope_missing");
    access_restart((const char *const[]){"--socket", path, "--socket-users", "54321:read,plan,admin", NULL});
    reply = over(path, "GET", "/v1/plans", NULL);
    expect_problem(&reply, 403, "peer_refused");
    expect_text(text_at(reply.json, "/detail"), keep_text("the user %u may not", (unsigned)geteuid()));
    ck_assert_int_eq(over(path, "GET", "/healthz", NULL).status, 200);
    ck_assert_int_eq(http_get("/v1/plans").status, 200); /* the port is another matter */
}
END_TEST

START_TEST(test_access__with_tokens_and_tls_the_socket_stays_as_it_is)
{
    const char *path = keep_text("%s/socket", server.directory);
    struct made_certificate made = make_certificate("server");
    reader = make_token("reader", "read", "");
    tokens = write_file("tokens", reader.line, 0600);
    access_restart((const char *const[]){"--socket", path, "--tokens", tokens, "--tls-certificate", made.certificate,
                                         "--tls-key", made.key, NULL});
    server.cacert = made.certificate;
    ck_assert_int_eq(over(path, "GET", "/v1/plans", NULL).status, 200);
    ck_assert_int_eq(over(path, "GET", "/v1/plans", reader.header).status, 200);
    ck_assert_int_eq(over(path, "GET", "/v1/plans", "Authorization: Bearer x").status, 401);
    ck_assert_int_eq(over(path, "POST", "/v1/fit", reader.header).status, 403);
    ck_assert_int_eq(get_as("/v1/plans", NULL).status, 401);
    ck_assert_int_eq(get_as("/v1/plans", &reader).status, 200);
    /* Both ways at the same time, with work that is waited for. */
    enum { MANY = 24 };
    static struct call calls[MANY];
    static struct reply replies[MANY];
    for (int i = 0; i < MANY; i++) {
        json_t *request = small_request();
        set_at(request, "/workload/sequence_length", json_integer(128 * (i / 2 + 1)));
        const char *body = json_text(request);
        calls[i] = (struct call){.method = "POST", .target = "/v1/plans", .body = body, .n = strlen(body)};
        if (i % 2)
            calls[i].socket = path;
        else
            calls[i].headers[0] = reader.header;
    }
    http_call_together(calls, MANY, replies);
    for (int i = 0; i < MANY; i++)
        if (i % 2)
            ck_assert_msg(replies[i].status == 201, "%d: %.300s", replies[i].status, replies[i].body);
        else
            expect_problem(&replies[i], 403, "scope_missing");
}
END_TEST

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* Asks over kept connections, all at the same instant: the daemon stands still while they send. Whether all have their
 * answers within a minute. */
static bool ask_at_once(CURLM *multi, CURL *const *handles, int n)
{
    const time_t end = time(NULL) + 60;
    int running = n;
    ck_assert_int_eq(kill(server.pid, SIGSTOP), 0);
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(curl_multi_add_handle(multi, handles[i]), CURLM_OK);
    for (int i = 0; i < 20; i++) {
        curl_multi_perform(multi, &running);
        nap_ms(10);
    }
    ck_assert_int_eq(kill(server.pid, SIGCONT), 0);
    while (running && time(NULL) < end) {
        curl_multi_poll(multi, NULL, 0, 100, NULL);
        curl_multi_perform(multi, &running);
    }
    for (int i = 0; i < n; i++)
        curl_multi_remove_handle(multi, handles[i]);
    return running == 0;
}

static size_t discard(char *bytes, size_t size, size_t n, void *data)
{
    (void)bytes, (void)data;
    return size * n;
}

/* The library takes 128 events at a time and sleeps on as many. With TLS there are two threads of it: what the other
 * one does does not hide that one sleeps. */
START_TEST(test_access__the_thread_of_tls_is_woken_while_the_socket_s_is_busy)
{
    enum { AT_ONCE = 128 };
    const char *path = keep_text("%s/socket", server.directory);
    struct made_certificate made = make_certificate("server");
    access_restart(
        (const char *const[]){"--socket", path, "--tls-certificate", made.certificate, "--tls-key", made.key, NULL});
    CURLM *multi = curl_multi_init();
    CURL *handles[AT_ONCE];
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)AT_ONCE);
    for (int i = 0; i < AT_ONCE; i++) {
        handles[i] = curl_easy_init();
        curl_easy_setopt(handles[i], CURLOPT_URL, keep_text("https%s/healthz", strstr(server.url, "://")));
        curl_easy_setopt(handles[i], CURLOPT_CAINFO, made.certificate);
        curl_easy_setopt(handles[i], CURLOPT_NOPROXY, "*");
        curl_easy_setopt(handles[i], CURLOPT_WRITEFUNCTION, discard);
    }
    ck_assert(ask_at_once(multi, handles, AT_ONCE)); /* with their handshakes */
    pid_t busy[4];
    for (int i = 0; i < 4; i++)
        for (busy[i] = fork(); busy[i] == 0;)
            over(path, "GET", "/healthz", NULL);
    for (int round = 0; round < 12; round++)
        ck_assert_msg(ask_at_once(multi, handles, AT_ONCE), "round %d is not answered", round);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(kill(busy[i], SIGKILL), 0);
        ck_assert_int_eq(waitpid(busy[i], NULL, 0), busy[i]);
    }
    for (int i = 0; i < AT_ONCE; i++) {
        long status = 0;
        curl_easy_getinfo(handles[i], CURLINFO_RESPONSE_CODE, &status);
        ck_assert_int_eq(status, 200);
        curl_easy_cleanup(handles[i]);
    }
    curl_multi_cleanup(multi);
}
END_TEST

/* ---- What it does not start with ---- */

static void expect_refusal(const char *const *arguments, const char *words)
{
    int status = server_refuses(server.database, server.log, arguments);
    ck_assert_msg(status == 2, "exit status %d where \"%s\" was expected", status, words);
    ck_assert_msg(server_logged(&server, words), "the log does not say: %s", words);
}

START_TEST(test_access__beyond_loopback_there_are_tokens_and_tls_or_many_words)
{
    struct made_certificate made = make_certificate("server");
    reader = make_token("reader", "read", "");
    tokens = write_file("tokens", reader.line, 0600);
    server_stop(&server);
    expect_refusal((const char *const[]){"--listen", "0.0.0.0:0", NULL}, "is not a loopback address");
    expect_refusal((const char *const[]){"--listen", "0.0.0.0:0", "--tokens", tokens, NULL}, "needs tokens and TLS");
    expect_refusal(
        (const char *const[]){"--listen", "[::]:0", "--tls-certificate", made.certificate, "--tls-key", made.key, NULL},
        "listen-beyond-loopback-without-tokens-and-tls");
    server_restart(&server, (const char *const[]){"--listen", "0.0.0.0:0", "--tokens", tokens, "--tls-certificate",
                                                  made.certificate, "--tls-key", made.key, NULL});
    snprintf(server.url, sizeof server.url, "https://127.0.0.1%s", strrchr(keep_text("%s", server.url), ':'));
    server.cacert = made.certificate;
    ck_assert_int_eq(get_as("/v1/plans", NULL).status, 401);
    ck_assert_int_eq(get_as("/v1/plans", &reader).status, 200);
    access_restart(
        (const char *const[]){"--listen", "0.0.0.0:0", "--listen-beyond-loopback-without-tokens-and-tls", "yes", NULL});
    snprintf(server.url, sizeof server.url, "http://127.0.0.1%s", strrchr(keep_text("%s", server.url), ':'));
    ck_assert_int_eq(http_get("/v1/plans").status, 200);
}
END_TEST

START_TEST(test_access__files_that_are_wrong_end_the_start_and_the_check)
{
    struct made_certificate made = make_certificate("server"), other = make_certificate("other");
    reader = make_token("reader", "read", "");
    const char *bad = write_file("bad", keep_text("%s\noops\n", reader.line), 0600);
    const char *open = write_file("open", reader.line, 0644), *empty = write_file("empty", "", 0600);
    const char *open_key = write_file("open.key", "", 0644);
    const struct {
        const char *arguments[5], *words;
    } rows[] = {
        {{"--tokens", bad}, "line 3: "},
        {{"--tokens", open}, "has mode 644"},
        {{"--tokens", empty}, "names no token"},
        {{"--tokens", "/nowhere/tokens"}, "cannot be opened"},
        {{"--tls-certificate", made.certificate, "--tls-key", other.key}, "no certificate to serve with"},
        {{"--tls-certificate", made.key, "--tls-key", made.key}, "no certificate to serve with"},
        {{"--tls-certificate", empty, "--tls-key", made.key}, "no certificate to serve with"},
        {{"--tls-certificate", made.certificate, "--tls-key", open_key}, "has mode 644"},
        {{"--tls-certificate", made.certificate}, "go together"},
    };
    server_stop(&server);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *check[6] = {"--check-config"};
        memcpy(check + 1, rows[i].arguments, sizeof rows[i].arguments);
        ck_assert_int_eq(truncate(server.log, 0), 0);
        expect_refusal(rows[i].arguments, rows[i].words);
        ck_assert_int_eq(truncate(server.log, 0), 0);
        expect_refusal(check, rows[i].words);
    }
    const char *const right[] = {"--check-config", "--tls-certificate", made.certificate, "--tls-key", made.key, NULL};
    ck_assert_int_eq(server_refuses(server.database, server.log, right), 0);
}
END_TEST

/* ---- The client ---- */

START_TEST(test_access__the_client_shows_its_token_and_knows_whom_to_trust)
{
    struct made_certificate made = make_certificate("server"), other = make_certificate("other");
    reader = make_token("reader", "read", "");
    struct made_token single = make_token("single", "read", "rate=1/h");
    tokens = write_file("tokens", keep_text("%s%s", reader.line, single.line), 0600);
    const char *path = keep_text("%s/socket", server.directory), *socket = keep_text("unix:%s", path);
    access_restart((const char *const[]){"--socket", path, "--tokens", tokens, "--tls-certificate", made.certificate,
                                         "--tls-key", made.key, NULL});
    const char *file = write_file("reader.token", keep_text("%s\n", reader.token), 0600);
    const char *single_file = write_file("single.token", single.token, 0600);
    struct run result = RUN("--cacert", made.certificate, "--token-file", file, "list");
    expect_status(&result, 0);
    result = RUN("--cacert", made.certificate, "list");
    expect_status(&result, 4);
    expect_text(result.err, "unauthenticated");
    result = RUN("--cacert", other.certificate, "--token-file", file, "list");
    expect_status(&result, 3);
    result = RUN("--token-file", file, "list");
    expect_status(&result, 3);
    result = RUN("--cacert", made.certificate, "--token-file", file, "plan", request_file(small_request()));
    expect_status(&result, 4);
    expect_text(result.err, "scope_missing");
    ck_assert_int_eq(setenv("BLUEPRINT_TOKEN_FILE", file, 1), 0);
    result = RUN("--cacert", made.certificate, "list");
    expect_status(&result, 0);
    result = RUN("--cacert", made.certificate, "--token-file", single_file, "list"); /* the option goes before */
    expect_status(&result, 0);
    result = RUN("--cacert", made.certificate, "--token-file", single_file, "list");
    expect_status(&result, 3);
    expect_text(result.err, "rate_limited");
    ck_assert_int_eq(unsetenv("BLUEPRINT_TOKEN_FILE"), 0);
    result = run((const char *const[WORDS_MAX]){"--server", socket, "list"}, NULL);
    expect_status(&result, 0);
}
END_TEST

START_TEST(test_access__the_client_sends_no_token_where_it_can_be_read)
{
    const char *file = write_file("a.token", "bp_0\n", 0600), *empty = write_file("empty.token", "\nbp_0\n", 0600);
    const char *odd = write_file("odd.token", "two words\n", 0600);
    static const char *const far[] = {"http://192.0.2.1:7433",  "192.0.2.1:7433",          "HTTP://example.org",
                                      "http://127.example.org", "localhost.example.org:1", "http://[2001:db8::1]:80"};
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        struct run result =
            run((const char *const[WORDS_MAX]){"--server", far[i], "--token-file", file, "passes"}, NULL);
        expect_status(&result, 2);
        expect_text(result.err, "is not sent to");
    }
    /* To this machine it is: the daemon has no tokens and does not mind one. */
    struct run result = RUN("--token-file", file, "passes");
    expect_status(&result, 0);
    result = RUN("--token-file", empty, "passes");
    expect_status(&result, 2);
    result = RUN("--token-file", odd, "passes");
    expect_status(&result, 2);
    result = RUN("--token-file", "/nowhere/token", "passes");
    expect_status(&result, 2);
}
END_TEST

Suite *suite_access(void)
{
    Suite *suite = suite_create("api access");
    TCase *tcase = server_tcase(suite, "access");
    tcase_add_test(tcase, test_access__every_route_asks_for_its_scope_and_no_other);
    tcase_add_test(tcase, test_access__without_a_token_of_ours_there_is_a_challenge_and_nothing_else);
    tcase_add_test(tcase, test_access__what_needs_a_token_is_not_for_shared_caches);
    tcase_add_test(tcase, test_access__tokens_are_reloaded_while_connections_stay_open);
    tcase_add_test(tcase, test_access__a_bad_file_of_tokens_leaves_the_old_ones_in_force);
    tcase_add_test(tcase, test_access__the_log_level_and_limits_are_reloaded);
    tcase_add_test(tcase, test_access__a_rate_that_is_used_up_says_when_to_come_again);
    tcase_add_test(tcase, test_access__requests_under_way_are_limited_and_the_place_comes_back);
    tcase_add_test(tcase, test_access__users_of_the_socket_have_what_the_rules_say);
    tcase_add_test(tcase, test_access__with_tokens_and_tls_the_socket_stays_as_it_is);
    tcase_add_test(tcase, test_access__the_thread_of_tls_is_woken_while_the_socket_s_is_busy);
    tcase_add_test(tcase, test_access__beyond_loopback_there_are_tokens_and_tls_or_many_words);
    tcase_add_test(tcase, test_access__files_that_are_wrong_end_the_start_and_the_check);
    tcase_add_test(tcase, test_access__the_client_shows_its_token_and_knows_whom_to_trust);
    tcase_add_test(tcase, test_access__the_client_sends_no_token_where_it_can_be_read);
    return suite;
}
