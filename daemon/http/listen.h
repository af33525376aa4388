/* The sockets that are listened on. Main thread. */
#ifndef BP_HTTP_LISTEN_H
#define BP_HTTP_LISTEN_H

#include <netinet/in.h>
#include <sys/stat.h>

#include "common/base/err.h"

/* Each makes a listening socket, which does not block and is closed by the caller. Code: network_failed. */
int bp_listen_tcp(const struct sockaddr *address, socklen_t size, int *ret, struct bp_err *err);

/* Its file, which `*ret_made` tells from another of its name, has mode 0660 and is the caller's to unlink. A socket
 * that a daemon left behind at `path`, which must fit into a sockaddr_un, is replaced; one that answers is not, nor
 * anything that is no socket. */
int bp_listen_unix(const char *path, int *ret, struct stat *ret_made, struct bp_err *err);

/* Unlinks the file that was made, and no other that took its place. */
void bp_listen_unlink(const char *path, const struct stat *made);

/* The address that a TCP listener has, as a URL has it. */
#define BP_LISTEN_NAME (INET6_ADDRSTRLEN + sizeof "[]:65535")
void bp_listen_name(int listener, char ret[BP_LISTEN_NAME]);

#endif
