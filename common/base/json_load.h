/* jansson's parse, made safe against want of memory. Internal to the base. */
#ifndef BP_BASE_JSON_LOAD_H
#define BP_BASE_JSON_LOAD_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

/* json_loadb with these flags. `*ret_out_of_memory` tells a NULL for want of memory from one for bad syntax. The first
 * call sets jansson's allocation functions, which stay plain malloc and free for whatever else is done with it. */
json_t *bp_json_load(const char *text, size_t n, size_t flags, json_error_t *error, bool *ret_out_of_memory);

#endif
