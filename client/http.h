/* Talking to the daemon: one HTTP/1.1 request at a time over libcurl, straight to the server (no proxy, no redirect).
 */
#ifndef BP_CLIENT_HTTP_H
#define BP_CLIENT_HTTP_H

#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/err.h"

#define BP_DEFAULT_SERVER "127.0.0.1:7433"

/* Longest answer taken, and how long a request may take from its start to its answer. */
#define BP_ANSWER_MAX (256UL * 1024 * 1024)
#define BP_TIMEOUT_SECONDS 300L
#define BP_CONNECT_SECONDS 10L

struct bp_server;

/* Whether it names a server: http://HOST..., https://HOST..., HOST:PORT or unix:PATH. */
bool bp_server_is_address(const char *address);

/* Whether a token may be sent there: over TLS, to a Unix socket or to this machine, so that nobody on the way reads it.
 */
bool bp_server_keeps_secrets(const char *address);

/* `address` is one; `token` (NULL: none) is shown with every request; `cacert` (NULL: the system's) is a file of the
 * CAs to trust. All borrowed. NULL when memory ran out. */
struct bp_server *bp_server_new(const char *address, const char *token, const char *cacert);
void bp_server_free(struct bp_server *server);

/* Zero-initialise; release `body` with bp_buf_release. */
struct bp_reply {
    long status;
    struct bp_buf body;
};

/* `target` is path and query, escaped already. `body` NULL sends none. While it waits it says so on standard error,
 * when that is a terminal. -1: network_failed, out_of_memory. */
int bp_server_call(struct bp_server *server, const char *method, const char *target, const struct bp_buf *body,
                   struct bp_reply *ret, struct bp_err *err);

/* A GET whose body, when the status is 200, is written to the open file `file` and is as long as it likes: it may stand
 * still for BP_TIMEOUT_SECONDS, not last any longer than that. -1: storage_failed too, when it cannot be written. */
int bp_server_fetch(struct bp_server *server, const char *target, int file, struct bp_reply *ret, struct bp_err *err);

/* Appends text as part of one path segment or query value: what RFC 3986 does not leave unreserved becomes %XX, but
 * for the colon, which ids have. */
void bp_target_escape(struct bp_buf *out, const char *text);

#endif
