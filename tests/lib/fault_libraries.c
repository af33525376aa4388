/* The allocators of SQLite and jansson. */
#include <check.h>
#include <jansson.h>
#include <sqlite3.h>
#include <stdint.h>

#include "common/base/json.h"
#include "tests/lib/fault_alloc.h"

static sqlite3_mem_methods sqlite_real;
static json_malloc_t jansson_real;

/* SQLite's are not counted a second time, as malloc's. */
static void *sqlite_malloc(int n)
{
    if (bp_fault_alloc_fails(BP_FAULT_SQLITE))
        return NULL;
    bp_fault_alloc_exempt(true);
    void *memory = sqlite_real.xMalloc(n);
    bp_fault_alloc_exempt(false);
    return memory;
}

static void *sqlite_realloc(void *memory, int n)
{
    if (bp_fault_alloc_fails(BP_FAULT_SQLITE))
        return NULL;
    bp_fault_alloc_exempt(true);
    memory = sqlite_real.xRealloc(memory, n);
    bp_fault_alloc_exempt(false);
    return memory;
}

/* The reader's own function is to see the failure: it is asked for more than there can be. */
static void *jansson_malloc(size_t n)
{
    return jansson_real(bp_fault_alloc_fails(BP_FAULT_JANSSON) ? PTRDIFF_MAX : n);
}

void bp_fault_alloc_install(void)
{
    struct bp_json_position position;
    json_free_t jansson_free;
    ck_assert_int_eq(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &sqlite_real), SQLITE_OK);
    sqlite3_mem_methods methods = sqlite_real;
    methods.xMalloc = sqlite_malloc;
    methods.xRealloc = sqlite_realloc;
    ck_assert_int_eq(sqlite3_config(SQLITE_CONFIG_MALLOC, &methods), SQLITE_OK);
    ck_assert_int_eq(sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0), SQLITE_OK);
    json_decref(bp_json_parse("{}", 2, &position, NULL)); /* the reader sets its functions at its first use */
    json_get_alloc_funcs(&jansson_real, &jansson_free);
    json_set_alloc_funcs(jansson_malloc, jansson_free);
}

/* Sanitizers end the process when that much is asked for, unless told otherwise. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}
