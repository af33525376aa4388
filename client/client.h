/* One run of the command-line program: what was asked, how it is called, what the exit status says.
 *
 * The program is single-threaded. Answers go to standard output, everything else to standard error.
 */
#ifndef BP_CLIENT_CLIENT_H
#define BP_CLIENT_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "client/http.h"
#include "common/base/buf.h"
#include "common/request/import_peer.h"

enum bp_exit {
    BP_EXIT_YES = 0,
    BP_EXIT_NO = 1,        /* a negative answer: plan rejected, replay divergent */
    BP_EXIT_USAGE = 2,     /* the command line, or a FILE that cannot be read */
    BP_EXIT_UNREACHED = 3, /* the server was not reached, did not answer, or is full (503, 429) */
    BP_EXIT_REFUSED = 4,   /* the server answered with any other error */
    BP_EXIT_LOCAL = 5,     /* the answer could not be written, or memory ran out here */
};

enum { BP_ARGUMENTS_MAX = 2, BP_OPTIONS_MAX = 8 };

struct bp_option {
    const char *name, *value;
};

struct bp_invocation;

struct bp_command {
    const char *name;
    enum bp_exit (*run)(const struct bp_invocation *invocation);
    /* Writes the answer as text; its status is the program's. The JSON may have any shape: what is missing prints as
     * nothing. */
    enum bp_exit (*print)(struct bp_buf *out, const json_t *answer);
    const char *arguments;
    size_t least, most;
    const char *method, *path, *summary, *help;
};

struct bp_invocation {
    const struct bp_command *command;
    struct bp_server *server;
    bool json;
    const char *arguments[BP_ARGUMENTS_MAX];
    size_t n_arguments;
    struct bp_option options[BP_OPTIONS_MAX];
    size_t n_options;
};

/* The value of an option, or NULL. */
const char *bp_invocation_option(const struct bp_invocation *invocation, const char *name);

enum bp_exit bp_run_call(const struct bp_invocation *invocation);
enum bp_exit bp_run_plan(const struct bp_invocation *invocation);
enum bp_exit bp_run_show(const struct bp_invocation *invocation);
enum bp_exit bp_run_snapshot(const struct bp_invocation *invocation);
enum bp_exit bp_run_fit(const struct bp_invocation *invocation);
enum bp_exit bp_run_capacity(const struct bp_invocation *invocation);
enum bp_exit bp_run_model(const struct bp_invocation *invocation);
enum bp_exit bp_run_backup(const struct bp_invocation *invocation);
enum bp_exit bp_run_pin(const struct bp_invocation *invocation);
enum bp_exit bp_run_collection(const struct bp_invocation *invocation);
enum bp_exit bp_run_history(const struct bp_invocation *invocation);

enum bp_exit bp_print_plan(struct bp_buf *out, const json_t *answer);
enum bp_exit bp_print_plans(struct bp_buf *out, const json_t *answer);
enum bp_exit bp_print_snapshot(struct bp_buf *out, const json_t *answer);
enum bp_exit bp_print_lineage(struct bp_buf *out, const json_t *answer);
enum bp_exit bp_print_trace(struct bp_buf *out, const json_t *answer);
enum bp_exit bp_print_replay(struct bp_buf *out, const json_t *answer);
enum bp_exit bp_print_diff(struct bp_buf *out, const json_t *answer);
enum bp_exit bp_print_passes(struct bp_buf *out, const json_t *answer);
enum bp_exit bp_print_models(struct bp_buf *out, const json_t *answer);
enum bp_exit bp_print_capacity(struct bp_buf *out, const json_t *answer); /* in GiB */
enum bp_exit bp_print_model_explained(struct bp_buf *out, const json_t *answer);
enum bp_exit bp_print_backup(struct bp_buf *out, const json_t *answer);
enum bp_exit bp_print_pins(struct bp_buf *out, const json_t *answer);
enum bp_exit bp_print_jobs(struct bp_buf *out, const json_t *answer);
enum bp_exit bp_print_collection(struct bp_buf *out, const json_t *answer);
enum bp_exit bp_print_history(struct bp_buf *out, const json_t *answer);

/* All of a file, or of standard input for "-", whose name in messages goes to `ret_name`. Complains. */
enum bp_exit bp_file_read(const char *path, struct bp_buf *ret, const char **ret_name);

/* The request that the invocation's files are: FILE as it stands or, with --from, made of what another program reads
 * (common/request/import_peer.h), what that leaves over going to standard error, a line each. Complains. */
enum bp_exit bp_request_of_files(const struct bp_invocation *invocation, enum bp_peer_form form, struct bp_buf *ret,
                                 const char **ret_name);

/* Makes `call` with that request, and prints the answer. */
enum bp_exit bp_run_request(const struct bp_invocation *invocation, const struct bp_invocation *call,
                            enum bp_peer_form form);

/* Sends the command's request (`body` NULL: none). BP_EXIT_YES and an answer to release, whatever its HTTP status; else
 * the reason was printed. */
enum bp_exit bp_invocation_call(const struct bp_invocation *invocation, const struct bp_buf *body,
                                struct bp_reply *ret);

/* The body as an object, to give back with json_decref; NULL and a complaint when it is none. */
enum bp_exit bp_reply_parse(const struct bp_reply *answer, json_t **ret);

/* Prints an answer and releases it: as the command prints it, or as it came with --json. A refusal goes to standard
 * error with every problem it names; a rejected plan, being an answer, to standard output. `input` is what a position
 * in a problem refers to, or NULL. */
enum bp_exit bp_reply_print(const struct bp_invocation *invocation, struct bp_reply *answer, const char *input);

/* NULL when there is none of that name. Some have a name of two words, the first of which is the `group`; else NULL. */
const struct bp_command *bp_command_find(const char *group, const char *name);
bool bp_command_is_group(const char *word);

/* The name of the option of a command (NULL: of none) that the n bytes at `name` name, static; NULL when it has none.
 * A flag takes no value. */
const char *bp_command_option(const struct bp_command *command, const char *name, size_t n, bool *ret_is_flag);

/* Print what --help asks for. */
enum bp_exit bp_help(void);
enum bp_exit bp_command_help(const struct bp_command *command);

#endif
