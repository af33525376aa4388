/* Changes to JSON that keep it JSON. */
#include <string.h>

#include "tests/fuzz/fuzz.h"

enum { NODES_MAX = 4096 };

/* The containers and the values of one text. */
struct nodes {
    uint64_t random;
    json_t *containers[NODES_MAX], *values[NODES_MAX];
    size_t n_containers, n_values;
};

static uint64_t next(struct nodes *nodes)
{
    uint64_t z = (nodes->random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static size_t below(struct nodes *nodes, size_t n)
{
    return n ? (size_t)(next(nodes) % n) : 0;
}

static void collect(struct nodes *nodes, json_t *value)
{
    const char *key;
    json_t *inner;
    size_t i;
    if (nodes->n_values < NODES_MAX)
        nodes->values[nodes->n_values++] = value;
    if ((json_is_object(value) || json_is_array(value)) && nodes->n_containers < NODES_MAX)
        nodes->containers[nodes->n_containers++] = value;
    json_object_foreach(value, key, inner)
        collect(nodes, inner);
    json_array_foreach(value, i, inner)
        collect(nodes, inner);
}

static json_t *scalar(struct nodes *nodes)
{
    static const json_int_t integers[] = {0,         1,         2,        3,         7,         8,
                                          64,        -1,        127,      1024,      65535,     65536,
                                          1LL << 31, 1LL << 32, 12289,    1LL << 40, 1LL << 52, (1LL << 53) - 1,
                                          1LL << 53, INT64_MAX, INT64_MIN};
    static const char *const strings[] = {"", "none", "a/b~c", "\xc3\xa9", "\xf0\x9f\x92\xa9", "0", "model", "sha256:"};
    switch (below(nodes, 8)) {
    case 0:
        return json_null();
    case 1:
        return json_boolean(below(nodes, 2));
    case 2:
        return json_string(strings[below(nodes, sizeof strings / sizeof *strings)]);
    case 3:
        return json_real(0.5);
    case 4:
        return below(nodes, 2) ? json_array() : json_object();
    default:
        return json_integer(integers[below(nodes, sizeof integers / sizeof *integers)]);
    }
}

/* Something else in place of `value`, often near it. */
static json_t *another(struct nodes *nodes, const json_t *value)
{
    static const json_int_t steps[] = {1, -1, 2, 8, -8, 1000};
    if (!value)
        return scalar(nodes);
    if (json_is_integer(value) && below(nodes, 3)) {
        uint64_t was = (uint64_t)json_integer_value(value);
        uint64_t step = (uint64_t)steps[below(nodes, sizeof steps / sizeof *steps)];
        return json_integer((json_int_t)(below(nodes, 2) ? was + step : below(nodes, 2) ? was * 2 : was / 2));
    }
    if (json_is_boolean(value) && below(nodes, 4))
        return json_boolean(!json_is_true(value));
    /* From elsewhere in the text: mostly of the same type, which gets past the first check. */
    for (size_t tries = below(nodes, 16); tries; tries--) {
        json_t *other = nodes->values[below(nodes, nodes->n_values)];
        if (json_typeof(other) == json_typeof(value) || tries == 1)
            return json_deep_copy(other);
    }
    return scalar(nodes);
}

static const char *key_of(struct nodes *nodes, json_t *object)
{
    void *at = json_object_iter(object);
    for (size_t skip = below(nodes, json_object_size(object)); skip && at; skip--)
        at = json_object_iter_next(object, at);
    return at ? json_object_iter_key(at) : NULL;
}

static void change_object(struct nodes *nodes, json_t *object)
{
    const char *found = key_of(nodes, object);
    char key[128];
    snprintf(key, sizeof key, "%s", found ? found : "key");
    json_t *value = json_incref(found ? json_object_get(object, found) : NULL);
    json_t *other = nodes->containers[below(nodes, nodes->n_containers)];
    switch (below(nodes, 10)) {
    case 0:
        json_object_del(object, key);
        break;
    case 1: /* a member of another object */
        found = json_is_object(other) ? key_of(nodes, other) : NULL;
        if (found)
            json_object_set_new(object, found, json_deep_copy(json_object_get(other, found)));
        break;
    case 2: /* the same under another name */
        found = json_is_object(other) ? key_of(nodes, other) : NULL;
        if (found && value)
            json_object_set_new(object, found, json_deep_copy(value));
        break;
    default:
        json_object_set_new_nocheck(object, key, another(nodes, value));
    }
    json_decref(value);
}

static void change_array(struct nodes *nodes, json_t *array)
{
    const size_t n = json_array_size(array), i = below(nodes, n), j = below(nodes, n);
    json_t *a = json_incref(json_array_get(array, i)), *b = json_incref(json_array_get(array, j));
    switch (n ? below(nodes, 6) : 1) {
    case 0:
        json_array_remove(array, i);
        break;
    case 1:
        json_array_append_new(array, a ? json_deep_copy(a) : scalar(nodes));
        break;
    case 2:
        json_array_set_new(array, i, json_deep_copy(b));
        json_array_set_new(array, j, json_deep_copy(a));
        break;
    case 3:
        while (json_array_size(array) > i)
            json_array_remove(array, i);
        break;
    default:
        json_array_set_new(array, i, another(nodes, a));
    }
    json_decref(a);
    json_decref(b);
}

static size_t put(const json_t *value, size_t flags, uint8_t *data, size_t most)
{
    char *text = json_dumps(value, flags);
    size_t n = text ? strlen(text) : 0;
    if (n && n <= most)
        memcpy(data, text, n);
    free(text);
    return n <= most ? n : 0;
}

size_t fuzz_mutate_json(uint8_t *data, size_t n, size_t most, unsigned seed)
{
    static struct nodes nodes;
    json_error_t error;
    nodes.random = seed;
    nodes.n_containers = nodes.n_values = 0;
    json_t *root = below(&nodes, 16) ? json_loadb((const char *)data, n, 0, &error) : NULL;
    size_t written = 0;
    for (size_t changes = below(&nodes, 4) ? 1 : 3; root && changes; changes--) {
        nodes.n_containers = nodes.n_values = 0; /* the last change may have freed some */
        collect(&nodes, root);
        json_t *container = nodes.containers[below(&nodes, nodes.n_containers)];
        if (json_is_object(container))
            change_object(&nodes, container);
        else
            change_array(&nodes, container);
    }
    if (root)
        written = put(root, below(&nodes, 8) ? JSON_SORT_KEYS | JSON_COMPACT : JSON_INDENT(1), data, most);
    json_decref(root);
    return written ? written : LLVMFuzzerMutate(data, n, most);
}
