/* Files of the source tree that are built into a program, as schema/embed.sh writes them. */
#ifndef BP_BASE_EMBEDDED_H
#define BP_BASE_EMBEDDED_H

#include <stddef.h>

/* `bytes` holds n bytes and a NUL that n does not count. A table ends with a row whose name is NULL. */
struct bp_embedded {
    const char *name; /* without directories */
    const unsigned char *bytes;
    size_t n;
};

#endif
