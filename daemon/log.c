#include "daemon/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "common/base/canon.h"

const char *const bp_log_level_names[] = {"debug", "info", "warning", "error", NULL};

static atomic_int least_level = BP_LOG_INFO;

void bp_log_set_level(enum bp_log_level level)
{
    atomic_store(&least_level, (int)level);
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

void bp_log(enum bp_log_level level, const char *message, const struct bp_log_field *fields)
{
    if ((int)level < atomic_load_explicit(&least_level, memory_order_relaxed))
        return;
    struct bp_buf line = {0};
    struct bp_writer writer = {.out = &line, .any_order = true};
    bp_writer_object(&writer);
    write_time(&writer);
    bp_writer_key(&writer, "level");
    bp_writer_string(&writer, bp_log_level_names[level]);
    bp_writer_key(&writer, "message");
    bp_writer_string(&writer, message);
    for (; fields && fields->key; fields++) {
        bp_writer_key(&writer, fields->key);
        if (fields->text)
            bp_writer_string(&writer, fields->text);
        else
            bp_writer_uint(&writer, fields->number);
    }
    bp_writer_end(&writer);
    if (bp_writer_finish(&writer, NULL) == 0)
        emit(&line);
    bp_buf_release(&line);
}

void bp_log_err(enum bp_log_level level, const char *message, const struct bp_err *err)
{
    bp_log(level, message,
           BP_LOG_FIELDS(BP_LOG_TEXT("code", bp_code_name(err->code)), BP_LOG_TEXT("path", err->path),
                         BP_LOG_TEXT("error", err->message)));
}
