/* Answers kept for the next who ask, by digest: bounded by number and by bytes, least recently used goes first.
 * Any thread.
 */
#ifndef BP_SERVICE_CACHE_H
#define BP_SERVICE_CACHE_H

#include <pthread.h>

#include "daemon/service/answer.h"

struct bp_cache_entry;

struct bp_cache {
    pthread_mutex_t lock;
    struct bp_cache_entry **buckets;
    struct bp_cache_entry *newest, *oldest;
    size_t n, n_max, n_buckets; /* a power of two */
    uint64_t epoch;
    uint64_t bytes, bytes_max;
};

int bp_cache_init(struct bp_cache *cache, size_t n_max, uint64_t bytes_max, struct bp_err *err);
void bp_cache_release(struct bp_cache *cache);

/* A reference, or NULL. `ret_version` (may be NULL) is what was put beside it. */
struct bp_answer *bp_cache_get(struct bp_cache *cache, const struct bp_digest *digest, uint64_t *ret_version);

/* Keeps a reference of its own, in place of what was there; without memory, or for an answer larger than an eighth of
 * the cache, it keeps nothing. */
void bp_cache_put(struct bp_cache *cache, const struct bp_digest *digest, struct bp_answer *answer, uint64_t version,
                  uint64_t epoch);

/* Drops everything, and takes nothing that was read before: what is put must come with an epoch that bp_cache_epoch
 * gave before it was read. */
void bp_cache_forget(struct bp_cache *cache);
uint64_t bp_cache_epoch(struct bp_cache *cache);

void bp_cache_drop(struct bp_cache *cache, const struct bp_digest *digest);

uint64_t bp_cache_bytes(struct bp_cache *cache);

#endif
