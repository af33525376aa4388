#include "tests/lib/fault_alloc.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static _Thread_local long left = -1; /* negative: off */
static _Thread_local bool failed;

void bp_fault_alloc_after(long n)
{
    failed = false;
    left = n;
}

bool bp_fault_alloc_off(void)
{
    left = -1;
    return failed;
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#endif

/* Tried, not known: valgrind puts its own allocator in place of this one when the program starts. */
bool bp_fault_alloc_works(void)
{
    bp_fault_alloc_after(0);
    void *volatile memory = malloc(1);
    free(memory);
    return bp_fault_alloc_off();
}

#ifndef SANITIZED
/* glibc's own, under the names by which it lets them be replaced. */
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *memory, size_t n);

static bool fails(void)
{
    if (left < 0)
        return false;
    if (left > 0) {
        left--;
        return false;
    }
    failed = true;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t n)
{
    return fails() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *memory, size_t n)
{
    return fails() ? NULL : __libc_realloc(memory, n);
}
#endif
