/* Requests to the server under test, over a real socket. Replies live until the test ends. With BP_RECORD=FILE every
 * exchange is appended to FILE as one line of JSON, which tests/node holds to the API's description. */
#ifndef BP_TESTS_API_HTTP_H
#define BP_TESTS_API_HTTP_H

#include <jansson.h>
#include <stddef.h>

struct call {
    const char *method, *target;
    const char *body; /* NULL: none */
    size_t n;
    const char *headers[4]; /* "Name: value"; a body without a content type among them is application/json */
    const char *socket;     /* path of a Unix socket to go by; NULL: the server's port */
};

struct reply {
    int status; /* 0: the connection failed */
    const char *body;
    size_t n;
    json_t *json;        /* the body, when its media type is JSON */
    const char *headers; /* as they came */
};

struct reply http_call(const struct call *call);

/* All at once, each on a connection of its own. */
void http_call_together(const struct call *calls, size_t n, struct reply *ret);

struct reply http_get(const char *format, ...) __attribute__((format(printf, 1, 2)));
struct reply http_post(const char *target, const char *body); /* body NULL: none */

/* A header's value, or NULL. `name` in lower case. */
const char *http_header(const struct reply *reply, const char *name);

/* Sends bytes as they are and reads until the server closes or `wait_ms` passed in silence. */
const char *http_raw(const char *bytes, size_t n, int wait_ms);

void http_forget(void); /* frees every reply */

/* Memory and JSON that live as long as the replies. */
char *keep_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
json_t *keep_json(json_t *value);

#endif
