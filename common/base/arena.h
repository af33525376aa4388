/* A job's memory: many small allocations, one release. One thread at a time. */
#ifndef BP_BASE_ARENA_H
#define BP_BASE_ARENA_H

#include <stddef.h>

struct bp_arena_chunk;

/* Zero-initialise; release frees everything that was ever allocated from it. `used` counts bytes handed out. */
struct bp_arena {
    struct bp_arena_chunk *chunks;
    size_t used;
};

/* Zeroed memory for n objects of `size` bytes, aligned for any type; NULL when memory runs out or n * size overflows.
 * n = 0 gives a valid pointer. */
void *bp_arena_array(struct bp_arena *arena, size_t n, size_t size);

/* A copy of n bytes and a NUL; NULL when memory runs out. */
char *bp_arena_strndup(struct bp_arena *arena, const char *text, size_t n);

/* A printf into the arena; NULL when memory runs out. */
char *bp_arena_printf(struct bp_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));

void bp_arena_release(struct bp_arena *arena);

#endif
