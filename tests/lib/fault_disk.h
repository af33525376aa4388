/* What a disk has of a file, beside what the kernel says the file holds: see fault_vfs_disk_begin. No locks. */
#ifndef BP_TESTS_FAULT_DISK_H
#define BP_TESTS_FAULT_DISK_H

#include <stdbool.h>
#include <stddef.h>

struct fault_disk;

/* Starts with the file's contents as they are; of one that is absent or cannot be read, none. */
struct fault_disk *fault_disk_new(const char *path);
void fault_disk_free(struct fault_disk *disk); /* NULL does nothing */
const char *fault_disk_path(const struct fault_disk *disk);

void fault_disk_write(struct fault_disk *disk, const void *bytes, size_t n, size_t offset);
void fault_disk_truncate(struct fault_disk *disk, size_t size);

/* What was written is durable; or is lost, as of a sync that failed. */
void fault_disk_sync(struct fault_disk *disk, bool lost);

/* The file, if it is still there, becomes what is durable and a part of the rest, which `random` chooses. */
void fault_disk_cut(struct fault_disk *disk, unsigned short random[3]);

#endif
