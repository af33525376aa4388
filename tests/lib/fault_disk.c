#include "tests/lib/fault_disk.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A change that is not durable yet; `bytes` NULL: the file's size became `offset`. */
struct change {
    unsigned char *bytes;
    size_t n, offset;
};

struct fault_disk {
    char path[512];
    unsigned char *durable;
    size_t size, allocated;
    struct change *changes;
    size_t n_changes, changes_allocated;
};

static void resize(struct fault_disk *disk, size_t size)
{
    if (size > disk->allocated) {
        disk->allocated = 2 * size;
        disk->durable = realloc(disk->durable, disk->allocated);
        ck_assert_ptr_nonnull(disk->durable);
    }
    if (size > disk->size)
        memset(disk->durable + disk->size, 0, size - disk->size);
    disk->size = size;
}

struct fault_disk *fault_disk_new(const char *path)
{
    struct fault_disk *disk = calloc(1, sizeof *disk);
    ck_assert_ptr_nonnull(disk);
    snprintf(disk->path, sizeof disk->path, "%s", path);
    FILE *file = fopen(path, "rb");
    unsigned char block[65536];
    for (size_t n; file && (n = fread(block, 1, sizeof block, file)) > 0;) {
        size_t at = disk->size;
        resize(disk, at + n);
        memcpy(disk->durable + at, block, n);
    }
    if (file)
        fclose(file);
    return disk;
}

static void forget_changes(struct fault_disk *disk)
{
    for (size_t i = 0; i < disk->n_changes; i++)
        free(disk->changes[i].bytes);
    disk->n_changes = 0;
}

void fault_disk_free(struct fault_disk *disk)
{
    if (!disk)
        return;
    forget_changes(disk);
    free(disk->changes);
    free(disk->durable);
    free(disk);
}

const char *fault_disk_path(const struct fault_disk *disk)
{
    return disk->path;
}

static struct change *add_change(struct fault_disk *disk)
{
    if (disk->n_changes == disk->changes_allocated) {
        disk->changes_allocated = disk->changes_allocated ? 2 * disk->changes_allocated : 64;
        disk->changes = realloc(disk->changes, disk->changes_allocated * sizeof *disk->changes);
        ck_assert_ptr_nonnull(disk->changes);
    }
    return &disk->changes[disk->n_changes++];
}

void fault_disk_write(struct fault_disk *disk, const void *bytes, size_t n, size_t offset)
{
    struct change *change = add_change(disk);
    *change = (struct change){.bytes = malloc(n ? n : 1), .n = n, .offset = offset};
    ck_assert_ptr_nonnull(change->bytes);
    memcpy(change->bytes, bytes, n);
}

void fault_disk_truncate(struct fault_disk *disk, size_t size)
{
    *add_change(disk) = (struct change){.offset = size};
}

/* The first `n` bytes of it. */
static void apply(struct fault_disk *disk, const struct change *change, size_t n)
{
    if (!change->bytes) {
        resize(disk, change->offset);
        return;
    }
    if (change->offset + n > disk->size)
        resize(disk, change->offset + n);
    memcpy(disk->durable + change->offset, change->bytes, n);
}

void fault_disk_sync(struct fault_disk *disk, bool lost)
{
    for (size_t i = 0; !lost && i < disk->n_changes; i++)
        apply(disk, &disk->changes[i], disk->changes[i].n);
    forget_changes(disk);
}

static void apply_some(struct fault_disk *disk, unsigned short random[3])
{
    const long part = nrand48(random) % 3; /* of the writes: none, half, nearly all */
    for (size_t i = 0; i < disk->n_changes; i++) {
        const struct change *change = &disk->changes[i];
        size_t n = change->n;
        if (part == 0 || nrand48(random) % (part == 1 ? 2 : 16) == 0) {
            if (nrand48(random) % 2 || !change->bytes)
                continue;
            n = n / 512 ? (size_t)nrand48(random) % (n / 512) * 512 : 0;
        }
        if (n > 0 || !change->bytes)
            apply(disk, change, n);
    }
    forget_changes(disk);
}

void fault_disk_cut(struct fault_disk *disk, unsigned short random[3])
{
    apply_some(disk, random);
    int fd = open(disk->path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    for (size_t at = 0; at < disk->size;) {
        ssize_t n = pwrite(fd, disk->durable + at, disk->size - at, (off_t)at);
        ck_assert_int_gt(n, 0);
        at += (size_t)n;
    }
    close(fd);
}
