/* The commands and their options, as tables, and the help made of them. */
#include <string.h>

#include "client/client.h"
#include "client/print.h"

static const struct bp_command commands[] = {
#define BP_COMMAND(name, run, print, arguments, least, most, method, path, summary, help)                              \
    {#name, run, print, arguments, least, most, method, path, summary, help},
#include "client/commands.def"
#undef BP_COMMAND
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static const struct option_row {
    const char *command, *name, *value, *help;
} option_rows[] = {
#define BP_OPTION(command, name, value, help) {#command, #name, value, help},
#include "client/commands.def"
#undef BP_OPTION
};
enum { N_OPTION_ROWS = sizeof option_rows / sizeof *option_rows };

/* Whether the name is "GROUP NAME", or NAME without a group. */
static bool is_called(const char *full, const char *group, const char *name)
{
    size_t n = group ? strlen(group) : 0;
    if (group && (strncmp(full, group, n) != 0 || full[n++] != ' '))
        return false;
    return strcmp(full + n, name) == 0;
}

const struct bp_command *bp_command_find(const char *group, const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (is_called(commands[i].name, group, name))
            return &commands[i];
    return NULL;
}

bool bp_command_is_group(const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strncmp(commands[i].name, word, n) == 0 && commands[i].name[n] == ' ')
            return true;
    return false;
}

const char *bp_command_option(const struct bp_command *command, const char *name, size_t n, bool *ret_is_flag)
{
    for (size_t i = 0; command && i < N_OPTION_ROWS; i++) {
        const struct option_row *row = &option_rows[i];
        if (strcmp(row->command, command->name) == 0 && strlen(row->name) == n && strncmp(row->name, name, n) == 0) {
            *ret_is_flag = !*row->value;
            return row->name;
        }
    }
    return NULL;
}

enum bp_exit bp_help(void)
{
    struct bp_buf out = {0};
    bp_buf_addstr(&out, "usage: blueprint [--server URL] [--token-file FILE] [--cacert FILE] [--json] COMMAND\n\n");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        struct bp_buf call = {0};
        bp_buf_addf(&call, "%s %s", commands[i].name, commands[i].arguments);
        bp_buf_addf(&out, "  %-20s %s\n", bp_buf_string(&call), commands[i].summary);
        out.failed |= call.failed;
        bp_buf_release(&call);
    }
    bp_buf_addstr(&out, "\n  --server URL       http://HOST:PORT, https://HOST:PORT, HOST:PORT or unix:PATH (default:\n"
                        "                     $BLUEPRINT_SERVER, else " BP_DEFAULT_SERVER ")\n"
                        "  --token-file FILE  its first line is the token to show (default: $BLUEPRINT_TOKEN_FILE)\n"
                        "  --cacert FILE      the CAs to trust for https (default: the system's)\n"
                        "  --json             print the server's answer as it came\n"
                        "  --help             this text; after a COMMAND, that command's\n"
                        "  --version          print the version\n\n"
                        "PLAN, DIGEST and ENTITY may be cut short to any unambiguous prefix of 8 hex digits or more.\n"
                        "Exit: 0 yes, 1 a negative answer, 2 usage, 3 server not reached or full, 4 request refused,\n"
                        "5 the answer could not be written.\n");
    return bp_print_text(&out, BP_EXIT_YES);
}

enum bp_exit bp_command_help(const struct bp_command *command)
{
    struct bp_buf out = {0};
    bp_buf_addf(&out, "usage: blueprint %s%s%s", command->name, command->arguments[0] ? " " : "", command->arguments);
    for (size_t i = 0; i < N_OPTION_ROWS; i++)
        if (strcmp(option_rows[i].command, command->name) == 0)
            bp_buf_addf(&out, " [--%s%s%s]", option_rows[i].name, *option_rows[i].value ? " " : "",
                        option_rows[i].value);
    bp_buf_addf(&out, "\n\n%s\n", command->help);
    bool first = true;
    for (size_t i = 0; i < N_OPTION_ROWS; i++) {
        const struct option_row *row = &option_rows[i];
        if (strcmp(row->command, command->name) != 0)
            continue;
        struct bp_buf name = {0};
        bp_buf_addf(&name, "--%s%s%s", row->name, *row->value ? " " : "", row->value);
        bp_buf_addf(&out, "%s  %-18s %s\n", first ? "\n" : "", bp_buf_string(&name), row->help);
        out.failed |= name.failed;
        bp_buf_release(&name);
        first = false;
    }
    return bp_print_text(&out, BP_EXIT_YES);
}
