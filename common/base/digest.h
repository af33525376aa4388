/* SHA-256 digests: of snapshots, requests, bindings. Pure; any thread. */
#ifndef BP_BASE_DIGEST_H
#define BP_BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bp_digest {
    uint8_t bytes[32];
};

/* "sha256:" and 64 lower-case hex digits, and a NUL. */
#define BP_DIGEST_TEXT 72

void bp_digest_of(const void *bytes, size_t n, struct bp_digest *ret);
bool bp_digest_equal(const struct bp_digest *a, const struct bp_digest *b);
void bp_digest_format(const struct bp_digest *digest, char text[BP_DIGEST_TEXT]);

/* All of `text` must be a digest as bp_digest_format writes it. */
bool bp_digest_parse(const char *text, struct bp_digest *ret);

/* Lower-case hex of n bytes and a NUL into `text` (2n + 1 bytes). */
void bp_hex(const uint8_t *bytes, size_t n, char *text);

/* The reverse: all of `text` must be the lower-case hex of n bytes, else false and `ret` is not to be used. */
bool bp_unhex(const char *text, uint8_t *ret, size_t n);

#endif
