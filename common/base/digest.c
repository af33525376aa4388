#include "common/base/digest.h"

#include <string.h>

#include <nettle/sha2.h>

static const char prefix[] = "sha256:";
enum { PREFIX = sizeof prefix - 1 };

void bp_digest_of(const void *bytes, size_t n, struct bp_digest *ret)
{
    struct sha256_ctx sha;
    sha256_init(&sha);
    sha256_update(&sha, n, bytes);
    sha256_digest(&sha, sizeof ret->bytes, ret->bytes);
}

bool bp_digest_equal(const struct bp_digest *a, const struct bp_digest *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

void bp_hex(const uint8_t *bytes, size_t n, char *text)
{
    static const char pairs[] = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
                                "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"
                                "404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f"
                                "606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f"
                                "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f"
                                "a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebf"
                                "c0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedf"
                                "e0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff";
    for (size_t i = 0; i < n; i++, text += 2)
        memcpy(text, pairs + 2 * bytes[i], 2);
    *text = '\0';
}

void bp_digest_format(const struct bp_digest *digest, char text[BP_DIGEST_TEXT])
{
    memcpy(text, prefix, PREFIX);
    bp_hex(digest->bytes, sizeof digest->bytes, text + PREFIX);
}

/* -1 for what is no lower-case hex digit. */
static int hex_value(char c)
{
    static const int8_t one_more[256] = {
        ['0'] = 1, ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
        ['8'] = 9, ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
    };
    return one_more[(unsigned char)c] - 1;
}

bool bp_unhex(const char *text, uint8_t *ret, size_t n)
{
    for (size_t i = 0; i < n; i++, text += 2) {
        int high = hex_value(text[0]), low = high < 0 ? -1 : hex_value(text[1]);
        if (low < 0)
            return false;
        ret[i] = (uint8_t)(high << 4 | low);
    }
    return *text == '\0';
}

bool bp_digest_parse(const char *text, struct bp_digest *ret)
{
    struct bp_digest digest;
    if (strncmp(text, prefix, PREFIX) != 0 || !bp_unhex(text + PREFIX, digest.bytes, sizeof digest.bytes))
        return false;
    *ret = digest;
    return true;
}
