/* Requests as no client of ours would send them: what comes back, whether the connection stays, and that nothing but
 * what was answered ran. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/buf.h"
#include "daemon/http/head.h"
#include "tests/api/expect.h"
#include "tests/api/server.h"
#include "tests/http/wire.h"

enum { SILENCE_MS = 300 };

/* `expected` is the answers in order, a status each, "L" before it when libmicrohttpd gives it and our handler saw no
 * request; then "!" when the connection must close, "..." when the rest is waited for, nothing when it must go on. */
struct row {
    const char *name, *bytes;
    size_t n;
    const char *expected, *code; /* of the first answer, when it is a problem of ours */
};
#define BYTES(text) text, sizeof(text) - 1

#define HOST "Host: x\r\n"
#define JSON HOST "Content-Type: application/json\r\n"
#define FIT "POST /v1/fit HTTP/1.1\r\n" JSON
#define GET "GET /healthz HTTP/1.1\r\n" HOST
#define CHUNKED FIT "Transfer-Encoding: chunked\r\n\r\n"
/* What follows a request whose end can be seen in two ways. */
#define NEXT "GET /v1/passes HTTP/1.1\r\n" HOST "\r\n"

static const struct row rows[] = {
    /* Taken. */
    {"plain", BYTES(GET "\r\n"), "200", ""},
    {"five in one", BYTES(NEXT NEXT NEXT NEXT NEXT), "200 200 200 200 200", ""},
    {"a query", BYTES("GET /v1/plans?limit=5&model=a%20b+c HTTP/1.1\r\n" HOST "\r\n" NEXT), "200 200", ""},
    {"empty lines before", BYTES("\r\n\r\n" GET "\r\n"), "200", ""},
    {"empty value", BYTES("GET /healthz HTTP/1.1\r\nHost:\r\nX:\r\nY: \t \r\n\r\n"), "200", ""},
    {"white space around a value", BYTES(GET "X: \t a \r\n\r\n"), "200", ""},
    {"a cookie", BYTES(GET "Cookie: a=b; c=\"d\"\r\n\r\n"), "200", ""},
    {"HTTP/1.0", BYTES("GET /healthz HTTP/1.0\r\n\r\n" NEXT), "200!", ""},
    {"HTTP/1.0 that stays", BYTES("GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" NEXT), "200 200", ""},
    {"last one", BYTES(GET "Connection: close\r\n\r\n" NEXT), "200!", ""},
    {"body of a GET", BYTES(GET "Content-Length: 42\r\n\r\n" NEXT "......" GET "\r\n"), "200 200", ""},
    {"upgrade", BYTES(GET "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n\r\n"), "200",
     ""},
    {"length", BYTES(FIT "Content-Length: 2\r\n\r\n{}" NEXT), "400 200", "invalid_request"},
    {"length with zeros", BYTES(FIT "Content-Length: 0002\r\n\r\n{}" NEXT), "400 200", "invalid_request"},
    {"too short a length", BYTES(FIT "Content-Length: 1\r\n\r\n{}" NEXT), "400 405", "invalid_json"},
    {"too long a length", BYTES(FIT "Content-Length: 3\r\n\r\n{}"), "...", ""},

    /* Two lengths. */
    {"length with chunked", BYTES(FIT "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" NEXT), "400!",
     "bad_framing"},
    {"chunked with length", BYTES(FIT "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" NEXT), "400!",
     "bad_framing"},
    {"two lengths", BYTES(FIT "Content-Length: 2\r\nContent-Length: 46\r\n\r\n{}" NEXT), "400!", "bad_framing"},
    {"two equal lengths", BYTES(FIT "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}" NEXT), "400!", "bad_framing"},
    {"list of lengths", BYTES(FIT "Content-Length: 2, 2\r\n\r\n{}" NEXT), "L400!", ""},
    {"signed length", BYTES(FIT "Content-Length: +2\r\n\r\n{}" NEXT), "L400!", ""},
    {"negative length", BYTES(FIT "Content-Length: -2\r\n\r\n{}" NEXT), "L400!", ""},
    {"hexadecimal length", BYTES(FIT "Content-Length: 0x2\r\n\r\n{}" NEXT), "L400!", ""},
    {"length in two parts", BYTES(FIT "Content-Length: 0 2\r\n\r\n{}" NEXT), "L400!", ""},
    {"empty length", BYTES(FIT "Content-Length:\r\n\r\n" NEXT), "L400!", ""},
    {"length of 2^64 - 1", BYTES(FIT "Content-Length: 18446744073709551615\r\n\r\n{}" NEXT), "413!", "body_too_large"},
    {"length of 2^64", BYTES(FIT "Content-Length: 18446744073709551616\r\n\r\n{}" NEXT), "L413!", ""},
    {"length one over", BYTES(FIT "Content-Length: 1048577\r\nExpect: 100-continue\r\n\r\n"), "413!", "body_too_large"},

    /* Host. */
    {"two hosts", BYTES(GET "Host: y\r\n\r\n" NEXT), "400!", "bad_framing"},
    {"two equal hosts", BYTES(GET "host: x\r\n\r\n" NEXT), "400!", "bad_framing"},
    {"no host", BYTES("GET /healthz HTTP/1.1\r\n\r\n" NEXT), "400!", "bad_framing"},

    /* Names. */
    {"space before a colon", BYTES(FIT "Content-Length : 2\r\n\r\n{}" NEXT), "400!", "bad_framing"},
    {"tab before a colon", BYTES(FIT "Content-Length\t: 2\r\n\r\n{}" NEXT), "400!", "bad_framing"},
    {"space before chunked's colon", BYTES(FIT "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" NEXT), "400!",
     "bad_framing"},
    {"no name first", BYTES("GET /healthz HTTP/1.1\r\n: x\r\n" HOST "\r\n" NEXT), "400!", "bad_framing"},
    {"no name later", BYTES(FIT "Content-Length: 2\r\n: 0\r\n\r\n{}" NEXT), "400!", "bad_framing"},
    {"colon alone", BYTES(FIT "Content-Length: 2\r\n:\r\n\r\n{}" NEXT), "400!", "bad_framing"},
    {"colon alone, less space", BYTES("POST /v1/fit HTTP/1.1\r\nHost:x\r\nContent-Length: 2\r\n:\r\n\r\n{}" NEXT),
     "400!", "bad_framing"},
    {"no colon", BYTES(GET "X\r\n\r\n" NEXT), "L400!", ""},
    {"a byte past ASCII in a name", BYTES(GET "X\x80: a\r\n\r\n" NEXT), "400!", "bad_framing"},

    /* Codings. */
    {"another coding", BYTES(FIT "Transfer-Encoding: gzip\r\n\r\n" NEXT), "400!", "bad_framing"},
    {"gzip and chunked", BYTES(FIT "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" NEXT), "400!", "bad_framing"},
    {"chunked twice", BYTES(FIT "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n" NEXT), "400!", "bad_framing"},
    {"two codings", BYTES(FIT "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" NEXT),
     "400!", "bad_framing"},
    {"identity", BYTES(FIT "Transfer-Encoding: identity\r\n\r\n" NEXT), "400!", "bad_framing"},
    {"xchunked", BYTES(FIT "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" NEXT), "400!", "bad_framing"},
    {"vertical tab and chunked",
     BYTES(FIT "Transfer-Encoding: \x0b"
               "chunked\r\n\r\n0\r\n\r\n" NEXT),
     "400!", "bad_framing"},
    {"chunked in HTTP/1.0", BYTES("POST /v1/fit HTTP/1.0\r\n" JSON "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" NEXT),
     "400!", "bad_framing"},

    /* Targets. */
    {"%00", BYTES("GET /v1/plans/a%00b HTTP/1.1\r\n" HOST "\r\n" NEXT), "400!", "bad_framing"},
    {"%00 in the query", BYTES("GET /v1/plans?model=%00 HTTP/1.1\r\n" HOST "\r\n" NEXT), "400!", "bad_framing"},
    {"half an escape", BYTES("GET /v1/plans/%4 HTTP/1.1\r\n" HOST "\r\n" NEXT), "400!", "bad_framing"},
    {"dot segment", BYTES("GET /v1/./passes HTTP/1.1\r\n" HOST "\r\n" NEXT), "404 200", "not_found"},
    {"dot-dot segment", BYTES("GET /v1/plans/../passes HTTP/1.1\r\n" HOST "\r\n" NEXT), "404 200", "not_found"},
    {"escaped dot-dot", BYTES("GET /v1/plans/%2e%2E/passes HTTP/1.1\r\n" HOST "\r\n" NEXT), "404 200", "not_found"},
    {"dot-dot as an id", BYTES("GET /v1/plans/.. HTTP/1.1\r\n" HOST "\r\n" NEXT), "400 200", "invalid_id"},
    {"empty segment", BYTES("GET //v1/passes HTTP/1.1\r\n" HOST "\r\n" NEXT), "404 200", "not_found"},
    {"backslash", BYTES("GET /v1\\passes HTTP/1.1\r\n" HOST "\r\n" NEXT), "404 200", "not_found"},
    {"absolute", BYTES("GET http://x/v1/passes HTTP/1.1\r\n" HOST "\r\n" NEXT), "400!", "bad_framing"},
    {"asterisk", BYTES("OPTIONS * HTTP/1.1\r\n" HOST "\r\n" NEXT), "400!", "bad_framing"},
    {"authority", BYTES("CONNECT x:80 HTTP/1.1\r\n" HOST "\r\n" NEXT), "400!", "bad_framing"},
    {"two spaces", BYTES("GET  /healthz HTTP/1.1\r\n" HOST "\r\n" NEXT), "400!", "bad_framing"},
    {"two spaces behind", BYTES("GET /healthz  HTTP/1.1\r\n" HOST "\r\n" NEXT), "400!", "bad_framing"},
    {"space in the target", BYTES("GET /heal thz HTTP/1.1\r\n" HOST "\r\n" NEXT), "400!", "bad_framing"},
    {"CR in the target", BYTES("GET /health\rz HTTP/1.1\r\n" HOST "\r\n" NEXT), "400!", "bad_framing"},
    {"NUL in the target", BYTES("GET /healthz\0x HTTP/1.1\r\n" HOST "\r\n" NEXT), "400!", "bad_framing"},

    /* What libmicrohttpd drops. */
    {"LF alone", BYTES("GET /healthz HTTP/1.1\nHost: x\n\n" NEXT), "400!", "bad_framing"},
    {"LF alone after a field", BYTES("GET /healthz HTTP/1.1\r\nHost: x\nX: y\r\n\r\n" NEXT), "400!", "bad_framing"},
    {"LF alone at the end", BYTES(GET "\n" NEXT), "400!", "bad_framing"},
    {"CR alone", BYTES("GET /healthz HTTP/1.1\rHost: x\r\r"), "...", ""},
    {"CR in a value", BYTES(FIT "X: a\rTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}" NEXT), "400!",
     "bad_framing"},
    {"control character in a value", BYTES(GET "X: \x01\r\n\r\n" NEXT), "400!", "bad_framing"},
    {"folded field", BYTES(GET "X: a\r\n b\r\n\r\n" NEXT), "400!", "bad_framing"},
    {"folded field with a colon", BYTES(FIT "X: a\r\n\tContent-Length: 2\r\n\r\n{}" NEXT), "400!", "bad_framing"},
    {"folded length", BYTES(FIT "Content-Length: 2\r\n 0\r\n\r\n{}" NEXT), "400!", "bad_framing"},
    {"folded chunked", BYTES(FIT "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" NEXT), "400!", "bad_framing"},
    {"fold first", BYTES("GET /healthz HTTP/1.1\r\n X: a\r\n" HOST "\r\n" NEXT), "400!", "bad_framing"},
    {"NUL in a value", BYTES(GET "X: a\0b\r\n\r\n" NEXT), "400!", "bad_framing"},
    {"NUL in a length",
     BYTES(FIT "Content-Length: 2\0"
               "0\r\n\r\n{}" NEXT),
     "400!", "bad_framing"},
    {"NUL in the method", BYTES("GET\0 /healthz HTTP/1.1\r\n" HOST "\r\n" NEXT), "400!", "bad_framing"},
    {"NUL in a name", BYTES(GET "X\0: a\r\n\r\n" NEXT), "L400!", ""},

    /* Expect. */
    {"expectation", BYTES(FIT "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n{}" NEXT), "L100 400 200", ""},
    {"expectation, body to come", BYTES(FIT "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"), "L100...", ""},
    {"another expectation", BYTES(FIT "Content-Length: 2\r\nExpect: 200-ok\r\n\r\n{}" NEXT), "417!",
     "expectation_failed"},
    {"expectation of nothing there",
     BYTES("POST /x HTTP/1.1\r\n" HOST "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"), "404!", "not_found"},

    /* Chunks. */
    {"chunk", BYTES(CHUNKED "2\r\n{}\r\n0\r\n\r\n" NEXT), "400 200", "invalid_request"},
    {"chunks", BYTES(CHUNKED "1\r\n{\r\n1\r\n}\r\n0\r\n\r\n" NEXT), "400 200", "invalid_request"},
    {"size with zeros", BYTES(CHUNKED "00000000000000000002\r\n{}\r\n0\r\n\r\n" NEXT), "400 200", "invalid_request"},
    {"extension", BYTES(CHUNKED "2;a=\"b\"\r\n{}\r\n0\r\n\r\n" NEXT), "400 200", "invalid_request"},
    {"trailer", BYTES(CHUNKED "2\r\n{}\r\n0\r\nX: y\r\n\r\n" NEXT), "400 200", "invalid_request"},
    {"length as a trailer", BYTES(CHUNKED "2\r\n{}\r\n0\r\nContent-Length: 45\r\n\r\n" NEXT), "400 200",
     "invalid_request"},
    {"chunk lines of LF alone", BYTES(CHUNKED "2\n{}\n0\n\n" NEXT), "400 200", "invalid_request"},
    {"no size", BYTES(CHUNKED "\r\n{}\r\n0\r\n\r\n" NEXT), "L400!", ""},
    {"size that is none", BYTES(CHUNKED "zz\r\n{}\r\n0\r\n\r\n" NEXT), "L400!", ""},
    {"negative size", BYTES(CHUNKED "-2\r\n{}\r\n0\r\n\r\n" NEXT), "L400!", ""},
    {"size with 0x", BYTES(CHUNKED "0x2\r\n{}\r\n0\r\n\r\n" NEXT), "L400!", ""},
    {"space before a size", BYTES(CHUNKED " 2\r\n{}\r\n0\r\n\r\n" NEXT), "L400!", ""},
    {"space after a size", BYTES(CHUNKED "2 \r\n{}\r\n0\r\n\r\n" NEXT), "L400!", ""},
    {"size of 2^64 - 1", BYTES(CHUNKED "ffffffffffffffff\r\n{}\r\n0\r\n\r\n"), "...", ""},
    {"size of 2^64 + 2", BYTES(CHUNKED "10000000000000002\r\n{}\r\n0\r\n\r\n" NEXT), "L413!", ""},
    {"chunk longer than its size", BYTES(CHUNKED "2\r\n{}XX0\r\n\r\n" NEXT), "L400!", ""},
    {"chunk shorter than its size", BYTES(CHUNKED "5\r\n{}\r\n0\r\n\r\n" NEXT), "L400!", ""},
    {"chunk without its end", BYTES(CHUNKED "2\r\n{}"), "...", ""},
    {"chunks without an end", BYTES(CHUNKED "2\r\n{}\r\n"), "...", ""},
    {"trailer without an end", BYTES(CHUNKED "2\r\n{}\r\n0\r\nX: y\r\n"), "...", ""},

    /* Other protocols. */
    {"TLS", BYTES("\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\0\0\0\0\r\n\r\n"), "!", ""},
    {"HTTP/2", BYTES("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "L505!", ""},
    {"HTTP/0.9", BYTES("GET /healthz\r\n\r\n"), "L400!", ""},
    {"HTTP/3.0", BYTES("GET /healthz HTTP/3.0\r\n" HOST "\r\n"), "L505!", ""},
    {"http", BYTES("GET /healthz http/1.1\r\n" HOST "\r\n"), "L400!", ""},
    {"tabs", BYTES("GET\t/healthz\tHTTP/1.1\r\n" HOST "\r\n"), "!", ""},
    {"method in lower case", BYTES("get /healthz HTTP/1.1\r\n" HOST "\r\n" NEXT), "405 200", "method_not_allowed"},
};

/* One answer of `expected`: true when it is as expected, and adds 1 to `*handled` when it is our handler's. */
static const char *check_answer(int fd, const char *expected, const char *code, long long *handled)
{
    struct wire_answer answer;
    bool library = *expected == 'L';
    int status = atoi(expected + library);
    switch (wire_read(fd, &answer, WIRE_WAIT_MS)) {
    case WIRE_SILENCE:
        return "no answer";
    case WIRE_CLOSED:
        return "closed without an answer";
    case WIRE_ANSWER:
        break;
    }
    if (answer.status != status)
        return keep_text("%d %s", answer.status, answer.code);
    if (answer.is_ours == library)
        return library ? "ours" : "the library's";
    if (*code && strcmp(code, answer.code) != 0)
        return keep_text("code %s", answer.code);
    *handled += !library;
    return NULL;
}

/* How the connection is after the last answer. */
static const char *check_end(int fd, const char *end)
{
    struct wire_answer answer;
    if (*end == '!')
        return wire_closes(fd) ? NULL : "not closed";
    if (*end == '.')
        return wire_read(fd, &answer, SILENCE_MS) == WIRE_SILENCE ? NULL : "not silent";
    if (!wire_send_text(fd, GET "\r\n") || wire_read(fd, &answer, WIRE_WAIT_MS) != WIRE_ANSWER)
        return "closed";
    return answer.status == 200 ? NULL : keep_text("then %d %s", answer.status, answer.code);
}

static const char *check_exchange(int fd, const char *expected, const char *code, long long *handled)
{
    const char *at = expected, *wrong = NULL;
    while (!wrong && *at && *at != '!' && *at != '.') {
        wrong = check_answer(fd, at, code, handled);
        code = "";
        at += strcspn(at, " !.");
        at += strspn(at, " ");
    }
    if (wrong)
        return wrong;
    *handled += *at == '\0';
    return check_end(fd, at);
}

/* Sends a row in pieces of `piece` bytes; 0: whole. Returns what is wrong, or NULL. */
static const char *check_row(const struct row *row, size_t piece)
{
    long long before = wire_handled(NULL), handled = 0;
    int fd = wire_open();
    for (size_t sent = 0; sent < row->n; sent += piece ? piece : row->n)
        if (!wire_send(fd, row->bytes + sent, piece && piece < row->n - sent ? piece : row->n - sent))
            break;
    const char *wrong = check_exchange(fd, row->expected, row->code, &handled);
    wire_close(fd);
    if (!wrong && wire_handled(NULL) - before != handled)
        wrong = keep_text("%lld requests were handled instead of %lld", wire_handled(NULL) - before, handled);
    return wrong;
}

static void check_rows(size_t piece)
{
    struct bp_buf wrong = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *how = check_row(&rows[i], piece);
        if (how)
            bp_buf_addf(&wrong, "\n%s: %s, expected \"%s\" %s", rows[i].name, how, rows[i].expected, rows[i].code);
    }
    ck_assert_msg(wrong.len == 0, "%s", bp_buf_string(&wrong));
}

START_TEST(test_framing__every_row_of_the_table)
{
    check_rows(0);
    ck_assert_int_gt(server_metric("blueprint_bad_framing_total"), 0);
}
END_TEST

/* The same bytes, however they come: one at a time as well. */
START_TEST(test_framing__does_not_depend_on_where_packets_end)
{
    static const size_t pieces[] = {1, 7};
    check_rows(pieces[_i]);
}
END_TEST

/* What ends behind its first line without our handler's answer: the library's refusals, and half a request. */
START_TEST(test_framing__what_the_library_refuses_is_counted_as_unfinished)
{
    static const char *const unfinished[] = {
        GET "Content-Length: x\r\n\r\n",   GET "no colon\r\n\r\n",         CHUNKED "x\r\n",
        FIT "Content-Length: 10\r\n\r\n{", "GET /healthz HTTP/1.1\r\nHos",
    };
    enum { N = sizeof unfinished / sizeof *unfinished };
    int idle = wire_open(), whole = wire_open();
    ck_assert(wire_send_text(whole, GET "\r\n"));
    wire_expect(whole, 200);
    for (size_t i = 0; i < N; i++) {
        int fd = wire_open();
        ck_assert(wire_send_text(fd, unfinished[i]));
        shutdown(fd, SHUT_WR);
        ck_assert(wire_closes(fd));
        wire_close(fd);
        wire_await_at_least("blueprint_unfinished_requests_total", (long long)i + 1);
    }
    wire_close(idle);
    wire_close(whole);
    wire_await_at_most("blueprint_connections", 1);
    ck_assert_int_eq(server_metric("blueprint_unfinished_requests_total"), N);
}
END_TEST

/* ---- Sizes ---- */

static char *text_of(char c, size_t n)
{
    char *text = malloc(n + 1);
    ck_assert_ptr_nonnull(text);
    memset(text, c, n);
    text[n] = '\0';
    return text;
}

/* A head of exactly `n` bytes, most of them in the target or in a field's value. */
static const char *head_of(size_t n, bool in_target)
{
    static const char target[] = "GET /%s HTTP/1.1\r\n" HOST "\r\n", field[] = GET "X: %s\r\n\r\n";
    const char *format = in_target ? target : field;
    char *filler = text_of('a', n - (strlen(format) - 2));
    const char *head = keep_text(in_target ? target : field, filler);
    free(filler);
    ck_assert_uint_eq(strlen(head), n);
    return head;
}

START_TEST(test_framing__a_head_is_too_large_by_one_byte)
{
    static const size_t pieces[] = {0, 1000};
    for (size_t i = 0; i < 4; i++) {
        bool in_target = i % 2;
        const char *fits = head_of(BP_HEAD_MAX, in_target), *does_not = head_of(BP_HEAD_MAX + 1, in_target);
        struct row row = {"fits", fits, strlen(fits), in_target ? "404" : "200", ""};
        const char *wrong = check_row(&row, pieces[i / 2]);
        ck_assert_msg(!wrong, "%s", wrong);
        row = (struct row){"does not", does_not, strlen(does_not), "431!", "head_too_large"};
        wrong = check_row(&row, pieces[i / 2]);
        ck_assert_msg(!wrong, "%s", wrong);
    }
}
END_TEST

/* However many: the library's memory of a connection is no matter. */
START_TEST(test_framing__a_query_of_many_parameters_is_refused_at_once)
{
    for (size_t n = 1; n < BP_HEAD_MAX / 3; n += n < 400 ? 40 : 1000) {
        struct bp_buf request = {0};
        bp_buf_addstr(&request, "GET /v1/plans?");
        for (size_t i = 0; i < n; i++)
            bp_buf_addstr(&request, "a&");
        bp_buf_addstr(&request, " HTTP/1.1\r\n" HOST "\r\n");
        struct row row = {"parameters", bp_buf_string(&request), request.len, "400", "invalid_query"};
        const char *wrong = check_row(&row, 0);
        ck_assert_msg(!wrong, "%zu parameters: %s", n, wrong);
        bp_buf_release(&request);
    }
}
END_TEST

/* Whatever its size a head is answered, by us or by the library, and nothing of it runs. */
START_TEST(test_framing__a_head_of_any_size_is_answered)
{
    for (size_t n = BP_HEAD_MAX + 1; n<2 * BP_HEAD_MAX; n += n> 15000 && n < 17000 ? 13 : 500) {
        const char *head = head_of(n, n % 2);
        struct wire_answer answer;
        int fd = wire_open();
        wire_send_text(fd, head);
        /* The library may close before it has read everything, and the answer is lost to a reset then. */
        if (wire_read(fd, &answer, WIRE_WAIT_MS) == WIRE_ANSWER)
            ck_assert_msg(answer.status == 431 || answer.status == 414, "%zu bytes: %d", n, answer.status);
        ck_assert(wire_closes(fd));
        wire_close(fd);
    }
    ck_assert_int_eq(wire_handled("getHealth"), 0);
}
END_TEST

/* A body of n spaces, in a length or in chunks of 64 KiB, and another request behind it. */
static struct bp_buf body_of(size_t n, bool chunked)
{
    struct bp_buf request = {0};
    char *spaces = text_of(' ', n);
    if (chunked) {
        bp_buf_addstr(&request, CHUNKED);
        for (size_t left = n; left; left -= left < 65536 ? left : 65536) {
            size_t piece = left < 65536 ? left : 65536;
            bp_buf_addf(&request, "%zx\r\n%.*s\r\n", piece, (int)piece, spaces);
        }
        bp_buf_addstr(&request, "0\r\n\r\n" NEXT);
    } else {
        bp_buf_addf(&request, FIT "Content-Length: %zu\r\n\r\n%s" NEXT, n, spaces);
    }
    free(spaces);
    ck_assert(!request.failed);
    return request;
}

START_TEST(test_framing__a_body_is_too_large_by_one_byte)
{
    for (int chunked = 0; chunked < 2; chunked++)
        for (size_t over = 0; over < 2; over++) {
            struct bp_buf request = body_of(BP_BODY_MAX + over, chunked);
            struct row row = {"body", request.data, request.len, over ? "413!" : "400 200",
                              over ? "body_too_large" : "empty_body"};
            const char *wrong = check_row(&row, 0);
            ck_assert_msg(!wrong, "%s, over by %zu: %s", chunked ? "chunked" : "length", over, wrong);
            bp_buf_release(&request);
        }
    ck_assert_int_eq(server_metric("blueprint_body_bytes"), 0);
}
END_TEST

START_TEST(test_framing__chunks_without_an_end_are_cut_off)
{
    struct wire_answer answer;
    int fd = wire_open();
    char *spaces = text_of(' ', 65536);
    const char *chunk = keep_text("10000\r\n%s\r\n", spaces);
    free(spaces);
    wire_send_text(fd, CHUNKED);
    size_t sent = 0;
    while (sent < 16 * BP_BODY_DRAIN && wire_send_text(fd, chunk))
        sent += 65536;
    ck_assert_uint_lt(sent, 16 * BP_BODY_DRAIN);
    ck_assert(wire_read(fd, &answer, WIRE_WAIT_MS) != WIRE_SILENCE);
    wire_close(fd);
    wire_await_at_most("blueprint_body_bytes", 0);
    ck_assert_int_eq(wire_handled("fitJob"), 0);
}
END_TEST

Suite *suite_framing(void)
{
    Suite *suite = suite_create("http framing");
    TCase *tcase = server_tcase(suite, "framing");
    tcase_add_test(tcase, test_framing__every_row_of_the_table);
    tcase_add_loop_test(tcase, test_framing__does_not_depend_on_where_packets_end, 0, 2);
    tcase_add_test(tcase, test_framing__a_head_is_too_large_by_one_byte);
    tcase_add_test(tcase, test_framing__a_query_of_many_parameters_is_refused_at_once);
    tcase_add_test(tcase, test_framing__a_head_of_any_size_is_answered);
    tcase_add_test(tcase, test_framing__what_the_library_refuses_is_counted_as_unfinished);
    tcase_add_test(tcase, test_framing__a_body_is_too_large_by_one_byte);
    tcase_add_test(tcase, test_framing__chunks_without_an_end_are_cut_off);
    return suite;
}
