/* Memory that runs out, at every allocation in turn, while access is opened, reloaded and read. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/digest.h"
#include "daemon/access/access.h"
#include "daemon/access/tokens.h"
#include "daemon/http/tls.h"
#include "tests/lib/fault_alloc.h"

static char directory[64], tokens[96], certificate[96], key[96];
static const struct bp_peer_rules rules;
static const struct bp_limits limits;
static struct bp_access *access_;

static void set_up(void)
{
    snprintf(directory, sizeof directory, "/tmp/test-access-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(tokens, sizeof tokens, "%s/tokens", directory);
    snprintf(certificate, sizeof certificate, "%s/cert.pem", directory);
    snprintf(key, sizeof key, "%s/key.pem", directory);
    access_ = NULL;
}

static void tear_down(void)
{
    bp_access_close(access_);
    unlink(tokens);
    unlink(certificate);
    unlink(key);
    rmdir(directory);
}

/* A file of `n` tokens: "token-0" and so on. */
static void write_tokens(unsigned n)
{
    FILE *out = fopen(tokens, "w");
    ck_assert_ptr_nonnull(out);
    for (unsigned i = 0; i < n; i++) {
        char token[32], text[BP_DIGEST_TEXT];
        struct bp_digest hash;
        snprintf(token, sizeof token, "token-%u", i);
        bp_digest_of(token, strlen(token), &hash);
        bp_digest_format(&hash, text);
        fprintf(out, "name-%u read %s\n", i, text);
    }
    fclose(out);
    ck_assert_int_eq(chmod(tokens, 0600), 0);
}

static bool knows(const char *authorization)
{
    struct bp_origin origin = {.who = "anonymous", .from = "192.0.2.1", .network = "192.0.2.1"};
    struct bp_grant grant = {0};
    struct bp_refusal refusal;
    bool admitted = bp_access_admit(access_, &origin, authorization, BP_SCOPE_READ, 0, &grant, &refusal, NULL) == 0;
    bp_access_release(access_, &grant);
    return admitted;
}

START_TEST(test_access_faults__an_open_without_memory_says_so)
{
    const struct bp_access_options options = {.tokens = tokens, .peers = &rules, .limits = &limits};
    if (!bp_fault_alloc_works())
        return;
    write_tokens(40);
    long n = 0;
    for (bool failed = true; failed; n++) {
        struct bp_problems problems = {0};
        bp_fault_alloc_after(n);
        int result = bp_access_open(&options, &access_, &problems);
        failed = bp_fault_alloc_off();
        ck_assert_int_eq(result, failed ? -1 : 0);
        ck_assert_int_eq(bp_problems_none(&problems), !failed);
        ck_assert_int_eq(access_ != NULL, !failed);
        bp_problems_release(&problems);
    }
    ck_assert_int_gt(n, 40); /* each token has an allowance */
    ck_assert(knows("Bearer token-39"));
}
END_TEST

START_TEST(test_access_faults__a_reload_without_memory_leaves_the_old_tokens)
{
    const struct bp_access_options options = {.tokens = tokens, .peers = &rules, .limits = &limits};
    struct bp_problems problems = {0};
    if (!bp_fault_alloc_works())
        return;
    write_tokens(20);
    ck_assert_int_eq(bp_access_open(&options, &access_, &problems), 0);
    write_tokens(30);
    for (bool failed = true; failed;) {
        static long n;
        bp_fault_alloc_after(n++);
        int result = bp_access_reload(access_, &options, &problems);
        failed = bp_fault_alloc_off();
        ck_assert_int_eq(result, failed ? -1 : 0);
        ck_assert(knows("Bearer token-19"));
        ck_assert_int_eq(knows("Bearer token-29"), !failed);
        bp_problems_release(&problems);
    }
}
END_TEST

/* Of the two files and of the credentials. libtasn1 below GnuTLS does not survive that its own allocations fail, so
 * those after are left out. */
START_TEST(test_access_faults__a_certificate_without_memory_is_an_error)
{
    char command[512];
    if (!bp_fault_alloc_works())
        return;
    snprintf(command, sizeof command,
             "umask 077; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=x "
             "-keyout %s -out %s 2>/dev/null",
             key, certificate);
    ck_assert_int_eq(system(command), 0);
    for (long n = 0; n < 3; n++) {
        struct bp_err err = {0};
        bp_fault_alloc_after(n);
        int result = bp_tls_check(certificate, key, &err);
        ck_assert(bp_fault_alloc_off());
        ck_assert_int_eq(result, -1);
        ck_assert_str_eq(bp_code_name(err.code), "out_of_memory");
    }
    ck_assert_int_eq(bp_tls_check(certificate, key, NULL), 0);
}
END_TEST

Suite *suite_access_faults(void)
{
    Suite *suite = suite_create("access faults");
    TCase *tcase = tcase_create("memory");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, test_access_faults__an_open_without_memory_says_so);
    tcase_add_test(tcase, test_access_faults__a_reload_without_memory_leaves_the_old_tokens);
    tcase_add_test(tcase, test_access_faults__a_certificate_without_memory_is_an_error);
    suite_add_tcase(suite, tcase);
    return suite;
}
