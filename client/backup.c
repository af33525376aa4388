/* admin backup: a copy of the daemon's database, here. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/admin.h"
#include "client/print.h"
#include "common/base/digest.h"

/* The file beside FILE that is written to until it is whole. */
struct partial {
    const char *target;
    char *path;
    int fd;
};

static enum bp_exit open_partial(struct partial *partial)
{
    if (asprintf(&partial->path, "%s.partial-XXXXXX", partial->target) < 0) {
        partial->path = NULL;
        return bp_complain(BP_EXIT_LOCAL, "out of memory");
    }
    partial->fd = mkostemp(partial->path, O_CLOEXEC); /* of mode 0600 */
    if (partial->fd >= 0)
        return BP_EXIT_YES;
    enum bp_exit status = bp_complain(BP_EXIT_LOCAL, "cannot write %s: %s", partial->path, strerror(errno));
    free(partial->path);
    partial->path = NULL;
    return status;
}

static void remove_partial(struct partial *partial)
{
    if (!partial->path)
        return;
    if (partial->fd >= 0)
        close(partial->fd);
    unlink(partial->path);
    free(partial->path);
    partial->path = NULL;
}

/* What stands in the file, once it is on disk, must be what the daemon has. */
static enum bp_exit check_partial(const struct partial *partial, const char *expected)
{
    struct stat status;
    char actual[BP_DIGEST_TEXT] = "";
    if (fsync(partial->fd) || fstat(partial->fd, &status))
        return bp_complain(BP_EXIT_LOCAL, "cannot write %s: %s", partial->path, strerror(errno));
    void *bytes =
        status.st_size ? mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, partial->fd, 0) : MAP_FAILED;
    if (bytes != MAP_FAILED) {
        struct bp_digest digest;
        bp_digest_of(bytes, (size_t)status.st_size, &digest);
        bp_digest_format(&digest, actual);
        munmap(bytes, (size_t)status.st_size);
    }
    if (strcmp(actual, expected) != 0)
        return bp_complain(BP_EXIT_LOCAL, "what arrived is not the backup: its digest is %s, not %s", actual, expected);
    return BP_EXIT_YES;
}

static int sync_directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *directory = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    int fd = directory ? open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    int failed = fd < 0 || fsync(fd);
    if (fd >= 0)
        close(fd);
    free(directory);
    return failed ? -1 : 0;
}

/* Gives the file its name: of nobody else's file, unless that is meant. */
static enum bp_exit name_partial(struct partial *partial, bool may_replace)
{
    int failed = may_replace ? rename(partial->path, partial->target) : link(partial->path, partial->target);
    if (failed && errno == EEXIST)
        return bp_complain(BP_EXIT_USAGE, "%s is there already; --force replaces it", partial->target);
    if (failed || sync_directory_of(partial->target))
        return bp_complain(BP_EXIT_LOCAL, "cannot write %s: %s", partial->target, strerror(errno));
    if (may_replace) {
        close(partial->fd);
        free(partial->path);
        partial->path = NULL;
    }
    return BP_EXIT_YES;
}

/* Waits until the daemon has made and verified it; `*ret` is how it stands then. */
static enum bp_exit wait_for_backup(const struct bp_invocation *invocation, json_t **ret)
{
    unsigned ms = 0;
    for (;;) {
        const char *state = bp_json_text(*ret, "state");
        if (strcmp(state, "ready") == 0 || strcmp(state, "failed") == 0)
            break;
        bp_admin_progress(state, json_object_get(*ret, "pages"), json_object_get(*ret, "all_pages"));
        bp_admin_wait(&ms);
        json_t *next;
        enum bp_exit status =
            bp_admin_ask(invocation, "GET", "/v1/admin/backups/{0}", bp_json_text(*ret, "id"), NULL, &next);
        if (status != BP_EXIT_YES)
            return status;
        json_decref(*ret);
        *ret = next;
    }
    bp_admin_progress("", NULL, NULL);
    const json_t *problem = json_object_get(*ret, "problem");
    if (!problem)
        return BP_EXIT_YES;
    return bp_complain(BP_EXIT_NO, "the backup failed: %s: %s", bp_json_text(problem, "code"),
                       bp_json_text(problem, "message"));
}

static enum bp_exit fetch(const struct bp_invocation *invocation, const char *id, const struct partial *partial)
{
    struct bp_buf target = {0};
    struct bp_reply answer = {0};
    struct bp_err err = {0};
    bp_buf_addstr(&target, "/v1/admin/backups/");
    bp_target_escape(&target, id);
    bp_buf_addstr(&target, "/file");
    int failed = bp_server_fetch(invocation->server, bp_buf_string(&target), partial->fd, &answer, &err);
    bp_buf_release(&target);
    if (failed)
        return bp_complain(err.code == BP_E_network_failed ? BP_EXIT_UNREACHED : BP_EXIT_LOCAL, "%s", err.message);
    if (answer.status != 200)
        return bp_reply_print(invocation, &answer, NULL);
    bp_buf_release(&answer.body);
    return BP_EXIT_YES;
}

static enum bp_exit take_backup(const struct bp_invocation *invocation, struct partial *partial, json_t **ret)
{
    json_t *dropped = NULL;
    enum bp_exit status = bp_admin_ask(invocation, "POST", "/v1/admin/backups", NULL, NULL, ret);
    if (status == BP_EXIT_YES)
        status = wait_for_backup(invocation, ret);
    if (status == BP_EXIT_YES)
        status = fetch(invocation, bp_json_text(*ret, "id"), partial);
    if (status == BP_EXIT_YES)
        status = check_partial(partial, bp_json_text(*ret, "digest"));
    /* It is here: the daemon need not keep it. */
    if (status == BP_EXIT_YES)
        status = bp_admin_ask(invocation, "DELETE", "/v1/admin/backups/{0}", bp_json_text(*ret, "id"), NULL, &dropped);
    json_decref(dropped);
    return status;
}

enum bp_exit bp_run_backup(const struct bp_invocation *invocation)
{
    bool may_replace = bp_invocation_option(invocation, "force") != NULL;
    struct partial partial = {.target = invocation->arguments[0], .fd = -1};
    struct stat there;
    json_t *backup = NULL;
    if (!may_replace && lstat(partial.target, &there) == 0)
        return bp_complain(BP_EXIT_USAGE, "%s is there already; --force replaces it", partial.target);
    enum bp_exit status = open_partial(&partial);
    if (status == BP_EXIT_YES)
        status = take_backup(invocation, &partial, &backup);
    if (status == BP_EXIT_YES)
        status = name_partial(&partial, may_replace);
    remove_partial(&partial);
    if (status == BP_EXIT_YES)
        status = bp_admin_print(invocation, backup);
    json_decref(backup);
    return status;
}

enum bp_exit bp_print_backup(struct bp_buf *out, const json_t *answer)
{
    bp_print_field(out, "made", json_object_get(answer, "created_at"));
    bp_print_field(out, "bytes", json_object_get(answer, "bytes"));
    bp_print_field(out, "digest", json_object_get(answer, "digest"));
    return BP_EXIT_YES;
}
