/* The command-line program, run against the server under test. */
#ifndef BP_TESTS_API_COMMAND_H
#define BP_TESTS_API_COMMAND_H

#include <jansson.h>

#include "tests/api/server.h"

enum { WORDS_MAX = 12 };

struct run {
    int status;
    const char *out, *err; /* live as long as replies */
};

/* Runs `blueprint WORDS...` with `input` (NULL: nothing) on its standard input. */
struct run run(const char *const words[WORDS_MAX], const char *input);
#define RUN(...) run((const char *const[WORDS_MAX]){"--server", server.url, __VA_ARGS__}, NULL)

/* The same over the Unix socket of a server_admin_tcase. */
#define RUN_ADMIN(...)                                                                                                 \
    run((const char *const[WORDS_MAX]){"--server", keep_text("unix:%s", server.socket), "admin", __VA_ARGS__}, NULL)

/* Whether there are pseudo-terminals here: a bare change of root has none. */
bool terminals_exist(void);

/* The same with a terminal as its standard output. */
struct run run_on_terminal(const char *const words[WORDS_MAX]);

/* Becomes `blueprint WORDS...` with its three streams on files. For a child. */
void become(const char *const *words, const char *in, const char *out, const char *err);

void expect_status(const struct run *run, int status);
void expect_text(const char *text, const char *wanted);

/* A file of the test's own with that JSON in it. */
const char *request_file(json_t *request);

#endif
