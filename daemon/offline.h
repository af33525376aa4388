/* What the program does with a database without serving it. Main thread; prints to stdout. */
#ifndef BP_DAEMON_OFFLINE_H
#define BP_DAEMON_OFFLINE_H

#include <stdbool.h>

#include "common/base/err.h"

/* Checks SQLite's own integrity and every snapshot against its digest, and names each that fails. 0: all is well; 1:
 * not all is, and what is wrong was printed; -1: it could not be looked at. */
int bp_offline_verify(const char *database, struct bp_err *err);

/* Brings the schema up to date, or says what that would take. */
int bp_offline_migrate(const char *database, bool dry_run, struct bp_err *err);

#endif
