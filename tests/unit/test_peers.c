/* Peers of a Unix socket: the rules for their users and groups, and what the kernel says of the other end. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "daemon/access/peers.h"
#include "daemon/access/scope.h"

static const struct bp_peer alice = {.uid = 70001, .groups = {70001, 80001, 80002}, .n_groups = 3};

static struct bp_peer_rules rules_of(const char *users, const char *groups)
{
    struct bp_peer_rules rules = {0};
    if (users)
        ck_assert_ptr_null(bp_peer_rules_read(users, false, &rules));
    if (groups)
        ck_assert_ptr_null(bp_peer_rules_read(groups, true, &rules));
    return rules;
}

START_TEST(test_peers__without_rules_administration_is_for_root_and_the_daemons_user)
{
    const struct bp_peer_rules none = {0};
    const struct bp_peer root = {.uid = 0}, self = {.uid = geteuid()};
    ck_assert_uint_eq(bp_peer_scopes(&none, &alice), BP_SCOPE_READ | BP_SCOPE_PLAN);
    ck_assert_uint_eq(bp_peer_scopes(&none, &root), BP_SCOPE_READ | BP_SCOPE_PLAN | BP_SCOPE_ADMIN);
    ck_assert_uint_eq(bp_peer_scopes(&none, &self), BP_SCOPE_READ | BP_SCOPE_PLAN | BP_SCOPE_ADMIN);
}
END_TEST

START_TEST(test_peers__with_rules_only_who_is_meant_has_anything)
{
    const struct bp_peer root = {.uid = 0, .groups = {0}, .n_groups = 1};
    struct bp_peer_rules rules = rules_of("70001:read 70002:admin", NULL);
    ck_assert_uint_eq(bp_peer_scopes(&rules, &alice), BP_SCOPE_READ);
    ck_assert_uint_eq(bp_peer_scopes(&rules, &root), 0);
    rules = rules_of(NULL, "80002:plan 70002:admin"); /* her second supplementary group; a group of somebody's number */
    ck_assert_uint_eq(bp_peer_scopes(&rules, &alice), BP_SCOPE_PLAN);
    rules = rules_of(NULL, "80003:plan");
    ck_assert_uint_eq(bp_peer_scopes(&rules, &alice), 0);
    rules = rules_of("70001:read", "70001:plan 80001:admin"); /* together */
    ck_assert_uint_eq(bp_peer_scopes(&rules, &alice), BP_SCOPE_READ | BP_SCOPE_PLAN | BP_SCOPE_ADMIN);
    rules = rules_of("80001:read", NULL); /* a user of her group's number */
    ck_assert_uint_eq(bp_peer_scopes(&rules, &alice), 0);
}
END_TEST

START_TEST(test_peers__names_are_those_of_the_system)
{
    struct bp_peer_rules rules = rules_of("root:read,admin", "root:plan");
    ck_assert_uint_eq(rules.n, 2);
    ck_assert_uint_eq(rules.at[0].id, 0);
    ck_assert_uint_eq(rules.at[0].scopes, BP_SCOPE_READ | BP_SCOPE_ADMIN);
    ck_assert(!rules.at[0].is_group);
    ck_assert(rules.at[1].is_group);
    ck_assert_ptr_null(bp_peer_rules_read("5:read", false, &rules)); /* in place of the users that there were */
    ck_assert_uint_eq(rules.n, 2);
    ck_assert_uint_eq(bp_peer_scopes(&rules, &(struct bp_peer){.uid = 0}), 0);
}
END_TEST

START_TEST(test_peers__rules_that_are_none_are_refused)
{
    static const char *const texts[] = {"",
                                        " ",
                                        "root",
                                        "root:",
                                        ":read",
                                        "root:write",
                                        "root:read,",
                                        "root read",
                                        "nobody-of-this-name:read",
                                        "4294967295:read",
                                        "4294967296:read",
                                        "-1:read",
                                        "1x:read",
                                        "0:read root:plan",
                                        "root:read,read"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct bp_peer_rules rules = {0};
        ck_assert_msg(bp_peer_rules_read(texts[i], false, &rules), "\"%s\"", texts[i]);
        ck_assert_msg(bp_peer_rules_read(texts[i], true, &rules), "\"%s\"", texts[i]);
    }
    struct bp_buf text = {0};
    struct bp_peer_rules rules = {0};
    for (unsigned i = 0; i < BP_PEER_RULES_MAX; i++)
        bp_buf_addf(&text, "%u:read ", i);
    ck_assert_ptr_null(bp_peer_rules_read(bp_buf_string(&text), false, &rules));
    ck_assert_ptr_nonnull(bp_peer_rules_read("1:read", true, &rules));
    bp_buf_release(&text);
}
END_TEST

START_TEST(test_peers__the_kernel_names_the_other_end)
{
    int pair[2];
    struct bp_peer peer;
    struct bp_err err = {0};
    gid_t groups[BP_PEER_GROUPS_MAX];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    ck_assert_int_eq(bp_peer_of(pair[0], &peer, &err), 0);
    ck_assert_uint_eq(peer.uid, geteuid());
    ck_assert_uint_eq(peer.groups[0], getegid());
    int n = getgroups(BP_PEER_GROUPS_MAX, groups);
    ck_assert_uint_eq(peer.n_groups, 1 + (size_t)n);
    close(pair[0]);
    close(pair[1]);
    int tcp = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bp_peer_of(tcp, &peer, &err), -1);
    ck_assert_int_eq(err.code, BP_E_network_failed);
    close(tcp);
}
END_TEST

Suite *suite_peers(void)
{
    Suite *suite = suite_create("peers");
    TCase *parts = tcase_create("parts");
    suite_add_tcase(suite, parts);
    tcase_add_test(parts, test_peers__without_rules_administration_is_for_root_and_the_daemons_user);
    tcase_add_test(parts, test_peers__with_rules_only_who_is_meant_has_anything);
    tcase_add_test(parts, test_peers__names_are_those_of_the_system);
    tcase_add_test(parts, test_peers__rules_that_are_none_are_refused);
    tcase_add_test(parts, test_peers__the_kernel_names_the_other_end);
    return suite;
}
