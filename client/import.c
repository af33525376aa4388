/* Requests made of what other programs read. */
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "client/print.h"

/* The texts of up to two files. */
struct files {
    struct bp_buf texts[BP_ARGUMENTS_MAX];
};

static int from_megatron(const struct files *files, const struct bp_peer_options *options, struct bp_arena *arena,
                         struct bp_problems *problems, struct bp_peer_request *ret)
{
    struct bp_peer_text text = {files->texts[0].data, files->texts[0].len};
    return bp_megatron_import(text, options, arena, problems, ret);
}

static int from_calculon(const struct files *files, const struct bp_peer_options *options, struct bp_arena *arena,
                         struct bp_problems *problems, struct bp_peer_request *ret)
{
    struct bp_peer_text application = {files->texts[0].data, files->texts[0].len};
    struct bp_peer_text execution = {files->texts[1].data, files->texts[1].len};
    return bp_calculon_import(application, execution, options, arena, problems, ret);
}

static const struct program {
    const char *name;
    size_t n_files;
    const char *files, *world_size_variable;
    int (*import)(const struct files *files, const struct bp_peer_options *options, struct bp_arena *arena,
                  struct bp_problems *problems, struct bp_peer_request *ret);
} programs[] = {
    {"megatron", 1, "FILE", "WORLD_SIZE", from_megatron},
    {"calculon", 2, "APPLICATION EXECUTION", NULL, from_calculon},
};

static const struct program *program_named(const char *name)
{
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (strcmp(programs[i].name, name) == 0)
            return &programs[i];
    return NULL;
}

/* Decimal digits of a number from 1 to 2^53 - 1; 0 for anything else. */
static uint64_t read_number(const char *text)
{
    uint64_t value = 0;
    size_t n = strlen(text);
    if (n != strspn(text, "0123456789") || n > 16)
        return 0;
    for (; *text; text++)
        value = 10 * value + (uint64_t)(*text - '0');
    return value <= BP_JSON_INT_MAX ? value : 0;
}

/* Options that say nothing of a request that is one already, and where they go. */
static const struct {
    const char *name;
    size_t offset; /* in struct bp_peer_options */
} import_options[] = {
    {"world-size", offsetof(struct bp_peer_options, world_size)},
    {"vocab-size", offsetof(struct bp_peer_options, vocab_size)},
    {"memory-bytes", offsetof(struct bp_peer_options, memory_bytes)},
};
enum { N_IMPORT_OPTIONS = sizeof import_options / sizeof *import_options };

static enum bp_exit read_options(const struct bp_invocation *invocation, const struct program *program,
                                 struct bp_peer_options *ret)
{
    const char *variable = program->world_size_variable ? getenv(program->world_size_variable) : NULL;
    for (size_t i = 0; i < N_IMPORT_OPTIONS; i++) {
        const char *text = bp_invocation_option(invocation, import_options[i].name);
        uint64_t *number = (uint64_t *)(void *)((char *)ret + import_options[i].offset);
        if (text && !(*number = read_number(text)))
            return bp_complain(BP_EXIT_USAGE, "--%s must be a whole number from 1 to 2^53 - 1", import_options[i].name);
    }
    if (variable && !ret->world_size && !(ret->world_size = read_number(variable)))
        return bp_complain(BP_EXIT_USAGE, "$%s is not a whole number from 1 to 2^53 - 1", program->world_size_variable);
    return BP_EXIT_YES;
}

/* One line each, cut where it is very long. */
static void print_leftovers(const struct bp_peer_request *request, const char *program)
{
    enum { NAME_MAX_SHOWN = 200, VALUE_MAX_SHOWN = 1000 };
    for (size_t i = 0; i < request->n_leftovers; i++) {
        const struct bp_leftover *leftover = &request->leftovers[i];
        bp_complain(BP_EXIT_YES, "from %s: %.*s%s%.*s%s: %s", program, NAME_MAX_SHOWN, leftover->name,
                    leftover->value[0] ? " " : "", VALUE_MAX_SHOWN, leftover->value,
                    strlen(leftover->value) > VALUE_MAX_SHOWN ? "..." : "", leftover->why);
    }
}

static void print_problems(const struct bp_problems *problems, const char *file)
{
    for (size_t i = 0; i < problems->n; i++)
        bp_complain(BP_EXIT_REFUSED, "%s: %s%s%s", file, problems->at[i].path, problems->at[i].path[0] ? ": " : "",
                    problems->at[i].message);
    if (problems->n_dropped)
        bp_complain(BP_EXIT_REFUSED, "%s: and %zu more", file, problems->n_dropped);
}

static enum bp_exit import(const struct program *program, const struct files *files,
                           const struct bp_peer_options *options, const char *file, struct bp_buf *ret)
{
    struct bp_arena arena = {0};
    struct bp_problems problems = {0};
    struct bp_peer_request request = {0};
    enum bp_exit status = BP_EXIT_YES;
    if (program->import(files, options, &arena, &problems, &request) < 0) {
        status = bp_complain(BP_EXIT_LOCAL, "out of memory");
    } else {
        print_leftovers(&request, program->name);
        print_problems(&problems, file);
        status = bp_problems_none(&problems) ? BP_EXIT_YES : BP_EXIT_REFUSED;
        *ret = request.text;
    }
    bp_problems_release(&problems);
    bp_arena_release(&arena);
    return status;
}

static enum bp_exit import_files(const struct bp_invocation *invocation, const struct program *program,
                                 enum bp_peer_form form, struct bp_buf *ret, const char **ret_name)
{
    struct bp_peer_options options = {.form = form};
    struct files files = {0};
    enum bp_exit status = read_options(invocation, program, &options);
    for (size_t i = 0; i < program->n_files && status == BP_EXIT_YES; i++)
        status = bp_file_read(invocation->arguments[i], &files.texts[i], ret_name);
    if (program->n_files > 1)
        *ret_name = program->name;
    if (status == BP_EXIT_YES)
        status = import(program, &files, &options, *ret_name, ret);
    for (size_t i = 0; i < BP_ARGUMENTS_MAX; i++)
        bp_buf_release(&files.texts[i]);
    return status;
}

enum bp_exit bp_request_of_files(const struct bp_invocation *invocation, enum bp_peer_form form, struct bp_buf *ret,
                                 const char **ret_name)
{
    const char *name = bp_invocation_option(invocation, "from"), *command = invocation->command->name;
    const struct program *program = name ? program_named(name) : NULL;
    if (name && !program)
        return bp_complain(BP_EXIT_USAGE, "--from is megatron or calculon, not %s", name);
    if (program && invocation->n_arguments != program->n_files)
        return bp_complain(BP_EXIT_USAGE, "usage: blueprint %s --from %s %s", command, name, program->files);
    if (program && form == BP_PEER_FIT && !bp_invocation_option(invocation, "memory-bytes"))
        return bp_complain(BP_EXIT_USAGE, "%s --from needs --memory-bytes, the memory of one device", command);
    if (program)
        return import_files(invocation, program, form, ret, ret_name);
    if (invocation->n_arguments > 1)
        return bp_complain(BP_EXIT_USAGE, "%s takes no argument %s", command, invocation->arguments[1]);
    for (size_t i = 0; i < N_IMPORT_OPTIONS; i++)
        if (bp_invocation_option(invocation, import_options[i].name))
            return bp_complain(BP_EXIT_USAGE, "--%s needs --from", import_options[i].name);
    return bp_file_read(invocation->arguments[0], ret, ret_name);
}
