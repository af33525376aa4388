/* What the shell's completions know, as a shell function of our tables: completion blueprint|blueprintd prints it. The
 * rest of each is systemd/completion/NAME, which follows it. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/pipeline.h"

static void print_case(const char *kind, const char *of, const char *words)
{
    printf("    '%s%s%s') echo '%s' ;;\n", kind, *of ? "/" : "", of, words);
}

/* A case whose words come one by one. */
static void begin_case(const char *kind, const char *of)
{
    printf("    '%s%s%s') echo '", kind, *of ? "/" : "", of);
}

static void end_case(void)
{
    printf("' ;;\n");
}

static void print_names(const char *kind, const char *const *names)
{
    begin_case(kind, "");
    for (; *names; names++)
        printf("%s ", *names);
    end_case();
}

static const struct {
    const char *name, *arguments;
    int most;
} commands[] = {
#define BP_COMMAND(name, run, print, arguments, least, most, method, path, summary, help) {#name, arguments, most},
#include "client/commands.def"
#undef BP_COMMAND
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static const struct {
    const char *command, *name, *value; /* "": it takes none */
} options[] = {
#define BP_OPTION(command, name, value, help) {#command, #name, value},
#include "client/commands.def"
#undef BP_OPTION
};
enum { N_OPTIONS = sizeof options / sizeof *options };

/* The commands of the words that go before, "" or that of a group as "admin " is: what is next, each once. */
static void print_next_words(const char *before)
{
    size_t n = strlen(before);
    const char *last = "";
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strncmp(commands[i].name, before, n) != 0)
            continue;
        const char *word = commands[i].name + n;
        size_t length = strcspn(word, " ");
        if (strncmp(last, word, length) == 0 && last[length] == ' ')
            continue;
        printf("%.*s ", (int)length, word);
        last = word;
    }
}

static void print_options(const char *command, bool flags)
{
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (strcmp(options[i].command, command) == 0 && (!flags || !*options[i].value))
            printf("--%s ", options[i].name);
}

static void print_command(size_t i)
{
    print_case("arguments", commands[i].name, commands[i].arguments);
    printf("    'most/%s') echo %d ;;\n", commands[i].name, commands[i].most);
    begin_case("options", commands[i].name);
    print_options(commands[i].name, false);
    end_case();
    begin_case("flags", commands[i].name);
    print_options(commands[i].name, true);
    end_case();
}

static void print_client(void)
{
    begin_case("commands", "");
    print_next_words("");
    end_case();
    for (size_t i = 0; i < N_COMMANDS; i++) {
        char group[32] = "";
        size_t n = strcspn(commands[i].name, " ");
        bool is_first = i == 0 || strncmp(commands[i - 1].name, commands[i].name, n + 1) != 0;
        if (commands[i].name[n] && is_first && n < sizeof group - 1) {
            memcpy(group, commands[i].name, n);
            begin_case("commands", group);
            group[n] = ' ';
            print_next_words(group);
            end_case();
        }
        print_command(i);
    }
    print_names("stage", bp_stage_names);
    print_names("state", bp_plan_state_names);
    print_names("mode", bp_mode_names);
    begin_case("passes", "");
    for (size_t i = 0; i < bp_passes_n; i++)
        printf("%s ", bp_passes[i]->name);
    end_case();
    begin_case("models", "");
    for (size_t i = 0; i < bp_catalogue_n; i++)
        printf("%s ", bp_catalogue[i].name);
    end_case();
}

static const struct {
    const char *name, *argument; /* NULL: takes none */
} daemon_options[] = {
#define BP_CONFIG_KEY(key, argument, fallback, read, help) {key, argument},
#define BP_CONFIG_FLAG(option, argument, action, help) {option, argument},
#include "daemon/config.def"
#undef BP_CONFIG_KEY
#undef BP_CONFIG_FLAG
};
enum { N_DAEMON_OPTIONS = sizeof daemon_options / sizeof *daemon_options };

static void print_daemon(void)
{
    begin_case("options", "");
    for (size_t i = 0; i < N_DAEMON_OPTIONS; i++)
        printf("--%s ", daemon_options[i].name);
    end_case();
    for (size_t i = 0; i < N_DAEMON_OPTIONS; i++)
        if (daemon_options[i].argument)
            print_case("argument", daemon_options[i].name, daemon_options[i].argument);
}

int main(int argc, char **argv)
{
    const char *program = argc == 2 ? argv[1] : "";
    bool of_client = strcmp(program, "blueprint") == 0;
    if (!of_client && strcmp(program, "blueprintd") != 0) {
        fprintf(stderr, "usage: completion blueprint|blueprintd\n");
        return 2;
    }
    printf("# shellcheck shell=bash\n_%s_words() {\n    case $1 in\n", program);
    if (of_client)
        print_client();
    else
        print_daemon();
    printf("    esac\n}\n\n");
    return fflush(stdout) ? 1 : 0;
}
