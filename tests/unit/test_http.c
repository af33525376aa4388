/* The HTTP layer where it needs no connection: framing, targets, routes, query, pages. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/http/head.h"
#include "daemon/http/pages.h"
#include "daemon/http/routes.h"

/* ---- Framing ---- */

struct field {
    const char *name, *value;
};

static enum bp_code check_head(const struct field *fields, const char *version)
{
    struct bp_head head = {0};
    struct bp_err err = {0};
    for (; fields->name; fields++)
        bp_head_add(&head, fields->name, fields->value);
    ck_assert_int_eq(bp_head_check(&head, version, &err), err.code ? -1 : 0);
    return err.code;
}

START_TEST(test_head__ambiguous_framing_is_refused)
{
    static const struct field bad[][4] = {
        {{"Host", "a"}, {"Content-Length", "1"}, {"content-length", "1"}},
        {{"Host", "a"}, {"HOST", "a"}},
        {{"Host", "a"}, {"Content-Length", "1"}, {"Transfer-Encoding", "chunked"}},
        {{"Host", "a"}, {"Transfer-Encoding", "gzip, chunked"}},
        {{"Host", "a"}, {"Transfer-Encoding", "identity"}},
        {{"Host", "a"}, {"Transfer-Encoding", "chunked"}, {"Transfer-Encoding", "chunked"}},
        {{"Host", "a"}, {"Content-Length ", "1"}},
        {{"Host", "a"}, {"Content-Length\t", "1"}},
        {{"Host", "a"}, {"", "1"}},
        {{"Host", "a"}, {"X\x80", "1"}},
        {{"Host", "a"}, {"Content-Length", "-1"}},
        {{"Host", "a"}, {"Content-Length39", ""}},
        {{"Host", "a"}, {"content-length9", "3"}},
        {{"Host", "a"}, {"Transfer-Encodingchunked", ""}},
        {{"Host", "a"}, {"Content-Length", "39 "}},
        {{"Host", "a"}, {"Content-Length", "0x27"}},
        {{"Host", "a"}, {"Content-Length", "1, 1"}},
        {{"Host", "a"}, {"Content-Length", ""}},
        {{"Host", "a"}, {"X", "a\rY: b"}},
        {{"Host", "a\n"}},
        {{"Host", "a"}, {"X", "\x7f"}},
        {{"X", "a"}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(check_head(bad[i], "HTTP/1.1") == BP_E_bad_framing, "row %zu", i);
}
END_TEST

START_TEST(test_head__a_name_is_of_the_characters_of_a_token_and_a_value_has_no_control)
{
    static const char marks[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for (int c = 1; c < 256; c++) {
        const char text[] = {'x', (char)c, 'y', '\0'};
        const struct field name[] = {{"Host", "a"}, {text, "1"}, {NULL, NULL}};
        const struct field value[] = {{"Host", "a"}, {"X", text}, {NULL, NULL}};
        bool is_control = (c < 0x20 && c != '\t') || c == 0x7f;
        ck_assert_msg(check_head(name, "HTTP/1.1") == (strchr(marks, c) ? BP_OK : BP_E_bad_framing), "name, %d", c);
        ck_assert_msg(check_head(value, "HTTP/1.1") == (is_control ? BP_E_bad_framing : BP_OK), "value, %d", c);
    }
}
END_TEST

START_TEST(test_head__a_control_is_seen_wherever_it_stands)
{
    static const unsigned char most[] = {0x00, 0x20, 0x7f, 0x80, 0xff};
    char text[20];
    for (size_t n = 1; n < sizeof text; n++)
        for (size_t at = 0; at < n; at++)
            for (size_t i = 0; i < sizeof most; i++)
                for (unsigned least = 0x20; least <= 0x21; least++) {
                    memset(text, 'x', n);
                    if (at)
                        text[at - 1] = '\x80';
                    text[at] = (char)most[i];
                    text[n] = '\x01'; /* past the end */
                    bool is_control = most[i] < least || most[i] == 0x7f;
                    ck_assert_msg(bp_has_control(text, n, (unsigned char)least) == is_control, "%zu of %zu: %#x", at, n,
                                  most[i]);
                }
}
END_TEST

/* A head as it was received, and the parts of it that a parser hands out: each is where it stands there, "|" ends it
 * and is what the parser put in the place of what followed. */
struct received {
    const char *text; /* "|" for each byte that is not of a part */
    enum bp_code code;
};

static enum bp_code check_received(const char *received, size_t n, bool copied)
{
    static char bytes[512], copy[64];
    struct bp_head head = {0};
    struct bp_err err = {0};
    char *parts[16] = {0};
    size_t n_parts = 0;
    ck_assert_uint_lt(strlen(received), sizeof bytes);
    strcpy(bytes, received);
    for (char *at = bytes, *end; *at; at = end + strspn(end, "|"), memset(end, 0, (size_t)(at - end))) {
        end = at + strcspn(at, "|");
        parts[n_parts++] = at;
    }
    if (copied)
        parts[4] = strcpy(copy, parts[4]);
    bp_head_begin(&head, parts[0], parts[1], strlen(parts[1]), parts[2]);
    for (size_t i = 3; i < n_parts; i += 2)
        bp_head_add(&head, parts[i], parts[i + 1]);
    bp_head_end(&head, parts[0], n ? n : strlen(received));
    ck_assert_int_eq(bp_head_check(&head, parts[2], &err), err.code ? -1 : 0);
    return err.code;
}

START_TEST(test_head__what_a_parser_dropped_is_refused)
{
    static const struct received rows[] = {
        {"GET|/|HTTP/1.1||Host|x||A|||b||||", BP_OK}, /* two spaces after a colon */
        {"GET|/|HTTP/1.1||Host|x||||", BP_OK},
        {"GET||/|HTTP/1.1||Host|x||||", BP_E_bad_framing},      /* two between method and target */
        {"GET|/||HTTP/1.1||Host|x||||", BP_E_bad_framing},      /* a NUL in the target, and what follows */
        {"GET|/|HTTP/1.1|Host|x||||", BP_E_bad_framing},        /* LF alone */
        {"GET|/|HTTP/1.1||Host|x|||A|b||||", BP_E_bad_framing}, /* a NUL in a value */
        {"GET|/|HTTP/1.1||Host|x|A|b||||", BP_E_bad_framing},
        {"GET|/|HTTP/1.1||Host|x|||", BP_E_bad_framing},     /* LF alone at the end */
        {"GET|/|HTTP/1.1||Host|x|||||||", BP_E_bad_framing}, /* a line ": x" that ended it */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_msg(check_received(rows[i].text, 0, false) == rows[i].code, "row %zu", i);
    ck_assert_int_eq(check_received(rows[0].text, 0, true), BP_E_bad_framing); /* folded: put together elsewhere */
}
END_TEST

START_TEST(test_head__a_long_one_is_refused_by_one_byte)
{
    struct bp_head head = {.n_host = 1};
    struct bp_err err = {0};
    bp_head_end(&head, "GET", BP_HEAD_MAX);
    ck_assert_int_eq(bp_head_check(&head, "HTTP/1.1", &err), 0);
    bp_head_end(&head, "GET", BP_HEAD_MAX + 1);
    ck_assert_int_eq(bp_head_check(&head, "HTTP/1.1", &err), -1);
    ck_assert_int_eq(err.code, BP_E_head_too_large);
}
END_TEST

START_TEST(test_head__plain_framing_is_taken)
{
    static const struct field good[][4] = {
        {{"Host", "a"}},
        {{"Host", ""}, {"Content-Length", "0"}, {"X", "a\tb\xff"}},
        {{"host", "a"}, {"Transfer-Encoding", "Chunked"}},
        {{"Host", "a"}, {"Content-Length", "10"}, {"Expect", "100-Continue"}},
    };
    static const struct field coded[] = {{"Transfer-Encoding", "chunked"}, {NULL, NULL}};
    static const struct field none[] = {{NULL, NULL}}, other[] = {{"Host", "a"}, {"Expect", "200-ok"}, {NULL, NULL}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        ck_assert_msg(check_head(good[i], "HTTP/1.1") == BP_OK, "row %zu", i);
    ck_assert_int_eq(check_head(none, "HTTP/1.0"), BP_OK);
    ck_assert_int_eq(check_head(coded, "HTTP/1.0"), BP_E_bad_framing);
    ck_assert_int_eq(check_head(other, "HTTP/1.1"), BP_E_expectation_failed);
}
END_TEST

START_TEST(test_head__content_length_never_wraps)
{
    static const struct {
        const char *text;
        uint64_t expected;
    } rows[] = {{"0", 0},
                {"1048576", 1048576},
                {"18446744073709551610", UINT64_MAX - 5},
                {"18446744073709551616", UINT64_MAX},
                {"99999999999999999999999999", UINT64_MAX}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bp_head head = {.content_length = rows[i].text};
        ck_assert_uint_eq(bp_head_content_length(&head), rows[i].expected);
    }
}
END_TEST

START_TEST(test_head__media_types)
{
    ck_assert(bp_media_is_json("application/json"));
    ck_assert(bp_media_is_json("Application/JSON ; charset=utf-8"));
    ck_assert(bp_media_is_json("application/json;charset=\"UTF-8\"; x=y"));
    ck_assert(bp_media_is_json("application/json;"));
    ck_assert(!bp_media_is_json("application/json; charset=utf-16"));
    ck_assert(!bp_media_is_json("application/json; x=\"charset=utf-8\"; charset=latin1"));
    ck_assert(!bp_media_is_json("application/json; charset=\"utf-8"));
    ck_assert(!bp_media_is_json("application/json; charset"));
    ck_assert(!bp_media_is_json("application/json charset=utf-8"));
    ck_assert(!bp_media_is_json("application/json-seq"));
    ck_assert(!bp_media_is_json("text/plain"));
    ck_assert(!bp_media_is_json(""));
    ck_assert(!bp_media_is_json(NULL));
}
END_TEST

START_TEST(test_head__content_codings)
{
    static const struct {
        const char *values[2];
        bool encoded;
    } rows[] = {{{NULL}, false}, {{"identity"}, false},      {{"Identity"}, false},       {{"gzip"}, true},
                {{""}, true},    {{"identity, gzip"}, true}, {{"gzip", "identity"}, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bp_head head = {0};
        for (size_t j = 0; j < 2 && rows[i].values[j]; j++)
            bp_head_add(&head, "Content-Encoding", rows[i].values[j]);
        ck_assert_msg(bp_head_is_encoded(&head) == rows[i].encoded, "row %zu", i);
    }
}
END_TEST

START_TEST(test_head__preferences)
{
    static const struct {
        const char *fields[2];
        bool respond_async, has_wait;
        unsigned wait;
    } rows[] = {
        {{"respond-async"}, true, false, 0},
        {{"wait=10, Respond-Async"}, true, true, 10},
        {{"respond-async;x=1, wait=5"}, true, true, 5},
        {{"respond-async", "wait = \"7\" ; x"}, true, true, 7},
        {{"Wait=3", "wait=4"}, false, true, 3},
        {{"wait=0"}, false, true, 0},
        {{"wait=99999999999999999999"}, false, true, BP_SECONDS_MAX},
        {{"wait=-1, wait=2"}, false, true, 2},
        {{"wait, wait=, wait=\"\", wait=1s, wait=\"1"}, false, false, 0},
        {{"respond-asynchronously, waits=1"}, false, false, 0},
        {{"return=\"respond-async, wait=9, \\\", respond-async\", wait=1"}, false, true, 1},
        {{"x; respond-async; wait=1"}, false, false, 0},
        {{"respond-async=\"unended, wait=1"}, true, false, 0},
        {{" ,, ;=,"}, false, false, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bp_head head = {0};
        for (size_t j = 0; j < 2 && rows[i].fields[j]; j++)
            bp_head_add(&head, j ? "prefer" : "Prefer", rows[i].fields[j]);
        ck_assert_msg(head.preferences.respond_async == rows[i].respond_async, "row %zu", i);
        ck_assert_msg(head.preferences.has_wait == rows[i].has_wait, "row %zu", i);
        ck_assert_msg(!rows[i].has_wait || head.preferences.wait == rows[i].wait, "row %zu", i);
    }
}
END_TEST

START_TEST(test_head__a_request_timeout_is_seconds_and_given_once)
{
    static const struct {
        const char *values[2];
        int seconds; /* -1: refused */
    } rows[] = {{{NULL}, 0},   {{"1"}, 1},   {{"60"}, 60}, {{"100000000000"}, (int)BP_SECONDS_MAX},
                {{"0"}, -1},   {{""}, -1},   {{"1s"}, -1}, {{"-1"}, -1},
                {{"1.5"}, -1}, {{"+1"}, -1}, {{"1 "}, -1}, {{"1", "1"}, -1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bp_head head = {0};
        struct bp_err err = {0};
        unsigned seconds = 0;
        for (size_t j = 0; j < 2 && rows[i].values[j]; j++)
            bp_head_add(&head, "Request-Timeout", rows[i].values[j]);
        int failed = bp_head_request_timeout(&head, &seconds, &err);
        ck_assert_msg(failed == (rows[i].seconds < 0 ? -1 : 0), "row %zu", i);
        ck_assert_int_eq(err.code, failed ? BP_E_invalid_header : BP_OK);
        ck_assert_msg(failed || (int)seconds == rows[i].seconds, "row %zu", i);
    }
}
END_TEST

START_TEST(test_head__etags)
{
    ck_assert(bp_etag_matches("\"a\"", "\"a\""));
    ck_assert(bp_etag_matches("\"b\", W/\"a\"", "\"a\""));
    ck_assert(bp_etag_matches("*", "\"a\""));
    ck_assert(!bp_etag_matches("\"ab\"", "\"a\""));
    ck_assert(!bp_etag_matches("\"b, \"", "\"a\""));
    ck_assert(!bp_etag_matches("a", "\"a\""));
    ck_assert(!bp_etag_matches("\"unended", "\"a\""));
    ck_assert(!bp_etag_matches(NULL, "\"a\""));
}
END_TEST

/* ---- Targets ---- */

static struct bp_call call;
static char text[512];

static enum bp_code split(const char *target)
{
    struct bp_err err = {0};
    call = (struct bp_call){0};
    ck_assert_uint_lt(strlen(target), sizeof text);
    memcpy(text, target, strlen(target) + 1);
    bp_target_split(text, &call.target, &err);
    return err.code;
}

START_TEST(test_target__segments_and_query_are_decoded_apart)
{
    ck_assert_int_eq(split("/v1/a%2Fb/c%3A+?x=1+2%26&y&&z=%3D="), BP_OK);
    ck_assert_uint_eq(call.target.n, 3);
    ck_assert_str_eq(call.target.segments[1], "a/b");
    ck_assert_str_eq(call.target.segments[2], "c:+");
    ck_assert_uint_eq(call.target.n_query, 3);
    ck_assert_str_eq(call.target.query[0].value, "1 2&");
    ck_assert_str_eq(call.target.query[1].name, "y");
    ck_assert_str_eq(call.target.query[1].value, "");
    ck_assert_str_eq(call.target.query[2].value, "==");
}
END_TEST

START_TEST(test_target__what_is_no_path_is_refused)
{
    static const char *const bad[] = {"*",       "",      "http://a/", "/%00", "/a%0",   "/a%",   "/%zz",
                                      "/?x=%00", "/?%=1", "/a b",      "/a\r", "/?x=\t", "/\x7f", "/ "};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(split(bad[i]) == BP_E_bad_framing, "%s", bad[i]);
    ck_assert_int_eq(split("/1/2/3/4/5/6/7/8/9"), BP_E_not_found);
    ck_assert_int_eq(split("/?a&b&c&d&e&f&g&h&i&j&k&l&m&n&o&p&q"), BP_E_invalid_query);
}
END_TEST

/* ---- Routes ---- */

static enum bp_code find(const char *method, const char *target, const char **ret_name, const char **ret_allow)
{
    struct bp_err err = {0};
    size_t route = bp_routes_n;
    ck_assert_int_eq(split(target), BP_OK);
    bp_route_find(&call, method, &route, ret_allow, &err);
    *ret_name = bp_metrics_label(BP_LABEL_ROUTE, route);
    return err.code;
}

START_TEST(test_routes__every_row_is_found_by_its_pattern)
{
    for (size_t i = 0; i < bp_routes_n; i++) {
        const char *name, *allow;
        char target[128] = "";
        ck_assert_uint_lt(strlen(bp_routes[i].pattern), sizeof target);
        for (size_t j = 0; bp_routes[i].pattern[j]; j++)
            target[j] = strchr("{}", bp_routes[i].pattern[j]) ? 'x' : bp_routes[i].pattern[j];
        ck_assert_int_eq(find(bp_routes[i].method, target, &name, &allow), BP_OK);
        ck_assert_str_eq(name, bp_routes[i].name);
    }
}
END_TEST

START_TEST(test_routes__a_get_serves_head_and_captures_are_in_order)
{
    const char *name, *allow;
    ck_assert_int_eq(find("HEAD", "/v1/plans/one/diff/t%77o", &name, &allow), BP_OK);
    ck_assert_str_eq(name, "diffPlans");
    ck_assert_str_eq(call.captures[0], "one");
    ck_assert_str_eq(call.captures[1], "two");
}
END_TEST

START_TEST(test_routes__other_methods_are_told_which_there_are)
{
    const char *name, *allow = NULL;
    ck_assert_int_eq(find("DELETE", "/v1/plans", &name, &allow), BP_E_method_not_allowed);
    ck_assert_str_eq(allow, "GET, HEAD, POST");
    ck_assert_int_eq(find("POST", "/healthz", &name, &allow), BP_E_method_not_allowed);
    ck_assert_str_eq(allow, "GET, HEAD");
    ck_assert_int_eq(find("get", "/healthz", &name, &allow), BP_E_method_not_allowed);
    ck_assert_int_eq(find("GET", "/v1", &name, &allow), BP_E_not_found);
    ck_assert_int_eq(find("GET", "/v1/plans/", &name, &allow), BP_OK); /* an empty id, which is no id */
    ck_assert_int_eq(find("GET", "/v1/plans/a/b", &name, &allow), BP_E_not_found);
    ck_assert_str_eq(name, "none");
}
END_TEST

static void add_method(const char *method, char allow[64])
{
    size_t n = strlen(allow);
    snprintf(allow + n, 64 - n, "%s%s%s", n ? ", " : "", method, strcmp(method, "GET") == 0 ? ", HEAD" : "");
}

START_TEST(test_routes__every_resource_says_all_its_methods)
{
    static const char *const methods[] = {"GET", "POST", "PUT", "DELETE"};
    for (size_t i = 0; i < bp_routes_n; i++) {
        const char *name, *allow = NULL;
        char expected[64] = "";
        for (size_t m = 0; m < sizeof methods / sizeof *methods; m++)
            for (size_t k = 0; k < bp_routes_n; k++)
                if (strcmp(bp_routes[k].pattern, bp_routes[i].pattern) == 0 &&
                    strcmp(bp_routes[k].method, methods[m]) == 0)
                    add_method(methods[m], expected);
        ck_assert_int_eq(find("PATCH", bp_routes[i].pattern, &name, &allow), BP_E_method_not_allowed);
        ck_assert_str_eq(allow, expected);
    }
}
END_TEST

/* ---- Query and pages ---- */

START_TEST(test_query__every_parameter_that_is_wrong_is_named)
{
    static const char *const known[] = {"limit", "state", NULL}, *const states[] = {"queued", "failed", NULL};
    const char *values[2];
    struct bp_problems problems = {0};
    ck_assert_int_eq(split("/?state=none&limit=0&what%ff=1&state=failed"), BP_OK);
    bp_call_query(&call, known, values, &problems);
    ck_assert_uint_eq(bp_query_uint(known[0], values[0], 1, 500, 50, &problems), 50);
    ck_assert_int_eq(bp_query_enum(known[1], values[1], states, -1, &problems), -1);
    ck_assert_uint_eq(problems.n, 4);
    ck_assert_str_eq(problems.at[0].path, "/what?");
    ck_assert_str_eq(problems.at[1].path, "/state");
    ck_assert_str_eq(problems.at[2].path, "/limit");
    ck_assert_str_eq(problems.at[3].path, "/state");
    struct bp_answer *answer = bp_query_refusal(&problems);
    ck_assert_int_eq(answer->status, 400);
    ck_assert_ptr_nonnull(memmem(answer->body, answer->n, "\"code\":\"invalid_query\"", 22));
    bp_answer_unref(answer);
}
END_TEST

START_TEST(test_query__numbers_are_digits_within_their_range)
{
    static const char *const bad[] = {"", "0", "501", "-1", "+1", " 1", "1 ", "1e2", "18446744073709551617"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct bp_problems problems = {0};
        ck_assert_uint_eq(bp_query_uint("limit", bad[i], 1, 500, 50, &problems), 50);
        ck_assert_msg(problems.n == 1, "%s", bad[i]);
        bp_problems_release(&problems);
    }
    ck_assert_uint_eq(bp_query_uint("limit", "500", 1, 500, 50, NULL), 500);
    ck_assert_uint_eq(bp_query_uint("limit", NULL, 1, 500, 50, NULL), 50);
}
END_TEST

START_TEST(test_pages__the_link_keeps_the_query_and_moves_the_cursor)
{
    struct bp_buf none = {0};
    ck_assert_int_eq(split("/v1/plans?model=a%20b%3E&cursor=old&limit=2"), BP_OK);
    struct bp_answer *answer = bp_page_link(bp_answer_new(200, BP_MEDIA_JSON, &none), &call, "n/w");
    ck_assert_str_eq(answer->link, "</v1/plans?cursor=n%2Fw&model=a%20b%3E&limit=2>; rel=\"next\"");
    bp_answer_unref(answer);
    answer = bp_page_link(bp_answer_new(200, BP_MEDIA_JSON, &none), &call, "");
    ck_assert_ptr_null(answer->link);
    bp_answer_unref(answer);
}
END_TEST

Suite *suite_http(void)
{
    Suite *suite = suite_create("http");
    TCase *head = tcase_create("head"), *target = tcase_create("target"), *rest = tcase_create("routes");
    tcase_add_test(head, test_head__ambiguous_framing_is_refused);
    tcase_add_test(head, test_head__a_control_is_seen_wherever_it_stands);
    tcase_add_test(head, test_head__a_name_is_of_the_characters_of_a_token_and_a_value_has_no_control);
    tcase_add_test(head, test_head__what_a_parser_dropped_is_refused);
    tcase_add_test(head, test_head__a_long_one_is_refused_by_one_byte);
    tcase_add_test(head, test_head__plain_framing_is_taken);
    tcase_add_test(head, test_head__content_length_never_wraps);
    tcase_add_test(head, test_head__media_types);
    tcase_add_test(head, test_head__content_codings);
    tcase_add_test(head, test_head__preferences);
    tcase_add_test(head, test_head__a_request_timeout_is_seconds_and_given_once);
    tcase_add_test(head, test_head__etags);
    tcase_add_test(target, test_target__segments_and_query_are_decoded_apart);
    tcase_add_test(target, test_target__what_is_no_path_is_refused);
    tcase_add_test(rest, test_routes__every_row_is_found_by_its_pattern);
    tcase_add_test(rest, test_routes__a_get_serves_head_and_captures_are_in_order);
    tcase_add_test(rest, test_routes__other_methods_are_told_which_there_are);
    tcase_add_test(rest, test_routes__every_resource_says_all_its_methods);
    tcase_add_test(rest, test_query__every_parameter_that_is_wrong_is_named);
    tcase_add_test(rest, test_query__numbers_are_digits_within_their_range);
    tcase_add_test(rest, test_pages__the_link_keeps_the_query_and_moves_the_cursor);
    suite_add_tcase(suite, head);
    suite_add_tcase(suite, target);
    suite_add_tcase(suite, rest);
    return suite;
}
