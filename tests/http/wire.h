/* Connections to the server under test, byte by byte. A helper that cannot do its work fails the test. */
#ifndef BP_TESTS_HTTP_WIRE_H
#define BP_TESTS_HTTP_WIRE_H

#include <stdbool.h>
#include <stddef.h>

/* Long enough for a busy machine, so that only what never comes is not waited for to its end. */
enum { WIRE_WAIT_MS = 60000 };

int wire_open(void); /* to the server's port */

/* False when the server had closed: what it said may still be there to be read. */
bool wire_send(int fd, const char *bytes, size_t n);
bool wire_send_text(int fd, const char *text);

/* Ends the connection, at once with a reset or in order. */
void wire_reset(int fd);
void wire_close(int fd);

/* One answer, its body read to the end. */
struct wire_answer {
    int status;
    bool says_close;         /* Connection: close */
    bool is_ours;            /* problem+json, or the JSON and texts of our routes: the library answers in HTML */
    char code[40];           /* of a problem; else "" */
    char retry_after[16];    /* the field's value; else "" */
    char id[80], digest[80]; /* the first member of that name in the body; of a refusal's, of its plan; else "" */
    char applied[40];        /* Preference-Applied */
    size_t n;                /* of the body */
};
enum wire_event { WIRE_ANSWER, WIRE_CLOSED, WIRE_SILENCE };

/* What comes next within the time; an answer that breaks off in the middle fails the test. */
enum wire_event wire_read(int fd, struct wire_answer *ret, int wait_ms);

/* Reads on, whatever comes, until the server closes; false when it does not. */
bool wire_closes(int fd);

/* An answer that must come. */
struct wire_answer wire_expect(int fd, int status);

/* A POST of a plan or fit as it goes over the wire, with further header lines or ""; kept. */
const char *wire_post(const char *target, const char *headers, const char *body);

/* How many requests our handler has answered, those for metrics aside; with `route`, those of one route. */
long long wire_handled(const char *route);

/* Waits until a gauge or counter of /metrics is at least, or at most, that. */
void wire_await_at_least(const char *metric, long long least);
void wire_await_at_most(const char *metric, long long most);

/* The plan request that takes a worker some time (tens of milliseconds): number i of many different ones; kept. */
const char *wire_slow_plan(int i);

#endif
