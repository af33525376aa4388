#include "common/base/u128.h"

#include <string.h>

/* Most numbers fit in 64 bits, where products cannot overflow and divisions are the machine's. */
static bool narrow(bp_u128 a, bp_u128 b)
{
    return (uint64_t)((a | b) >> 64) == 0;
}

bp_u128 bp_add(struct bp_calc *calc, bp_u128 a, bp_u128 b)
{
    bp_u128 result;
    calc->overflow |= __builtin_add_overflow(a, b, &result);
    return result;
}

bp_u128 bp_sub(struct bp_calc *calc, bp_u128 a, bp_u128 b)
{
    bp_u128 result;
    calc->overflow |= __builtin_sub_overflow(a, b, &result);
    return result;
}

bp_u128 bp_mul(struct bp_calc *calc, bp_u128 a, bp_u128 b)
{
    bp_u128 result;
    if (narrow(a, b))
        return a * b;
    calc->overflow |= __builtin_mul_overflow(a, b, &result);
    return result;
}

static bp_u128 divide(bp_u128 a, bp_u128 b, bool *ret_even)
{
    if (narrow(a, b)) {
        *ret_even = (uint64_t)a % (uint64_t)b == 0;
        return (uint64_t)a / (uint64_t)b;
    }
    *ret_even = a % b == 0;
    return a / b;
}

bp_u128 bp_div(struct bp_calc *calc, bp_u128 a, bp_u128 b)
{
    bool even = false;
    bp_u128 quotient = b ? divide(a, b, &even) : 0;
    calc->inexact |= !even;
    return even ? quotient : 0;
}

bp_u128 bp_div_ceil(struct bp_calc *calc, bp_u128 a, bp_u128 b)
{
    if (b == 0) {
        calc->inexact = true;
        return 0;
    }
    bool even;
    bp_u128 quotient = divide(a, b, &even);
    return quotient + !even;
}

bp_u128 bp_product(struct bp_calc *calc, const bp_u128 *factors, size_t n)
{
    bp_u128 result = 1;
    for (size_t i = 0; i < n; i++)
        result = bp_mul(calc, result, factors[i]);
    return result;
}

bp_u128 bp_sum(struct bp_calc *calc, const bp_u128 *terms, size_t n)
{
    bp_u128 result = 0;
    for (size_t i = 0; i < n; i++)
        result = bp_add(calc, result, terms[i]);
    return result;
}

struct bp_bytes bp_bytes(struct bp_calc *calc, bp_u128 n)
{
    if (n > BP_JSON_INT_MAX) {
        calc->overflow = true;
        return (struct bp_bytes){0};
    }
    return (struct bp_bytes){(uint64_t)n};
}

struct bp_bytes bp_bytes_add(struct bp_calc *calc, struct bp_bytes a, struct bp_bytes b)
{
    return bp_bytes(calc, bp_add(calc, a.n, b.n));
}

struct bp_ops bp_ops_add(struct bp_calc *calc, struct bp_ops a, struct bp_ops b)
{
    return (struct bp_ops){bp_add(calc, a.n, b.n)};
}

bool bp_calc_ok(const struct bp_calc *calc)
{
    return !calc->overflow && !calc->inexact;
}

int bp_calc_check(const struct bp_calc *calc, const char *path, const char *what, struct bp_err *err)
{
    if (calc->overflow)
        return bp_fail(err, BP_E_quantity_overflow, path, "%s is too large to be stated exactly", what);
    if (calc->inexact)
        return bp_fail(err, BP_E_internal, path, "%s divides unevenly", what);
    return 0;
}

/* Digits of `value` written backwards before `end`, at least `least` of them. Where they begin. */
static char *put_digits(char *end, uint64_t value, int least)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
                                "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
                                "8081828384858687888990919293949596979899";
    const char *stop = end - least;
    for (; value >= 10; value /= 100)
        memcpy(end -= 2, pairs + 2 * (value % 100), 2);
    if (value)
        *--end = (char)('0' + value);
    while (end > stop)
        *--end = '0';
    return end;
}

/* By the bits of the value, each of which is log10(2) of a digit, and a look at the power of ten that is near. */
static size_t count_digits(uint64_t value)
{
    static const uint64_t powers[] = {
        UINT64_C(1),
        UINT64_C(10),
        UINT64_C(100),
        UINT64_C(1000),
        UINT64_C(10000),
        UINT64_C(100000),
        UINT64_C(1000000),
        UINT64_C(10000000),
        UINT64_C(100000000),
        UINT64_C(1000000000),
        UINT64_C(10000000000),
        UINT64_C(100000000000),
        UINT64_C(1000000000000),
        UINT64_C(10000000000000),
        UINT64_C(100000000000000),
        UINT64_C(1000000000000000),
        UINT64_C(10000000000000000),
        UINT64_C(100000000000000000),
        UINT64_C(1000000000000000000),
        UINT64_C(10000000000000000000),
    };
    const unsigned bits = 64 - (unsigned)__builtin_clzll(value | 1), digits = bits * 1233 >> 12;
    return digits + (digits == 0 || value >= powers[digits]);
}

size_t bp_u128_format(bp_u128 value, char *text)
{
    char digits[BP_U128_TEXT], *const end = digits + sizeof digits, *at = end;
    if (value <= UINT64_MAX) { /* most numbers: written where they stay */
        const size_t n = count_digits((uint64_t)value);
        put_digits(text + n, (uint64_t)value, 1);
        text[n] = '\0';
        return n;
    }
    /* 128-bit division is a library call: take 19 digits at a time. */
    const uint64_t chunk = UINT64_C(10000000000000000000);
    while (value > UINT64_MAX) {
        at = put_digits(at, (uint64_t)(value % chunk), 19);
        value /= chunk;
    }
    at = put_digits(at, (uint64_t)value, 1);
    const size_t n = (size_t)(end - at);
    memcpy(text, at, n);
    text[n] = '\0';
    return n;
}

bool bp_u128_parse(const char *text, bp_u128 *ret)
{
    struct bp_calc calc = {0};
    bp_u128 value = 0;
    if (*text == '\0' || (text[0] == '0' && text[1] != '\0'))
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = bp_add(&calc, bp_mul(&calc, value, 10), (bp_u128)(*text - '0'));
    }
    if (!bp_calc_ok(&calc))
        return false;
    *ret = value;
    return true;
}
