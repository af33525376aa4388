/* What the commands of admin share: several calls of one command, and waiting for what the daemon does meanwhile. */
#ifndef BP_CLIENT_ADMIN_H
#define BP_CLIENT_ADMIN_H

#include "client/client.h"

/* One call of several that a command makes. The answer is parsed into `ret`, NULL where there is no body; a refusal was
 * printed, and its status is the program's. `argument` (NULL: none) stands for {0} in the path. */
enum bp_exit bp_admin_ask(const struct bp_invocation *invocation, const char *method, const char *path,
                          const char *argument, const struct bp_buf *body, json_t **ret);

/* How long to wait before the next look at what the daemon is doing: begins at 0. */
void bp_admin_wait(unsigned *ms);

/* A line on standard error, when that is a terminal, which the next one replaces; "" ends it. */
void bp_admin_progress(const char *what, const json_t *done, const json_t *all);

/* Prints an answer that was parsed: as the command does, or as JSON. */
enum bp_exit bp_admin_print(const struct bp_invocation *invocation, const json_t *answer);

#endif
