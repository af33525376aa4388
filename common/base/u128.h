/* Checked exact arithmetic and the units of a fact.
 *
 * Every quantity of a plan is an unsigned integer. A calculation runs on 128 bits in a `struct bp_calc`, which
 * remembers whether any step overflowed, went below zero or divided unevenly; its result may be believed only when
 * bp_calc_ok says so. The one place of the code base that uses the compiler's 128-bit integer is this directory.
 */
#ifndef BP_BASE_U128_H
#define BP_BASE_U128_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

__extension__ typedef unsigned __int128 bp_u128;

/* The largest integer a JSON number may carry here: 2^53 - 1 (RFC 8785 section 3.2.2.3, I-JSON). */
#define BP_JSON_INT_MAX ((UINT64_C(1) << 53) - 1)

/* Units. Operations are counted on 128 bits; bytes are at most BP_JSON_INT_MAX. */
struct bp_ops {
    bp_u128 n;
};
struct bp_bytes {
    uint64_t n;
};

/* Sticky failures of a calculation. Zero-initialise. */
struct bp_calc {
    bool overflow; /* a result is past 128 bits, a byte count past 2^53 - 1, or a difference below zero */
    bool inexact;  /* a division had a remainder */
};

bp_u128 bp_add(struct bp_calc *calc, bp_u128 a, bp_u128 b);
bp_u128 bp_sub(struct bp_calc *calc, bp_u128 a, bp_u128 b);
bp_u128 bp_mul(struct bp_calc *calc, bp_u128 a, bp_u128 b);
bp_u128 bp_div(struct bp_calc *calc, bp_u128 a, bp_u128 b);      /* exact; a remainder or b = 0 is `inexact` */
bp_u128 bp_div_ceil(struct bp_calc *calc, bp_u128 a, bp_u128 b); /* the largest shard; b = 0 is `inexact` */
bp_u128 bp_product(struct bp_calc *calc, const bp_u128 *factors, size_t n);
bp_u128 bp_sum(struct bp_calc *calc, const bp_u128 *terms, size_t n);

/* BP_PROD(calc, 2, m, n, k) is 2mnk; BP_SUM(calc, a, b) is a + b. */
#define BP_U128_LIST(...) (const bp_u128[]){__VA_ARGS__}, sizeof((const bp_u128[]){__VA_ARGS__}) / sizeof(bp_u128)
#define BP_PROD(calc, ...) bp_product(calc, BP_U128_LIST(__VA_ARGS__))
#define BP_SUM(calc, ...) bp_sum(calc, BP_U128_LIST(__VA_ARGS__))

/* A byte count; past 2^53 - 1 it is an overflow. */
struct bp_bytes bp_bytes(struct bp_calc *calc, bp_u128 n);
struct bp_bytes bp_bytes_add(struct bp_calc *calc, struct bp_bytes a, struct bp_bytes b);
struct bp_ops bp_ops_add(struct bp_calc *calc, struct bp_ops a, struct bp_ops b);

bool bp_calc_ok(const struct bp_calc *calc);

/* 0, or -1 with `quantity_overflow` (the request's) or `internal` (an uneven division: divisibility is checked before
 * any pass runs) about `what`. */
int bp_calc_check(const struct bp_calc *calc, const char *path, const char *what, struct bp_err *err);

/* Decimal digits and a NUL into `text`, which has BP_U128_TEXT bytes; returns the number of digits. */
#define BP_U128_TEXT 40
size_t bp_u128_format(bp_u128 value, char *text);

/* Parses all of `text` as a decimal without sign, leading zero or space. False when it is not one or is past 128 bits.
 */
bool bp_u128_parse(const char *text, bp_u128 *ret);

#endif
