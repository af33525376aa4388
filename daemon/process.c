#include "daemon/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static const uint64_t second = UINT64_C(1000000000);

/* Reads a file of /proc that is shorter than the buffer. */
static bool read_text(const char *path, char *ret, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, ret, size - 1);
    close(fd);
    ret[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static uint64_t resident_bytes(void)
{
    char text[128];
    unsigned long long pages;
    long page = sysconf(_SC_PAGESIZE);
    if (page <= 0 || !read_text("/proc/self/statm", text, sizeof text) || sscanf(text, "%*u %llu", &pages) != 1)
        return BP_UNKNOWN;
    return pages * (uint64_t)page;
}

static uint64_t descriptors_allowed(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) ? BP_UNKNOWN : (uint64_t)limit.rlim_cur;
}

/* But for the one it takes to count them. When there is none to count with, all are open. */
static uint64_t descriptors_open(void)
{
    DIR *directory = opendir("/proc/self/fd");
    uint64_t n = 0;
    if (!directory)
        return errno == EMFILE ? descriptors_allowed() : BP_UNKNOWN;
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;)
        n += entry->d_name[0] != '.';
    closedir(directory);
    return n ? n - 1 : BP_UNKNOWN;
}

/* The kernel counts from its boot, in ticks. */
static uint64_t started_at(void)
{
    char text[1024];
    unsigned long long ticks;
    long per_second = sysconf(_SC_CLK_TCK);
    struct timespec boot, now;
    /* The second field is the name, in parentheses, and may hold anything: count from its end. */
    if (per_second <= 0 || !read_text("/proc/self/stat", text, sizeof text))
        return BP_UNKNOWN;
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (!at || sscanf(at, " %llu", &ticks) != 1 || clock_gettime(CLOCK_BOOTTIME, &boot) ||
        clock_gettime(CLOCK_REALTIME, &now))
        return BP_UNKNOWN;
    return (uint64_t)now.tv_sec - (uint64_t)boot.tv_sec + ticks / (uint64_t)per_second;
}

static uint64_t cpu_ns(void)
{
    struct timespec spent;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent))
        return BP_UNKNOWN;
    return (uint64_t)spent.tv_sec * second + (uint64_t)spent.tv_nsec;
}

void bp_process_gauges(uint64_t gauges[BP_GAUGE_N])
{
    static const enum bp_gauge ours[] = {BP_GAUGE_RESIDENT, BP_GAUGE_OPEN_FDS, BP_GAUGE_MAX_FDS, BP_GAUGE_STARTED,
                                         BP_GAUGE_CPU};
    static uint64_t taken[BP_GAUGE_N], taken_at;
    uint64_t now = bp_clock_ns();
    if (!taken_at || now - taken_at >= second) {
        if (!taken_at)
            taken[BP_GAUGE_STARTED] = started_at();
        taken[BP_GAUGE_RESIDENT] = resident_bytes();
        taken[BP_GAUGE_OPEN_FDS] = descriptors_open();
        taken[BP_GAUGE_MAX_FDS] = descriptors_allowed();
        taken[BP_GAUGE_CPU] = cpu_ns();
        taken_at = now;
    }
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        gauges[ours[i]] = taken[ours[i]];
}
