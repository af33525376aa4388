/* One daemon per database: an open file description lock on FILE.lock, which says who has it, and one on a byte of the
 * file itself far from SQLite's, since a file can be reached by names that have other locks (mounted elsewhere), and a
 * lock can be removed. Any close of the file in the process drops the locks that SQLite has on it: so it is opened
 * before SQLite does and closed after. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/store/internal.h"

/* Of a file that is not there yet: its directory's real path and its own name. */
static char *real_path_of_new(const char *path, struct bp_err *err)
{
    struct stat status;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!*name || lstat(path, &status) == 0) {
        bp_fail(err, BP_E_storage_failed, "", "%s: %s", path, *name ? "a link to nothing" : "not the name of a file");
        return NULL;
    }
    char *directory = slash ? strndup(path, (size_t)(slash - path + 1)) : strdup(".");
    char *real = directory ? realpath(directory, NULL) : NULL, *joined = NULL;
    if (real && asprintf(&joined, "%s/%s", strcmp(real, "/") == 0 ? "" : real, name) < 0)
        joined = NULL;
    if (!joined)
        bp_fail(err, errno == ENOMEM ? BP_E_out_of_memory : BP_E_storage_failed, "", "%s: %s", path, strerror(errno));
    free(directory);
    free(real);
    return joined;
}

char *bp_store_real_path(const char *path, struct bp_err *err)
{
    char *real = realpath(path, NULL);
    if (real)
        return real;
    if (errno == ENOENT)
        return real_path_of_new(path, err);
    bp_fail(err, errno == ENOMEM ? BP_E_out_of_memory : BP_E_storage_failed, "", "%s: %s", path, strerror(errno));
    return NULL;
}

/* Who holds the lock, as it wrote itself down. */
static int fail_held(int fd, const char *path, struct bp_err *err)
{
    char pid[32] = "";
    ssize_t n = pread(fd, pid, sizeof pid - 1, 0);
    pid[n > 0 ? n : 0] = '\0';
    pid[strspn(pid, "0123456789")] = '\0';
    if (*pid)
        return bp_fail(err, BP_E_database_locked, "", "%s: process %s holds this database", path, pid);
    return bp_fail(err, BP_E_database_locked, "", "%s: another process holds this database", path);
}

static int take(int fd, const char *path, struct bp_err *err)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_SETLK, &whole) < 0) {
        if (errno == EAGAIN || errno == EACCES)
            return fail_held(fd, path, err);
        return bp_fail(err, BP_E_storage_failed, "", "%s: %s", path, strerror(errno));
    }
    char pid[32];
    int n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t)n, 0) != n)
        return bp_fail(err, BP_E_storage_failed, "", "%s: %s", path, strerror(errno));
    return 0;
}

static int take_lock(const char *real_path, int *ret_fd, struct bp_err *err)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s.lock", real_path) >= sizeof path)
        return bp_fail(err, BP_E_storage_failed, "", "%s: the path is too long", real_path);
    /* The file stays when the lock is given back: removing it would let two holders lock two files of one name. */
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return bp_fail(err, BP_E_storage_failed, "", "%s: %s", path, strerror(errno));
    if (take(fd, path, err) < 0) {
        close(fd);
        return -1;
    }
    *ret_fd = fd;
    return 0;
}

int bp_store_hold_file(const char *real_path, struct bp_store_hold *hold, struct bp_err *err)
{
    struct flock byte = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = INT64_C(1) << 62, .l_len = 1};
    struct stat status;
    /* What is no file or cannot be written to is refused later, with better words. */
    if (hold->file >= 0 || stat(real_path, &status) || !S_ISREG(status.st_mode))
        return 0;
    int fd = open(real_path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return 0;
    if (fcntl(fd, F_OFD_SETLK, &byte) < 0) {
        int failure = errno;
        close(fd);
        if (failure == EAGAIN || failure == EACCES)
            return bp_fail(err, BP_E_database_locked, "",
                           "%s: another process holds this database, by another name or with its lock removed",
                           real_path);
        return bp_fail(err, BP_E_storage_failed, "", "%s: %s", real_path, strerror(failure));
    }
    hold->file = fd;
    return 0;
}

int bp_store_hold(const char *real_path, struct bp_store_hold *ret, struct bp_err *err)
{
    struct bp_store_hold hold = {-1, -1};
    struct stat status;
    /* A database of two names has two locks, and two logs that destroy it. */
    if (stat(real_path, &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink > 1)
        return bp_fail(err, BP_E_storage_failed, "", "%s: it has another name, a hard link, by which it may be in use",
                       real_path);
    if (take_lock(real_path, &hold.lock, err) < 0)
        return -1;
    if (bp_store_hold_file(real_path, &hold, err) < 0) {
        bp_store_let_go(&hold);
        return -1;
    }
    *ret = hold;
    return 0;
}

void bp_store_let_go(struct bp_store_hold *hold)
{
    if (hold->file >= 0)
        close(hold->file);
    if (hold->lock >= 0)
        close(hold->lock);
    *hold = (struct bp_store_hold){-1, -1};
}

bool bp_store_is_in_place(const char *real_path, const struct bp_store_hold *hold)
{
    struct stat named, held;
    return hold->file < 0 || (stat(real_path, &named) == 0 && fstat(hold->file, &held) == 0 &&
                              named.st_dev == held.st_dev && named.st_ino == held.st_ino);
}
