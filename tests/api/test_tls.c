/* TLS, with a certificate that the test makes: who is served, reloads, deadlines, hang-ups. */
#include <curl/curl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/api/access_fixture.h"
#include "tests/api/command.h"
#include "tests/api/expect.h"
#include "tests/api/server.h"

static struct made_certificate restart_with_tls(const char *const *more)
{
    struct made_certificate made = make_certificate("server");
    const char *arguments[12] = {"--tls-certificate", made.certificate, "--tls-key", made.key};
    for (size_t n = 4; more && *more && n < 11; more++)
        arguments[n++] = *more;
    access_restart(arguments);
    server.cacert = made.certificate;
    ck_assert_int_eq(strncmp(server.url, "https://", 8), 0);
    return made;
}

START_TEST(test_tls__it_serves_who_trusts_it_and_plain_http_not_at_all)
{
    const char *out;
    restart_with_tls(NULL);
    ck_assert_int_eq(http_get("/healthz").status, 200);
    plan_of(small_request(), 201);
    server.cacert = NULL;
    ck_assert_int_eq(http_get("/healthz").status, 0);
    memmove(server.url + 4, server.url + 5, strlen(server.url + 4)); /* https -> http */
    ck_assert_int_eq(http_get("/healthz").status, 0);
    ck_assert_int_eq(tls_try("-tls1_2", &out), 0);
    expect_text(out, "TLSv1.2");
    ck_assert_int_eq(tls_try("-tls1_3", &out), 0);
    ck_assert_int_ne(tls_try("-tls1_1 -cipher ALL:@SECLEVEL=0", &out), 0);
    ck_assert_int_ne(tls_try("-tls1 -cipher ALL:@SECLEVEL=0", &out), 0);
}
END_TEST

START_TEST(test_tls__the_certificate_is_reloaded_and_sessions_go_on)
{
    struct made_certificate first = restart_with_tls(NULL), second = make_certificate("second");
    CURL *kept = curl_easy_init();
    long status = 0, connects = 0;
    FILE *null = fopen("/dev/null", "w");
    curl_easy_setopt(kept, CURLOPT_URL, keep_text("%s/v1/models", server.url));
    curl_easy_setopt(kept, CURLOPT_CAINFO, first.certificate);
    curl_easy_setopt(kept, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(kept, CURLOPT_WRITEDATA, null);
    ck_assert_int_eq(curl_easy_perform(kept), CURLE_OK);
    const char *old = keep_text("%s/old.pem", server.directory);
    /* One file at a time, as a renewal does it: in between they do not fit, and the old pair stays in force. */
    ck_assert_int_eq(link(first.certificate, old), 0);
    ck_assert_int_eq(rename(second.certificate, first.certificate), 0);
    server.cacert = old;
    access_reload();
    wait_for_log("no certificate to serve with");
    ck_assert_int_eq(http_get("/healthz").status, 200);
    ck_assert_int_eq(rename(second.key, first.key), 0);
    server.cacert = first.certificate;
    access_reload();
    wait_for_status(&(struct call){.method = "GET", .target = "/healthz"}, 200);
    server.cacert = old;
    ck_assert_int_eq(http_get("/healthz").status, 0);
    ck_assert_int_eq(curl_easy_perform(kept), CURLE_OK);
    curl_easy_getinfo(kept, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(kept, CURLINFO_NUM_CONNECTS, &connects);
    ck_assert_int_eq(status, 200);
    ck_assert_int_eq(connects, 0);
    curl_easy_cleanup(kept);
    fclose(null);
}
END_TEST

/* Waits for the counter to reach `least`. */
static void wait_for_metric(const char *name, long long least)
{
    for (int i = 0; i < 6000 && server_metric(name) < least; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    ck_assert_int_ge(server_metric(name), least);
}

START_TEST(test_tls__a_client_that_hangs_up_while_it_waits_is_noticed)
{
    restart_with_tls(NULL);
    /* A writer from outside keeps the commit, and so the answer, waiting. */
    sqlite3 *database = NULL;
    ck_assert_int_eq(sqlite3_open_v2(server.database, &database, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(database, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    const char *body = json_text(small_request());
    pid_t client = tls_client(keep_text("POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                                        "Content-Length: %zu\r\n\r\n%s",
                                        strlen(body), body));
    wait_for_metric("blueprint_waiters", 1);
    ck_assert_int_eq(server_metric("blueprint_hang_ups_total"), 0);
    ck_assert_int_eq(kill(client, SIGKILL), 0);
    waitpid(client, NULL, 0);
    wait_for_metric("blueprint_hang_ups_total", 1);
    ck_assert_int_eq(server_metric("blueprint_waiters"), 0);
    ck_assert_int_eq(sqlite3_exec(database, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_close(database), SQLITE_OK);
    struct reply reply = post_plan(small_request());
    ck_assert(reply.status == 200 || reply.status == 201);
}
END_TEST

START_TEST(test_tls__a_client_that_dawdles_is_cut_off)
{
    restart_with_tls((const char *const[]){"--receive-timeout", "4", NULL}); /* handshakes must have time */
    struct server client = {.pid = tls_client("POST /v1/plans HTTP/1.1\r\nHost: x\r\n")};
    server_wait(&client); /* it ends when the connection does */
    ck_assert_int_ge(server_metric("blueprint_deadlines_total"), 1);
    ck_assert_int_eq(http_get("/healthz").status, 200);
}
END_TEST

START_TEST(test_tls__a_stop_with_clients_connected_is_clean)
{
    restart_with_tls(NULL);
    pid_t idle = tls_client("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_for_metric("blueprint_connections", 2);
    server_stop(&server);
    waitpid(idle, NULL, 0);
}
END_TEST

Suite *suite_tls(void)
{
    Suite *suite = suite_create("api tls");
    TCase *tcase = server_tcase(suite, "tls");
    tcase_add_test(tcase, test_tls__it_serves_who_trusts_it_and_plain_http_not_at_all);
    tcase_add_test(tcase, test_tls__the_certificate_is_reloaded_and_sessions_go_on);
    tcase_add_test(tcase, test_tls__a_client_that_hangs_up_while_it_waits_is_noticed);
    tcase_add_test(tcase, test_tls__a_client_that_dawdles_is_cut_off);
    tcase_add_test(tcase, test_tls__a_stop_with_clients_connected_is_clean);
    return suite;
}
