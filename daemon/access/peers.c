#include "daemon/access/peers.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/access/scope.h"

/* Linux 4.13; the C library's headers of Debian 12 have it, older ones do not. */
#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

int bp_peer_of(int fd, struct bp_peer *ret, struct bp_err *err)
{
    struct ucred credentials;
    struct bp_peer peer = {0};
    socklen_t size = sizeof credentials, groups_size = sizeof peer.groups - sizeof *peer.groups;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) || credentials.uid == (uid_t)-1)
        return bp_fail(err, BP_E_network_failed, "", "the peer is not known: %s", strerror(errno));
    peer.uid = credentials.uid;
    peer.groups[0] = credentials.gid;
    peer.n_groups = 1;
    /* More of them than there is room for count as none: nobody gets in by what was not read. */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, peer.groups + 1, &groups_size) == 0)
        peer.n_groups += groups_size / sizeof *peer.groups;
    *ret = peer;
    return 0;
}

/* ---- Rules ---- */

static bool read_number(const char *text, unsigned *ret)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || value >= UINT32_MAX) /* the last one stands for none */
        return false;
    *ret = (unsigned)value;
    return true;
}

static bool find_id(const char *name, bool of_groups, unsigned *ret)
{
    if (read_number(name, ret))
        return true;
    const struct passwd *user = of_groups ? NULL : getpwnam(name);
    const struct group *group = of_groups ? getgrnam(name) : NULL;
    if (!user && !group)
        return false;
    *ret = user ? user->pw_uid : group->gr_gid;
    return true;
}

static const char *read_rule(char *word, bool of_groups, struct bp_peer_rules *rules)
{
    char *colon = strrchr(word, ':');
    struct bp_peer_rule rule = {.is_group = of_groups};
    if (!colon || colon == word)
        return "is a list of NAME:SCOPES, with spaces between";
    *colon = '\0';
    const char *wrong = bp_scopes_read(colon + 1, strlen(colon + 1), &rule.scopes);
    if (wrong)
        return wrong;
    if (!find_id(word, of_groups, &rule.id))
        return of_groups ? "names a group that the system does not know" : "names a user that the system does not know";
    for (size_t i = 0; i < rules->n; i++)
        if (rules->at[i].is_group == of_groups && rules->at[i].id == rule.id)
            return of_groups ? "names a group twice" : "names a user twice";
    if (rules->n == BP_PEER_RULES_MAX)
        return "has, with the other list, more than 64 rules";
    rules->at[rules->n++] = rule;
    return NULL;
}

static void drop_rules(struct bp_peer_rules *rules, bool of_groups)
{
    size_t n = 0;
    for (size_t i = 0; i < rules->n; i++)
        if (rules->at[i].is_group != of_groups)
            rules->at[n++] = rules->at[i];
    rules->n = n;
}

const char *bp_peer_rules_read(const char *text, bool of_groups, struct bp_peer_rules *ret)
{
    char list[4096], *rest = NULL;
    size_t n = strlen(text), before;
    const char *wrong = NULL;
    if (n >= sizeof list)
        return "is longer than 4095 bytes";
    memcpy(list, text, n + 1);
    drop_rules(ret, of_groups);
    before = ret->n;
    for (char *word = strtok_r(list, " \t", &rest); word && !wrong; word = strtok_r(NULL, " \t", &rest))
        wrong = read_rule(word, of_groups, ret);
    if (!wrong && ret->n == before)
        wrong = "is a list of NAME:SCOPES, with spaces between";
    return wrong;
}

static bool is_meant(const struct bp_peer_rule *rule, const struct bp_peer *peer)
{
    if (!rule->is_group)
        return rule->id == peer->uid;
    for (size_t i = 0; i < peer->n_groups; i++)
        if (rule->id == peer->groups[i])
            return true;
    return false;
}

unsigned bp_peer_scopes(const struct bp_peer_rules *rules, const struct bp_peer *peer)
{
    unsigned scopes = 0;
    if (rules->n == 0) {
        bool is_ours = peer->uid == 0 || peer->uid == geteuid();
        return BP_SCOPE_READ | BP_SCOPE_PLAN | (is_ours ? BP_SCOPE_ADMIN : 0);
    }
    for (size_t i = 0; i < rules->n; i++)
        if (is_meant(&rules->at[i], peer))
            scopes |= rules->at[i].scopes;
    return scopes;
}
