#include "daemon/access/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int judge(const char *path, const struct stat *status, enum bp_secrecy secrecy, struct bp_err *err)
{
    const mode_t forbidden = S_IWGRP | S_IWOTH | (secrecy == BP_FILE_SECRET ? S_IROTH : 0);
    if (!S_ISREG(status->st_mode))
        return bp_fail(err, BP_E_config_invalid, path, "is not a regular file");
    if (status->st_uid != 0 && status->st_uid != geteuid())
        return bp_fail(err, BP_E_config_invalid, path, "belongs to the user %u; it must be root's or the daemon's own",
                       (unsigned)status->st_uid);
    if (status->st_mode & forbidden)
        return bp_fail(err, BP_E_config_invalid, path, "has mode %03o; %s", (unsigned)(status->st_mode & 0777),
                       secrecy == BP_FILE_SECRET ? "others may not read it, nor group or others write it: 0600 or 0640"
                                                 : "neither group nor others may write it: 0644 at most");
    return 0;
}

static int read_all(int fd, const char *path, struct bp_buf *ret, struct bp_err *err)
{
    ssize_t n = 1;
    while (n > 0 && ret->len <= BP_FILE_MAX) {
        if (!bp_buf_reserve(ret, 4096))
            return bp_fail(err, BP_E_out_of_memory, path, "no memory to read it");
        n = read(fd, ret->data + ret->len, 4096);
        if (n > 0)
            ret->len += (size_t)n;
        else if (n < 0 && errno == EINTR)
            n = 1;
    }
    if (n < 0)
        return bp_fail(err, BP_E_config_invalid, path, "cannot be read: %s", strerror(errno));
    if (ret->len > BP_FILE_MAX)
        return bp_fail(err, BP_E_config_invalid, path, "is larger than %zu bytes", BP_FILE_MAX);
    return 0;
}

int bp_secret_read(const char *path, enum bp_secrecy secrecy, struct bp_buf *ret, struct bp_err *err)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return bp_fail(err, BP_E_config_invalid, path, "cannot be opened: %s", strerror(errno));
    int result;
    if (fstat(fd, &status))
        result = bp_fail(err, BP_E_config_invalid, path, "cannot be looked at: %s", strerror(errno));
    else
        result = judge(path, &status, secrecy, err);
    if (result == 0)
        result = read_all(fd, path, ret, err);
    close(fd);
    return result;
}

void bp_secret_release(struct bp_buf *secret)
{
    if (secret->data)
        explicit_bzero(secret->data, secret->len);
    bp_buf_release(secret);
}
