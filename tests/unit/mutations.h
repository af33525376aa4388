/* How each check and law is made to refuse: one change of a valid snapshot, and what must refuse it, by name. */
#ifndef BP_TESTS_UNIT_MUTATIONS_H
#define BP_TESTS_UNIT_MUTATIONS_H

#include "tests/unit/gate_fixture.h"

/* What of the snapshot a change is made in. */
enum part {
    SNAPSHOT, /* its head */
    VALUE,    /* model or distributed */
    OPERATION,
    BLOCK, /* distributed */
    LAYER,
    TASK,   /* distributed or portable */
    BUFFER, /* portable or concrete */
    REGION,
    COMMAND,
    ISSUE,
};

struct mutation {
    const char *id; /* of the check or law */
    enum plan_name plan;
    enum bp_stage stage;
    const char *path; /* a finding is there; %u stands for the place of the part. NULL: anywhere */
    /* Either a member of a part, by name or else by place: set to `value` or `text`, or, with neither, its lowest bit
     * turned over. */
    enum part part;
    const char *name;
    uint32_t place;
    size_t at, size; /* size 0: turn a bit over */
    uint64_t value;
    bool is_count; /* of an array: it must stay below what there is */
    const char *text;
    /* Or this. */
    void (*spoil)(struct spoiled *copy);
};

/* Makes the change and returns the place of its part. */
uint32_t mutate(const struct mutation *mutation, struct spoiled *copy);

struct mutation_group {
    const struct mutation *at;
    size_t n;
};
extern const struct mutation_group *const mutation_groups[];
extern const size_t mutation_groups_n;

/* By stage: mutations_<stage>.c. */
extern const struct mutation_group model_mutations, distributed_mutations, portable_mutations, concrete_mutations,
    law_mutations;

#define EACH_MUTATION(m)                                                                                               \
    size_t group_ = 0;                                                                                                 \
    group_ < mutation_groups_n;                                                                                        \
    group_++)                                                                                                          \
    for (const struct mutation *m = mutation_groups[group_]->at,                                                       \
                               *end_ = mutation_groups[group_]->at + mutation_groups[group_]->n;                       \
         m < end_; m++

#define MUTATIONS(rows)                                                                                                \
    {                                                                                                                  \
        (rows), sizeof(rows) / sizeof *(rows)                                                                          \
    }
#define FLIP(type, member) .at = offsetof(type, member)
#define SET(type, member, to) .at = offsetof(type, member), .size = sizeof((type *)0)->member, .value = (to)
#define COUNT(type, member, to) SET(type, member, to), .is_count = true
#define TEXT(type, member, to) .at = offsetof(type, member), .text = (to)

#endif
