#include "daemon/http/head.h"

#include <string.h>
#include <strings.h>

/* What a token is made of (RFC 9110 section 5.6.2): a bit for each of ASCII. */
static const uint32_t token_characters[4] = {0, 0x03ff6cfa, 0xc7fffffe, 0x57ffffff};

static bool is_token(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    while (*at < 0x80 && token_characters[*at / 32] >> *at % 32 & 1)
        at++;
    return !*at && *text;
}

/* The fields that are kept, and where; an offset of 0, which no member kept has, is nowhere. */
static const struct {
    const char *name;
    size_t value, count;
} fields[] = {
    {"host", 0, offsetof(struct bp_head, n_host)},
    {"content-length", offsetof(struct bp_head, content_length), offsetof(struct bp_head, n_content_length)},
    {"transfer-encoding", offsetof(struct bp_head, transfer_encoding), offsetof(struct bp_head, n_transfer_encoding)},
    {"expect", offsetof(struct bp_head, expect), 0},
    {"content-type", offsetof(struct bp_head, content_type), 0},
    {"content-encoding", offsetof(struct bp_head, content_encoding), offsetof(struct bp_head, n_content_encoding)},
    {"request-timeout", offsetof(struct bp_head, request_timeout), offsetof(struct bp_head, n_request_timeout)},
    {"if-none-match", offsetof(struct bp_head, if_none_match), 0},
    {"authorization", offsetof(struct bp_head, authorization), offsetof(struct bp_head, n_authorization)},
    {"x-request-id", offsetof(struct bp_head, request_id), offsetof(struct bp_head, n_request_id)},
    {"traceparent", offsetof(struct bp_head, traceparent), offsetof(struct bp_head, n_traceparent)},
};

/* A field folded over two lines comes to us with its second line at the end of its name: as it stands nothing is known
 * of the length of what follows. */
static bool is_folded_framing(const char *name)
{
    static const char *const framing[] = {"content-length", "transfer-encoding"};
    if ((*name | 0x20) != 'c' && (*name | 0x20) != 't')
        return false;
    for (size_t i = 0; i < sizeof framing / sizeof *framing; i++)
        if (strncasecmp(name, framing[i], strlen(framing[i])) == 0 && name[strlen(framing[i])])
            return true;
    return false;
}

/* Eight bytes at a time: each term has the high bit of a byte set where that byte is such a one. */
bool bp_has_control(const char *text, size_t n, unsigned char least)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), highs = ones << 7;
    size_t i = 0;
    for (; n - i >= sizeof ones; i += sizeof ones) {
        uint64_t bytes, del;
        memcpy(&bytes, text + i, sizeof bytes);
        del = bytes ^ (ones * 0x7f);
        if ((((bytes - ones * least) & ~bytes) | ((del - ones) & ~del)) & highs)
            return true;
    }
    while (i < n && (unsigned char)text[i] >= least && text[i] != 0x7f)
        i++;
    return i < n;
}

/* A value may have tabs. */
static bool value_has_control(const char *value, size_t n)
{
    if (!bp_has_control(value, n, 0x20))
        return false;
    for (size_t i = 0; i < n; i++)
        if (((unsigned char)value[i] < 0x20 && value[i] != '\t') || value[i] == 0x7f)
            return true;
    return false;
}

/* The part begins here and ends before `n_between` bytes that belong to no part. */
static void follow(struct bp_head *head, const char *part, size_t n, size_t n_between)
{
    if (part != head->next)
        head->gaps = true;
    head->next = part + n + n_between;
}

void bp_head_begin(struct bp_head *head, const char *method, const char *target, size_t n_target, const char *version)
{
    head->next = method;
    follow(head, method, strlen(method), 1);
    follow(head, target, n_target, 1);
    follow(head, version, strlen(version), 2);
}

/* White space between colon and value belongs to neither. */
static void follow_field(struct bp_head *head, const char *name, const char *value, size_t n_value)
{
    follow(head, name, strlen(name), 1);
    if (!value || (uintptr_t)value < (uintptr_t)head->next)
        head->gaps = true;
    else
        head->next = value + n_value + 2;
}

void bp_head_end(struct bp_head *head, const char *method, size_t n)
{
    head->n = n;
    if (head->next && head->next + 2 != method + n)
        head->gaps = true;
}

void bp_head_add(struct bp_head *head, const char *name, const char *value)
{
    char *base = (char *)head;
    const size_t n_value = value ? strlen(value) : 0;
    if (!is_token(name))
        head->bad_name = true;
    if (is_folded_framing(name))
        head->folded = true;
    if (value_has_control(value, n_value))
        head->control = true;
    if (head->next)
        follow_field(head, name, value, n_value);
    if (value && (*name | 0x20) == 'p' && strcasecmp(name, "prefer") == 0)
        bp_preferences_add(&head->preferences, value);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (fields[i].name[0] != (name[0] | 0x20) || strcasecmp(fields[i].name, name) != 0)
            continue;
        if (fields[i].value)
            *(const char **)(void *)(base + fields[i].value) = value ? value : "";
        if (fields[i].count)
            ++*(unsigned *)(void *)(base + fields[i].count);
        return;
    }
}

static bool is_number(const char *text)
{
    return *text && !text[strspn(text, "0123456789")];
}

int bp_head_check(const struct bp_head *head, const char *version, struct bp_err *err)
{
    const char *wrong = NULL;
    if (head->gaps)
        wrong = "the head is not lines of one field each that end in CRLF, or has a NUL";
    else if (head->control)
        wrong = "a header field's value has a control character";
    else if (head->bad_name)
        wrong = "a header field's name is not a token";
    else if (head->folded)
        wrong = "a field's name begins as one of framing and goes on, as that of a folded one does";
    else if (head->n_content_length > 1)
        wrong = "Content-Length is given twice";
    else if (head->n_host > 1)
        wrong = "Host is given twice";
    else if (head->n_authorization > 1)
        wrong = "Authorization is given twice";
    else if (head->n_host == 0 && strcmp(version, "HTTP/1.1") == 0)
        wrong = "Host is missing";
    else if (head->n_transfer_encoding && strcmp(version, "HTTP/1.0") == 0)
        wrong = "Transfer-Encoding is not of HTTP/1.0";
    else if (head->n_content_length && head->n_transfer_encoding)
        wrong = "Content-Length and Transfer-Encoding are both given";
    else if (head->n_transfer_encoding > 1 ||
             (head->n_transfer_encoding && strcasecmp(head->transfer_encoding, "chunked") != 0))
        wrong = "the only transfer coding taken is chunked";
    else if (head->n_content_length && !is_number(head->content_length))
        wrong = "Content-Length is not a number";
    if (wrong)
        return bp_fail(err, BP_E_bad_framing, "", "%s", wrong);
    if (head->n > BP_HEAD_MAX)
        return bp_fail(err, BP_E_head_too_large, "", "the limit is %llu bytes", (unsigned long long)BP_HEAD_MAX);
    if (head->expect && strcasecmp(head->expect, "100-continue") != 0)
        return bp_fail(err, BP_E_expectation_failed, "", "the only expectation met is 100-continue");
    return 0;
}

uint64_t bp_head_content_length(const struct bp_head *head)
{
    uint64_t length = 0;
    for (const char *at = head->content_length; at && *at; at++) {
        const uint64_t digit = (uint64_t)(*at - '0');
        if (length > (UINT64_MAX - digit) / 10)
            return UINT64_MAX;
        length = length * 10 + digit;
    }
    return length;
}

/* One of the parameters of a media type (RFC 9110 section 5.6.6); `n_name` 0 for none. Borrowed. */
struct parameter {
    const char *name, *value;
    size_t n_name, n_value;
};

static bool is_word(const char *word, const char *text, size_t n)
{
    return strlen(word) == n && strncasecmp(word, text, n) == 0;
}

/* Reads the parameter at `at`, and returns where the next begins; NULL when what is there is none. */
static const char *next_parameter(const char *at, struct parameter *ret)
{
    static const char white[] = " \t", separators[] = " \t;=\"";
    *ret = (struct parameter){0};
    at += strspn(at, white);
    if (!*at)
        return at;
    if (*at != ';')
        return NULL;
    at += strspn(at, " \t;");
    ret->name = at;
    ret->n_name = strcspn(at, separators);
    at += ret->n_name;
    if (ret->n_name == 0)
        return *at ? NULL : at;
    if (*at++ != '=')
        return NULL;
    bool quoted = *at == '"';
    ret->value = at += quoted;
    ret->n_value = strcspn(at, quoted ? "\"" : separators);
    at += ret->n_value;
    if (quoted)
        return *at ? at + 1 : NULL;
    return ret->n_value ? at : NULL;
}

bool bp_media_is_json(const char *content_type)
{
    static const char json[] = "application/json";
    if (!content_type || strncasecmp(content_type, json, sizeof json - 1) != 0)
        return false;
    struct parameter parameter;
    const char *at = content_type + sizeof json - 1;
    while ((at = next_parameter(at, &parameter)) && parameter.n_name)
        if (is_word("charset", parameter.name, parameter.n_name) &&
            !is_word("utf-8", parameter.value, parameter.n_value))
            return false;
    return at != NULL;
}

bool bp_head_is_encoded(const struct bp_head *head)
{
    return head->n_content_encoding > 1 ||
           (head->n_content_encoding == 1 && strcasecmp(head->content_encoding, "identity") != 0);
}

/* Seconds as digits; those past the most are the most. */
static bool read_seconds(const char *text, size_t n, unsigned *ret)
{
    unsigned seconds = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        seconds = seconds * 10 + (unsigned)(text[i] - '0');
        if (seconds > BP_SECONDS_MAX)
            seconds = BP_SECONDS_MAX;
    }
    *ret = seconds;
    return n > 0;
}

int bp_head_request_timeout(const struct bp_head *head, unsigned *ret, struct bp_err *err)
{
    unsigned seconds = 0;
    if (head->n_request_timeout > 1)
        return bp_fail(err, BP_E_invalid_header, "", "Request-Timeout is given twice");
    if (head->n_request_timeout &&
        (!read_seconds(head->request_timeout, strlen(head->request_timeout), &seconds) || seconds == 0))
        return bp_fail(err, BP_E_invalid_header, "", "Request-Timeout is not a number of seconds of at least 1");
    *ret = seconds;
    return 0;
}

/* The first end of an element of a list, or of what else is in `ends`, that is not in a quoted string. */
static const char *skip_to(const char *at, const char *ends)
{
    bool quoted = false;
    for (; *at && (quoted || !strchr(ends, *at)); at++)
        if (*at == '"')
            quoted = !quoted;
        else if (quoted && *at == '\\' && at[1])
            at++;
    return at;
}

/* Reads the preference at `at` without its parameters, and returns where the next begins. */
static const char *next_preference(const char *at, struct parameter *ret)
{
    static const char white[] = " \t";
    *ret = (struct parameter){.name = at, .n_name = strcspn(at, " \t=;,")};
    at += ret->n_name;
    at += strspn(at, white);
    if (*at == '=') {
        at++;
        at += strspn(at, white);
        const char *end = skip_to(at, " \t;,");
        bool quoted = end - at >= 2 && *at == '"' && end[-1] == '"';
        ret->value = at + quoted;
        ret->n_value = (size_t)(end - at) - (quoted ? 2 : 0);
        at = end;
    }
    return skip_to(at, ",");
}

void bp_preferences_add(struct bp_preferences *preferences, const char *field)
{
    struct parameter preference;
    while (*(field += strspn(field, " \t,"))) {
        field = next_preference(field, &preference);
        if (is_word("respond-async", preference.name, preference.n_name))
            preferences->respond_async = true;
        else if (is_word("wait", preference.name, preference.n_name) && !preferences->has_wait)
            preferences->has_wait = read_seconds(preference.value, preference.n_value, &preferences->wait);
    }
}

bool bp_etag_matches(const char *if_none_match, const char *etag)
{
    size_t n_etag = strlen(etag);
    while (if_none_match && *if_none_match) {
        if_none_match += strspn(if_none_match, " \t,");
        if (*if_none_match == '*')
            return true;
        if (strncmp(if_none_match, "W/", 2) == 0)
            if_none_match += 2;
        if (strncmp(if_none_match, etag, n_etag) == 0)
            return true;
        if (*if_none_match == '"') {
            const char *end = strchr(if_none_match + 1, '"');
            if (!end)
                return false;
            if_none_match = end + 1;
        } else {
            if_none_match += strcspn(if_none_match, ",");
        }
    }
    return false;
}
