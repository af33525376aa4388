/* jansson takes some failed allocations for bad syntax, and overlooks others: when the buffer of a token cannot grow it
 * goes on without the characters that found no room, and then aborts on its own assertions, writes past the end of a
 * string whose escape has lost a character, or reads another number than was written. So within a parse the first
 * allocation that fails ends it, by longjmp, and what it had allocated is freed: it holds nothing else. */
#include "common/base/json_load.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>

enum { SLOTS_FIRST = 256 };

/* The thread's parse, and the set of what it has allocated: open addressing, at most half full. A slot that was given
 * back is marked `freed`, and taken again by the first that passes it: jansson frees and allocates a token's buffer at
 * one address over and over, and its marks would be walked by every search that begins there. */
static _Thread_local struct {
    bool is_on;
    jmp_buf failed;
    void **slots;
    size_t n_slots, n_used;
} parse;

static char freed;

static size_t first_place(const void *memory, size_t n_slots)
{
    return (size_t)(((uint64_t)(uintptr_t)memory >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (n_slots - 1);
}

/* Where it is; else an empty slot. */
static void **slot_of(void **slots, size_t n_slots, const void *memory)
{
    size_t i = first_place(memory, n_slots);
    while (slots[i] && slots[i] != memory)
        i = (i + 1) & (n_slots - 1);
    return &slots[i];
}

/* For what is not there. */
static void **free_slot_for(void **slots, size_t n_slots, const void *memory)
{
    size_t i = first_place(memory, n_slots);
    while (slots[i] && slots[i] != &freed)
        i = (i + 1) & (n_slots - 1);
    return &slots[i];
}

static bool grow(void)
{
    size_t n_held = 0, n_slots = SLOTS_FIRST;
    for (size_t i = 0; i < parse.n_slots; i++)
        n_held += parse.slots[i] && parse.slots[i] != &freed;
    while (n_slots < 4 * n_held)
        n_slots *= 2;
    void **slots = calloc(n_slots, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < parse.n_slots; i++)
        if (parse.slots[i] && parse.slots[i] != &freed)
            *free_slot_for(slots, n_slots, parse.slots[i]) = parse.slots[i];
    free(parse.slots);
    parse.slots = slots;
    parse.n_slots = n_slots;
    parse.n_used = n_held;
    return true;
}

static bool note(void *memory)
{
    if (2 * (parse.n_used + 1) > parse.n_slots && !grow())
        return false;
    void **slot = free_slot_for(parse.slots, parse.n_slots, memory);
    parse.n_used += *slot == NULL;
    *slot = memory;
    return true;
}

static void *parse_malloc(size_t n)
{
    void *memory = malloc(n);
    if (!parse.is_on || (memory && note(memory)))
        return memory;
    free(memory);
    longjmp(parse.failed, 1);
}

static void parse_free(void *memory)
{
    if (parse.is_on && memory && parse.slots) {
        void **slot = slot_of(parse.slots, parse.n_slots, memory);
        if (*slot)
            *slot = &freed;
    }
    free(memory);
}

static void set_functions(void)
{
    json_set_alloc_funcs(parse_malloc, parse_free);
}

static void free_all(void)
{
    for (size_t i = 0; i < parse.n_slots; i++)
        if (parse.slots[i] != &freed)
            free(parse.slots[i]);
}

static void end(void)
{
    parse.is_on = false;
    free(parse.slots);
    parse.slots = NULL;
    parse.n_slots = parse.n_used = 0;
}

json_t *bp_json_load(const char *text, size_t n, size_t flags, json_error_t *error, bool *ret_out_of_memory)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_functions);
    if (setjmp(parse.failed) == 0) {
        parse.is_on = true;
        json_t *value = json_loadb(text, n, flags, error);
        end();
        *ret_out_of_memory = false;
        return value;
    }
    free_all();
    end();
    *ret_out_of_memory = true;
    return NULL;
}
