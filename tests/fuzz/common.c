#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/json.h"

json_t *fuzz_parse(const uint8_t *data, size_t n)
{
    struct bp_err err = {0};
    struct bp_json_position position = {0};
    json_t *value = bp_json_parse((const char *)data, n, &position, &err);
    if (value)
        return value;
    FUZZ_EXPECT(err.code != BP_OK && bp_code_kind(err.code) == BP_KIND_INPUT, "code %d", (int)err.code);
    FUZZ_EXPECT(*err.message && !*err.path, "\"%s\" at \"%s\"", err.message, err.path);
    FUZZ_EXPECT(err.code == BP_E_empty_body || position.line >= 1, "line %d", position.line);
    return NULL;
}

void fuzz_expect_explained(const struct bp_problems *problems)
{
    FUZZ_EXPECT(!problems->out_of_memory, "no memory");
    for (size_t i = 0; i < problems->n; i++) {
        const struct bp_err *problem = &problems->at[i];
        FUZZ_EXPECT(bp_code_kind(problem->code) == BP_KIND_INPUT, "%s: %s", bp_code_name(problem->code),
                    problem->message);
        FUZZ_EXPECT(*problem->message, "%s says nothing", bp_code_name(problem->code));
        FUZZ_EXPECT(!*problem->path || *problem->path == '/', "\"%s\" is no pointer", problem->path);
    }
}

void fuzz_expect_same(const struct bp_buf *a, const struct bp_buf *b, const char *what)
{
    FUZZ_EXPECT(!a->failed && !b->failed, "no memory");
    FUZZ_EXPECT(a->len == b->len && memcmp(a->data, b->data, a->len) == 0, "%s:\n%.*s\n%.*s", what, (int)a->len,
                a->data, (int)b->len, b->data);
}
