/* The request target: a path in segments and a query in pairs, taken apart from the text as it came, so that an
 * encoded slash stays within its segment. Pure; any thread.
 */
#ifndef BP_HTTP_TARGET_H
#define BP_HTTP_TARGET_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"

enum { BP_SEGMENTS_MAX = 8, BP_QUERY_MAX = 16 };

struct bp_target_path {
    char *segments[BP_SEGMENTS_MAX]; /* decoded */
    size_t n;
    struct {
        char *name, *value; /* decoded; a pair without "=" has the value "" */
    } query[BP_QUERY_MAX];
    size_t n_query;
};

/* Takes `text` apart in place; the result points into it. -1: bad_framing (no path, white space or a control
 * character, an escape that is none or stands for NUL), not_found (more segments than any route has), invalid_query
 * (too many pairs). */
int bp_target_split(char *text, struct bp_target_path *ret, struct bp_err *err);

#endif
