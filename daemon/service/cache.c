#include "daemon/service/cache.h"

#include <stdlib.h>
#include <string.h>

/* What an entry costs beside the body: itself, the answer, its prepared form. */
enum { ENTRY_BYTES = 1024 };

struct bp_cache_entry {
    struct bp_cache_entry *next_in_bucket, *newer, *older;
    struct bp_digest digest;
    struct bp_answer *answer;
    uint64_t version;
};

int bp_cache_init(struct bp_cache *cache, size_t n_max, uint64_t bytes_max, struct bp_err *err)
{
    *cache = (struct bp_cache){.n_max = n_max, .bytes_max = bytes_max, .n_buckets = 1};
    while (cache->n_buckets < n_max)
        cache->n_buckets *= 2;
    cache->buckets = calloc(cache->n_buckets, sizeof(struct bp_cache_entry *));
    if (!cache->buckets)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for a cache of %zu answers", n_max);
    pthread_mutex_init(&cache->lock, NULL);
    return 0;
}

static struct bp_cache_entry **place_of(struct bp_cache *cache, const struct bp_digest *digest)
{
    size_t hash;
    memcpy(&hash, digest->bytes, sizeof hash);
    struct bp_cache_entry **place = &cache->buckets[hash & (cache->n_buckets - 1)];
    while (*place && !bp_digest_equal(&(*place)->digest, digest))
        place = &(*place)->next_in_bucket;
    return place;
}

static uint64_t cost_of(const struct bp_answer *answer)
{
    return answer->n + ENTRY_BYTES;
}

static void unlink_age(struct bp_cache *cache, struct bp_cache_entry *entry)
{
    *(entry->newer ? &entry->newer->older : &cache->newest) = entry->older;
    *(entry->older ? &entry->older->newer : &cache->oldest) = entry->newer;
}

static void link_newest(struct bp_cache *cache, struct bp_cache_entry *entry)
{
    entry->newer = NULL;
    entry->older = cache->newest;
    *(entry->older ? &entry->older->newer : &cache->oldest) = entry;
    cache->newest = entry;
}

static void remove_at(struct bp_cache *cache, struct bp_cache_entry **place)
{
    struct bp_cache_entry *entry = *place;
    *place = entry->next_in_bucket;
    unlink_age(cache, entry);
    cache->n--;
    cache->bytes -= cost_of(entry->answer);
    bp_answer_unref(entry->answer);
    free(entry);
}

struct bp_answer *bp_cache_get(struct bp_cache *cache, const struct bp_digest *digest, uint64_t *ret_version)
{
    struct bp_answer *answer = NULL;
    pthread_mutex_lock(&cache->lock);
    struct bp_cache_entry *entry = *place_of(cache, digest);
    if (entry) {
        unlink_age(cache, entry);
        link_newest(cache, entry);
        answer = bp_answer_ref(entry->answer);
        if (ret_version)
            *ret_version = entry->version;
    }
    pthread_mutex_unlock(&cache->lock);
    return answer;
}

void bp_cache_drop(struct bp_cache *cache, const struct bp_digest *digest)
{
    pthread_mutex_lock(&cache->lock);
    struct bp_cache_entry **place = place_of(cache, digest);
    if (*place)
        remove_at(cache, place);
    pthread_mutex_unlock(&cache->lock);
}

void bp_cache_forget(struct bp_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    while (cache->oldest)
        remove_at(cache, place_of(cache, &cache->oldest->digest));
    cache->epoch++;
    pthread_mutex_unlock(&cache->lock);
}

uint64_t bp_cache_epoch(struct bp_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    uint64_t epoch = cache->epoch;
    pthread_mutex_unlock(&cache->lock);
    return epoch;
}

void bp_cache_put(struct bp_cache *cache, const struct bp_digest *digest, struct bp_answer *answer, uint64_t version,
                  uint64_t epoch)
{
    if (bp_answer_is_standing(answer) || cost_of(answer) > cache->bytes_max / 8)
        return;
    struct bp_cache_entry *entry = malloc(sizeof *entry);
    if (!entry)
        return;
    *entry = (struct bp_cache_entry){.digest = *digest, .answer = bp_answer_ref(answer), .version = version};
    pthread_mutex_lock(&cache->lock);
    if (epoch != cache->epoch) {
        pthread_mutex_unlock(&cache->lock);
        bp_answer_unref(answer);
        free(entry);
        return;
    }
    struct bp_cache_entry **place = place_of(cache, digest);
    if (*place)
        remove_at(cache, place);
    entry->next_in_bucket = *place;
    *place = entry;
    link_newest(cache, entry);
    cache->n++;
    cache->bytes += cost_of(answer);
    while (cache->n > cache->n_max || cache->bytes > cache->bytes_max)
        remove_at(cache, place_of(cache, &cache->oldest->digest));
    pthread_mutex_unlock(&cache->lock);
}

uint64_t bp_cache_bytes(struct bp_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    uint64_t bytes = cache->bytes;
    pthread_mutex_unlock(&cache->lock);
    return bytes;
}

void bp_cache_release(struct bp_cache *cache)
{
    while (cache->oldest)
        remove_at(cache, place_of(cache, &cache->oldest->digest));
    free(cache->buckets);
    pthread_mutex_destroy(&cache->lock);
}
