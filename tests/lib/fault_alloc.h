/* Allocations that fail on demand: what a test program links with this goes through it. */
#ifndef BP_TESTS_LIB_FAULT_ALLOC_H
#define BP_TESTS_LIB_FAULT_ALLOC_H

#include <stdbool.h>

/* False under a sanitizer or valgrind, which bring an allocator of their own: none of malloc's fails then. Not to be
 * called between what follows. */
bool bp_fault_alloc_works(void);

/* ---- malloc, calloc and realloc of the calling thread ---- */

/* Lets `n` allocations pass and fails every one after them, or the next one alone. */
void bp_fault_alloc_after(long n);
void bp_fault_alloc_once(long n);

/* Ends it. True when an allocation was failed since. */
bool bp_fault_alloc_off(void);

/* ---- Of every thread ---- */

enum bp_fault_allocator { BP_FAULT_MALLOC, BP_FAULT_SQLITE, BP_FAULT_JANSSON };

/* Puts an allocator that can fail under SQLite and jansson, for the life of the process and before either is used.
 * SQLite's lookaside memory is off then, so that every allocation counts. These fail under sanitizers, too. */
void bp_fault_alloc_install(void);

/* Lets `n` of that allocator's pass and fails every one after them, or with `once` the next one alone. */
void bp_fault_alloc_begin(enum bp_fault_allocator allocator, long n, bool once);

/* While paused nothing fails and nothing counts; nor on a thread while it is exempt, as the tests' own parts are. */
void bp_fault_alloc_pause(bool paused);
void bp_fault_alloc_exempt(bool exempt);
unsigned long bp_fault_alloc_failed(void); /* since the beginning */
void bp_fault_alloc_end(void);

/* For the allocators: whether this allocation is to fail. */
bool bp_fault_alloc_fails(enum bp_fault_allocator allocator);

#endif
