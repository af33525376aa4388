/* Seeded random plan requests. The same seed gives the same request on every machine. One thread at a time. */
#ifndef BP_TESTS_PROPERTY_GENERATE_H
#define BP_TESTS_PROPERTY_GENERATE_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

/* A source of numbers: splitmix64. */
struct gen {
    uint64_t state;
};
uint64_t gen_next(struct gen *gen);
uint64_t gen_range(struct gen *gen, uint64_t least, uint64_t most); /* both included */
bool gen_chance(struct gen *gen, unsigned percent);

/* How many cases a test runs: BP_PROPERTY_CASES per cent of `usual`; 100 unless set, 1000 with BP_LONG. */
unsigned gen_cases(unsigned usual);
/* The seed of case `i`, from BP_PROPERTY_SEED. */
struct gen gen_of_case(unsigned i);

/* What a request is made from. `bits` bounds its dimensions: 53 goes to the largest that can be said. */
struct gen_shape {
    unsigned bits;
    bool training, target;
};

/* A valid request: every divisibility and range holds, optional keys are there or not, in any combination. Give it
 * back with json_decref. A deployment holds any layout. */
json_t *gen_request(struct gen *gen, const struct gen_shape *shape);

/* The same, of a model of one to three kinds of block with any features that have rows in the mode, under a strategy
 * with context and expert parallelism. */
json_t *gen_request_of_kinds(struct gen *gen, const struct gen_shape *shape);

/* What requests are put together from. */
uint64_t gen_magnitude(struct gen *gen, unsigned bits);             /* of 1 to `bits` bits */
uint64_t gen_multiple(struct gen *gen, uint64_t of, unsigned bits); /* not past what JSON can say */
void gen_put(json_t *object, const char *key, uint64_t value);
void gen_put_or_not(struct gen *gen, json_t *object, const char *key, uint64_t value,
                    uint64_t fallback); /* may be left out at its default */
bool gen_put_flag(struct gen *gen, json_t *object, const char *key, unsigned percent);
void gen_put_word(struct gen *gen, json_t *object, const char *key, const char *const *words, uint64_t n);
extern const char *const gen_dtypes[4];

#endif
