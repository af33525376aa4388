#include "common/view/diff.h"

#include <stdlib.h>
#include <string.h>

struct difference {
    const char *path;
    const json_t *a, *b; /* NULL: absent */
};

struct differences {
    struct bp_arena arena;
    struct difference *at;
    size_t n, allocated;
    bool out_of_memory;
};

static void add(struct differences *found, const char *path, const json_t *a, const json_t *b)
{
    if (found->n == found->allocated) {
        const size_t allocated = found->allocated ? 2 * found->allocated : 32;
        struct difference *at = realloc(found->at, allocated * sizeof *at);
        if (!at) {
            found->out_of_memory = true;
            return;
        }
        found->at = at;
        found->allocated = allocated;
    }
    found->at[found->n++] = (struct difference){path, a, b};
}

static void compare(struct differences *found, const char *path, const json_t *a, const json_t *b);

static void compare_member(struct differences *found, const char *path, const char *key, const json_t *a,
                           const json_t *b)
{
    char *member = bp_arena_array(&found->arena, strlen(path) + 2 * strlen(key) + 2, 1);
    if (!member) {
        found->out_of_memory = true;
        return;
    }
    char *end = stpcpy(stpcpy(member, path), "/");
    for (; *key; key++) {
        if (*key == '~' || *key == '/')
            *end++ = '~';
        *end++ = *key == '~' ? '0' : *key == '/' ? '1' : *key;
    }
    compare(found, member, a, b);
}

static void compare_objects(struct differences *found, const char *path, json_t *a, json_t *b)
{
    const char *key;
    json_t *value;
    json_object_foreach(a, key, value) {
        compare_member(found, path, key, value, json_object_get(b, key));
    }
    json_object_foreach(b, key, value) {
        if (!json_object_get(a, key))
            compare_member(found, path, key, NULL, value);
    }
}

static void compare_arrays(struct differences *found, const char *path, const json_t *a, const json_t *b)
{
    for (size_t i = 0; i < json_array_size(a) || i < json_array_size(b); i++) {
        char index[BP_U128_TEXT];
        bp_u128_format(i, index);
        compare_member(found, path, index, json_array_get(a, i), json_array_get(b, i));
    }
}

/* Down to what has no members: an object or array that only one side has is taken apart too. */
static void compare(struct differences *found, const char *path, const json_t *a, const json_t *b)
{
    const json_t *some = a ? a : b;
    const bool same_type = !a || !b || json_typeof(a) == json_typeof(b);
    if (found->out_of_memory || (a && b && json_equal(a, b)))
        return;
    if (same_type && json_is_object(some) && (json_object_size(a) || json_object_size(b)))
        compare_objects(found, path, (json_t *)(uintptr_t)a, (json_t *)(uintptr_t)b);
    else if (same_type && json_is_array(some) && (json_array_size(a) || json_array_size(b)))
        compare_arrays(found, path, a, b);
    else
        add(found, path, a, b);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct difference *)a)->path, ((const struct difference *)b)->path);
}

static void side_write(struct bp_writer *writer, struct differences *found, const char *key, const json_t *value)
{
    bp_writer_key(writer, key);
    if (!value) {
        bp_writer_null(writer);
        return;
    }
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (text)
        bp_writer_raw(writer, text, strlen(text));
    else
        found->out_of_memory = true;
    free(text);
}

static void differences_write(struct bp_writer *writer, struct differences *found)
{
    if (found->n)
        qsort(found->at, found->n, sizeof *found->at, by_path);
    bp_writer_array(writer);
    for (size_t i = 0; i < found->n; i++) {
        bp_writer_object(writer);
        bp_writer_put_string(writer, "path", found->at[i].path);
        side_write(writer, found, "a", found->at[i].a);
        side_write(writer, found, "b", found->at[i].b);
        bp_writer_end(writer);
    }
    bp_writer_end(writer);
}

/* An absent text is an absent value; -1 when a text does not parse. */
static int parse(const char *text, size_t n, json_t **ret, struct bp_err *err)
{
    struct bp_json_position position;
    json_t *value = text ? bp_json_parse(text, n, &position, err) : NULL;
    if (text && !value)
        return -1;
    *ret = value;
    return 0;
}

static int texts_write(struct bp_writer *writer, const char *a, size_t n_a, const char *b, size_t n_b,
                       struct bp_err *err)
{
    struct differences found = {0};
    json_t *first = NULL, *second = NULL;
    int result = parse(a, n_a, &first, err);
    if (result == 0)
        result = parse(b, n_b, &second, err);
    if (result == 0) {
        if (first || second)
            compare(&found, "", first, second);
        differences_write(writer, &found);
        if (found.out_of_memory)
            result = bp_fail(err, BP_E_out_of_memory, "", "no memory to compare two plans");
    }
    free(found.at);
    bp_arena_release(&found.arena);
    json_decref(first);
    json_decref(second);
    return result;
}

static void stage_digest_write(struct bp_writer *writer, const char *key, const struct bp_diff_side *side,
                               unsigned stage)
{
    bp_writer_key(writer, key);
    if (side->has[stage])
        bp_writer_digest(writer, &side->digest[stage]);
    else
        bp_writer_null(writer);
}

static void stages_write(struct bp_writer *writer, const struct bp_diff_side *a, const struct bp_diff_side *b)
{
    bp_writer_array(writer);
    for (unsigned stage = 0; stage < BP_STAGE_N; stage++) {
        if (!a->has[stage] && !b->has[stage])
            continue;
        bp_writer_object(writer);
        bp_writer_put_string(writer, "stage", bp_stage_names[stage]);
        stage_digest_write(writer, "a", a, stage);
        stage_digest_write(writer, "b", b, stage);
        bp_writer_put_bool(writer, "same",
                           a->has[stage] && b->has[stage] && bp_digest_equal(&a->digest[stage], &b->digest[stage]));
        bp_writer_end(writer);
    }
    bp_writer_end(writer);
}

int bp_diff_write(struct bp_writer *writer, const struct bp_diff_side *a, const struct bp_diff_side *b,
                  struct bp_err *err)
{
    bp_writer_object(writer);
    bp_writer_key(writer, "stages");
    stages_write(writer, a, b);
    bp_writer_key(writer, "request");
    if (texts_write(writer, a->request, a->n_request, b->request, b->n_request, err) != 0)
        return -1;
    bp_writer_key(writer, "facts");
    if (texts_write(writer, a->facts, a->n_facts, b->facts, b->n_facts, err) != 0)
        return -1;
    bp_writer_end(writer);
    return 0;
}
