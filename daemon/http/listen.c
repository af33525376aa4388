#include "daemon/http/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

void bp_listen_name(int listener, char ret[BP_LISTEN_NAME])
{
    struct sockaddr_storage bound = {0};
    socklen_t size = sizeof bound;
    char host[INET6_ADDRSTRLEN] = "";
    bool is_v6 = getsockname(listener, (struct sockaddr *)&bound, &size) == 0 && bound.ss_family == AF_INET6;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&bound;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&bound;
    inet_ntop(bound.ss_family, is_v6 ? (const void *)&v6->sin6_addr : (const void *)&v4->sin_addr, host, sizeof host);
    snprintf(ret, BP_LISTEN_NAME, is_v6 ? "[%s]:%u" : "%s:%u", host, ntohs(is_v6 ? v6->sin6_port : v4->sin_port));
}

int bp_listen_tcp(const struct sockaddr *address, socklen_t size, int *ret, struct bp_err *err)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return bp_fail(err, BP_E_network_failed, "", "no socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(fd, address, size) || listen(fd, 1024)) {
        bp_fail(err, BP_E_network_failed, "", "the address cannot be listened on: %s", strerror(errno));
        close(fd);
        return -1;
    }
    *ret = fd;
    return 0;
}

static int remove_stale(const struct sockaddr_un *address, struct bp_err *err)
{
    struct stat status;
    if (lstat(address->sun_path, &status))
        return 0;
    int probe = S_ISSOCK(status.st_mode) ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    bool stale =
        probe >= 0 && connect(probe, (const struct sockaddr *)address, sizeof *address) != 0 && errno == ECONNREFUSED;
    if (probe >= 0)
        close(probe);
    if (!stale || unlink(address->sun_path))
        return bp_fail(err, BP_E_network_failed, "", "%s is there already and in use", address->sun_path);
    return 0;
}

int bp_listen_unix(const char *path, int *ret, struct stat *ret_made, struct bp_err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (remove_stale(&address, err))
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* The mode is that of the file bind makes: nobody may connect in between. */
    mode_t before = umask(0117);
    bool bound = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    umask(before);
    bound = bound && lstat(path, ret_made) == 0;
    if (!bound || listen(fd, 1024)) {
        bp_fail(err, BP_E_network_failed, "", "%s cannot be listened on: %s", path, strerror(errno));
        if (bound)
            unlink(path);
        if (fd >= 0)
            close(fd);
        return -1;
    }
    *ret = fd;
    return 0;
}

void bp_listen_unlink(const char *path, const struct stat *made)
{
    struct stat status;
    if (lstat(path, &status) == 0 && status.st_dev == made->st_dev && status.st_ino == made->st_ino)
        unlink(path);
}
