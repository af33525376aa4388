#include "daemon/access/access.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <nettle/memops.h>

#include "daemon/access/tokens.h"

/* What a caller has used. A token's lives as long as the token and what it has under way; another's stays in the table
 * until its place is wanted. */
struct bp_allowance {
    struct bp_limiter limiter;
    char key[BP_CALLER_WHO]; /* who the token is; of another, whose allowance it is */
    uint64_t used_ns;        /* last */
    bool is_dropped;         /* its token is gone: freed with its last request */
};

struct bp_access {
    pthread_mutex_t lock;
    bool has_tokens;
    struct bp_tokens tokens;
    uint64_t generation;              /* of the tokens: from 1, one more with each reload */
    struct bp_allowance **allowances; /* of the tokens, by index */
    struct bp_peer_rules peers;
    struct bp_limits limits;
    struct bp_allowance callers[BP_CALLERS_MAX];
    struct bp_allowance crowd; /* of those for whom there is no place */
};

/* ---- Where from ---- */

static void name_network(const struct in6_addr *address, char ret[BP_CALLER_FROM])
{
    struct in6_addr network = *address;
    memset(network.s6_addr + 8, 0, 8);
    inet_ntop(AF_INET6, &network, ret, BP_CALLER_FROM - 3);
    strcat(ret, "/64");
}

void bp_origin_of(int fd, const struct sockaddr *address, struct bp_origin *ret)
{
    *ret = (struct bp_origin){.who = "anonymous", .from = "unknown", .network = "unknown"};
    if (address->sa_family == AF_UNIX) {
        ret->is_unix = true;
        ret->has_peer = bp_peer_of(fd, &ret->peer, NULL) == 0;
        if (ret->has_peer)
            snprintf(ret->who, sizeof ret->who, "uid:%u", (unsigned)ret->peer.uid);
        memcpy(ret->from, "unix", sizeof "unix");
    } else if (address->sa_family == AF_INET) {
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)address)->sin_addr, ret->from, BP_CALLER_FROM);
        memcpy(ret->network, ret->from, BP_CALLER_FROM);
    } else if (address->sa_family == AF_INET6) {
        const struct in6_addr *in6 = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
        if (IN6_IS_ADDR_V4MAPPED(in6)) {
            inet_ntop(AF_INET, in6->s6_addr + 12, ret->from, BP_CALLER_FROM);
            memcpy(ret->network, ret->from, BP_CALLER_FROM);
        } else {
            inet_ntop(AF_INET6, in6, ret->from, BP_CALLER_FROM);
            name_network(in6, ret->network);
        }
    }
}

uint64_t bp_network_of(const struct sockaddr *address)
{
    const uint64_t v4 = UINT64_C(0xffff) << 48; /* a prefix that no sender has */
    uint32_t host;
    uint64_t network = 0;
    if (address->sa_family == AF_INET)
        return v4 | ((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr;
    if (address->sa_family != AF_INET6)
        return UINT64_MAX;
    const struct in6_addr *in6 = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    memcpy(&host, in6->s6_addr + 12, sizeof host);
    if (IN6_IS_ADDR_V4MAPPED(in6))
        return v4 | host;
    for (size_t i = 0; i < sizeof network; i++)
        network = network << 8 | in6->s6_addr[i];
    return network;
}

void bp_origin_forget(struct bp_origin *origin)
{
    if (!origin->shown.generation)
        return;
    explicit_bzero(origin->shown.text, sizeof origin->shown.text);
    origin->shown = (struct bp_shown){0};
}

/* ---- Opening, reloading ---- */

static void drop_allowance(struct bp_allowance *allowance)
{
    if (allowance->limiter.under_way)
        allowance->is_dropped = true;
    else
        free(allowance);
}

static void drop_tokens(struct bp_tokens *tokens, struct bp_allowance **allowances)
{
    for (size_t i = 0; allowances && i < tokens->n; i++)
        if (allowances[i])
            drop_allowance(allowances[i]);
    free(allowances);
    bp_tokens_release(tokens);
}

static struct bp_allowance **allowances_for(const struct bp_tokens *tokens)
{
    struct bp_allowance **allowances = calloc(tokens->n, sizeof *allowances);
    for (size_t i = 0; allowances && i < tokens->n; i++) {
        allowances[i] = calloc(1, sizeof *allowances[i]);
        if (!allowances[i]) {
            while (i)
                free(allowances[--i]);
            free(allowances);
            return NULL;
        }
        snprintf(allowances[i]->key, sizeof allowances[i]->key, "token:%s", tokens->at[i].name);
    }
    return allowances;
}

/* Under the lock: what a token of the same name has used goes on with the new one. */
static void carry_over(struct bp_access *access, const struct bp_tokens *tokens, struct bp_allowance **allowances)
{
    for (size_t i = 0; i < tokens->n; i++)
        for (size_t k = 0; k < access->tokens.n; k++)
            if (strcmp(tokens->at[i].name, access->tokens.at[k].name) == 0) {
                struct bp_allowance *fresh = allowances[i];
                allowances[i] = access->allowances[k];
                access->allowances[k] = fresh;
            }
}

/* The tokens of the file and allowances for them; none when there is no file. */
static int read_tokens(const char *path, struct bp_tokens *ret, struct bp_allowance ***ret_allowances,
                       struct bp_problems *problems)
{
    if (!*path)
        return 0;
    size_t n_before = problems->n;
    bp_tokens_load(path, ret, problems);
    if (problems->n > n_before || !ret->at)
        return -1;
    *ret_allowances = allowances_for(ret);
    if (*ret_allowances)
        return 0;
    problems->out_of_memory = true;
    bp_tokens_release(ret);
    return -1;
}

int bp_access_open(const struct bp_access_options *options, struct bp_access **ret, struct bp_problems *problems)
{
    struct bp_access *access = calloc(1, sizeof *access);
    if (!access) {
        problems->out_of_memory = true;
        return -1;
    }
    if (read_tokens(options->tokens, &access->tokens, &access->allowances, problems)) {
        free(access);
        return -1;
    }
    access->has_tokens = *options->tokens != '\0';
    access->generation = 1;
    access->peers = *options->peers;
    access->limits = *options->limits;
    pthread_mutex_init(&access->lock, NULL);
    *ret = access;
    return 0;
}

int bp_access_reload(struct bp_access *access, const struct bp_access_options *options, struct bp_problems *problems)
{
    struct bp_tokens tokens = {0};
    struct bp_allowance **allowances = NULL;
    if ((*options->tokens != '\0') != access->has_tokens) {
        bp_problems_add(problems, BP_E_config_invalid, "tokens", "cannot be given or left out without a new start");
        return -1;
    }
    if (read_tokens(options->tokens, &tokens, &allowances, problems))
        return -1;
    pthread_mutex_lock(&access->lock);
    carry_over(access, &tokens, allowances);
    drop_tokens(&access->tokens, access->allowances);
    access->tokens = tokens;
    access->generation++;
    access->allowances = allowances;
    access->peers = *options->peers;
    access->limits = *options->limits;
    pthread_mutex_unlock(&access->lock);
    return 0;
}

void bp_access_close(struct bp_access *access)
{
    if (!access)
        return;
    drop_tokens(&access->tokens, access->allowances);
    pthread_mutex_destroy(&access->lock);
    free(access);
}

bool bp_access_has_tokens(const struct bp_access *access)
{
    return access->has_tokens;
}

/* ---- Who ---- */

/* Who the caller was found to be. */
struct identity {
    struct bp_caller caller;
    unsigned scopes;
    struct bp_allowance *allowance; /* a token's */
    struct bp_limits limits;
};

/* What follows "Bearer" and spaces, or NULL. */
static const char *bearer_of(const char *authorization)
{
    static const char scheme[] = "bearer";
    size_t n = sizeof scheme - 1;
    if (strncasecmp(authorization, scheme, n) != 0 || authorization[n] != ' ')
        return NULL;
    return authorization + n + strspn(authorization + n, " ");
}

static int refuse_token(struct bp_refusal *refusal, struct bp_err *err)
{
    refusal->authenticate = "Bearer realm=\"blueprintd\", error=\"invalid_token\"";
    return bp_fail(err, BP_E_unauthenticated, "", "the token is not known here");
}

/* Under the lock, with all below. */
static const struct bp_token *find_token(const struct bp_access *access, const char *text, struct bp_shown *shown)
{
    size_t n = strlen(text);
    if (shown->generation == access->generation && shown->n == n && memeql_sec(shown->text, text, n))
        return &access->tokens.at[shown->token];
    const struct bp_token *token = bp_tokens_find(&access->tokens, text, n);
    if (token && n <= sizeof shown->text) {
        shown->generation = access->generation;
        shown->token = (size_t)(token - access->tokens.at);
        shown->n = n;
        memcpy(shown->text, text, n);
    }
    return token;
}

static int identify_by_token(struct bp_access *access, struct bp_shown *shown, const char *authorization,
                             struct identity *ret, struct bp_refusal *refusal, struct bp_err *err)
{
    const char *text = bearer_of(authorization);
    if (!text) {
        refusal->authenticate = "Bearer realm=\"blueprintd\"";
        return bp_fail(err, BP_E_unauthenticated, "", "the Authorization field is not of the form Bearer TOKEN");
    }
    const struct bp_token *token = find_token(access, text, shown);
    if (!token)
        return refuse_token(refusal, err);
    ret->allowance = access->allowances[token - access->tokens.at];
    ret->scopes = token->scopes;
    if (token->limits.requests) {
        ret->limits.requests = token->limits.requests;
        ret->limits.period_ns = token->limits.period_ns;
    }
    if (token->limits.at_once)
        ret->limits.at_once = token->limits.at_once;
    ret->caller.who = ret->allowance->key;
    return 0;
}

static int identify_by_peer(const struct bp_access *access, const struct bp_origin *origin, struct identity *ret,
                            struct bp_err *err)
{
    if (!origin->has_peer)
        return bp_fail(err, BP_E_peer_refused, "", "the kernel does not say who is at the other end of the socket");
    ret->scopes = bp_peer_scopes(&access->peers, &origin->peer);
    if (!ret->scopes)
        return bp_fail(err, BP_E_peer_refused, "", "the user %u may not use this socket", (unsigned)origin->peer.uid);
    return 0;
}

static int identify(struct bp_access *access, struct bp_origin *origin, const char *authorization, struct identity *ret,
                    struct bp_refusal *refusal, struct bp_err *err)
{
    *ret = (struct identity){.caller = {origin->who, origin->from}, .limits = access->limits};
    if (access->has_tokens && authorization)
        return identify_by_token(access, &origin->shown, authorization, ret, refusal, err);
    if (origin->is_unix)
        return identify_by_peer(access, origin, ret, err);
    if (access->has_tokens) {
        refusal->authenticate = "Bearer realm=\"blueprintd\"";
        return bp_fail(err, BP_E_unauthenticated, "", "a token is needed: Authorization: Bearer TOKEN");
    }
    ret->scopes = BP_SCOPE_READ | BP_SCOPE_PLAN;
    return 0;
}

/* ---- How much ---- */

/* The allowance of a caller without a token: its own, else the place of the one that has been away longest. The table
 * is walked only where the operator set a limit. */
static struct bp_allowance *find_caller(struct bp_access *access, const char *key)
{
    struct bp_allowance *oldest = NULL;
    for (size_t i = 0; i < BP_CALLERS_MAX; i++) {
        struct bp_allowance *allowance = &access->callers[i];
        if (strcmp(allowance->key, key) == 0)
            return allowance;
        if (!*allowance->key) { /* they are taken in order: the rest is free as well */
            oldest = allowance;
            break;
        }
        if (!allowance->limiter.under_way && (!oldest || allowance->used_ns < oldest->used_ns))
            oldest = allowance;
    }
    if (!oldest)
        return &access->crowd;
    *oldest = (struct bp_allowance){0};
    snprintf(oldest->key, sizeof oldest->key, "%s", key);
    return oldest;
}

static int take(struct bp_access *access, const struct bp_origin *origin, struct identity *identity, uint64_t now_ns,
                unsigned *ret_seconds, struct bp_err *err)
{
    if (!identity->limits.requests && !identity->limits.at_once) {
        if (identity->allowance) /* counted all the same: a limit may come with a reload */
            identity->allowance->limiter.under_way++;
        return 0;
    }
    if (!identity->allowance)
        identity->allowance = find_caller(access, origin->is_unix ? origin->who : origin->network);
    identity->allowance->used_ns = now_ns;
    return bp_limiter_take(&identity->allowance->limiter, &identity->limits, now_ns, ret_seconds, err);
}

static void give(struct bp_allowance *allowance)
{
    if (!allowance)
        return;
    bp_limiter_give(&allowance->limiter);
    if (allowance->is_dropped && !allowance->limiter.under_way)
        free(allowance);
}

/* ---- Admission ---- */

static int judge_scope(const struct identity *identity, enum bp_scope scope, struct bp_refusal *refusal,
                       struct bp_err *err)
{
    static const struct {
        enum bp_scope scope;
        const char *authenticate;
    } challenges[] = {
#define BP_SCOPE(suffix, bit, name, what)                                                                              \
    {BP_SCOPE_##suffix, "Bearer realm=\"blueprintd\", error=\"insufficient_scope\", scope=\"" name "\""},
#include "daemon/access/scope.def"
#undef BP_SCOPE
    };
    if ((identity->scopes & (unsigned)scope) == (unsigned)scope)
        return 0;
    for (size_t i = 0; i < sizeof challenges / sizeof *challenges; i++)
        if (challenges[i].scope == scope)
            refusal->authenticate = challenges[i].authenticate;
    return bp_fail(err, BP_E_scope_missing, "", "%s does not have the scope %s, which this needs", identity->caller.who,
                   bp_scope_name(scope));
}

int bp_access_admit(struct bp_access *access, struct bp_origin *origin, const char *authorization, enum bp_scope scope,
                    uint64_t now_ns, struct bp_grant *ret, struct bp_refusal *ret_refusal, struct bp_err *err)
{
    struct identity identity;
    *ret_refusal = (struct bp_refusal){0};
    pthread_mutex_lock(&access->lock);
    int result = identify(access, origin, authorization, &identity, ret_refusal, err);
    if (result == 0)
        result = take(access, origin, &identity, now_ns, &ret_refusal->retry_after, err);
    if (result == 0 && judge_scope(&identity, scope, ret_refusal, err)) {
        give(identity.allowance);
        result = -1;
    }
    pthread_mutex_unlock(&access->lock);
    if (result == 0)
        *ret = (struct bp_grant){.allowance = identity.allowance, .caller = identity.caller};
    return result;
}

void bp_access_release(struct bp_access *access, struct bp_grant *grant)
{
    if (grant->allowance) {
        pthread_mutex_lock(&access->lock);
        give(grant->allowance);
        pthread_mutex_unlock(&access->lock);
    }
    *grant = (struct bp_grant){0};
}
