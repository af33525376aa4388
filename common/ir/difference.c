#include "common/ir/difference.h"

#include <string.h>

/* Appends a member to the pointer, as bp_reader_pointer escapes it. */
static void descend(char pointer[BP_POINTER_MAX], const char *key)
{
    struct bp_reader reader = {0};
    memcpy(reader.pointer, pointer, strlen(pointer) + 1);
    bp_reader_pointer(&reader, key, pointer);
}

/* Both have their keys in order: the first key that is not in both, or whose values differ. */
static const char *differing_key(json_t *a, json_t *b, json_t **ret_a, json_t **ret_b)
{
    void *at_a = json_object_iter(a), *at_b = json_object_iter(b);
    *ret_a = *ret_b = NULL;
    for (; at_a && at_b; at_a = json_object_iter_next(a, at_a), at_b = json_object_iter_next(b, at_b)) {
        const int order = strcmp(json_object_iter_key(at_a), json_object_iter_key(at_b));
        if (order != 0)
            return json_object_iter_key(order < 0 ? at_a : at_b);
        if (!json_equal(json_object_iter_value(at_a), json_object_iter_value(at_b))) {
            *ret_a = json_object_iter_value(at_a);
            *ret_b = json_object_iter_value(at_b);
            return json_object_iter_key(at_a);
        }
    }
    return json_object_iter_key(at_a ? at_a : at_b);
}

static size_t differing_item(const json_t *a, const json_t *b, json_t **ret_a, json_t **ret_b)
{
    size_t i = 0;
    while (i < json_array_size(a) && json_equal(json_array_get(a, i), json_array_get(b, i)))
        i++;
    *ret_a = json_array_get(a, i);
    *ret_b = json_array_get(b, i);
    return i;
}

static void first_difference(json_t *a, json_t *b, char ret[BP_POINTER_MAX])
{
    ret[0] = '\0';
    while (a && b && !json_equal(a, b)) {
        if (json_is_object(a) && json_is_object(b)) {
            descend(ret, differing_key(a, b, &a, &b));
        } else if (json_is_array(a) && json_is_array(b)) {
            char index[BP_U128_TEXT];
            bp_u128_format(differing_item(a, b, &a, &b), index);
            descend(ret, index);
        } else {
            return;
        }
    }
}

int bp_first_difference(const char *a, size_t n_a, const char *b, size_t n_b, char ret[BP_POINTER_MAX],
                        struct bp_err *err)
{
    struct bp_json_position position;
    json_t *first = bp_json_parse(a, n_a, &position, err);
    json_t *second = first ? bp_json_parse(b, n_b, &position, err) : NULL;
    if (second)
        first_difference(first, second, ret);
    const int result = second ? 0 : -1;
    json_decref(first);
    json_decref(second);
    return result;
}
