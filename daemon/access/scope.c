#include "daemon/access/scope.h"

#include <string.h>

static const struct scope_row {
    enum bp_scope scope;
    const char *name;
} rows[] = {
#define BP_SCOPE(suffix, bit, name, what) {BP_SCOPE_##suffix, name},
#include "daemon/access/scope.def"
#undef BP_SCOPE
};
enum { N_SCOPES = sizeof rows / sizeof *rows };

const char *bp_scope_name(enum bp_scope scope)
{
    for (size_t i = 0; i < N_SCOPES; i++)
        if (rows[i].scope == scope)
            return rows[i].name;
    return "none";
}

static unsigned scope_of(const char *name, size_t n)
{
    for (size_t i = 0; i < N_SCOPES; i++)
        if (strlen(rows[i].name) == n && memcmp(rows[i].name, name, n) == 0)
            return (unsigned)rows[i].scope;
    return 0;
}

const char *bp_scopes_read(const char *text, size_t n, unsigned *ret)
{
    unsigned scopes = 0;
    for (const char *at = text, *end = text + n, *comma; at <= end; at = comma + 1) {
        comma = memchr(at, ',', (size_t)(end - at));
        if (!comma)
            comma = end;
        unsigned scope = scope_of(at, (size_t)(comma - at));
        if (!scope)
            return "the scopes are read, plan and admin, with commas and no space between";
        if (scopes & scope)
            return "a scope is given twice";
        scopes |= scope;
    }
    *ret = scopes;
    return NULL;
}
