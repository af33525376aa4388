/* The daemon's log: one JSON object a line on stderr, {"time", "level", "message", fields...}.
 *
 * Only the daemon logs, library code never does. Any thread; a line is written whole, and one that cannot be written
 * is dropped.
 */
#ifndef BP_DAEMON_LOG_H
#define BP_DAEMON_LOG_H

#include <stdint.h>

#include "common/base/err.h"

enum bp_log_level { BP_LOG_DEBUG, BP_LOG_INFO, BP_LOG_WARNING, BP_LOG_ERROR };
extern const char *const bp_log_level_names[]; /* in the order of the enum, NULL-terminated */

/* Lines below `level` are dropped; BP_LOG_INFO until this is called. */
void bp_log_set_level(enum bp_log_level level);

/* One field; `text` NULL means a number. Borrowed. */
struct bp_log_field {
    const char *key, *text;
    uint64_t number;
};

/* BP_LOG_FIELDS(BP_LOG_TEXT("path", path), BP_LOG_UINT("bytes", n)) */
#define BP_LOG_TEXT(key_, value)                                                                                       \
    (struct bp_log_field)                                                                                              \
    {                                                                                                                  \
        .key = (key_), .text = (value)                                                                                 \
    }
#define BP_LOG_UINT(key_, value)                                                                                       \
    (struct bp_log_field)                                                                                              \
    {                                                                                                                  \
        .key = (key_), .number = (value)                                                                               \
    }
#define BP_LOG_FIELDS(...)                                                                                             \
    (const struct bp_log_field[])                                                                                      \
    {                                                                                                                  \
        __VA_ARGS__,                                                                                                   \
        {                                                                                                              \
            .key = NULL                                                                                                \
        }                                                                                                              \
    }

/* `fields` ends with a NULL key; NULL for none. */
void bp_log(enum bp_log_level level, const char *message, const struct bp_log_field *fields);

/* The same with the code, path and message of an error. */
void bp_log_err(enum bp_log_level level, const char *message, const struct bp_err *err);

#endif
