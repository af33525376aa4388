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
    const char *server;
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
    const char *name = bp_command_option(invocation->command, word, n);
    if (!name)
        return bp_complain(BP_EXIT_USAGE, "unknown option --%s (try blueprint --help)", word);
    if (bp_invocation_option(invocation, name))
        return bp_complain(BP_EXIT_USAGE, "--%s is given twice", name);
    const char *value = option_value(words, name, equals);
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
    if (n != strlen("server") || strncmp(word, "server", n) != 0)
        return set_command_option(words, word, n, equals);
    words->server = option_value(words, "server", equals);
    return words->server ? BP_EXIT_YES : BP_EXIT_USAGE;
}

static enum bp_exit set_word(struct words *words, const char *word)
{
    struct bp_invocation *invocation = words->invocation;
    if (!invocation->command) {
        invocation->command = bp_command_find(word);
        return invocation->command ? BP_EXIT_YES
                                   : bp_complain(BP_EXIT_USAGE, "unknown command %s (try blueprint --help)", word);
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

static enum bp_exit run(struct bp_invocation *invocation, const char *server)
{
    const char *from_environment = getenv("BLUEPRINT_SERVER");
    if (!server)
        server = from_environment && from_environment[0] ? from_environment : BP_DEFAULT_SERVER;
    if (!bp_server_is_address(server))
        return bp_complain(BP_EXIT_USAGE, "%s is no server: http://HOST:PORT, HOST:PORT or unix:PATH", server);
    invocation->server = bp_server_new(server);
    if (!invocation->server)
        return bp_complain(BP_EXIT_LOCAL, "out of memory");
    enum bp_exit status = invocation->command->run(invocation);
    bp_server_free(invocation->server);
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
    return (int)run(&invocation, words.server);
}
