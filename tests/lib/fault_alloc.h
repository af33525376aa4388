/* Allocations of the calling thread that fail on demand: what a test program links with this goes through it. */
#ifndef BP_TESTS_LIB_FAULT_ALLOC_H
#define BP_TESTS_LIB_FAULT_ALLOC_H

#include <stdbool.h>

/* False under a sanitizer or valgrind, which bring an allocator of their own: nothing fails then. Not to be called
 * between the two below. */
bool bp_fault_alloc_works(void);

/* Lets `n` allocations pass and fails every one after them. */
void bp_fault_alloc_after(long n);

/* Ends it. True when an allocation was failed since bp_fault_alloc_after. */
bool bp_fault_alloc_off(void);

#endif
