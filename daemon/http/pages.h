/* Lists come in pages: their two parameters, and the link to the next. HTTP thread only. */
#ifndef BP_HTTP_PAGES_H
#define BP_HTTP_PAGES_H

#include "daemon/http/call.h"

enum { BP_PAGE_LIMIT = 50, BP_PAGE_LIMIT_MAX = 500 };

/* Gives the answer its `Link: <path?query&cursor=next>; rel="next"`, the query as the call had it but for the cursor;
 * nothing when `next` is "". Returns the answer. */
struct bp_answer *bp_page_link(struct bp_answer *answer, const struct bp_call *call, const char *next);

#endif
