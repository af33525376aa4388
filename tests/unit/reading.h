/* What the tests of models and requests share: JSON written with single quotes, and problems as one line. */
#ifndef BP_TESTS_UNIT_READING_H
#define BP_TESTS_UNIT_READING_H

#include <jansson.h>

#include "common/base/canon.h"
#include "common/base/err.h"

/* The value of a text in which ' stands for ". Aborts the test when it does not parse. Give it back. */
json_t *json_of(const char *text);

/* The value of a file. Aborts the test when there is none. Give it back. */
json_t *json_of_file(const char *path);

/* "code path, code path" in the order found. Valid until the next call. */
const char *line_of(const struct bp_problems *problems);

/* Whether some problem's message has the text. */
bool some_message_has(const struct bp_problems *problems, const char *text);

/* The canonical text that was written, with ' for ". Aborts the test when the writer was misused. Valid until the
 * next call; empties and releases the buffer. */
const char *canonical(struct bp_writer *writer);

#endif
