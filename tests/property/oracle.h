/* What a request in the transformer form must be refused for, worked out from the published interface alone. */
#ifndef BP_TESTS_PROPERTY_ORACLE_H
#define BP_TESTS_PROPERTY_ORACLE_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

enum { ORACLE_MAX = 96 };

struct oracle_problem {
    const char *code;
    char path[96];
};

/* Without repeats. */
struct oracle {
    struct oracle_problem at[ORACLE_MAX];
    size_t n;
};

void oracle_of(const json_t *body, struct oracle *ret);
void oracle_add(struct oracle *oracle, const char *code, const char *path); /* unless it is there */
bool oracle_has(const struct oracle *oracle, const char *code, const char *path);

/* A known key of one of the request's objects, for those who want to break it; NULL past the end. The objects
 * have the paths of oracle_objects. */
extern const char *const oracle_objects[];
enum { ORACLE_OBJECTS = 7 };
const char *oracle_key(size_t object, size_t i);

#endif
