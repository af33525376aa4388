/* Who asked, as the audit says it. Plain data. */
#ifndef BP_ACCESS_CALLER_H
#define BP_ACCESS_CALLER_H

/* Room for the longest of each and a NUL. */
enum { BP_CALLER_WHO = 80, BP_CALLER_FROM = 64 };

/* Borrowed: good until the request is over. */
struct bp_caller {
    const char *who;  /* "token:NAME", "uid:1000" or "anonymous"; NULL: the daemon itself */
    const char *from; /* an address, or "unix" */
};

#endif
