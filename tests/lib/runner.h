/* Runs Check suites: all of them, or those named on the command line. */
#ifndef BP_TESTS_LIB_RUNNER_H
#define BP_TESTS_LIB_RUNNER_H

#include <check.h>
#include <stddef.h>

struct bp_suite_row {
    const char *name;
    Suite *(*make)(void);
};

/* main() of a test program. `argv` names suites of `rows`, none for all; CK_FORK, CK_VERBOSITY and CK_RUN_CASE are
 * Check's own variables. Prints Check's closing lines. Returns the exit status: 0 when tests ran and all passed,
 * 2 for a suite that is not known. */
int bp_run_suites(const struct bp_suite_row *rows, size_t n, int argc, char **argv);

#endif
