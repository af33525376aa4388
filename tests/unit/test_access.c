/* Who is admitted to what. */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/digest.h"
#include "daemon/access/access.h"

static const uint64_t second = UINT64_C(1000000000);

static const struct bp_peer alice = {.uid = 70001, .groups = {70001, 80001, 80002}, .n_groups = 3};

static struct bp_access *access_;
static struct bp_problems problems;
static struct bp_refusal refusal;
static struct bp_err err;
static char file[64];
static struct bp_peer_rules no_rules;
static struct bp_limits no_limits;

static struct bp_origin tcp_origin(const char *address)
{
    struct bp_origin origin;
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, address, &v4.sin_addr) == 1)
        bp_origin_of(-1, (struct sockaddr *)&v4, &origin);
    else if (inet_pton(AF_INET6, address, &v6.sin6_addr) == 1)
        bp_origin_of(-1, (struct sockaddr *)&v6, &origin);
    else
        ck_abort_msg("%s", address);
    return origin;
}

static struct bp_origin unix_origin(const struct bp_peer *peer)
{
    struct bp_origin origin = {.is_unix = true, .has_peer = peer != NULL, .peer = peer ? *peer : alice, .from = "unix"};
    snprintf(origin.who, sizeof origin.who, "uid:%u", (unsigned)origin.peer.uid);
    return origin;
}

/* A file of two tokens: "reader" has read and the limits given, "boss" everything and none. */
static void write_tokens(const char *limits)
{
    struct bp_digest reader, boss;
    char reader_text[BP_DIGEST_TEXT], boss_text[BP_DIGEST_TEXT];
    bp_digest_of("reader-token", 12, &reader);
    bp_digest_of("boss-token", 10, &boss);
    bp_digest_format(&reader, reader_text);
    bp_digest_format(&boss, boss_text);
    FILE *out = fopen(file, "w");
    ck_assert_ptr_nonnull(out);
    fprintf(out, "reader read %s %s\nboss read,plan,admin %s\n", reader_text, limits, boss_text);
    fclose(out);
    ck_assert_int_eq(chmod(file, 0600), 0);
}

static struct bp_access_options options_of(const char *tokens)
{
    return (struct bp_access_options){.tokens = tokens, .peers = &no_rules, .limits = &no_limits};
}

static void open_with(const struct bp_access_options *options)
{
    bp_access_close(access_);
    ck_assert_int_eq(bp_access_open(options, &access_, &problems), 0);
}

static void access_set_up(void)
{
    problems = (struct bp_problems){0};
    no_rules = (struct bp_peer_rules){0};
    no_limits = (struct bp_limits){0};
    snprintf(file, sizeof file, "/tmp/test-access-XXXXXX");
    close(mkstemp(file));
    write_tokens("");
    struct bp_access_options options = options_of(file);
    access_ = NULL;
    open_with(&options);
}

static void access_tear_down(void)
{
    bp_access_close(access_);
    bp_problems_release(&problems);
    unlink(file);
}

/* The grant of a request that must be admitted. */
static struct bp_grant admitted(struct bp_origin *origin, const char *authorization, enum bp_scope scope, uint64_t now)
{
    struct bp_grant grant = {0};
    err = (struct bp_err){0};
    ck_assert_msg(bp_access_admit(access_, origin, authorization, scope, now, &grant, &refusal, &err) == 0, "%s",
                  err.message);
    return grant;
}

static void let_through(struct bp_origin *origin, const char *authorization, enum bp_scope scope, uint64_t now)
{
    struct bp_grant grant = admitted(origin, authorization, scope, now);
    bp_access_release(access_, &grant);
}

static void refused(struct bp_origin *origin, const char *authorization, enum bp_scope scope, uint64_t now,
                    enum bp_code code)
{
    struct bp_grant grant = {0};
    err = (struct bp_err){0};
    ck_assert_int_eq(bp_access_admit(access_, origin, authorization, scope, now, &grant, &refusal, &err), -1);
    ck_assert_str_eq(bp_code_name(err.code), bp_code_name(code));
    ck_assert_ptr_null(grant.allowance);
}

START_TEST(test_access__a_token_says_who_and_what)
{
    struct bp_origin origin = tcp_origin("192.0.2.7");
    struct bp_grant grant = admitted(&origin, "Bearer reader-token", BP_SCOPE_READ, 0);
    ck_assert_str_eq(grant.caller.who, "token:reader");
    ck_assert_str_eq(grant.caller.from, "192.0.2.7");
    bp_access_release(access_, &grant);
    let_through(&origin, "bearer   boss-token", BP_SCOPE_ADMIN, 0); /* RFC 9110: the scheme's case does not count */
    let_through(&origin, "BEARER boss-token", BP_SCOPE_PLAN, 0);
    refused(&origin, "Bearer reader-token", BP_SCOPE_PLAN, 0, BP_E_scope_missing);
    ck_assert_ptr_nonnull(strstr(refusal.authenticate, "error=\"insufficient_scope\", scope=\"plan\""));
    ck_assert_ptr_nonnull(strstr(err.message, "token:reader"));
    refused(&origin, "Bearer reader-token", BP_SCOPE_ADMIN, 0, BP_E_scope_missing);
    ck_assert_ptr_nonnull(strstr(refusal.authenticate, "scope=\"admin\""));
}
END_TEST

START_TEST(test_access__what_is_no_token_of_ours_is_refused_with_a_challenge)
{
    static const char *const fields[] = {"Bearer",
                                         "Bearer ",
                                         "Bearer reader-toke",
                                         "Bearer reader-token ",
                                         "Bearer reader-token,boss-token",
                                         "Basic cmVhZGVyOg==",
                                         "reader-token",
                                         "Bearerreader-token",
                                         "",
                                         "Bearer\treader-token"};
    struct bp_origin origin = tcp_origin("127.0.0.1");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        refused(&origin, fields[i], BP_SCOPE_READ, 0, BP_E_unauthenticated);
        ck_assert_int_eq(strncmp(refusal.authenticate, "Bearer realm=", 13), 0);
    }
    refused(&origin, NULL, BP_SCOPE_READ, 0, BP_E_unauthenticated);
    ck_assert_str_eq(refusal.authenticate, "Bearer realm=\"blueprintd\"");
    refused(&origin, NULL, BP_SCOPE_NONE, 0, BP_E_unauthenticated); /* to be known is asked for all the same */
    ck_assert_int_eq(bp_code_status(BP_E_unauthenticated), 401);
    ck_assert_int_eq(bp_code_status(BP_E_scope_missing), 403);
    ck_assert_int_eq(bp_code_status(BP_E_peer_refused), 403);
    ck_assert_int_eq(bp_code_status(BP_E_rate_limited), 429);
    ck_assert_int_eq(bp_code_status(BP_E_concurrency_limited), 429);
}
END_TEST

START_TEST(test_access__without_tokens_anybody_may_read_and_plan)
{
    struct bp_access_options options = options_of("");
    struct bp_origin origin = tcp_origin("::1");
    open_with(&options);
    ck_assert(!bp_access_has_tokens(access_));
    struct bp_grant grant = admitted(&origin, NULL, BP_SCOPE_PLAN, 0);
    ck_assert_str_eq(grant.caller.who, "anonymous");
    ck_assert_str_eq(grant.caller.from, "::1");
    bp_access_release(access_, &grant);
    let_through(&origin, "Bearer whatever", BP_SCOPE_READ, 0);
    refused(&origin, NULL, BP_SCOPE_ADMIN, 0, BP_E_scope_missing);
}
END_TEST

START_TEST(test_access__a_peer_of_the_socket_is_judged_by_its_user_or_its_token)
{
    const struct bp_peer bob = {.uid = 70009, .groups = {70009}, .n_groups = 1};
    struct bp_peer_rules rules = {0};
    struct bp_access_options options = options_of(file);
    ck_assert_ptr_null(bp_peer_rules_read("70001:read", false, &rules));
    options.peers = &rules;
    open_with(&options);
    struct bp_origin of_alice = unix_origin(&alice), of_bob = unix_origin(&bob), of_nobody = unix_origin(NULL);
    struct bp_grant grant = admitted(&of_alice, NULL, BP_SCOPE_READ, 0);
    ck_assert_str_eq(grant.caller.who, "uid:70001");
    ck_assert_str_eq(grant.caller.from, "unix");
    bp_access_release(access_, &grant);
    refused(&of_alice, NULL, BP_SCOPE_PLAN, 0, BP_E_scope_missing);
    refused(&of_bob, NULL, BP_SCOPE_READ, 0, BP_E_peer_refused);
    ck_assert_ptr_nonnull(strstr(err.message, "70009"));
    refused(&of_nobody, NULL, BP_SCOPE_READ, 0, BP_E_peer_refused);
    let_through(&of_bob, "Bearer boss-token", BP_SCOPE_ADMIN, 0);
    refused(&of_alice, "Bearer nothing", BP_SCOPE_READ, 0, BP_E_unauthenticated);
}
END_TEST

START_TEST(test_access__a_tokens_own_limit_goes_before_the_daemons)
{
    struct bp_limits limits = {0};
    struct bp_access_options options = options_of(file);
    struct bp_origin origin = tcp_origin("192.0.2.7"), other = tcp_origin("192.0.2.8");
    ck_assert_ptr_null(bp_limits_read_rate("1/h", &limits));
    options.limits = &limits;
    write_tokens("rate=2/h");
    open_with(&options);
    let_through(&origin, "Bearer reader-token", BP_SCOPE_READ, second);
    let_through(&other, "Bearer reader-token", BP_SCOPE_READ, second);
    refused(&origin, "Bearer reader-token", BP_SCOPE_READ, second, BP_E_rate_limited);
    ck_assert_uint_eq(refusal.retry_after, 1800);
    let_through(&origin, "Bearer boss-token", BP_SCOPE_READ, second); /* has the daemon's, and its own bucket */
    refused(&origin, "Bearer boss-token", BP_SCOPE_READ, second, BP_E_rate_limited);
    ck_assert_uint_eq(refusal.retry_after, 3600);
}
END_TEST

START_TEST(test_access__callers_without_a_token_have_an_allowance_each)
{
    struct bp_limits limits = {0};
    struct bp_access_options options = options_of("");
    const struct bp_peer bob = {.uid = 70009};
    struct bp_origin a = tcp_origin("192.0.2.7"), b = tcp_origin("192.0.2.8"), of_alice = unix_origin(&alice),
                     of_bob = unix_origin(&bob);
    struct bp_origin net1 = tcp_origin("2001:db8:1:2::1"), net1b = tcp_origin("2001:db8:1:2:ffff::2"),
                     net2 = tcp_origin("2001:db8:1:3::1"), mapped = tcp_origin("::ffff:192.0.2.7");
    ck_assert_ptr_null(bp_limits_read_rate("1/h", &limits));
    options.limits = &limits;
    open_with(&options);
    let_through(&a, NULL, BP_SCOPE_READ, second);
    refused(&a, NULL, BP_SCOPE_READ, second, BP_E_rate_limited);
    refused(&mapped, NULL, BP_SCOPE_READ, second, BP_E_rate_limited); /* the same address */
    let_through(&b, NULL, BP_SCOPE_READ, second);
    let_through(&of_alice, NULL, BP_SCOPE_READ, second);
    let_through(&of_bob, NULL, BP_SCOPE_READ, second);
    refused(&of_bob, NULL, BP_SCOPE_READ, second, BP_E_rate_limited);
    let_through(&net1, NULL, BP_SCOPE_READ, second);
    refused(&net1b, NULL, BP_SCOPE_READ, second, BP_E_rate_limited); /* the same network of 64 bits */
    let_through(&net2, NULL, BP_SCOPE_READ, second);
}
END_TEST

START_TEST(test_access__callers_that_are_kept_are_bounded_and_busy_ones_stay)
{
    struct bp_limits limits = {0};
    struct bp_access_options options = options_of("");
    static struct bp_grant grants[BP_CALLERS_MAX];
    ck_assert_ptr_null(bp_limits_read_at_once("1", &limits));
    options.limits = &limits;
    open_with(&options);
    for (unsigned i = 0; i < BP_CALLERS_MAX; i++) {
        struct bp_peer peer = {.uid = 1000 + i};
        struct bp_origin origin = unix_origin(&peer);
        grants[i] = admitted(&origin, NULL, BP_SCOPE_READ, i + 1);
    }
    struct bp_peer first = {.uid = 1000}, late = {.uid = 90000}, later = {.uid = 90001};
    struct bp_origin of_first = unix_origin(&first), of_late = unix_origin(&late), of_later = unix_origin(&later);
    refused(&of_first, NULL, BP_SCOPE_READ, 5000, BP_E_concurrency_limited);
    struct bp_grant crowd = admitted(&of_late, NULL, BP_SCOPE_READ, 5000);
    refused(&of_later, NULL, BP_SCOPE_READ, 5000, BP_E_concurrency_limited); /* who finds no place shares one */
    bp_access_release(access_, &grants[7]);
    struct bp_grant own = admitted(&of_later, NULL, BP_SCOPE_READ, 6000); /* the place that came free */
    refused(&of_first, NULL, BP_SCOPE_READ, 6000, BP_E_concurrency_limited);
    bp_access_release(access_, &own);
    bp_access_release(access_, &crowd);
    for (unsigned i = 0; i < BP_CALLERS_MAX; i++)
        bp_access_release(access_, &grants[i]);
    let_through(&of_first, NULL, BP_SCOPE_READ, 7000);
}
END_TEST

static uint64_t network_of(const char *address)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, address, &v4.sin_addr) == 1)
        return bp_network_of((struct sockaddr *)&v4);
    ck_assert_int_eq(inet_pton(AF_INET6, address, &v6.sin6_addr), 1);
    return bp_network_of((struct sockaddr *)&v6);
}

/* The number that connections are counted by and the text that requests are stand for the same. */
START_TEST(test_access__one_host_is_one_network_however_it_comes)
{
    static const char *const addresses[] = {"192.0.2.1",
                                            "192.0.2.2",
                                            "::ffff:192.0.2.1",
                                            "::ffff:192.0.2.2",
                                            "2001:db8::1",
                                            "2001:db8::ffff:1:2:3",
                                            "::1",
                                            "2001:db8:1::",
                                            "2001:db8:0:1::1",
                                            "::",
                                            "127.0.0.1",
                                            "2001:db8:1:0:8000::",
                                            "fe80::1",
                                            "0.0.0.0",
                                            "2001:db8:0:0:ffff::1"};
    enum { N = sizeof addresses / sizeof *addresses };
    size_t same = 0;
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < i; k++) {
            const struct bp_origin a = tcp_origin(addresses[i]), b = tcp_origin(addresses[k]);
            const bool by_text = strcmp(a.network, b.network) == 0;
            ck_assert_msg(by_text == (network_of(addresses[i]) == network_of(addresses[k])), "%s %s", addresses[i],
                          addresses[k]);
            same += by_text;
        }
    ck_assert_uint_eq(same, 2 + 3 + 1 + 1); /* of IPv4, of 2001:db8::, of 2001:db8:1::, of :: */
    ck_assert_uint_eq(bp_network_of(&(struct sockaddr){.sa_family = AF_UNIX}), UINT64_MAX);
}
END_TEST

START_TEST(test_access__a_scope_that_is_missing_gives_back_what_was_taken)
{
    struct bp_origin origin = tcp_origin("192.0.2.7");
    struct bp_access_options options = options_of(file);
    write_tokens("concurrency=1");
    open_with(&options);
    for (int i = 0; i < 3; i++)
        refused(&origin, "Bearer reader-token", BP_SCOPE_PLAN, 0, BP_E_scope_missing);
    struct bp_grant grant = admitted(&origin, "Bearer reader-token", BP_SCOPE_READ, 0);
    refused(&origin, "Bearer reader-token", BP_SCOPE_READ, 0, BP_E_concurrency_limited);
    bp_access_release(access_, &grant);
    let_through(&origin, "Bearer reader-token", BP_SCOPE_READ, 0);
}
END_TEST

START_TEST(test_access__a_reload_takes_what_is_new_and_forgets_what_is_gone)
{
    struct bp_origin origin = tcp_origin("192.0.2.7");
    struct bp_access_options options = options_of(file);
    struct bp_digest hash;
    char text[BP_DIGEST_TEXT];
    struct bp_grant grant = admitted(&origin, "Bearer boss-token", BP_SCOPE_ADMIN, 0);
    bp_digest_of("new-token", 9, &hash);
    bp_digest_format(&hash, text);
    FILE *out = fopen(file, "w");
    fprintf(out, "newcomer plan %s\n", text);
    fclose(out);
    ck_assert_int_eq(bp_access_reload(access_, &options, &problems), 0);
    let_through(&origin, "Bearer new-token", BP_SCOPE_PLAN, 0);
    refused(&origin, "Bearer reader-token", BP_SCOPE_READ, 0, BP_E_unauthenticated);
    refused(&origin, "Bearer boss-token", BP_SCOPE_READ, 0, BP_E_unauthenticated);
    bp_access_release(access_, &grant); /* of a token that is gone: must neither leak nor be freed twice */
}
END_TEST

START_TEST(test_access__a_token_that_was_shown_before_is_that_token_and_no_other)
{
    struct bp_origin origin = tcp_origin("192.0.2.7");
    struct bp_access_options options = options_of(file);
    let_through(&origin, "Bearer reader-token", BP_SCOPE_READ, 0);
    let_through(&origin, "bearer  reader-token", BP_SCOPE_READ, 0);
    refused(&origin, "Bearer reader-tokem", BP_SCOPE_READ, 0, BP_E_unauthenticated);
    refused(&origin, "Bearer reader-toke", BP_SCOPE_READ, 0, BP_E_unauthenticated);
    refused(&origin, "Bearer reader-token2", BP_SCOPE_READ, 0, BP_E_unauthenticated);
    refused(&origin, "Bearer ", BP_SCOPE_READ, 0, BP_E_unauthenticated);
    refused(&origin, "Bearer reader-token", BP_SCOPE_PLAN, 0, BP_E_scope_missing);
    let_through(&origin, "Bearer boss-token", BP_SCOPE_ADMIN, 0);
    refused(&origin, "Bearer reader-token", BP_SCOPE_PLAN, 0, BP_E_scope_missing);
    /* The first of the file now, with other rights. */
    struct bp_digest hash;
    char text[BP_DIGEST_TEXT];
    bp_digest_of("reader-token", 12, &hash);
    bp_digest_format(&hash, text);
    FILE *out = fopen(file, "w");
    fprintf(out, "first read sha256:%064d\nreader plan %s\n", 0, text);
    fclose(out);
    ck_assert_int_eq(bp_access_reload(access_, &options, &problems), 0);
    struct bp_grant grant = admitted(&origin, "Bearer reader-token", BP_SCOPE_PLAN, 0);
    ck_assert_str_eq(grant.caller.who, "token:reader");
    bp_access_release(access_, &grant);
}
END_TEST

START_TEST(test_access__a_token_that_was_shown_before_is_forgotten_with_a_reload)
{
    struct bp_origin origin = tcp_origin("192.0.2.7"), none = origin;
    struct bp_access_options options = options_of(file);
    struct bp_digest hash;
    char text[BP_DIGEST_TEXT];
    let_through(&origin, "Bearer boss-token", BP_SCOPE_ADMIN, 0);
    bp_digest_of("new-token", 9, &hash);
    bp_digest_format(&hash, text);
    FILE *out = fopen(file, "w");
    fprintf(out, "newcomer read,plan,admin %s\n", text);
    fclose(out);
    ck_assert_int_eq(bp_access_reload(access_, &options, &problems), 0);
    refused(&origin, "Bearer boss-token", BP_SCOPE_READ, 0, BP_E_unauthenticated);
    let_through(&origin, "Bearer new-token", BP_SCOPE_ADMIN, 0);
    ck_assert_mem_eq(origin.shown.text, "new-token", 9);
    bp_origin_forget(&origin);
    ck_assert_mem_eq(&origin.shown, &none.shown, sizeof none.shown);
    let_through(&origin, "Bearer new-token", BP_SCOPE_ADMIN, 0);
}
END_TEST

START_TEST(test_access__a_token_longer_than_is_remembered_is_known_each_time)
{
    struct bp_origin origin = tcp_origin("192.0.2.7");
    struct bp_access_options options = options_of(file);
    struct bp_digest hash;
    char authorization[7 + BP_SHOWN_MAX + 2] = "Bearer ", text[BP_DIGEST_TEXT];
    memset(authorization + 7, 'x', BP_SHOWN_MAX + 1);
    bp_digest_of(authorization + 7, BP_SHOWN_MAX + 1, &hash);
    bp_digest_format(&hash, text);
    FILE *out = fopen(file, "w");
    fprintf(out, "long read %s\n", text);
    fclose(out);
    open_with(&options);
    for (int i = 0; i < 2; i++)
        let_through(&origin, authorization, BP_SCOPE_READ, 0);
    ck_assert_uint_eq(origin.shown.generation, 0);
    authorization[7 + BP_SHOWN_MAX] = '\0';
    refused(&origin, authorization, BP_SCOPE_READ, 0, BP_E_unauthenticated);
}
END_TEST

START_TEST(test_access__a_reload_keeps_what_a_token_has_used)
{
    struct bp_origin origin = tcp_origin("192.0.2.7");
    struct bp_access_options options = options_of(file);
    write_tokens("rate=1/h concurrency=5");
    open_with(&options);
    struct bp_grant grant = admitted(&origin, "Bearer reader-token", BP_SCOPE_READ, second);
    ck_assert_int_eq(bp_access_reload(access_, &options, &problems), 0);
    refused(&origin, "Bearer reader-token", BP_SCOPE_READ, second, BP_E_rate_limited);
    write_tokens("concurrency=1");
    ck_assert_int_eq(bp_access_reload(access_, &options, &problems), 0);
    refused(&origin, "Bearer reader-token", BP_SCOPE_READ, second, BP_E_concurrency_limited);
    bp_access_release(access_, &grant);
    let_through(&origin, "Bearer reader-token", BP_SCOPE_READ, second);
}
END_TEST

START_TEST(test_access__a_reload_that_fails_changes_nothing)
{
    struct bp_origin origin = tcp_origin("192.0.2.7");
    struct bp_access_options options = options_of(file), without = options_of("");
    write_tokens("nonsense");
    ck_assert_int_eq(bp_access_reload(access_, &options, &problems), -1);
    ck_assert_uint_eq(problems.n, 1);
    ck_assert_ptr_nonnull(strstr(problems.at[0].message, "line 1"));
    let_through(&origin, "Bearer reader-token", BP_SCOPE_READ, 0);
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_int_eq(bp_access_reload(access_, &options, &problems), -1);
    let_through(&origin, "Bearer boss-token", BP_SCOPE_ADMIN, 0);
    /* No reload may open the door altogether, or shut it. */
    ck_assert_int_eq(bp_access_reload(access_, &without, &problems), -1);
    refused(&origin, NULL, BP_SCOPE_READ, 0, BP_E_unauthenticated);
    open_with(&without);
    write_tokens("");
    ck_assert_int_eq(bp_access_reload(access_, &options, &problems), -1);
    let_through(&origin, NULL, BP_SCOPE_READ, 0);
}
END_TEST

START_TEST(test_access__it_does_not_open_with_a_bad_file)
{
    struct bp_access_options options = options_of(file);
    struct bp_access *other = NULL;
    write_tokens("nonsense");
    ck_assert_int_eq(bp_access_open(&options, &other, &problems), -1);
    ck_assert_ptr_null(other);
    ck_assert_uint_eq(problems.n, 1);
}
END_TEST

Suite *suite_access(void)
{
    Suite *suite = suite_create("access");
    TCase *admission = tcase_create("admission");
    tcase_add_checked_fixture(admission, access_set_up, access_tear_down);
    tcase_add_test(admission, test_access__a_token_says_who_and_what);
    tcase_add_test(admission, test_access__what_is_no_token_of_ours_is_refused_with_a_challenge);
    tcase_add_test(admission, test_access__without_tokens_anybody_may_read_and_plan);
    tcase_add_test(admission, test_access__a_peer_of_the_socket_is_judged_by_its_user_or_its_token);
    tcase_add_test(admission, test_access__a_tokens_own_limit_goes_before_the_daemons);
    tcase_add_test(admission, test_access__callers_without_a_token_have_an_allowance_each);
    tcase_add_test(admission, test_access__callers_that_are_kept_are_bounded_and_busy_ones_stay);
    tcase_add_test(admission, test_access__one_host_is_one_network_however_it_comes);
    tcase_add_test(admission, test_access__a_scope_that_is_missing_gives_back_what_was_taken);
    tcase_add_test(admission, test_access__a_reload_takes_what_is_new_and_forgets_what_is_gone);
    tcase_add_test(admission, test_access__a_token_that_was_shown_before_is_that_token_and_no_other);
    tcase_add_test(admission, test_access__a_token_that_was_shown_before_is_forgotten_with_a_reload);
    tcase_add_test(admission, test_access__a_token_longer_than_is_remembered_is_known_each_time);
    tcase_add_test(admission, test_access__a_reload_keeps_what_a_token_has_used);
    tcase_add_test(admission, test_access__a_reload_that_fails_changes_nothing);
    tcase_add_test(admission, test_access__it_does_not_open_with_a_bad_file);
    suite_add_tcase(suite, admission);
    return suite;
}
