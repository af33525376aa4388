#include "daemon/heartbeat.h"

static void begin(struct bp_heartbeat *heartbeat, uint64_t now_ns)
{
    heartbeat->under_way = true;
    heartbeat->begun_at = now_ns;
    for (size_t i = 0; i < heartbeat->n; i++)
        heartbeat->participants[i].ask(heartbeat->participants[i].data);
}

static const char *first_silent(const struct bp_heartbeat *heartbeat, uint64_t now_ns)
{
    for (size_t i = 0; i < heartbeat->n; i++)
        if (!heartbeat->participants[i].has_answered(heartbeat->participants[i].data, now_ns))
            return heartbeat->participants[i].name;
    return NULL;
}

bool bp_heartbeat_turn(struct bp_heartbeat *heartbeat, uint64_t now_ns)
{
    if (!heartbeat->under_way && now_ns - heartbeat->begun_at >= heartbeat->interval_ns)
        begin(heartbeat, now_ns);
    if (!heartbeat->under_way)
        return false;
    heartbeat->silent = first_silent(heartbeat, now_ns);
    heartbeat->under_way = heartbeat->silent != NULL;
    return !heartbeat->under_way;
}
