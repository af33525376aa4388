#include "daemon/offline.h"

#include <stdio.h>

#include "daemon/store/store.h"

static void print_corrupt(void *data, const struct bp_digest *digest, const char *stage)
{
    char text[BP_DIGEST_TEXT];
    (void)data;
    bp_digest_format(digest, text);
    printf("corrupt  %s  %s\n", text, stage);
}

int bp_offline_verify(const char *database, struct bp_err *err)
{
    uint64_t checked = 0, corrupt = 0;
    if (bp_store_verify(database, print_corrupt, NULL, &checked, &corrupt, err))
        return -1;
    printf("%llu snapshots checked, %llu corrupt\n", (unsigned long long)checked, (unsigned long long)corrupt);
    return corrupt > 0;
}

int bp_offline_migrate(const char *database, bool dry_run, struct bp_err *err)
{
    unsigned from, to;
    if (bp_store_migrate(database, dry_run, &from, &to, err))
        return -1;
    if (from == to)
        printf("schema %u: up to date\n", to);
    else
        printf("schema %u %s %u\n", from, dry_run ? "would become" : "became", to);
    return 0;
}
