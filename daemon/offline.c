#include "daemon/offline.h"

#include <stdio.h>
#include <string.h>

#include "daemon/access/tokens.h"
#include "daemon/service/verify.h"

static void print_defect(void *data, const struct bp_store_defect *defect)
{
    (void)data;
    printf("defect  %s  %s%s%s\n", defect->table, defect->key, *defect->key ? "  " : "", defect->reason);
}

int bp_offline_verify(const char *database, struct bp_err *err)
{
    const struct bp_store_verifier verifier = {.defect = print_defect};
    struct bp_store_verified done;
    if (bp_service_verify(database, &verifier, &done, err))
        return -1;
    const struct {
        const char *name;
        uint64_t n;
    } rows[] = {
        {"plans", done.plans}, {"snapshots", done.snapshots}, {"derivations", done.derivations},
        {"edges", done.edges}, {"evidence", done.evidence},   {"replays", done.replays},
        {"jobs", done.jobs},   {"audit", done.audit},         {"defects", done.defects},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        printf("%-12s %llu\n", rows[i].name, (unsigned long long)rows[i].n);
    return done.defects > 0;
}

int bp_offline_migrate(const char *database, bool dry_run, struct bp_err *err)
{
    unsigned from, to;
    if (bp_store_migrate(database, dry_run, &from, &to, err))
        return -1;
    if (from == to)
        printf("schema %u: up to date\n", to);
    else if (from == 0)
        printf("there %s no database %s: one of schema %u %s\n", dry_run ? "is" : "was", database, to,
               dry_run ? "would be made" : "was made");
    else
        printf("schema %u %s %u\n", from, dry_run ? "would become" : "became", to);
    return 0;
}

int bp_offline_new_token(const char *name, struct bp_err *err)
{
    char token[BP_TOKEN_TEXT], hash[BP_DIGEST_TEXT];
    struct bp_digest digest;
    if (bp_token_make(token, err))
        return -1;
    bp_digest_of(token, strlen(token), &digest);
    bp_digest_format(&digest, hash);
    bool printed = printf("token  %s\nline   %s read,plan %s\n", token, name, hash) >= 0 && fflush(stdout) == 0;
    explicit_bzero(token, sizeof token);
    return printed ? 0 : bp_fail(err, BP_E_internal, "", "the token could not be printed");
}
