/* Who is at the other end of a Unix socket, by the kernel's word, and what they may do.
 *
 * bp_peer_of may be called by any thread; rules are read by the main thread and then only looked at.
 */
#ifndef BP_ACCESS_PEERS_H
#define BP_ACCESS_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/base/err.h"

enum { BP_PEER_GROUPS_MAX = 64, BP_PEER_RULES_MAX = 64 };

/* As of the connect(2). */
struct bp_peer {
    uid_t uid;
    gid_t groups[BP_PEER_GROUPS_MAX]; /* its group, then its supplementary ones, as many as there is room for */
    size_t n_groups;
};

/* The process that connected to the socket `fd`. -1: network_failed. */
int bp_peer_of(int fd, struct bp_peer *ret, struct bp_err *err);

/* Zero-initialise. Plain data. */
struct bp_peer_rules {
    struct bp_peer_rule {
        unsigned id, scopes;
        bool is_group;
    } at[BP_PEER_RULES_MAX];
    size_t n;
};

/* Takes the rules of users (or of groups) from "NAME:SCOPES NAME:SCOPES...", in place of those that there were; a name
 * is one that the system knows, or a number. NULL, or what is wrong; then the rules are not to be used. */
const char *bp_peer_rules_read(const char *text, bool of_groups, struct bp_peer_rules *ret);

/* The scopes of the peer: those of every rule that means it. 0: it is refused. Without rules root and the user the
 * daemon runs as have all scopes, and who else could open the socket has read and plan. */
unsigned bp_peer_scopes(const struct bp_peer_rules *rules, const struct bp_peer *peer);

#endif
