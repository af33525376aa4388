#include "daemon/service/claims.h"

#include <stdlib.h>
#include <string.h>

void bp_claims_init(struct bp_claims *claims)
{
    *claims = (struct bp_claims){0};
    pthread_mutex_init(&claims->lock, NULL);
}

void bp_claims_release(struct bp_claims *claims)
{
    for (size_t i = 0; i < BP_CLAIM_BUCKETS; i++)
        while (claims->buckets[i]) {
            struct bp_claim *claim = claims->buckets[i];
            claims->buckets[i] = claim->next_in_bucket;
            bp_claim_free(claim);
        }
    pthread_mutex_destroy(&claims->lock);
}

struct bp_claim *bp_claim_new(struct bp_service *service, const struct bp_digest *id, const struct bp_request *request,
                              struct bp_arena *arena, struct bp_err *err)
{
    struct bp_claim *claim = calloc(1, sizeof *claim);
    bp_u128 parameters = 0;
    if (!claim) {
        bp_arena_release(arena);
        bp_fail(err, BP_E_out_of_memory, "", "no memory for a plan");
        return NULL;
    }
    claim->service = service;
    bp_log_current(&claim->job.about);
    claim->id = *id;
    claim->request = *request;
    claim->arena = *arena;
    *arena = (struct bp_arena){0};
    struct bp_writer writer = {.out = &claim->request_text};
    bp_request_write(&writer, request);
    if (bp_writer_finish(&writer, err) || bp_model_parameters(&request->model, &parameters, err)) {
        bp_claim_free(claim);
        return NULL;
    }
    bp_u128_format(parameters, claim->parameters);
    return claim;
}

void bp_claim_free(struct bp_claim *claim)
{
    if (!claim)
        return;
    bp_plan_result_free(claim->result);
    bp_buf_release(&claim->request_text);
    bp_buf_release(&claim->passes_text);
    bp_arena_release(&claim->arena);
    free(claim);
}

static struct bp_claim **place_of(struct bp_claims *claims, const struct bp_digest *id)
{
    uint32_t hash;
    memcpy(&hash, id->bytes, sizeof hash);
    struct bp_claim **place = &claims->buckets[hash % BP_CLAIM_BUCKETS];
    while (*place && !bp_digest_equal(&(*place)->id, id))
        place = &(*place)->next_in_bucket;
    return place;
}

static void attach(struct bp_claim *claim, struct bp_waiter *waiter)
{
    waiter->claim = claim;
    waiter->next = claim->waiters;
    claim->waiters = waiter;
}

static void detach(struct bp_waiter *waiter)
{
    struct bp_waiter **place = &waiter->claim->waiters;
    while (*place != waiter)
        place = &(*place)->next;
    *place = waiter->next;
    waiter->claim = NULL;
}

enum bp_join bp_claims_join(struct bp_claims *claims, struct bp_claim *fresh, struct bp_waiter *waiter,
                            struct bp_claim_view *ret_view)
{
    enum bp_join join = BP_JOIN_JOINED;
    pthread_mutex_lock(&claims->lock);
    struct bp_claim **place = place_of(claims, &fresh->id);
    if (!*place) {
        join = BP_JOIN_CLAIMED;
        *place = fresh;
        fresh->next_in_bucket = NULL;
        fresh->in_table = true;
        claims->n++;
        if (waiter)
            waiter->is_claimant = true;
    } else if (waiter && waiter->wants_acceptance && (*place)->acceptance == BP_ACCEPTED) {
        join = BP_JOIN_ACCEPTED;
        *ret_view = bp_claim_view(*place);
    }
    if (waiter && join != BP_JOIN_ACCEPTED)
        attach(*place, waiter);
    pthread_mutex_unlock(&claims->lock);
    return join;
}

bool bp_claims_make_durable(struct bp_claims *claims, struct bp_claim *claim, size_t limit)
{
    pthread_mutex_lock(&claims->lock);
    bool may = claims->n_durable < limit;
    if (may) {
        claims->n_durable++;
        claim->acceptance = BP_ACCEPTING;
        claim->is_durable = true;
    }
    pthread_mutex_unlock(&claims->lock);
    return may;
}

struct bp_waiter *bp_claims_accepted(struct bp_claims *claims, struct bp_claim *claim)
{
    struct bp_waiter *taken = NULL;
    pthread_mutex_lock(&claims->lock);
    claim->acceptance = BP_ACCEPTED;
    for (struct bp_waiter **place = &claim->waiters; *place;) {
        struct bp_waiter *waiter = *place;
        if (!waiter->wants_acceptance) {
            place = &waiter->next;
            continue;
        }
        *place = waiter->next;
        waiter->claim = NULL;
        waiter->next = taken;
        taken = waiter;
    }
    pthread_mutex_unlock(&claims->lock);
    return taken;
}

bool bp_claims_settle(struct bp_claims *claims, struct bp_waiter *waiter, struct bp_claim_view *ret_view)
{
    pthread_mutex_lock(&claims->lock);
    waiter->wants_acceptance = true;
    bool settled = waiter->claim && waiter->claim->acceptance == BP_ACCEPTED;
    if (settled) {
        *ret_view = bp_claim_view(waiter->claim);
        detach(waiter);
    }
    pthread_mutex_unlock(&claims->lock);
    return settled;
}

bool bp_claims_begin(struct bp_claims *claims, struct bp_claim *claim, size_t limit)
{
    pthread_mutex_lock(&claims->lock);
    claim->has_begun = claims->n_begun < limit;
    if (claim->has_begun) {
        claims->n_begun++;
    } else {
        claim->next_parked = NULL;
        *(claims->parked ? &claims->last_parked->next_parked : &claims->parked) = claim;
        claims->last_parked = claim;
    }
    bool may = claim->has_begun;
    pthread_mutex_unlock(&claims->lock);
    return may;
}

struct bp_claim *bp_claims_end(struct bp_claims *claims, struct bp_claim *claim)
{
    struct bp_claim *next = NULL;
    pthread_mutex_lock(&claims->lock);
    if (claim->has_begun) {
        next = claims->parked;
        if (next) {
            claims->parked = next->next_parked;
            next->has_begun = true;
        } else {
            claims->n_begun--;
        }
    }
    pthread_mutex_unlock(&claims->lock);
    return next;
}

/* Under the lock. */
static void remove_claim(struct bp_claims *claims, struct bp_claim *claim)
{
    if (!claim->in_table)
        return;
    *place_of(claims, &claim->id) = claim->next_in_bucket;
    claim->in_table = false;
    claims->n--;
    if (claim->acceptance != BP_NOT_DURABLE)
        claims->n_durable--;
}

struct bp_waiter *bp_claims_fall(struct bp_claims *claims, struct bp_claim *claim)
{
    pthread_mutex_lock(&claims->lock);
    struct bp_waiter *waiters = claim->waiters;
    for (struct bp_waiter *waiter = waiters; waiter; waiter = waiter->next)
        waiter->claim = NULL;
    claim->waiters = NULL;
    remove_claim(claims, claim);
    pthread_mutex_unlock(&claims->lock);
    return waiters;
}

bool bp_claims_leave(struct bp_claims *claims, struct bp_job_queue *queue, struct bp_waiter *waiter,
                     unsigned *ret_cancelled)
{
    struct bp_claim *to_free = NULL;
    pthread_mutex_lock(&claims->lock);
    struct bp_claim *claim = waiter->claim;
    if (claim) {
        detach(waiter);
        if (!claim->waiters && claim->acceptance == BP_NOT_DURABLE && bp_job_move(&claim->job, BP_JOB_CANCELLED)) {
            remove_claim(claims, claim);
            ++*ret_cancelled;
            if (bp_job_queue_take_back(queue, &claim->job))
                to_free = claim;
        }
    }
    pthread_mutex_unlock(&claims->lock);
    bp_claim_free(to_free);
    return claim != NULL;
}

void bp_claims_discard(struct bp_claims *claims, struct bp_claim *claim)
{
    /* Who cancelled it may not be done with it yet. */
    pthread_mutex_lock(&claims->lock);
    pthread_mutex_unlock(&claims->lock);
    bp_claim_free(claim);
}

bool bp_claims_view(struct bp_claims *claims, const struct bp_digest *id, struct bp_claim_view *ret)
{
    pthread_mutex_lock(&claims->lock);
    const struct bp_claim *claim = *place_of(claims, id);
    if (claim)
        *ret = bp_claim_view(claim);
    pthread_mutex_unlock(&claims->lock);
    return claim != NULL;
}

struct bp_claim_view bp_claim_view(const struct bp_claim *claim)
{
    struct bp_claim_view view = {
        .id = claim->id,
        .state = bp_job_state(&claim->job) == BP_JOB_QUEUED ? BP_PLAN_QUEUED : BP_PLAN_RUNNING,
        .created_at = claim->created_at,
        .mode = claim->request.workload.mode,
    };
    memcpy(view.model, claim->request.model.name, sizeof view.model);
    memcpy(view.parameters, claim->parameters, sizeof view.parameters);
    return view;
}

int bp_claim_views_init(struct bp_claim_views *views, size_t limit, struct bp_arena *arena, struct bp_err *err)
{
    *views = (struct bp_claim_views){
        .at = bp_arena_array(arena, limit, sizeof *views->at),
        .slots = bp_arena_array(arena, limit, sizeof *views->slots),
        .limit = limit,
    };
    return views->at && views->slots ? 0 : bp_fail(err, BP_E_out_of_memory, "", "no memory for a list of plans");
}

void bp_claim_views_add(struct bp_claim_views *views, const struct bp_claim_view *view)
{
    size_t i = views->n;
    struct bp_claim_view *slot;
    if (i < views->limit) {
        slot = &views->slots[views->n++];
    } else {
        slot = views->at[--i];
        if (slot->created_at >= view->created_at)
            return;
    }
    *slot = *view;
    for (; i > 0 && views->at[i - 1]->created_at < slot->created_at; i--)
        views->at[i] = views->at[i - 1];
    views->at[i] = slot;
}

void bp_claims_list(struct bp_claims *claims, bool (*wanted)(const void *data, const struct bp_claim_view *view),
                    const void *data, struct bp_claim_views *views)
{
    pthread_mutex_lock(&claims->lock);
    for (size_t i = 0; i < BP_CLAIM_BUCKETS && claims->n; i++)
        for (const struct bp_claim *claim = claims->buckets[i]; claim; claim = claim->next_in_bucket) {
            struct bp_claim_view view = bp_claim_view(claim);
            if (wanted(data, &view))
                bp_claim_views_add(views, &view);
        }
    pthread_mutex_unlock(&claims->lock);
}

size_t bp_claims_find(struct bp_claims *claims, const char *hex, struct bp_digest *ret, size_t n)
{
    size_t found = 0, n_hex = strlen(hex);
    pthread_mutex_lock(&claims->lock);
    for (size_t i = 0; i < BP_CLAIM_BUCKETS && claims->n; i++)
        for (const struct bp_claim *claim = claims->buckets[i]; claim; claim = claim->next_in_bucket) {
            char text[2 * sizeof claim->id.bytes + 1];
            bp_hex(claim->id.bytes, sizeof claim->id.bytes, text);
            if (strncmp(text, hex, n_hex) == 0 && found++ < n)
                ret[found - 1] = claim->id;
        }
    pthread_mutex_unlock(&claims->lock);
    return found;
}

size_t bp_claims_count(struct bp_claims *claims)
{
    pthread_mutex_lock(&claims->lock);
    size_t n = claims->n;
    pthread_mutex_unlock(&claims->lock);
    return n;
}
