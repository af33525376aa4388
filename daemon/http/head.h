/* The framing of a request, judged before anything of it is believed. Pure; any thread. */
#ifndef BP_HTTP_HEAD_H
#define BP_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

/* Longest body taken. One that is longer, up to BP_BODY_DRAIN, is read and thrown away, so that the refusal arrives;
 * past that the connection is cut. */
#define BP_BODY_MAX (UINT64_C(1) << 20)
#define BP_BODY_DRAIN (4 * BP_BODY_MAX)

/* Longest head taken, from the method to the empty line. What libmicrohttpd keeps of a connection leaves room for the
 * answer's then. */
#define BP_HEAD_MAX (UINT64_C(12) << 10)

/* True when one of n bytes is below `least`, which is at most 0x21, or DEL. */
bool bp_has_control(const char *text, size_t n, unsigned char least);

/* What Prefer fields ask for (RFC 7240). Of a preference given twice the first counts; those not known, and a `wait`
 * that is no number of seconds, are passed over. Zero-initialise. */
struct bp_preferences {
    bool respond_async;
    bool has_wait;
    unsigned wait; /* seconds, BP_SECONDS_MAX at most */
};
#define BP_SECONDS_MAX 86400U

/* Adds what one field asks for. */
void bp_preferences_add(struct bp_preferences *preferences, const char *field);

/* What a head says, collected from its fields in order. Zero-initialise; borrows the values. */
struct bp_head {
    bool bad_name;    /* a field's name is not a token: white space before the colon, say */
    bool folded;      /* Content-Length or Transfer-Encoding came over two lines */
    bool control;     /* a control character is in a value */
    bool gaps;        /* there is more in the text than its parts */
    const char *next; /* where the next part is to begin in the text; NULL: the parts are copies */
    size_t n;         /* bytes of the head; 0: not known */
    unsigned n_host, n_content_length, n_transfer_encoding, n_content_encoding, n_request_timeout, n_authorization,
        n_request_id, n_traceparent;
    const char *content_length, *transfer_encoding, *expect, *content_type, *content_encoding, *request_timeout,
        *if_none_match, *authorization, *request_id, *traceparent;
    struct bp_preferences preferences;
};

/* For parts that stand in the text that was received, and not in copies of it: from the request line on each is to
 * begin where the one before ends, with the one colon or CRLF between them. So all is seen that a parser drops: a NUL
 * and what follows it, a line that ends in LF alone, a folded line, a line that begins with a colon, which
 * libmicrohttpd takes for the end of the head. Of the target, which a parser may decode in its place, only where it
 * stands and its length count.
 */
void bp_head_begin(struct bp_head *head, const char *method, const char *target, size_t n_target, const char *version);

/* After the fields: the whole head, from `method` on, has n bytes. */
void bp_head_end(struct bp_head *head, const char *method, size_t n);

/* Adds one field. `value` may be NULL. */
void bp_head_add(struct bp_head *head, const char *name, const char *value);

/* What is wrong with the framing: bad_framing, head_too_large, expectation_failed. After either nothing that follows on
 * the connection can be believed: answer and close. */
int bp_head_check(const struct bp_head *head, const char *version, struct bp_err *err);

/* The length that Content-Length promises; 0 without one. Past 64 bits: UINT64_MAX. */
uint64_t bp_head_content_length(const struct bp_head *head);

/* True for application/json, whatever its parameters but a charset other than UTF-8. NULL is not. */
bool bp_media_is_json(const char *content_type);

/* True when the body is not as it is but in some content coding: identity is none. */
bool bp_head_is_encoded(const struct bp_head *head);

/* The seconds that Request-Timeout gives the answer, BP_SECONDS_MAX at most; 0 without one. Code: invalid_header. */
int bp_head_request_timeout(const struct bp_head *head, unsigned *ret, struct bp_err *err);

/* True when an If-None-Match field lists `etag` (quoted), weakly or not, or is "*". NULL does not. */
bool bp_etag_matches(const char *if_none_match, const char *etag);

#endif
