/* The real service on the real store, in this process, in a scenario that faults are put into: what a crash left behind
 * is taken up, then the scenario's steps, a close; then the power fails.
 *
 * For tests: what must not be ends the test, with the name of the run.
 */
#ifndef BP_TESTS_FAULT_RIG_H
#define BP_TESTS_FAULT_RIG_H

#include <stdbool.h>

/* Of all runs of a process, in memory that forked tests share: rig_totals_new(). */
struct rig_totals {
    unsigned long runs, injected, requests, acknowledged, unavailable, refused_starts, failed_stores;
};
struct rig_totals *rig_totals_new(void);
void rig_report(const char *suite, const struct rig_totals *totals);

/* How the scenario stops and lets on again what is being made to fail, and how it learns what did. */
struct rig_faults {
    void (*pause)(bool paused);
    unsigned long (*failed)(void); /* so far in this run */
    void (*end)(void);             /* nothing fails any more */
    bool of_memory;                /* an accepted plan may end as failed: to be derived when it is asked for again */
};

/* New plans, accepted ones, replays and every way to read, beside an accepted plan that a crash left; the making of a
 * database; pins, a collection and replays of the history, beside one that a crash left. */
struct rig_scenario;
extern const struct rig_scenario rig_plans, rig_no_database, rig_long_jobs;

/* What each run starts from is made once, before anything fails: by a process that is killed. */
void rig_prepare(const struct rig_scenario *scenario);
void rig_release(void);

/* One run; `faults` is armed. Returns how many failed: with none, every request must have been answered in full. Adds
 * to the totals. */
unsigned long rig_run(const char *name, long n, const struct rig_faults *faults, struct rig_totals *totals);

#endif
