/* What can be changed while the daemon serves: tokens, rules of the Unix socket, limits, the certificate, the log
 * level. Main thread. */
#ifndef BP_DAEMON_RELOAD_H
#define BP_DAEMON_RELOAD_H

#include "daemon/access/access.h"
#include "daemon/config.h"

/* The part of a configuration that says who may do what. Borrows it. */
struct bp_access_options bp_config_access(const struct bp_daemon_config *config);

/* Reads every file that the configuration names to see whether the daemon could start with it. */
void bp_config_check_files(const struct bp_daemon_config *config, struct bp_problems *problems);

/* Reads the configuration again, from the command line and the file it names, and takes what can be changed. What is
 * wrong is logged and leaves its part as it was; a configuration that is wrong leaves all of it. True when nothing was
 * wrong. */
bool bp_reload(int argc, char *const *argv, struct bp_access *access, bool has_tls);

#endif
