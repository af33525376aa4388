/* 128-bit arithmetic of the independent recomputation: saturating, so that "too large" survives every step. It shares
 * nothing with common/base/u128 on purpose. */
#ifndef TESTS_REFERENCE_WIDE_H
#define TESTS_REFERENCE_WIDE_H

#include <stddef.h>

__extension__ typedef unsigned __int128 wide;

#define WIDE_HUGE (~(wide)0) /* 2^128 - 1 or more: not known exactly */

static inline wide wide_add(wide a, wide b)
{
    return a > WIDE_HUGE - b ? WIDE_HUGE : a + b;
}

static inline wide wide_mul(wide a, wide b)
{
    return b != 0 && a > WIDE_HUGE / b ? WIDE_HUGE : a * b;
}

/* a - b, 0 <= b <= a. */
static inline wide wide_sub(wide a, wide b)
{
    return a == WIDE_HUGE || b == WIDE_HUGE ? WIDE_HUGE : a - b;
}

/* a / b rounded up; even divisions are exact. */
static inline wide wide_div(wide a, wide b)
{
    return a == WIDE_HUGE ? WIDE_HUGE : a / b + (a % b != 0);
}

static inline wide wide_fold(wide (*step)(wide, wide), wide start, const wide *at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        start = step(start, at[i]);
    return start;
}

#define WIDE_LIST(...) (const wide[]){__VA_ARGS__}, sizeof((const wide[]){__VA_ARGS__}) / sizeof(wide)
#define PROD(...) wide_fold(wide_mul, 1, WIDE_LIST(__VA_ARGS__))
#define SUM(...) wide_fold(wide_add, 0, WIDE_LIST(__VA_ARGS__))

#endif
