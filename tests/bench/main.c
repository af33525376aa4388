/* make bench: the sections, all of them or those named on the command line. */
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/bench.h"

static char directory[512];
static pid_t owner; /* children inherit the exit handlers and must not clean up */

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info, (void)kind, (void)walk;
    return remove(path);
}

static void remove_directory(void)
{
    if (directory[0] && getpid() == owner)
        nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *bench_directory(void)
{
    const char *build = getenv("BP_BUILD");
    if (directory[0])
        return directory;
    snprintf(directory, sizeof(directory), "%s/bench-XXXXXX", build ? build : "build");
    if (!mkdtemp(directory)) {
        directory[0] = '\0';
        bench_die("no directory can be made in %s", build ? build : "build");
    }
    owner = getpid();
    atexit(remove_directory);
    return directory;
}

void bench_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "bench: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

double bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *at, size_t n)
{
    qsort(at, n, sizeof(*at), compare_doubles);
    return n % 2 ? at[n / 2] : (at[n / 2 - 1] + at[n / 2]) / 2;
}

uint64_t bench_setting(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : fallback;
}

void bench_print_heading(void)
{
    printf("%-58s %12s %12s  %-9s %6s %7s\n", "measure (medians)", "blueprintd", "baseline", "unit", "ratio", "target");
    fflush(stdout);
}

void bench_print_row(const struct bench_row *row)
{
    double ratios[BENCH_ROUNDS_MAX];
    for (size_t i = 0; i < row->n; i++)
        ratios[i] = row->subject[i] / row->baseline[i];
    const double ratio = bench_median(ratios, row->n);
    printf("%-58s %12.1f %12.1f  %-9s %6.3f ", row->name, bench_median(row->subject, row->n),
           bench_median(row->baseline, row->n), row->unit, ratio);
    if (row->target > 0)
        printf("%7.2f%s", row->target, ratio >= row->target ? "" : "  MISSED");
    printf("\n");
    fflush(stdout);
}

void bench_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("  ");
    vprintf(format, args);
    printf("\n");
    fflush(stdout);
    va_end(args);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } sections[] = {
        {"derivation", bench_derivation}, {"fit", bench_fit},         {"repeats", bench_repeats},
        {"snapshots", bench_snapshots},   {"commits", bench_commits}, {"latency", bench_latency},
        {"memory", bench_memory},
    };
    bench_print_heading();
    for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
        int asked = argc < 2;
        for (int k = 1; k < argc; k++)
            asked |= strcmp(argv[k], sections[i].name) == 0;
        if (asked)
            sections[i].run();
    }
    return 0;
}
