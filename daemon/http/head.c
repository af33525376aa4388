#include "daemon/http/head.h"

#include <string.h>
#include <strings.h>

/* RFC 9110 section 5.6.2. */
static bool is_token(const char *text)
{
    static const char marks[] = "!#$%&'*+-.^_`|~";
    if (!*text)
        return false;
    for (; *text; text++) {
        bool letter_or_digit = (*text >= '0' && *text <= '9') || ((*text | 0x20) >= 'a' && (*text | 0x20) <= 'z');
        if (!letter_or_digit && !strchr(marks, *text))
            return false;
    }
    return true;
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
    {"prefer", offsetof(struct bp_head, prefer), 0},
    {"if-none-match", offsetof(struct bp_head, if_none_match), 0},
};

void bp_head_add(struct bp_head *head, const char *name, const char *value)
{
    char *base = (char *)head;
    if (!is_token(name))
        head->bad_name = true;
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

int bp_head_check(const struct bp_head *head, const char *version, struct bp_err *err)
{
    const char *wrong = NULL;
    if (head->bad_name)
        wrong = "a header field's name is not a token";
    else if (head->n_content_length > 1)
        wrong = "Content-Length is given twice";
    else if (head->n_host > 1)
        wrong = "Host is given twice";
    else if (head->n_host == 0 && strcmp(version, "HTTP/1.1") == 0)
        wrong = "Host is missing";
    else if (head->n_content_length && head->n_transfer_encoding)
        wrong = "Content-Length and Transfer-Encoding are both given";
    else if (head->n_transfer_encoding > 1 ||
             (head->n_transfer_encoding && strcasecmp(head->transfer_encoding, "chunked") != 0))
        wrong = "the only transfer coding taken is chunked";
    else if (head->n_content_length &&
             (!*head->content_length || head->content_length[strspn(head->content_length, "0123456789")]))
        wrong = "Content-Length is not a number";
    if (wrong)
        return bp_fail(err, BP_E_bad_framing, "", "%s", wrong);
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

bool bp_head_has_body(const struct bp_head *head)
{
    return head->n_transfer_encoding || bp_head_content_length(head) > 0;
}

bool bp_media_is_json(const char *content_type)
{
    static const char json[] = "application/json";
    if (!content_type || strncasecmp(content_type, json, sizeof json - 1) != 0)
        return false;
    const char *rest = content_type + sizeof json - 1;
    rest += strspn(rest, " \t");
    return *rest == '\0' || *rest == ';';
}

bool bp_prefers_async(const char *prefer)
{
    static const char async[] = "respond-async";
    while (prefer && *prefer) {
        prefer += strspn(prefer, " \t,");
        size_t n = strcspn(prefer, " \t,;");
        if (n == sizeof async - 1 && strncasecmp(prefer, async, n) == 0)
            return true;
        prefer += strcspn(prefer, ",");
    }
    return false;
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
