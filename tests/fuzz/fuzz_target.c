/* What reads the request line and the header fields before anything is believed: the splitter of targets, and the
 * checks of the head. The first line is the target, each further one `name:value`. */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "daemon/http/head.h"
#include "daemon/http/target.h"
#include "tests/fuzz/fuzz.h"

static void put_escaped(struct bp_buf *out, const char *text)
{
    for (; *text; text++)
        bp_buf_addf(out, "%%%02X", (unsigned)(unsigned char)*text);
}

static size_t count_of(const char *text, size_t n, char c)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++)
        found += text[i] == c;
    return found;
}

/* The same target with every byte escaped comes apart in the same way. */
static void expect_same_when_escaped(const struct bp_target_path *path)
{
    struct bp_buf text = {0};
    struct bp_target_path again;
    struct bp_err err = {0};
    for (size_t i = 0; i < path->n; i++) {
        bp_buf_addch(&text, '/');
        put_escaped(&text, path->segments[i]);
    }
    for (size_t i = 0; i < path->n_query; i++) {
        bp_buf_addch(&text, i ? '&' : '?');
        put_escaped(&text, path->query[i].name);
        bp_buf_addch(&text, '=');
        put_escaped(&text, path->query[i].value);
    }
    size_t n;
    bp_buf_addch(&text, '\0');
    char *copy = bp_buf_detach(&text, &n);
    FUZZ_EXPECT(copy && bp_target_split(copy, &again, &err) == 0, "%s", err.message);
    FUZZ_EXPECT(again.n == path->n && again.n_query == path->n_query, "%zu segments, %zu pairs", again.n,
                again.n_query);
    for (size_t i = 0; i < path->n; i++)
        FUZZ_EXPECT(strcmp(again.segments[i], path->segments[i]) == 0, "segment %zu", i);
    for (size_t i = 0; i < path->n_query; i++)
        FUZZ_EXPECT(strcmp(again.query[i].name, path->query[i].name) == 0 &&
                        strcmp(again.query[i].value, path->query[i].value) == 0,
                    "pair %zu", i);
    free(copy);
}

static void check_target(const char *text)
{
    struct bp_target_path path = {0};
    struct bp_err err = {0};
    char *copy = strdup(text);
    FUZZ_EXPECT(copy != NULL, "no memory");
    if (bp_target_split(copy, &path, &err) < 0) {
        FUZZ_EXPECT(bp_code_kind(err.code) == BP_KIND_INPUT && *err.message, "%s", err.message);
        FUZZ_EXPECT(path.n == 0 && path.n_query == 0, "an output was touched");
    } else {
        const size_t n_path = strcspn(text, "?");
        FUZZ_EXPECT(path.n == count_of(text, n_path, '/') && path.n >= 1, "%zu segments of %s", path.n, text);
        FUZZ_EXPECT(path.n_query <= BP_QUERY_MAX, "%zu pairs", path.n_query);
        expect_same_when_escaped(&path);
    }
    free(copy);
}

/* By the standard's own words: digits, at least one, and what they say. */
static uint64_t length_of(const char *digits)
{
    errno = 0;
    unsigned long long length = strtoull(digits, NULL, 10);
    return errno ? UINT64_MAX : length;
}

static bool is_digits(const char *text)
{
    return *text && text[strspn(text, "0123456789")] == '\0';
}

/* A head that passes can be read in one way only. */
static void expect_one_reading(const struct bp_head *head, const char *version)
{
    FUZZ_EXPECT(!head->bad_name && head->n_host <= 1 && head->n_content_length <= 1 && head->n_transfer_encoding <= 1,
                "two of one");
    FUZZ_EXPECT(head->n_host == 1 || strcmp(version, "HTTP/1.1") != 0, "no Host");
    FUZZ_EXPECT(!head->n_content_length || !head->n_transfer_encoding, "two lengths");
    FUZZ_EXPECT(!head->n_transfer_encoding || strcasecmp(head->transfer_encoding, "chunked") == 0, "%s",
                head->transfer_encoding);
    if (head->n_content_length) {
        FUZZ_EXPECT(is_digits(head->content_length), "\"%s\" as a length", head->content_length);
        FUZZ_EXPECT(bp_head_content_length(head) == length_of(head->content_length), "%s", head->content_length);
    }
}

static void check_head(char *lines)
{
    static const char etag[] = "\"sha256:0123\"";
    static const char *const versions[] = {"HTTP/1.1", "HTTP/1.0"};
    struct bp_head head = {0};
    bool asked_for_async = false;
    unsigned timeout = 0;
    for (char *line = lines, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        char *value = strchr(line, ':');
        if (value)
            *value++ = '\0';
        asked_for_async |= value && strcasecmp(line, "prefer") == 0 && strcasestr(value, "respond-async");
        bp_head_add(&head, line, value);
    }
    for (size_t i = 0; i < 2; i++) {
        struct bp_err err = {0};
        if (bp_head_check(&head, versions[i], &err) == 0)
            expect_one_reading(&head, versions[i]);
        else
            FUZZ_EXPECT(err.code == BP_E_bad_framing || err.code == BP_E_expectation_failed, "%s", err.message);
    }
    if (bp_media_is_json(head.content_type))
        FUZZ_EXPECT(strncasecmp(head.content_type, "application/json", 16) == 0, "%s", head.content_type);
    FUZZ_EXPECT(asked_for_async || !head.preferences.respond_async, "nobody asked for respond-async");
    FUZZ_EXPECT(head.preferences.wait <= BP_SECONDS_MAX, "wait=%u", head.preferences.wait);
    if (bp_head_request_timeout(&head, &timeout, NULL) == 0)
        FUZZ_EXPECT(timeout <= BP_SECONDS_MAX && (timeout > 0) == (head.n_request_timeout > 0), "%u", timeout);
    if (bp_etag_matches(head.if_none_match, etag))
        FUZZ_EXPECT(strstr(head.if_none_match, etag) || strchr(head.if_none_match, '*'), "%s", head.if_none_match);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *text = calloc(n + 1, 1);
    FUZZ_EXPECT(text != NULL, "no memory");
    if (n)
        memcpy(text, data, n);
    char *fields = strchr(text, '\n');
    if (fields)
        *fields++ = '\0';
    check_target(text);
    if (fields)
        check_head(fields);
    free(text);
    return 0;
}
