#include "tests/lib/fault_alloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* The calling thread's. Volatile: a compiler takes malloc to change nothing that others see. */
static _Thread_local volatile long left = -1; /* negative: off */
static _Thread_local volatile bool failed, only_once, exempted;

/* Every thread's. */
static atomic_bool armed, paused, once_everywhere;
static atomic_int which;
static atomic_long left_everywhere;
static atomic_ulong failed_everywhere;

void bp_fault_alloc_after(long n)
{
    failed = only_once = false;
    left = n;
}

void bp_fault_alloc_once(long n)
{
    failed = false;
    only_once = true;
    left = n;
}

bool bp_fault_alloc_off(void)
{
    left = -1;
    return failed;
}

void bp_fault_alloc_begin(enum bp_fault_allocator allocator, long n, bool once)
{
    atomic_store(&which, (int)allocator);
    atomic_store(&left_everywhere, n);
    atomic_store(&once_everywhere, once);
    atomic_store(&failed_everywhere, 0);
    atomic_store(&paused, false);
    atomic_store(&armed, true);
}

void bp_fault_alloc_pause(bool pause)
{
    atomic_store(&paused, pause);
}

void bp_fault_alloc_exempt(bool exempt)
{
    exempted = exempt;
}

unsigned long bp_fault_alloc_failed(void)
{
    return atomic_load(&failed_everywhere);
}

void bp_fault_alloc_end(void)
{
    atomic_store(&armed, false);
}

bool bp_fault_alloc_fails(enum bp_fault_allocator allocator)
{
    if (!atomic_load(&armed) || exempted || atomic_load(&paused) || atomic_load(&which) != (int)allocator)
        return false;
    long before = atomic_fetch_sub(&left_everywhere, 1);
    if (before > 0 || (before < 0 && atomic_load(&once_everywhere)))
        return false;
    atomic_fetch_add(&failed_everywhere, 1);
    return true;
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#endif

/* Tried, not known: valgrind puts its own allocator in place of this one when the program starts, but not of what the
 * compiler has made part of the caller. */
bool bp_fault_alloc_works(void)
{
    void *(*volatile allocate)(size_t) = malloc;
    bp_fault_alloc_after(0);
    free(allocate(1));
    return bp_fault_alloc_off();
}

#ifndef SANITIZED
/* glibc's own, under the names by which it lets them be replaced. */
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *memory, size_t n);

static bool fails_here(void)
{
    if (left < 0)
        return false;
    if (left > 0) {
        left--;
        return false;
    }
    if (only_once)
        left = -1;
    failed = true;
    return true;
}

static bool fails(void)
{
    const bool here = fails_here(), everywhere = bp_fault_alloc_fails(BP_FAULT_MALLOC);
    if (here || everywhere)
        errno = ENOMEM;
    return here || everywhere;
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
