#include "common/base/arena.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 64 * 1024, ALIGN = _Alignof(max_align_t) };

struct bp_arena_chunk {
    struct bp_arena_chunk *next;
    size_t used, size;
    _Alignas(max_align_t) unsigned char bytes[];
};

static bool arena_grow(struct bp_arena *arena, size_t need)
{
    size_t size = need > CHUNK_BYTES ? need : CHUNK_BYTES;
    if (size > SIZE_MAX - sizeof(struct bp_arena_chunk))
        return false;
    struct bp_arena_chunk *chunk = malloc(sizeof *chunk + size);
    if (!chunk)
        return false;
    *chunk = (struct bp_arena_chunk){.next = arena->chunks, .size = size};
    arena->chunks = chunk;
    return true;
}

void *bp_arena_array(struct bp_arena *arena, size_t n, size_t size)
{
    if (size && n > (SIZE_MAX - ALIGN) / size)
        return NULL;
    size_t need = (n * size + ALIGN - 1) / ALIGN * ALIGN;
    struct bp_arena_chunk *chunk = arena->chunks;
    if (!chunk || chunk->size - chunk->used < need) {
        if (!arena_grow(arena, need))
            return NULL;
        chunk = arena->chunks;
    }
    void *memory = chunk->bytes + chunk->used;
    chunk->used += need;
    arena->used += need;
    return memset(memory, 0, need);
}

char *bp_arena_strndup(struct bp_arena *arena, const char *text, size_t n)
{
    char *copy = bp_arena_array(arena, n + 1, 1);
    if (copy)
        memcpy(copy, text, n);
    return copy;
}

char *bp_arena_printf(struct bp_arena *arena, const char *format, ...)
{
    char first[256]; /* most texts, which are then formatted once */
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(first, sizeof first, format, args);
    va_end(args);
    char *text = n < 0 ? NULL : bp_arena_array(arena, (size_t)n + 1, 1);
    if (text && (size_t)n < sizeof first)
        memcpy(text, first, (size_t)n);
    else if (text)
        vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}

void bp_arena_release(struct bp_arena *arena)
{
    for (struct bp_arena_chunk *chunk = arena->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    *arena = (struct bp_arena){0};
}
