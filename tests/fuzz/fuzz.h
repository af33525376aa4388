/* What the fuzz targets share. Each target is a program of its own, linked with libFuzzer (clang); it says what must
 * hold of any input by FUZZ_EXPECT, and aborts where it does not.
 */
#ifndef BP_TESTS_FUZZ_FUZZ_H
#define BP_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "common/base/buf.h"
#include "common/base/err.h"

/* libFuzzer's interface. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t most);

#define FUZZ_EXPECT(holds, ...)                                                                                        \
    do {                                                                                                               \
        if (!(holds)) {                                                                                                \
            fprintf(stderr, "%s:%d: does not hold: %s: ", __FILE__, __LINE__, #holds);                                 \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Parses; what it refuses it must refuse for a reason that is the sender's, and say so. */
json_t *fuzz_parse(const uint8_t *data, size_t n);

/* The same of problems: each is the sender's, in words, and has a place. */
void fuzz_expect_explained(const struct bp_problems *problems);

/* Equal, or both texts are shown. */
void fuzz_expect_same(const struct bp_buf *a, const struct bp_buf *b, const char *what);

/* Changes JSON as JSON: members and elements go, come, change places and values. Text that does not parse, and now and
 * then any other, is changed as bytes. */
size_t fuzz_mutate_json(uint8_t *data, size_t n, size_t most, unsigned seed);

/* RFC 8785 text of JSON text that parses, worked out without the project's code: false when the text has a number
 * that is no integer from 0 to 2^53 - 1. */
bool fuzz_canonical(const char *text, size_t n, struct bp_buf *out);

#endif
