/* The arguments of a Megatron-LM run as a list of names and values, from the words of a command line or from YAML. */
#ifndef BP_REQUEST_IMPORT_ARGS_H
#define BP_REQUEST_IMPORT_ARGS_H

#include "common/request/import_job.h"

/* How many values an argument has, and what becomes of it: import_megatron.c reads it; it is listed, or refused (but at
 * a value that changes nothing). */
enum bp_arg_values { BP_ARG_FLAG, BP_ARG_VALUE, BP_ARG_LIST };
enum bp_arg_fate { BP_ARG_READ, BP_ARG_LISTED, BP_ARG_REFUSED };

struct bp_arg_row {
    const char *name; /* with dashes, without the two in front */
    enum bp_arg_values values;
    enum bp_arg_fate fate;
    const char *harmless; /* of a refused one, or NULL */
    const char *why;
};

/* The row of a name of n bytes, dashes or underscores; NULL: not one of Megatron's that are known. `ret_inverted`: the
 * name is that of the variable which the argument switches off. */
const struct bp_arg_row *bp_arg_row_find(const char *name, size_t n, bool *ret_inverted);

struct bp_arg {
    const char *shown; /* as in the text */
    const struct bp_arg_row *row;
    const char **values;
    size_t n_values;
    unsigned line, column;
    bool inverted; /* its truth is the contrary of its value */
    bool used, replaced;
};

struct bp_args {
    struct bp_arg *at;
    size_t n, n_allocated;
    bool yaml;
    uint64_t world_size; /* as the launcher before the script says it, or 0 */
};

/* Read the text's arguments into `ret`: all of it or, with problems, a part. Memory running out is in
 * peer->out_of_memory. The second writes the first problem of syntax alone. */
void bp_args_read_words(struct bp_peer *peer, struct bp_peer_text text, struct bp_args *ret);
void bp_args_read_yaml(struct bp_peer *peer, struct bp_peer_text text, struct bp_args *ret);

/* Whether there may be one more; a problem where not. */
enum { BP_ARGS_MAX = 4096 };
bool bp_args_have_room(struct bp_peer *peer, const struct bp_args *args);

/* A new argument, or NULL without memory; and one more value of it. */
struct bp_arg *bp_args_add(struct bp_peer *peer, struct bp_args *args, const char *shown, unsigned line,
                           unsigned column);
void bp_arg_add_value(struct bp_peer *peer, struct bp_arg *arg, const char *value);

/* All of its values in one text, "" for none. NULL without memory. */
const char *bp_arg_text(struct bp_peer *peer, const struct bp_arg *arg);

/* Adds a problem at an argument, behind its place. */
void bp_arg_problem(struct bp_peer *peer, const struct bp_arg *arg, enum bp_code code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Words of a command line: split at blanks, quotes and backslashes as a POSIX shell has them, comments left out;
 * nothing is expanded. What would be more than one plain command (; & | < > parentheses, backquotes) is a problem. */
struct bp_word {
    const char *text;
    unsigned line, column;
    bool expands; /* has a '$' that a shell would expand */
};
void bp_words_split(struct bp_peer *peer, struct bp_peer_text text, struct bp_word **ret, size_t *ret_n);

#endif
