/* Who asked, as the audit says it. Plain data. */
#ifndef BP_ACCESS_CALLER_H
#define BP_ACCESS_CALLER_H

enum { BP_CALLER_WHO = 80, BP_CALLER_FROM = 64 };

struct bp_caller {
    char who[BP_CALLER_WHO];   /* "token:NAME", "uid:1000" or "anonymous"; "": the daemon itself */
    char from[BP_CALLER_FROM]; /* an address, or "unix" */
};

#endif
