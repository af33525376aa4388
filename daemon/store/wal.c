/* Whether the write-ahead log that was left behind can be read as far as it was acknowledged.
 *
 * SQLite takes a log as far as its checksums hold and drops the rest without a word, as it must after a crash: what
 * follows may never have been synced. But each commit is synced before the next one begins, so behind the first frame
 * that does not hold there can be the mark of one commit at most. Two are proof that what was on disk has been damaged,
 * and that commits which were acknowledged would be dropped. The same is true of frames behind a header that does not
 * hold, for it is synced before any of them, unless they are those of a log before it, which was brought home and whose
 * truncation was lost with the power: then the database has all that they have. (Both files can be opened here: SQLite
 * has none of its locks yet.) */
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
    unsigned char frame[FRAME_HEADER + PAGE_MAX], page[PAGE_MAX];
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

static bool is_page_size(uint32_t n)
{
    return n >= PAGE_MIN && n <= PAGE_MAX && (n & (n - 1)) == 0;
}

static bool header_holds(struct log *log, const unsigned char header[HEADER])
{
    log->big_endian = header[3] & 1;
    log->page_size = big(header + 8);
    memcpy(log->salts, header + 16, sizeof log->salts);
    add_sums(log, header, HEADER - 8);
    return (big(header) & ~UINT32_C(1)) == magic && is_page_size(log->page_size) && sums_are(log, header + HEADER - 8);
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

static bool read_frame(struct log *log, long frame)
{
    const size_t n = FRAME_HEADER + log->page_size;
    return fseek(log->file, HEADER + frame * (long)n, SEEK_SET) == 0 && fread(log->frame, 1, n, log->file) == n;
}

/* The last of them, from 1 on, that marks a commit, and how many pages the database has with it; 0: none does. */
static long last_commit(struct log *log, uint32_t *ret_pages)
{
    long last = 0;
    for (long i = 0; read_frame(log, i); i++)
        if (big(log->frame + 4) != 0) {
            last = i + 1;
            *ret_pages = big(log->frame + 4);
        }
    return last;
}

static bool page_is_of_frame(struct log *log, FILE *database, uint32_t page)
{
    return fseek(database, (long)(page - 1) * (long)log->page_size, SEEK_SET) == 0 &&
           fread(log->page, 1, log->page_size, database) == log->page_size &&
           memcmp(log->page, log->frame + FRAME_HEADER, log->page_size) == 0;
}

/* Whether the database has, of each page that the commits in the log wrote, what the last of them wrote. */
static bool is_brought_home(struct log *log, FILE *database)
{
    unsigned char head[18];
    uint32_t pages = 0;
    if (fread(head, 1, sizeof head, database) != sizeof head)
        return false;
    log->page_size = head[16] == 0 && head[17] == 1 ? PAGE_MAX : (uint32_t)head[16] << 8 | head[17];
    if (!is_page_size(log->page_size))
        return false;
    const long last = last_commit(log, &pages);
    unsigned char *seen = calloc((size_t)pages / 8 + 1, 1);
    bool is_home = seen != NULL;
    for (long i = last; i-- > 0 && is_home;) {
        is_home = read_frame(log, i) && big(log->frame) != 0;
        const uint32_t page = big(log->frame);
        if (!is_home || page > pages || seen[page / 8] & 1U << page % 8)
            continue;
        seen[page / 8] |= (unsigned char)(1U << page % 8);
        is_home = page_is_of_frame(log, database, page);
    }
    free(seen);
    return is_home;
}

/* Frames behind a header that does not hold. */
static bool is_left_over(struct log *log, const char *real_path)
{
    FILE *database = fopen(real_path, "rbe");
    const bool is = database && is_brought_home(log, database);
    if (database)
        fclose(database);
    return is;
}

static int check(struct log *log, const char *path, const char *real_path, struct bp_err *err)
{
    struct stat status;
    const bool has_database = stat(real_path, &status) == 0 && status.st_size > 0;
    unsigned char header[HEADER];
    unsigned long frame = 0;
    if (fread(header, 1, 1, log->file) == 1 && !has_database) /* SQLite would delete it */
        return bp_fail(err, BP_E_storage_failed, "",
                       "%s: there is a write-ahead log, but its database is empty or gone; it is left as it is", path);
    rewind(log->file);
    if (fread(header, 1, HEADER, log->file) == HEADER) {
        if (!header_holds(log, header)) {
            if (fread(log->frame, 1, FRAME_HEADER + PAGE_MIN, log->file) == FRAME_HEADER + PAGE_MIN &&
                !is_left_over(log, real_path))
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
    char *path = NULL;
    struct log *log = calloc(1, sizeof *log);
    int result = -1;
    if (!log || asprintf(&path, "%s-wal", real_path) < 0) {
        path = NULL;
        bp_fail(err, BP_E_out_of_memory, "", "no memory to read the write-ahead log");
    } else if ((log->file = fopen(path, "rbe"))) {
        result = check(log, path, real_path, err);
        fclose(log->file);
    } else {
        result = errno == ENOENT ? 0 : bp_fail(err, BP_E_storage_failed, "", "%s: %s", path, strerror(errno));
    }
    free(path);
    free(log);
    return result;
}
