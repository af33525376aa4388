/* What the program does without serving. Main thread; prints to stdout. */
#ifndef BP_DAEMON_OFFLINE_H
#define BP_DAEMON_OFFLINE_H

#include <stdbool.h>

#include "common/base/err.h"

/* Checks everything that is stored (bp_service_verify): a line for each defect, with table, row and reason, and then
 * how much was looked at. 0: all is well; 1: not all is; -1: it could not be looked at. */
int bp_offline_verify(const char *database, struct bp_err *err);

/* Brings the schema up to date, or says what that would take. */
int bp_offline_migrate(const char *database, bool dry_run, struct bp_err *err);

/* Makes a token and prints it, and the line of the file of tokens for it, with the scopes read and plan. */
int bp_offline_new_token(const char *name, struct bp_err *err);

#endif
