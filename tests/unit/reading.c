#include "tests/unit/reading.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/json.h"

json_t *json_of(const char *text)
{
    struct bp_json_position position;
    struct bp_err err = {0};
    char *copy = strdup(text);
    for (char *c = copy; *c; c++)
        if (*c == '\'')
            *c = '"';
    json_t *value = bp_json_parse(copy, strlen(copy), &position, &err);
    ck_assert_msg(value != NULL, "%s: %s", err.message, copy);
    free(copy);
    return value;
}

json_t *json_of_file(const char *path)
{
    json_error_t error;
    json_t *value = json_load_file(path, 0, &error);
    ck_assert_msg(value != NULL, "%s: %s", path, error.text);
    return value;
}

const char *line_of(const struct bp_problems *problems)
{
    static char line[8192];
    size_t n = 0;
    line[0] = '\0';
    for (size_t i = 0; i < problems->n; i++)
        n += (size_t)snprintf(line + n, sizeof line - n, "%s%s %s", i ? ", " : "", bp_code_name(problems->at[i].code),
                              problems->at[i].path);
    return line;
}

bool some_message_has(const struct bp_problems *problems, const char *text)
{
    for (size_t i = 0; i < problems->n; i++)
        if (strstr(problems->at[i].message, text))
            return true;
    return false;
}

const char *canonical(struct bp_writer *writer)
{
    static char text[4096];
    struct bp_err err = {0};
    ck_assert_msg(bp_writer_finish(writer, &err) == 0, "%s", err.message);
    snprintf(text, sizeof text, "%s", bp_buf_string(writer->out));
    for (char *c = text; *c; c++)
        if (*c == '"')
            *c = '\'';
    bp_buf_release(writer->out);
    return text;
}
