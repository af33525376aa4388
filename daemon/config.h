/* The daemon's configuration: defaults, then the INI file, then the command line, all from config.def.
 *
 * Main thread only, before any other is started.
 */
#ifndef BP_DAEMON_CONFIG_H
#define BP_DAEMON_CONFIG_H

#include <stddef.h>
#include <sys/socket.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "daemon/access/limit.h"
#include "daemon/access/peers.h"
#include "daemon/access/tokens.h"
#include "daemon/log.h"

/* What to do; the last one given counts. Dry run is no action of its own: it qualifies the migration. */
enum bp_config_action {
    BP_ACTION_RUN,
    BP_ACTION_CHECK,
    BP_ACTION_VERIFY,
    BP_ACTION_MIGRATE,
    BP_ACTION_DRY_RUN,
    BP_ACTION_NEW_TOKEN,
    BP_ACTION_VERSION,
    BP_ACTION_HELP
};

/* Plain data, no ownership. */
struct bp_daemon_config {
    enum bp_config_action action; /* never BP_ACTION_DRY_RUN */
    bool dry_run;                 /* only with BP_ACTION_MIGRATE */
    struct sockaddr_storage listen;
    socklen_t listen_size;
    char listen_host[64]; /* as it stands in a URL: 127.0.0.1, [::1] */
    bool listens_beyond_loopback, may_be_unprotected;
    char socket[108]; /* "" for none */
    struct bp_peer_rules peers;
    char database[4096];
    char tokens[4096], tls_certificate[4096], tls_key[4096]; /* "" for none; of the last two both or none */
    struct bp_limits limits;
    unsigned audit_days;
    unsigned workers, queue;
    unsigned connections, connections_per_address;          /* 0: as many as there can be */
    unsigned receive_timeout, answer_timeout, stop_timeout; /* seconds */
    unsigned wal_limit;                                     /* MiB */
    char token_name[BP_TOKEN_NAME];                         /* with BP_ACTION_NEW_TOKEN */
    enum bp_log_level log_level;
    enum bp_log_target log_target;
    unsigned disk_reserve; /* MiB */
};

/* Reads argv and the file it names. What is wrong is added to `problems` as config_invalid, each with the option or
 * "FILE: key" as its path; `*ret` is to be used only when there are none. */
void bp_daemon_config_read(int argc, char *const *argv, struct bp_daemon_config *ret, struct bp_problems *problems);

/* The text of --help. */
void bp_daemon_config_help(struct bp_buf *out);

#endif
