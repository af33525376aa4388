#include "daemon/access/limit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t second = UINT64_C(1000000000);

/* The number that `text` begins with, and what follows it. */
static bool read_number(const char *text, unsigned *ret, const char **ret_rest)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || errno || value < 1 || value > BP_LIMIT_MOST)
        return false;
    *ret = (unsigned)value;
    *ret_rest = end;
    return true;
}

const char *bp_limits_read_rate(const char *text, struct bp_limits *ret)
{
    static const struct {
        const char *unit;
        unsigned seconds;
    } periods[] = {{"/s", 1}, {"/m", 60}, {"/h", 3600}};
    unsigned requests;
    const char *unit;
    if (read_number(text, &requests, &unit))
        for (size_t i = 0; i < sizeof periods / sizeof *periods; i++)
            if (strcmp(periods[i].unit, unit) == 0) {
                ret->requests = requests;
                ret->period_ns = periods[i].seconds * second;
                return NULL;
            }
    return "a rate is N/s, N/m or N/h, with N of 1 to 1000000";
}

const char *bp_limits_read_at_once(const char *text, struct bp_limits *ret)
{
    unsigned at_once;
    const char *rest;
    if (!read_number(text, &at_once, &rest) || *rest)
        return "requests at once are a number of 1 to 1000000";
    ret->at_once = at_once;
    return NULL;
}

int bp_limiter_take(struct bp_limiter *limiter, const struct bp_limits *limits, uint64_t now_ns, unsigned *ret_seconds,
                    struct bp_err *err)
{
    if (limits->at_once && limiter->under_way >= limits->at_once) {
        *ret_seconds = 1;
        return bp_fail(err, BP_E_concurrency_limited, "", "%u requests are under way, which is the limit",
                       limits->at_once);
    }
    if (limits->requests) {
        const uint64_t interval = limits->period_ns / limits->requests;
        if (limiter->due_ns > now_ns + limits->period_ns)
            limiter->due_ns = now_ns + limits->period_ns; /* it was counted by a longer period */
        const uint64_t due = (limiter->due_ns > now_ns ? limiter->due_ns : now_ns) + interval;
        if (due - now_ns > limits->period_ns) {
            const uint64_t wait = due - now_ns - limits->period_ns;
            *ret_seconds = (unsigned)((wait + second - 1) / second);
            return bp_fail(err, BP_E_rate_limited, "", "more than %u requests in %u seconds", limits->requests,
                           (unsigned)(limits->period_ns / second));
        }
        limiter->due_ns = due;
    }
    limiter->under_way++;
    return 0;
}

void bp_limiter_give(struct bp_limiter *limiter)
{
    limiter->under_way--;
}
