/* Whether the threads that the daemon's work depends on still turn around, told in rounds.
 *
 * A round asks every participant and has passed when each has answered; what feeds systemd's watchdog is a round that
 * passed. A participant that does not answer holds its round up for as long, and with it the feed. Pure but for what
 * the participants do; one thread; the clock is the caller's.
 */
#ifndef BP_DAEMON_HEARTBEAT_H
#define BP_DAEMON_HEARTBEAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Neither function may wait for what it asks about. */
struct bp_participant {
    const char *name;
    void (*ask)(void *data);
    bool (*has_answered)(void *data, uint64_t now_ns); /* since it was last asked */
    void *data;
};

struct bp_heartbeat {
    const struct bp_participant *participants;
    size_t n;
    uint64_t interval_ns; /* from the beginning of one round to that of the next, unless it takes longer */
    uint64_t begun_at;    /* the last round; the first is due that long after zero */
    bool under_way;       /* that round: it has not passed */
    const char *silent;   /* who had not answered at the last look; NULL: nobody */
};

/* Goes on with the round, or begins one that is due. True when it passed at this look: once a round. */
bool bp_heartbeat_turn(struct bp_heartbeat *heartbeat, uint64_t now_ns);

#endif
