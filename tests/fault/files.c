#include "tests/fault/files.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct kept keep_file(const char *path)
{
    struct kept kept = {.n = file_size(path)};
    snprintf(kept.path, sizeof kept.path, "%s", path);
    FILE *file = fopen(path, "rb");
    if (!file)
        return kept;
    kept.bytes = malloc(kept.n + 1);
    ck_assert_ptr_nonnull(kept.bytes);
    ck_assert_uint_eq(fread(kept.bytes, 1, kept.n, file), kept.n);
    kept.bytes[kept.n] = '\0';
    fclose(file);
    return kept;
}

void kept_release(struct kept *kept)
{
    free(kept->bytes);
    kept->bytes = NULL;
}

void expect_unchanged(const struct kept *kept)
{
    struct kept now = keep_file(kept->path);
    ck_assert_msg(now.bytes || !kept->bytes, "%s was deleted", kept->path);
    ck_assert_msg(now.n == kept->n && (!now.n || memcmp(now.bytes, kept->bytes, now.n) == 0),
                  "%s was changed: %zu bytes, then %zu", kept->path, kept->n, now.n);
    kept_release(&now);
}

size_t file_size(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) ? (size_t)status.st_size : 0;
}

void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
    ck_assert_uint_eq(fwrite(bytes, 1, n, file), n);
    ck_assert_int_eq(fclose(file), 0);
}

void copy_file(const char *from, const char *to)
{
    struct kept kept = keep_file(from);
    ck_assert_ptr_nonnull(kept.bytes);
    write_file(to, kept.bytes, kept.n);
    kept_release(&kept);
}

void overwrite(const char *path, size_t offset, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, bytes, n, (off_t)offset), (ssize_t)n);
    close(fd);
}

void flip(const char *path, size_t offset)
{
    unsigned char byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pread(fd, &byte, 1, (off_t)offset), 1);
    byte ^= 0xff;
    ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)offset), 1);
    close(fd);
}

void fill_up(const char *path, size_t but)
{
    static const char block[4096] = {1};
    struct statvfs room;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    while (fstatvfs(fd, &room) == 0 && room.f_bavail * room.f_frsize > but && write(fd, block, sizeof block) > 0)
        ;
    close(fd);
}

bool own_mounts(void)
{
    if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
        return true;
    printf("left out, for nothing may be mounted here: %s\n", strerror(errno));
    fflush(stdout);
    return false;
}

void mount_memory(const char *directory, size_t bytes)
{
    char options[64];
    snprintf(options, sizeof options, "size=%zu", bytes);
    ck_assert_int_eq(mkdir(directory, 0700), 0);
    ck_assert_msg(mount("none", directory, "tmpfs", 0, options) == 0, "%s", strerror(errno));
}

void remount_read_only(const char *directory)
{
    ck_assert_msg(mount(NULL, directory, NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0, "%s", strerror(errno));
}

void unmount(const char *directory)
{
    ck_assert_msg(umount2(directory, MNT_DETACH) == 0, "%s", strerror(errno));
}

void bind_read_only(const char *file)
{
    ck_assert_msg(mount(file, file, NULL, MS_BIND, NULL) == 0, "%s", strerror(errno));
    ck_assert_msg(mount(NULL, file, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) == 0, "%s", strerror(errno));
}
