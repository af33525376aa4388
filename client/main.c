/* blueprint: the command-line client of blueprintd. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/client.h"
#include "client/print.h"
#include "common/base/version.h"

/* The command line being read. `at` is the next word; after "--" words are arguments. */
struct words {
    char **at;
    bool only_arguments, wants_help, wants_version;
    const char *group; /* the first word of a command of two */
    const char *server, *token_file, *cacert;
    struct bp_invocation *invocation;
};

/* An option's value: after '=', or the next word. NULL after a complaint. */
static const char *option_value(struct words *words, const char *name, const char *equals)
{
    const char *value = equals ? equals + 1 : *words->at ? *words->at++ : NULL;
    if (!value)
        bp_complain(BP_EXIT_USAGE, "--%s needs a value", name);
    return value;
}

static enum bp_exit set_command_option(struct words *words, const char *word, size_t n, const char *equals)
{
    struct bp_invocation *invocation = words->invocation;
    bool is_flag = false;
    const char *name = bp_command_option(invocation->command, word, n, &is_flag);
    if (!name)
        return bp_complain(BP_EXIT_USAGE, "unknown option --%s (try blueprint --help)", word);
    if (bp_invocation_option(invocation, name))
        return bp_complain(BP_EXIT_USAGE, "--%s is given twice", name);
    if (is_flag && equals)
        return bp_complain(BP_EXIT_USAGE, "--%s takes no value", name);
    const char *value = is_flag ? "true" : option_value(words, name, equals);
    if (!value)
        return BP_EXIT_USAGE;
    invocation->options[invocation->n_options++] = (struct bp_option){name, value};
    return BP_EXIT_YES;
}

static enum bp_exit set_option(struct words *words, const char *word)
{
    const char *equals = strchr(word, '=');
    size_t n = equals ? (size_t)(equals - word) : strlen(word);
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {{"json", &words->invocation->json}, {"help", &words->wants_help}, {"version", &words->wants_version}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (strcmp(flags[i].name, word) == 0) {
            *flags[i].flag = true;
            return BP_EXIT_YES;
        }
    }
    const struct {
        const char *name, **value;
    } values[] = {{"server", &words->server}, {"token-file", &words->token_file}, {"cacert", &words->cacert}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (n == strlen(values[i].name) && strncmp(word, values[i].name, n) == 0) {
            *values[i].value = option_value(words, values[i].name, equals);
            return *values[i].value ? BP_EXIT_YES : BP_EXIT_USAGE;
        }
    return set_command_option(words, word, n, equals);
}

static enum bp_exit set_word(struct words *words, const char *word)
{
    struct bp_invocation *invocation = words->invocation;
    if (!invocation->command) {
        invocation->command = bp_command_find(words->group, word);
        if (invocation->command)
            return BP_EXIT_YES;
        if (words->group || !bp_command_is_group(word))
            return bp_complain(BP_EXIT_USAGE, "unknown command %s%s%s (try blueprint --help)",
                               words->group ? words->group : "", words->group ? " " : "", word);
        words->group = word;
        return BP_EXIT_YES;
    }
    if (invocation->n_arguments == invocation->command->most)
        return bp_complain(BP_EXIT_USAGE, "%s takes no argument %s", invocation->command->name, word);
    if (!word[0])
        return bp_complain(BP_EXIT_USAGE, "an argument of %s is empty", invocation->command->name);
    invocation->arguments[invocation->n_arguments++] = word;
    return BP_EXIT_YES;
}

static enum bp_exit read_words(struct words *words)
{
    while (*words->at) {
        const char *word = *words->at++;
        enum bp_exit status = BP_EXIT_YES;
        if (words->only_arguments || word[0] != '-' || !word[1])
            status = set_word(words, word);
        else if (strcmp(word, "--") == 0)
            words->only_arguments = true;
        else if (word[1] == '-')
            status = set_option(words, word + 2);
        else
            status = bp_complain(BP_EXIT_USAGE, "unknown option %s (try blueprint --help)", word);
        if (status != BP_EXIT_YES)
            return status;
    }
    return BP_EXIT_YES;
}

/* The variable of the environment when the option was not given; NULL when that is empty as well. */
static const char *or_from_environment(const char *given, const char *name)
{
    const char *value = given ? given : getenv(name);
    return given || (value && *value) ? value : NULL;
}

/* The first line of the file, which is the token. Never an option's value: every user sees command lines. */
static enum bp_exit read_token(const char *path, struct bp_buf *ret)
{
    const char *name;
    enum bp_exit status = bp_file_read(path, ret, &name);
    if (status != BP_EXIT_YES)
        return status;
    ret->len = strcspn(bp_buf_string(ret), "\r\n");
    bool is_token = ret->len > 0;
    for (size_t i = 0; i < ret->len; i++)
        is_token &= ret->data[i] > ' ' && ret->data[i] <= '~';
    return is_token ? BP_EXIT_YES : bp_complain(BP_EXIT_USAGE, "the first line of %s is no token", name);
}

static enum bp_exit run_on(struct bp_invocation *invocation, const char *address, const char *token, const char *cacert)
{
    invocation->server = bp_server_new(address, token, cacert);
    if (!invocation->server)
        return bp_complain(BP_EXIT_LOCAL, "out of memory");
    enum bp_exit status = invocation->command->run(invocation);
    bp_server_free(invocation->server);
    return status;
}

static enum bp_exit run(struct bp_invocation *invocation, const struct words *words)
{
    const char *server = or_from_environment(words->server, "BLUEPRINT_SERVER");
    const char *token_file = or_from_environment(words->token_file, "BLUEPRINT_TOKEN_FILE");
    struct bp_buf token = {0};
    enum bp_exit status = BP_EXIT_YES;
    if (!server)
        server = BP_DEFAULT_SERVER;
    if (!bp_server_is_address(server))
        return bp_complain(BP_EXIT_USAGE,
                           "%s is no server: http://HOST:PORT, https://HOST:PORT, HOST:PORT or unix:PATH", server);
    if (token_file && !bp_server_keeps_secrets(server))
        return bp_complain(BP_EXIT_USAGE, "a token is not sent to %s, where it can be read on the way: use https://",
                           server);
    if (token_file)
        status = read_token(token_file, &token);
    if (status == BP_EXIT_YES)
        status = run_on(invocation, server, token_file ? bp_buf_string(&token) : NULL, words->cacert);
    bp_buf_release(&token);
    return status;
}

/* Standard streams that are closed would be taken by the next descriptors opened, the connection's among them. Opened
 * for reading only, output to them fails and is reported. */
static void occupy_standard_streams(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", O_RDONLY);
}

int main(int argc, char **argv)
{
    occupy_standard_streams();
    struct bp_invocation invocation = {0};
    struct words words = {.at = argv + (argc > 0), .invocation = &invocation};
    enum bp_exit status = read_words(&words);
    if (status != BP_EXIT_YES)
        return (int)status;
    if (words.wants_version) {
        struct bp_buf out = {0};
        bp_buf_addstr(&out, "blueprint " BP_VERSION "\n");
        return (int)bp_print_text(&out, BP_EXIT_YES);
    }
    const struct bp_command *command = invocation.command;
    if (words.wants_help)
        return (int)(command ? bp_command_help(command) : bp_help());
    if (!command)
        return (int)bp_complain(BP_EXIT_USAGE, "no command (try blueprint --help)");
    if (invocation.n_arguments < command->least)
        return (int)bp_complain(BP_EXIT_USAGE, "usage: blueprint %s %s", command->name, command->arguments);
    return (int)run(&invocation, &words);
}
