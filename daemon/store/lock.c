/* One daemon per database: an open file description lock on FILE.lock, never on the database itself, whose locks are
 * SQLite's and are dropped by any close of it in the process. */
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

int bp_store_lock(const char *real_path, int *ret_fd, struct bp_err *err)
{
    char path[PATH_MAX];
    struct stat status;
    /* A database of two names has two locks, and two logs that destroy it. */
    if (stat(real_path, &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink > 1)
        return bp_fail(err, BP_E_storage_failed, "", "%s: it has another name, a hard link, by which it may be in use",
                       real_path);
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
