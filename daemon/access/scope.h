/* What a caller may do. Pure; any thread. */
#ifndef BP_ACCESS_SCOPE_H
#define BP_ACCESS_SCOPE_H

#include <stddef.h>

#define BP_SCOPE(suffix, bit, name, what) BP_SCOPE_##suffix = bit,
enum bp_scope {
    BP_SCOPE_NONE = 0, /* of a route: open to everyone */
#include "daemon/access/scope.def"
};
#undef BP_SCOPE

/* "read", "plan" or "admin". */
const char *bp_scope_name(enum bp_scope scope);

/* Reads n bytes of names with commas between, each at most once, at least one. Returns NULL and the set, or what is
 * wrong. */
const char *bp_scopes_read(const char *text, size_t n, unsigned *ret);

#endif
