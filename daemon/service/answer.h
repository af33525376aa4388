/* What a request is answered with: status, body, and the few headers the API knows.
 *
 * An answer is written by one thread, then shared read-only and counted: the same one may be on its way to many
 * clients and kept for the next. `prepared` is the HTTP layer's form of it, where that is made once and given back with
 * it.
 * Any thread may take and give references.
 */
#ifndef BP_SERVICE_ANSWER_H
#define BP_SERVICE_ANSWER_H

#include <stdatomic.h>

#include "common/base/buf.h"
#include "common/base/digest.h"
#include "common/base/json.h"

#define BP_LOCATION_MAX 128

struct bp_answer {
    atomic_uint references;
    int status;
    enum bp_code code;      /* of a problem; else BP_OK */
    const char *media_type; /* static; NULL with an empty body */
    char *body;             /* owned, `n` bytes; or static */
    size_t n;
    bool body_is_static;
    bool has_file; /* the body is the first n bytes of `file`, which is owned, and `body` is NULL */
    int file;
    bool immutable;                /* the body never changes: it may be cached for ever */
    bool close;                    /* the connection is of no use after it */
    unsigned retry_after;          /* seconds; 0: none */
    char applied[40];              /* the preferences that made it so (RFC 7240), or "" */
    char etag[BP_DIGEST_TEXT + 2]; /* quoted, or "" */
    char location[BP_LOCATION_MAX];
    char *link;                     /* of the next page, owned; or NULL */
    const char *allow;              /* static; or NULL */
    const char *authenticate;       /* of WWW-Authenticate; static; or NULL */
    struct bp_answer *not_modified; /* its 304, owned, once one was asked for; the HTTP thread's */
    struct bp_digest plan;          /* of an answer that is kept for repeats: the plan it is of */
    void *prepared;
    void (*prepared_free)(void *prepared);
};

#define BP_MEDIA_JSON "application/json"
#define BP_MEDIA_SQLITE "application/vnd.sqlite3"
#define BP_MEDIA_PROBLEM "application/problem+json"

/* An answer with one reference, never NULL: when memory runs out it is the standing 503 out_of_memory. Takes over what
 * `body` holds, and leaves it empty. */
struct bp_answer *bp_answer_new(int status, const char *media_type, struct bp_buf *body);

/* The same for a body that outlives the program. */
struct bp_answer *bp_answer_static(int status, const char *media_type, const void *body, size_t n);

/* The same for n bytes of a file; the descriptor stays the caller's and another is made of it. */
struct bp_answer *bp_answer_file(int status, const char *media_type, int file, uint64_t n);

/* True for the standing answer that bp_answer_new gives when memory runs out: nothing may be set in it. */
bool bp_answer_is_standing(const struct bp_answer *answer);

/* A reference to the 304 that stands for an answer with an ETag. HTTP thread only. */
struct bp_answer *bp_answer_not_modified(struct bp_answer *answer);

struct bp_answer *bp_answer_ref(struct bp_answer *answer);
void bp_answer_unref(struct bp_answer *answer); /* NULL does nothing */

/* Bytes of the bodies of all answers there are: kept, waiting, or on their way to slow readers. */
uint64_t bp_answer_bytes(void);

/* ---- Problems (RFC 9457) ---- */

/* What a problem may say beside its errors; all optional. */
struct bp_problem_extra {
    const struct bp_json_position *position; /* where the text does not parse */
    const struct bp_digest *plan;            /* the record that keeps this refusal */
    const struct bp_digest *candidates;      /* that a prefix names */
    size_t n_candidates;
    const char *family; /* of a model that was counted and refused */
    bp_u128 parameters;
    const char *probes;     /* a JSON object: what came of each, for who asked whether we are ready */
    const char *allow;      /* methods, for method_not_allowed */
    enum bp_code when_many; /* top-level code of several errors; BP_OK: invalid_request */
};

/* problem+json that names every error; with several the status is 400 when any of them is of form, else 422, unless
 * one is no fault of the request: then that one's code and status. `extra` may be NULL. Never NULL. */
struct bp_answer *bp_problem(const struct bp_problems *problems, const struct bp_problem_extra *extra);
struct bp_answer *bp_problem_of(const struct bp_err *err, const struct bp_problem_extra *extra);
struct bp_answer *bp_problem_say(enum bp_code code, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
