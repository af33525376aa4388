#include "tests/lib/runner.h"

#define SUITE(name) Suite *suite_##name(void);
#include "tests/fault/suites.def"
#undef SUITE

int main(int argc, char **argv)
{
    static const struct bp_suite_row rows[] = {
#define SUITE(name) {#name, suite_##name},
#include "tests/fault/suites.def"
#undef SUITE
    };
    return bp_run_suites(rows, sizeof rows / sizeof *rows, argc, argv);
}
