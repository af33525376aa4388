/* Property tests: thousands of seeded random requests against an independent recomputation. BP_PROPERTY_CASES sets how
 * many (per cent of the usual), BP_PROPERTY_SEED where they start. */
#include "tests/lib/runner.h"

#define SUITE(name) Suite *suite_##name(void);
#include "tests/property/suites.def"
#undef SUITE

int main(int argc, char **argv)
{
    static const struct bp_suite_row rows[] = {
#define SUITE(name) {#name, suite_##name},
#include "tests/property/suites.def"
#undef SUITE
    };
    return bp_run_suites(rows, sizeof rows / sizeof *rows, argc, argv);
}
