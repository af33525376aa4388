#include "daemon/http/call.h"

#include <stdio.h>
#include <string.h>

#define LIMITS_TEXT 64

/* The name as a JSON Pointer into the query, of what prints. */
static void pointer_of(const char *name, char ret[LIMITS_TEXT])
{
    size_t n = 0;
    ret[n++] = '/';
    for (; *name && n < LIMITS_TEXT - 2; name++) {
        if (*name == '~' || *name == '/') {
            ret[n++] = '~';
            ret[n++] = *name == '~' ? '0' : '1';
        } else {
            ret[n++] = *name >= 0x20 && *name < 0x7f ? *name : '?';
        }
    }
    ret[n] = '\0';
}

static void refuse(struct bp_problems *problems, const char *name, const char *what)
{
    char pointer[LIMITS_TEXT];
    pointer_of(name, pointer);
    bp_problems_add(problems, BP_E_invalid_query, pointer, "the parameter %s %s", pointer + 1, what);
}

void bp_call_query(const struct bp_call *call, const char *const *known, const char **ret_values,
                   struct bp_problems *problems)
{
    for (size_t k = 0; known[k]; k++)
        ret_values[k] = NULL;
    for (size_t i = 0; i < call->target.n_query; i++) {
        const char *name = call->target.query[i].name;
        size_t k = 0;
        while (known[k] && strcmp(known[k], name) != 0)
            k++;
        if (!known[k])
            refuse(problems, name, "is not known here");
        else if (ret_values[k])
            refuse(problems, name, "is given twice");
        else
            ret_values[k] = call->target.query[i].value;
    }
}

uint64_t bp_query_uint(const char *name, const char *value, uint64_t least, uint64_t most, uint64_t fallback,
                       struct bp_problems *problems)
{
    if (!value)
        return fallback;
    uint64_t number = 0;
    const char *at = value;
    for (; *at >= '0' && *at <= '9' && number <= most; at++)
        number = number * 10 + (uint64_t)(*at - '0');
    if (at == value || *at || number < least || number > most) {
        char what[96];
        snprintf(what, sizeof what, "must be a number between %llu and %llu", (unsigned long long)least,
                 (unsigned long long)most);
        refuse(problems, name, what);
        return fallback;
    }
    return number;
}

int bp_query_enum(const char *name, const char *value, const char *const *names, int fallback,
                  struct bp_problems *problems)
{
    char what[192] = "must be one of";
    if (!value)
        return fallback;
    for (int i = 0; names[i]; i++) {
        if (strcmp(names[i], value) == 0)
            return i;
        size_t n = strlen(what);
        snprintf(what + n, sizeof what - n, "%s %s", i ? "," : "", names[i]);
    }
    refuse(problems, name, what);
    return fallback;
}

struct bp_answer *bp_query_refusal(struct bp_problems *problems)
{
    static const struct bp_problem_extra extra = {.when_many = BP_E_invalid_query};
    struct bp_answer *answer = bp_problems_none(problems) ? NULL : bp_problem(problems, &extra);
    bp_problems_release(problems);
    return answer;
}

struct bp_answer *bp_call_no_query(const struct bp_call *call)
{
    static const char *const known[] = {NULL};
    const char *values[1];
    struct bp_problems problems = {0};
    bp_call_query(call, known, values, &problems);
    return bp_query_refusal(&problems);
}
