/* The connections that read. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "daemon/store/internal.h"

static void init_lock(struct bp_store_pool *pool)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&pool->returned, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&pool->lock, NULL);
}

int bp_store_pool_open(struct bp_store_pool *pool, const char *real_path, unsigned n, unsigned deadline_ms,
                       struct bp_err *err)
{
    pool->deadline_ns = (int64_t)deadline_ms * 1000000;
    pool->at = calloc(n, sizeof *pool->at);
    pool->idle = calloc(n, sizeof *pool->idle);
    init_lock(pool);
    int result = pool->at && pool->idle ? 0 : bp_fail(err, BP_E_out_of_memory, "", "no memory for the connections");
    for (; result == 0 && pool->n < n; pool->n++) {
        result = bp_db_open(real_path, false, &pool->at[pool->n], err);
        if (result < 0)
            break;
        pool->idle[pool->n_idle++] = &pool->at[pool->n];
    }
    if (result < 0)
        bp_store_pool_close(pool);
    return result;
}

void bp_store_pool_close(struct bp_store_pool *pool)
{
    for (unsigned i = 0; i < pool->n; i++)
        bp_db_close(&pool->at[i]);
    free(pool->at);
    free(pool->idle);
    pthread_cond_destroy(&pool->returned);
    pthread_mutex_destroy(&pool->lock);
    *pool = (struct bp_store_pool){0};
}

/* A read that ran out of memory may not even have had any to end its transaction with. */
static int end_transaction(struct bp_db *db, struct bp_err *err)
{
    db->deadline = 0;
    return sqlite3_get_autocommit(db->handle) ? 0 : bp_db_exec(db, "ROLLBACK", err);
}

struct bp_db *bp_store_pool_take(struct bp_store_pool *pool, struct bp_err *err)
{
    int64_t deadline = bp_monotonic_ns() + pool->deadline_ns;
    struct timespec until = {.tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000};
    struct bp_db *db = NULL;
    pthread_mutex_lock(&pool->lock);
    while (pool->n_idle == 0 && pthread_cond_timedwait(&pool->returned, &pool->lock, &until) != ETIMEDOUT)
        ;
    if (pool->n_idle)
        db = pool->idle[--pool->n_idle];
    pthread_mutex_unlock(&pool->lock);
    if (!db) {
        bp_fail(err, BP_E_deadline_exceeded, "", "the store is busy reading");
        return NULL;
    }
    if (end_transaction(db, err) < 0) {
        bp_store_pool_give(pool, db);
        return NULL;
    }
    db->deadline = pool->deadline_ns ? deadline : 0;
    return db;
}

void bp_store_pool_give(struct bp_store_pool *pool, struct bp_db *db)
{
    pthread_mutex_lock(&pool->lock);
    pool->idle[pool->n_idle++] = db;
    pthread_cond_signal(&pool->returned);
    pthread_mutex_unlock(&pool->lock);
}
