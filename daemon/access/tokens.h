/* Bearer tokens, from a file that has their hashes:
 *
 *     # name      scopes     hash                 limits, optional
 *     scheduler   read,plan  sha256:0123...cdef   rate=600/m concurrency=8
 *
 * Words are separated by spaces or tabs; a line that is empty or begins with # says nothing. A token is "bp_" and
 * 32 random bytes in hex. What is kept of it is its SHA-256 and not a slow password hash: slowness and salt are
 * against guessing words that people choose, and nobody guesses 256 random bits; a hash that takes a tenth of a second
 * would only let anybody keep the daemon busy. For the same reason tokens are made by bp_token_make, not by people.
 *
 * Pure but for the reading of the file and of random bytes; any thread on its own objects.
 */
#ifndef BP_ACCESS_TOKENS_H
#define BP_ACCESS_TOKENS_H

#include "common/base/buf.h"
#include "common/base/digest.h"
#include "daemon/access/limit.h"
#include "daemon/access/scope.h"

/* Longest name and a NUL; most tokens of a file: all are compared with what a request brings. */
enum { BP_TOKEN_NAME = 65, BP_TOKENS_MAX = 1024 };

struct bp_token {
    char name[BP_TOKEN_NAME];
    unsigned scopes, line;
    struct bp_digest hash;
    struct bp_limits limits; /* none: the daemon's own hold */
};

struct bp_tokens {
    struct bp_token *at;
    size_t n;
};

/* Reads the text of a file called `path`. Every bad line is named in `problems` ("line 3: ..."), all with the path;
 * with any `*ret` is untouched. */
void bp_tokens_parse(const char *path, const char *text, size_t n, struct bp_tokens *ret, struct bp_problems *problems);

/* The same of the file, which others than its owner and group may not read, nor others than its owner write. */
void bp_tokens_load(const char *path, struct bp_tokens *ret, struct bp_problems *problems);
void bp_tokens_release(struct bp_tokens *tokens);

/* The token that these n bytes are, or NULL. Takes the same time whichever it is, or none: what is compared is the
 * hash, of all of them and to the end. */
const struct bp_token *bp_tokens_find(const struct bp_tokens *tokens, const char *token, size_t n);

/* "" and longer names, or other than letters, digits and ._- are none. */
bool bp_token_name_is_valid(const char *name);

/* "bp_", 64 hex digits and a NUL. */
#define BP_TOKEN_TEXT 68

/* A new token. -1: internal, when the kernel gives no random bytes. */
int bp_token_make(char ret[BP_TOKEN_TEXT], struct bp_err *err);

#endif
