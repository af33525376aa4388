/* Whether the write-ahead log that was left behind can be read as far as it was acknowledged.
 *
 * SQLite takes a log as far as its checksums hold and drops the rest without a word, as it must after a crash: what
 * follows may never have been synced. But each commit is synced before the next one begins, so behind the first frame
 * that does not hold there can be the mark of one commit at most. Two are proof that what was on disk has been damaged,
 * and that commits which were acknowledged would be dropped. The same is true of frames behind a header that does not
 * hold: it is synced before any of them. (The log can be opened here: SQLite's locks are on other files.) */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/store/internal.h"

enum { HEADER = 32, FRAME_HEADER = 24, PAGE_MIN = 512, PAGE_MAX = 65536 };
static const uint32_t magic = UINT32_C(0x377f0682); /* its last bit: the words of checksums are big-endian */

struct log {
    FILE *file;
    bool big_endian;
    uint32_t page_size, sums[2];
    unsigned char salts[8];
    unsigned char frame[FRAME_HEADER + PAGE_MAX];
};

static uint32_t big(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint32_t little(const unsigned char *at)
{
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

static void add_sums(struct log *log, const unsigned char *bytes, size_t n)
{
    uint32_t (*const word)(const unsigned char *) = log->big_endian ? big : little;
    for (size_t i = 0; i + 8 <= n; i += 8) {
        log->sums[0] += word(bytes + i) + log->sums[1];
        log->sums[1] += word(bytes + i + 4) + log->sums[0];
    }
}

static bool sums_are(const struct log *log, const unsigned char *at)
{
    return log->sums[0] == big(at) && log->sums[1] == big(at + 4);
}

static bool header_holds(struct log *log, const unsigned char header[HEADER])
{
    log->big_endian = header[3] & 1;
    log->page_size = big(header + 8);
    memcpy(log->salts, header + 16, sizeof log->salts);
    add_sums(log, header, HEADER - 8);
    return (big(header) & ~UINT32_C(1)) == magic && log->page_size >= PAGE_MIN && log->page_size <= PAGE_MAX &&
           (log->page_size & (log->page_size - 1)) == 0 && sums_are(log, header + HEADER - 8);
}

static bool frame_is_ours(const struct log *log)
{
    return memcmp(log->frame + 8, log->salts, sizeof log->salts) == 0 && big(log->frame) != 0;
}

static bool frame_holds(struct log *log)
{
    add_sums(log, log->frame, 8);
    add_sums(log, log->frame + FRAME_HEADER, log->page_size);
    return frame_is_ours(log) && sums_are(log, log->frame + 16);
}

/* How many commits are marked from the first frame on that does not hold, and which that is. */
static unsigned long count_unreadable(struct log *log, unsigned long *ret_frame)
{
    const size_t n = FRAME_HEADER + log->page_size;
    unsigned long frames = 0, unreadable = 0;
    bool holds = true;
    for (; fread(log->frame, 1, n, log->file) == n; frames++) {
        if (holds && !(holds = frame_holds(log)))
            *ret_frame = frames;
        if (!holds && frame_is_ours(log) && big(log->frame + 4) != 0)
            unreadable++;
    }
    return unreadable;
}

static int check(struct log *log, const char *path, bool has_database, struct bp_err *err)
{
    unsigned char header[HEADER];
    unsigned long frame = 0;
    if (fread(header, 1, 1, log->file) == 1 && !has_database) /* SQLite would delete it */
        return bp_fail(err, BP_E_storage_failed, "",
                       "%s: there is a write-ahead log, but its database is empty or gone; it is left as it is", path);
    rewind(log->file);
    if (fread(header, 1, HEADER, log->file) == HEADER) {
        if (!header_holds(log, header)) {
            if (fread(log->frame, 1, FRAME_HEADER + PAGE_MIN, log->file) == FRAME_HEADER + PAGE_MIN)
                return bp_fail(err, BP_E_storage_failed, "",
                               "%s: the head of the write-ahead log is damaged, and what is in it cannot be read; it "
                               "is left as it is",
                               path);
        } else if (count_unreadable(log, &frame) > 1) {
            return bp_fail(err, BP_E_storage_failed, "",
                           "%s: the write-ahead log is damaged at frame %lu, with commits behind it that cannot be "
                           "read; it is left as it is",
                           path, frame + 1);
        }
    }
    return ferror(log->file) ? bp_fail(err, BP_E_storage_failed, "", "%s: %s", path, strerror(errno)) : 0;
}

int bp_store_check_log(const char *real_path, struct bp_err *err)
{
    struct stat status;
    bool has_database = stat(real_path, &status) == 0 && status.st_size > 0;
    char *path = NULL;
    struct log *log = calloc(1, sizeof *log);
    int result = -1;
    if (!log || asprintf(&path, "%s-wal", real_path) < 0) {
        path = NULL;
        bp_fail(err, BP_E_out_of_memory, "", "no memory to read the write-ahead log");
    } else if ((log->file = fopen(path, "rbe"))) {
        result = check(log, path, has_database, err);
        fclose(log->file);
    } else {
        result = errno == ENOENT ? 0 : bp_fail(err, BP_E_storage_failed, "", "%s: %s", path, strerror(errno));
    }
    free(path);
    free(log);
    return result;
}
