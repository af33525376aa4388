#include "daemon/http/pages.h"

#include <stdio.h>
#include <string.h>

static void add_encoded(struct bp_buf *out, const char *text)
{
    for (; *text; text++) {
        bool plain = (*text >= '0' && *text <= '9') || ((*text | 0x20) >= 'a' && (*text | 0x20) <= 'z') ||
                     strchr("-._~:", *text);
        if (plain)
            bp_buf_addch(out, *text);
        else
            bp_buf_addf(out, "%%%02X", (unsigned)(unsigned char)*text);
    }
}

struct bp_answer *bp_page_link(struct bp_answer *answer, const struct bp_call *call, const char *next)
{
    struct bp_buf link = {0};
    size_t n;
    if (*next == '\0' || bp_answer_is_standing(answer))
        return answer;
    bp_buf_addch(&link, '<');
    for (size_t i = 0; i < call->target.n; i++) {
        bp_buf_addch(&link, '/');
        add_encoded(&link, call->target.segments[i]);
    }
    bp_buf_addstr(&link, "?cursor=");
    add_encoded(&link, next);
    for (size_t i = 0; i < call->target.n_query; i++) {
        if (strcmp(call->target.query[i].name, "cursor") == 0)
            continue;
        bp_buf_addch(&link, '&');
        add_encoded(&link, call->target.query[i].name);
        bp_buf_addch(&link, '=');
        add_encoded(&link, call->target.query[i].value);
    }
    bp_buf_addstr(&link, ">; rel=\"next\"");
    bp_buf_addch(&link, '\0');
    answer->link = bp_buf_detach(&link, &n); /* without memory the page still says `next` in its body */
    return answer;
}
