#include "daemon/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

#include "common/base/canon.h"

const char *const bp_log_level_names[] = {"debug", "info", "warning", "error", NULL};
const char *const bp_log_target_names[] = {"auto", "stderr", "journal", NULL};

static atomic_int least_level = BP_LOG_INFO;
static atomic_bool to_journal;
static const struct bp_log_context nothing;
static _Thread_local const struct bp_log_context *about = &nothing;

void bp_log_set_level(enum bp_log_level level)
{
    atomic_store(&least_level, (int)level);
}

bool bp_log_wants(enum bp_log_level level)
{
    return (int)level >= atomic_load_explicit(&least_level, memory_order_relaxed);
}

bool bp_log_is_journal_stream(const char *stream, int fd)
{
    char text[64];
    struct stat status;
    if (!stream || fstat(fd, &status))
        return false;
    snprintf(text, sizeof text, "%llu:%llu", (unsigned long long)status.st_dev, (unsigned long long)status.st_ino);
    return strcmp(text, stream) == 0;
}

void bp_log_set_target(enum bp_log_target target)
{
    atomic_store(&to_journal,
                 target == BP_LOG_JOURNAL ||
                     (target == BP_LOG_AUTO && bp_log_is_journal_stream(getenv("JOURNAL_STREAM"), STDERR_FILENO)));
}

void bp_log_about(const struct bp_log_context *context)
{
    about = context ? context : &nothing;
}

void bp_log_current(struct bp_log_context *ret)
{
    *ret = *about;
}

/* ---- What a line says ---- */

/* The fields of a line in order: the caller's, then the request's. */
struct line {
    enum bp_log_level level;
    const char *message;
    struct bp_log_field fields[4 + BP_LOG_FIELDS_MAX];
    size_t n;
};

static void compose(struct line *line, enum bp_log_level level, const char *message, const struct bp_log_field *fields)
{
    const struct bp_log_field ids[] = {
        BP_LOG_TEXT("request_id", about->request_id),
        BP_LOG_TEXT("trace_id", about->trace_id),
        BP_LOG_TEXT("parent_id", about->parent_id),
        BP_LOG_TEXT("span_id", about->span_id),
    };
    line->level = level;
    line->message = message;
    line->n = 0;
    for (size_t i = 0; fields && fields[i].key && i < BP_LOG_FIELDS_MAX; i++)
        line->fields[line->n++] = fields[i];
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (*ids[i].text)
            line->fields[line->n++] = ids[i];
}

/* As much of a text as a line takes, in UTF-8. */
static size_t clean(const char *text, char ret[BP_LOG_VALUE_MAX + 1])
{
    static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */
    const size_t all = strlen(text);
    size_t n = 0;
    for (size_t i = 0, length; i < all; i += length) {
        uint32_t point;
        length = bp_utf8_decode((const unsigned char *)text + i, all - i, &point);
        const char *at = length ? text + i : replacement;
        const size_t n_at = length ? length : sizeof replacement - 1;
        if (n + n_at > BP_LOG_VALUE_MAX)
            break;
        memcpy(ret + n, at, n_at);
        n += n_at;
        length += !length;
    }
    ret[n] = '\0';
    return n;
}

/* ---- On stderr ---- */

static void write_text(struct bp_writer *writer, const char *key, const char *text)
{
    char value[BP_LOG_VALUE_MAX + 1];
    size_t n = clean(text, value);
    bp_writer_key(writer, key);
    bp_writer_stringn(writer, value, n);
}

static void write_time(struct bp_writer *writer)
{
    char text[40];
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + n, sizeof text - n, ".%03ldZ", now.tv_nsec / 1000000);
    bp_writer_key(writer, "time");
    bp_writer_string(writer, text);
}

/* One write(2) a line, so that the lines of several threads do not mix. */
static void emit(struct bp_buf *line)
{
    bp_buf_addch(line, '\n');
    if (!line->failed && write(STDERR_FILENO, line->data, line->len) < 0)
        return; /* a log that cannot be written has nowhere to say so */
}

static void to_stderr(const struct line *line)
{
    struct bp_buf text = {0};
    struct bp_writer writer = {.out = &text, .any_order = true};
    bp_writer_object(&writer);
    write_time(&writer);
    write_text(&writer, "level", bp_log_level_names[line->level]);
    write_text(&writer, "message", line->message);
    for (size_t i = 0; i < line->n; i++) {
        if (line->fields[i].text) {
            write_text(&writer, line->fields[i].key, line->fields[i].text);
        } else {
            char digits[24];
            int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)line->fields[i].number);
            bp_writer_key(&writer, line->fields[i].key);
            bp_writer_raw(&writer, digits, (size_t)n); /* past 2^53 as well */
        }
    }
    bp_writer_end(&writer);
    if (bp_writer_finish(&writer, NULL) == 0)
        emit(&text);
    bp_buf_release(&text);
}

/* ---- In the journal ---- */

static void add_entry(struct bp_buf *out, size_t *end, const char *prefix, const char *key, const char *text)
{
    char value[BP_LOG_VALUE_MAX + 1];
    bp_buf_addstr(out, prefix);
    for (; *key; key++)
        bp_buf_addch(out, *key >= 'a' && *key <= 'z' ? (char)(*key - 'a' + 'A') : *key);
    bp_buf_addch(out, '=');
    bp_buf_add(out, value, clean(text, value));
    *end = out->len;
}

/* False when the journal did not take it. libsystemd says that it did when there is no journal at all. */
static bool into_journal(const struct line *line)
{
    static const int priorities[] = {LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERR};
    enum { HEAD = 3 };
    struct bp_buf text = {0};
    struct iovec entries[HEAD + sizeof line->fields / sizeof *line->fields];
    size_t ends[HEAD + sizeof line->fields / sizeof *line->fields];
    char number[24];
    if (access("/run/systemd/journal/socket", F_OK))
        return false;
    snprintf(number, sizeof number, "%d", priorities[line->level]);
    add_entry(&text, &ends[0], "", "MESSAGE", line->message);
    add_entry(&text, &ends[1], "", "PRIORITY", number);
    add_entry(&text, &ends[2], "", "SYSLOG_IDENTIFIER", "blueprintd");
    for (size_t i = 0; i < line->n; i++) {
        const struct bp_log_field *field = &line->fields[i];
        snprintf(number, sizeof number, "%llu", (unsigned long long)field->number);
        add_entry(&text, &ends[HEAD + i], "BLUEPRINT_", field->key, field->text ? field->text : number);
    }
    const size_t n = HEAD + line->n;
    for (size_t i = 0, begin = 0; !text.failed && i < n; begin = ends[i++])
        entries[i] = (struct iovec){text.data + begin, ends[i] - begin};
    bool taken = !text.failed && sd_journal_sendv(entries, (int)n) == 0;
    bp_buf_release(&text);
    return taken;
}

void bp_log(enum bp_log_level level, const char *message, const struct bp_log_field *fields)
{
    struct line line;
    if (!bp_log_wants(level))
        return;
    compose(&line, level, message, fields);
    if (!atomic_load_explicit(&to_journal, memory_order_relaxed) || !into_journal(&line))
        to_stderr(&line);
}

void bp_log_err(enum bp_log_level level, const char *message, const struct bp_err *err)
{
    bp_log(level, message,
           BP_LOG_FIELDS(BP_LOG_TEXT("code", bp_code_name(err->code)), BP_LOG_TEXT("path", err->path),
                         BP_LOG_TEXT("error", err->message)));
}
