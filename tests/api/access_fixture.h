/* Tokens, certificates and TLS clients for the tests of access. What cannot be made fails the test. */
#ifndef BP_TESTS_API_ACCESS_FIXTURE_H
#define BP_TESTS_API_ACCESS_FIXTURE_H

#include <sys/types.h>

#include "tests/api/http.h"

/* A token that `blueprintd --new-token NAME` makes, and its line with these scopes and what else it may end with. */
struct made_token {
    const char *token, *header, *line;
};
struct made_token make_token(const char *name, const char *scopes, const char *limits);

/* A file of the server's directory with this text and mode; its path. */
const char *write_file(const char *name, const char *text, mode_t mode);

/* A self-signed certificate for localhost and 127.0.0.1, made by openssl: NAME.pem and NAME.key in the server's
 * directory. */
struct made_certificate {
    const char *certificate, *key;
};
struct made_certificate make_certificate(const char *name);

/* Stops the server of the test, if it runs, and starts it on the same database with these arguments. */
void access_restart(const char *const *arguments);

/* SIGHUP. */
void access_reload(void);

/* Asks until the answer has that status; fails when that takes too long. */
struct reply wait_for_status(const struct call *call, int status);

/* Waits until a line of the log has that text. */
void wait_for_log(const char *text);

/* A TLS client (openssl s_client) that sends `text` and ends when the connection does. */
pid_t tls_client(const char *text);

/* s_client with options of its own, which sends nothing: its exit status, 0 when there was a session. What it printed
 * goes to `ret_out`. */
int tls_try(const char *options, const char **ret_out);

/* GET with a token's header, or without one. */
struct reply get_as(const char *target, const struct made_token *token);

#endif
