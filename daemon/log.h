/* The daemon's log: {"time", "level", "message", fields..., the ids of the request it is about}, as one JSON object a
 * line on stderr, or as an entry of systemd's journal, where the level is PRIORITY, the message MESSAGE, and every
 * other key in capitals after BLUEPRINT_.
 *
 * Only the daemon logs, library code never does. Any thread; a line is written whole, and one that cannot be written
 * is dropped. Whatever the values hold, a line stays one line of JSON: what is no UTF-8 is replaced, and a value is cut
 * at BP_LOG_VALUE_MAX bytes.
 */
#ifndef BP_DAEMON_LOG_H
#define BP_DAEMON_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

enum bp_log_level { BP_LOG_DEBUG, BP_LOG_INFO, BP_LOG_WARNING, BP_LOG_ERROR };
extern const char *const bp_log_level_names[]; /* in the order of the enum, NULL-terminated */

/* Lines below `level` are dropped; BP_LOG_INFO until this is called. */
void bp_log_set_level(enum bp_log_level level);

/* Whether a line of that level would be written, for who would have to prepare it. */
bool bp_log_wants(enum bp_log_level level);

/* Where the log goes: AUTO is the journal when stderr is a stream of it (JOURNAL_STREAM), else stderr, which is also
 * where a line goes that the journal does not take. */
enum bp_log_target { BP_LOG_AUTO, BP_LOG_STDERR, BP_LOG_JOURNAL };
extern const char *const bp_log_target_names[]; /* in the order of the enum, NULL-terminated */
void bp_log_set_target(enum bp_log_target target);

/* Whether `stream`, as systemd sets JOURNAL_STREAM ("device:inode" in decimal), is the file of this descriptor. NULL is
 * not. */
bool bp_log_is_journal_stream(const char *stream, int fd);

/* The request that a line is about; "" for what there is none of. The ids are of characters that need no escape. */
enum { BP_REQUEST_ID_MAX = 128, BP_TRACE_ID_LENGTH = 32, BP_SPAN_ID_LENGTH = 16 };
struct bp_log_context {
    char request_id[BP_REQUEST_ID_MAX + 1];
    char trace_id[BP_TRACE_ID_LENGTH + 1], parent_id[BP_SPAN_ID_LENGTH + 1], span_id[BP_SPAN_ID_LENGTH + 1];
};

/* What lines of the calling thread are about, until the next call; borrowed. NULL: nothing. */
void bp_log_about(const struct bp_log_context *context);

/* A copy of what they are about, for work that another thread will go on with. */
void bp_log_current(struct bp_log_context *ret);

/* One field; `text` NULL means a number. Borrowed. */
struct bp_log_field {
    const char *key, *text;
    uint64_t number;
};
enum { BP_LOG_FIELDS_MAX = 16, BP_LOG_VALUE_MAX = 1024 };

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

/* `fields`, of which the first BP_LOG_FIELDS_MAX count, ends with a NULL key; NULL is none. */
void bp_log(enum bp_log_level level, const char *message, const struct bp_log_field *fields);

/* Logs an error with its code and path. */
void bp_log_err(enum bp_log_level level, const char *message, const struct bp_err *err);

#endif
