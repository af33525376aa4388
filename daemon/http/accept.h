/* Who is let in: the clients of both listeners, as many as there may be, and of one network no more than its share. Who
 * comes when there is no room waits in the kernel's queue.
 *
 * The listeners are not libmicrohttpd's, and its limit of connections is above ours and never met: 0.9.75 keeps a lock
 * of its own for ever when a connection that another thread hands to it is one too many, and without descriptors it
 * spins.
 */
#ifndef BP_HTTP_ACCEPT_H
#define BP_HTTP_ACCEPT_H

#include "daemon/http/connections.h"

/* How many descriptors there may be, after asking for enough. */
size_t bp_descriptors(void);

/* How many clients there may be: as many as are wanted (0: as can be), if there are descriptors for them. */
unsigned bp_connection_limit(unsigned wanted, size_t n_fds);

/* In the watching thread's epoll set, the listener's. */
#define BP_ACCEPT_MARK(door) (UINT64_MAX - 1 - (uint64_t)(door))

/* Puts the listeners there are into that set. Code: network_failed. */
int bp_accept_start(struct bp_connections *connections, struct bp_err *err);

/* Watching thread: those who wait at the door, or as many as there is room for. */
void bp_accept_clients(struct bp_connections *connections, enum bp_door door);

/* Under the lock: a client left. */
void bp_accept_again(struct bp_connections *connections);

/* From now on nobody is let in. */
void bp_accept_stop(struct bp_connections *connections);

/* Under the lock. Whether one more may come from its network, and counting it there; none of a Unix socket is counted.
 */
bool bp_network_has_room(struct bp_connections *connections, uint64_t network);
void bp_network_join(struct bp_connection *connection);
void bp_network_leave(struct bp_connection *connection);

#endif
