/* What is refused of a request before anything of its body is looked at. HTTP thread only. */
#ifndef BP_HTTP_JUDGE_H
#define BP_HTTP_JUDGE_H

#include "daemon/http/connections.h"

/* The refusal that the connection keeps until it can be given; `allow` (static) or NULL. */
void bp_judge_refuse(struct bp_connection *connection, const struct bp_err *err, const char *allow, bool close_after);

/* Judges everything that is known before the body: framing, target, route, caller. Sets the connection's route, grant,
 * and refusal if there is one. Returns whether the refusal, if any, can wait until the body was read, which keeps the
 * connection usable and lets the refusal arrive. */
bool bp_judge(struct bp_connection *connection, const char *method, const char *version);

#endif
