/* Whether a thread of libmicrohttpd turns around: a client of our own asks something over a socket pair. One thread.
 *
 * In the clear it asks for /healthz, over a connection that is kept. Of TLS no handshake is made: what is no handshake
 * is refused by cutting the connection, which only a thread that turns around does.
 */
#ifndef BP_HTTP_PULSE_H
#define BP_HTTP_PULSE_H

#include <stdbool.h>

struct bp_pulse {
    bool (*connect)(void *data, int fd); /* hands the descriptor to the thread, or closes it: false */
    void *data;
    bool is_tls;

    int fd;         /* our end; -1 for none */
    bool waits;     /* for a sign */
    unsigned n_end; /* characters of the end of a head that have come in a row */
};

void bp_pulse_ask(struct bp_pulse *pulse);

/* Since it was last asked. When the connection could not be made or was cut before an answer, it is made again and
 * asked. */
bool bp_pulse_has_answered(struct bp_pulse *pulse);
void bp_pulse_release(struct bp_pulse *pulse);

#endif
