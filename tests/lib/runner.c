#include "tests/lib/runner.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_asked(const char *name, int argc, char **argv)
{
    bool asked = argc < 2;
    for (int i = 1; i < argc; i++)
        asked |= strcmp(argv[i], name) == 0;
    return asked;
}

static const char *first_unknown(const struct bp_suite_row *rows, size_t n, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        bool known = false;
        for (size_t j = 0; j < n; j++)
            known |= strcmp(argv[i], rows[j].name) == 0;
        if (!known)
            return argv[i];
    }
    return NULL;
}

int bp_run_suites(const struct bp_suite_row *rows, size_t n, int argc, char **argv)
{
    const char *unknown = first_unknown(rows, n, argc, argv);
    if (unknown) {
        fprintf(stderr, "%s: there is no suite \"%s\"; there are:", argv[0], unknown);
        for (size_t i = 0; i < n; i++)
            fprintf(stderr, " %s", rows[i].name);
        fprintf(stderr, "\n");
        return 2;
    }
    /* Check's four seconds a test are too few on a busy machine. */
    setenv("CK_TIMEOUT_MULTIPLIER", "10", 0);
    SRunner *runner = srunner_create(NULL);
    for (size_t i = 0; i < n; i++)
        if (is_asked(rows[i].name, argc, argv))
            srunner_add_suite(runner, rows[i].make());
    srunner_run_all(runner, CK_ENV);
    bool passed = srunner_ntests_run(runner) > 0 && srunner_ntests_failed(runner) == 0;
    srunner_free(runner);
    return passed ? 0 : 1;
}
