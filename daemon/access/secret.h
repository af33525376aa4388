/* Files that decide who may do what. Any thread. */
#ifndef BP_ACCESS_SECRET_H
#define BP_ACCESS_SECRET_H

#include "common/base/buf.h"
#include "common/base/err.h"

enum bp_secrecy {
    BP_FILE_PUBLIC, /* may be read by anybody, written by its owner alone */
    BP_FILE_SECRET, /* may be read by its owner and its group alone */
};

#define BP_FILE_MAX ((size_t)1 << 20)

/* All of a regular file that belongs to root or to the user the daemon runs as and that nobody else may write. The
 * permissions are those of the file that was opened. -1: config_invalid, with the path as the error's path; or
 * out_of_memory. What was read is added to `ret`; wipe it with bp_secret_release. */
int bp_secret_read(const char *path, enum bp_secrecy secrecy, struct bp_buf *ret, struct bp_err *err);

/* Overwrites and frees. */
void bp_secret_release(struct bp_buf *secret);

#endif
