#include "daemon/http/target.h"

#include <string.h>

#include "daemon/http/head.h"

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Percent-decodes in place; false for an escape that is none or stands for NUL. */
static bool decode(char *text, bool plus_is_space)
{
    char *to = text + strcspn(text, plus_is_space ? "%+" : "%");
    for (const char *from = to; *from; from++) {
        if (*from == '+' && plus_is_space) {
            *to++ = ' ';
        } else if (*from == '%') {
            int high = hex_value(from[1]), low = high < 0 ? -1 : hex_value(from[2]);
            if (low < 0 || (high == 0 && low == 0))
                return false;
            *to++ = (char)(high << 4 | low);
            from += 2;
        } else {
            *to++ = *from;
        }
    }
    *to = '\0';
    return true;
}

static int bad_escape(struct bp_err *err)
{
    return bp_fail(err, BP_E_bad_framing, "", "the request target has an escape that is not valid");
}

static int split_query(char *text, struct bp_target_path *path, struct bp_err *err)
{
    for (char *pair = text, *next; pair; pair = next) {
        next = strchr(pair, '&');
        if (next)
            *next++ = '\0';
        if (*pair == '\0')
            continue;
        if (path->n_query == BP_QUERY_MAX)
            return bp_fail(err, BP_E_invalid_query, "", "there are more than %d query parameters", BP_QUERY_MAX);
        char *value = strchr(pair, '=');
        if (value)
            *value++ = '\0';
        else
            value = pair + strlen(pair);
        if (!decode(pair, true) || !decode(value, true))
            return bad_escape(err);
        path->query[path->n_query].name = pair;
        path->query[path->n_query++].value = value;
    }
    return 0;
}

int bp_target_split(char *text, struct bp_target_path *ret, struct bp_err *err)
{
    struct bp_target_path path = {0};
    if (*text != '/')
        return bp_fail(err, BP_E_bad_framing, "", "the request target is not a path");
    /* No target has it unescaped; a library that splits the request line at some other place lets it through. */
    if (bp_has_control(text, strlen(text), 0x21))
        return bp_fail(err, BP_E_bad_framing, "", "the request target has white space or a control character");
    char *query = strchr(text, '?');
    if (query) {
        *query++ = '\0';
        if (split_query(query, &path, err))
            return -1;
    }
    for (char *segment = text + 1, *next; segment; segment = next) {
        next = strchr(segment, '/');
        if (next)
            *next++ = '\0';
        if (path.n == BP_SEGMENTS_MAX)
            return bp_fail(err, BP_E_not_found, "", "there is no such resource");
        if (!decode(segment, false))
            return bad_escape(err);
        path.segments[path.n++] = segment;
    }
    *ret = path;
    return 0;
}
