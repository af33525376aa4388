/* What the shell's completions know, as a shell function of our tables: completion blueprint|blueprintd prints it. The
 * rest of each is systemd/completion/NAME, which follows it. */
#include <stdio.h>
#include <string.h>

#include "common/pipeline.h"

static void print_case(const char *kind, const char *of, const char *words)
{
    printf("    %s%s%s) echo '%s' ;;\n", kind, *of ? "/" : "", of, words);
}

/* A case whose words come one by one. */
static void begin_case(const char *kind, const char *of)
{
    printf("    %s%s%s) echo '", kind, *of ? "/" : "", of);
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
    const char *command, *name;
} options[] = {
#define BP_OPTION(command, name, value, help) {#command, #name},
#include "client/commands.def"
#undef BP_OPTION
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static void print_client(void)
{
    begin_case("commands", "");
    for (size_t i = 0; i < N_COMMANDS; i++)
        printf("%s ", commands[i].name);
    end_case();
    for (size_t i = 0; i < N_COMMANDS; i++) {
        print_case("arguments", commands[i].name, commands[i].arguments);
        printf("    most/%s) echo %d ;;\n", commands[i].name, commands[i].most);
        begin_case("options", commands[i].name);
        for (size_t j = 0; j < N_OPTIONS; j++)
            if (strcmp(options[j].command, commands[i].name) == 0)
                printf("--%s ", options[j].name);
        end_case();
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
