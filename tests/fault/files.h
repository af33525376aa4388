/* The files of a database as bytes: kept, compared, damaged, put on a file system of the test's own. */
#ifndef BP_TESTS_FAULT_FILES_H
#define BP_TESTS_FAULT_FILES_H

#include <stdbool.h>
#include <stddef.h>

/* A file's bytes; `bytes` NULL when it is not there. */
struct kept {
    char path[256];
    unsigned char *bytes;
    size_t n;
};

struct kept keep_file(const char *path);
void kept_release(struct kept *kept);

/* The file must be as it was kept; one that was not there may be there without a byte. */
void expect_unchanged(const struct kept *kept);

size_t file_size(const char *path); /* 0 when it is not there */
void copy_file(const char *from, const char *to);
void write_file(const char *path, const void *bytes, size_t n);
void overwrite(const char *path, size_t offset, const void *bytes, size_t n);
void flip(const char *path, size_t offset); /* every bit of a byte, so that it is another, whatever it was */

/* A file that takes up what room its file system has, all but so many bytes. */
void fill_up(const char *path, size_t but);

/* Mounts, seen by this process and its children alone. False, with a word on why to standard output, where that is not
 * allowed: the test then has nothing to stand on. */
bool own_mounts(void);
void mount_memory(const char *directory, size_t bytes);
void remount_read_only(const char *directory);
void bind_read_only(const char *file);
void unmount(const char *directory); /* with what is mounted below it */

#endif
