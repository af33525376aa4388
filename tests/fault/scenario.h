/* What the scenarios of rig.h are made of. While a step prepares and judges faults are paused; it lets them on for the
 * call that it makes. */
#ifndef BP_TESTS_FAULT_SCENARIO_H
#define BP_TESTS_FAULT_SCENARIO_H

#include "tests/api/expect.h"
#include "tests/fault/load.h"
#include "tests/fault/rig.h"
#include "tests/lib/service_fixture.h"

enum { ACKS_MAX = 16, JOBS_MAX = 4 };

/* A long job that was acknowledged. */
struct rig_job {
    char id[BP_DIGEST_TEXT];
    bool collects, is_dry;
};

/* What was acknowledged, in any order; the last plan of it with a snapshot. `old` are plans that may go. */
struct rig_acks {
    struct ack at[ACKS_MAX], old[ACKS_MAX];
    size_t n, n_old;
    struct rig_job jobs[JOBS_MAX];
    size_t n_jobs;
    char plan[BP_DIGEST_TEXT], snapshot[BP_DIGEST_TEXT];
};

struct rig_scenario {
    /* In a process that ends as a crash does, once this returns: its log is not brought home. NULL: from no database.
     */
    void (*crash)(void);
    void (*const *steps)(void);
    size_t n_steps;
    unsigned long next; /* number of a request that no step sends */
    /* On a sound disk, when all that was left is done: besides that what was acknowledged is there. NULL: nothing. */
    void (*verify)(void);
};

/* The run. */
struct rig {
    struct service_fixture fixture;
    struct rig_acks acks;
    const char *name;
    long n;
    const struct rig_faults *faults;
    struct rig_totals *totals;
    bool all_answered;
    unsigned long failed;       /* calls, known when it is verified */
    unsigned long failed_syncs; /* before the run */
};
extern struct rig rig;

#define RIG_ASSERT(condition, format, ...) ck_assert_msg(condition, "%s, %ld: " format, rig.name, rig.n, __VA_ARGS__)

/* The text there, kept; "" when there is none. */
const char *rig_member(const struct bp_answer *answer, const char *pointer);

/* The answer is one of a sound service, true, or says that it is not one. Counts it. */
bool rig_judge(const char *step, const struct bp_answer *answer, int good);

/* The plan or replay of the answer must be there from now on, as it says. */
void rig_acknowledge(const struct bp_answer *answer, enum ack_kind kind, const char *id_pointer, unsigned long number);

/* A sync failed in this run: nothing may be acknowledged any more. */
bool rig_distrusts(void);

/* A call that may have its client wait: `rig_begin` lets faults on, `rig_end` pauses them when the answer is there. */
void rig_begin(struct client *client);
struct bp_answer *rig_end(struct client *client, struct bp_answer *answer);

/* A plan that was not there before: what becomes of it is known from its number. False when it was refused. */
bool rig_new_plan(const char *step, unsigned long number, bool async);

/* Waits until nothing is under way, faults being as they are; then they are paused. */
void rig_settle(void);

#endif
