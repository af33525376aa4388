/* A relay before the server under test, which does harm to the file of a backup as it passes. A process of its own. */
#ifndef BP_TESTS_API_RELAY_H
#define BP_TESTS_API_RELAY_H

#include <sys/types.h>

enum relay_harm {
    RELAY_NONE,
    RELAY_FLIP,     /* a bit in the middle */
    RELAY_CUT,      /* closes in the middle */
    RELAY_CUT_LAST, /* closes before the last byte */
    RELAY_SHORTEN,  /* half of it, which it says is all */
};

struct relay {
    pid_t pid;
    char socket[160];
};

/* Listens on a Unix socket of the test's own and passes on to the one of the server. */
struct relay relay_begin(enum relay_harm harm);
void relay_end(struct relay *relay);

#endif
