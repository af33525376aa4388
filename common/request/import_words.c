/* A command line's words, and the arguments that they are. */
#include <string.h>

#include "common/request/import_args.h"

/* The text being split. */
struct splitter {
    struct bp_peer *peer;
    const char *at, *end;
    unsigned line, column;
    struct bp_buf word;
    bool in_word, expands, failed;
    unsigned word_line, word_column;
    struct bp_word *words;
    size_t n, allocated;
};

static void refuse_at(struct splitter *s, unsigned line, unsigned column, const char *what)
{
    if (!s->failed)
        bp_problems_add(s->peer->problems, BP_E_invalid_request, "", "line %u, column %u: %s", line, column, what);
    s->failed = true;
}

static int take(struct splitter *s)
{
    if (s->at == s->end)
        return -1;
    unsigned char c = (unsigned char)*s->at++;
    s->column++;
    if (c == '\n') {
        s->line++;
        s->column = 0;
    }
    if (c == '\0')
        refuse_at(s, s->line, s->column, "a NUL byte");
    return c;
}

static void begin_word(struct splitter *s)
{
    if (s->in_word)
        return;
    s->in_word = true;
    s->word_line = s->line;
    s->word_column = s->column;
}

static void end_word(struct splitter *s)
{
    if (!s->in_word)
        return;
    if (s->n == s->allocated) {
        size_t n = s->allocated ? 2 * s->allocated : 128;
        struct bp_word *grown = bp_arena_array(s->peer->arena, n, sizeof *grown);
        if (grown && s->n)
            memcpy(grown, s->words, s->n * sizeof *grown);
        s->words = grown;
        s->allocated = grown ? n : 0;
    }
    const char *text = bp_arena_strndup(s->peer->arena, s->word.len ? s->word.data : "", s->word.len);
    if (!s->words || !text || s->word.failed) {
        s->peer->out_of_memory = s->failed = true;
        return;
    }
    s->words[s->n++] = (struct bp_word){text, s->word_line, s->word_column, s->expands};
    bp_buf_clear(&s->word);
    s->in_word = s->expands = false;
}

/* After a backslash: the next byte as it is; a newline joins the lines. */
static void take_escaped(struct splitter *s, bool in_quotes)
{
    int c = take(s);
    if (c < 0)
        refuse_at(s, s->line, s->column, "a backslash at the end of the text");
    if (c < 0 || c == '\n')
        return;
    if (c == '\r' && s->at < s->end && *s->at == '\n') {
        take(s);
        return;
    }
    begin_word(s);
    if (in_quotes && !strchr("\"\\$`", c))
        bp_buf_addch(&s->word, '\\');
    bp_buf_addch(&s->word, (char)c);
}

static void take_quoted(struct splitter *s, int quote)
{
    unsigned line = s->line, column = s->column;
    begin_word(s);
    for (int c = take(s); c != quote; c = take(s)) {
        if (c < 0) {
            refuse_at(s, line, column, "a quote that is not closed");
            return;
        }
        if (c == '\\' && quote == '"') {
            take_escaped(s, true);
            continue;
        }
        if (c == '`' && quote == '"')
            refuse_at(s, s->line, s->column, "a command within the command: give the words that come out of it");
        s->expands |= c == '$' && quote == '"';
        bp_buf_addch(&s->word, (char)c);
    }
}

static void skip_comment(struct splitter *s)
{
    while (s->at < s->end && *s->at != '\n')
        take(s);
}

static void take_plain(struct splitter *s, int c)
{
    if (strchr(" \t\r\n", c)) {
        end_word(s);
    } else if (c == '\\') {
        take_escaped(s, false);
    } else if (c == '\'' || c == '"') {
        take_quoted(s, c);
    } else if (c == '#' && !s->in_word) {
        skip_comment(s);
    } else if (strchr(";&|<>()`", c)) {
        refuse_at(s, s->line, s->column,
                  "more than the words of one command: give the arguments as they reach the program");
    } else {
        begin_word(s);
        s->expands |= c == '$';
        bp_buf_addch(&s->word, (char)c);
    }
}

void bp_words_split(struct bp_peer *peer, struct bp_peer_text text, struct bp_word **ret, size_t *ret_n)
{
    struct splitter s = {.peer = peer, .at = text.data, .end = text.data + text.len, .line = 1};
    for (int c = take(&s); c > 0 && !s.failed; c = take(&s))
        take_plain(&s, c);
    if (!s.failed)
        end_word(&s);
    bp_buf_release(&s.word);
    *ret = s.words;
    *ret_n = s.failed ? 0 : s.n;
}

static bool is_option(const struct bp_word *word)
{
    return strncmp(word->text, "--", 2) == 0 && word->text[2];
}

static const struct bp_arg_row *row_of(const struct bp_word *word)
{
    bool inverted;
    const char *name = word->text + 2;
    return is_option(word) ? bp_arg_row_find(name, strcspn(name, "="), &inverted) : NULL;
}

/* Where the arguments begin: behind the script that a launcher starts, if there is one. A .py behind an argument of
 * Megatron's is a value. */
static size_t find_script(const struct bp_word *words, size_t n)
{
    for (size_t i = 0; i < n && !row_of(&words[i]); i++) {
        size_t len = strlen(words[i].text);
        if (len > 3 && strcmp(words[i].text + len - 3, ".py") == 0)
            return i + 1;
    }
    return 0;
}

/* Decimal digits alone, up to 2^53 - 1; 0 for anything else. */
static uint64_t whole(const char *text)
{
    uint64_t value = 0;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || value > BP_JSON_INT_MAX / 10)
            return 0;
        value = 10 * value + (uint64_t)(*text - '0');
    }
    return value <= BP_JSON_INT_MAX ? value : 0;
}

/* What a launcher says about ranks. */
struct launch {
    uint64_t per_node, nodes, world;
};

static bool is_named(const char *name, size_t n, const char *wanted)
{
    for (size_t i = 0; i < n; i++)
        if (!wanted[i] || (name[i] == '_' ? '-' : name[i]) != wanted[i])
            return false;
    return !wanted[n];
}

/* Of "NAME=value" in the environment or "--name value". */
static void note_launch(struct bp_peer *peer, struct launch *launch, const char *shown, size_t n, const char *value)
{
    const struct {
        const char *name;
        uint64_t *number;
    } known[] = {{"WORLD-SIZE", &launch->world}, {"--nproc-per-node", &launch->per_node}, {"--nnodes", &launch->nodes}};
    const char *name = bp_arena_strndup(peer->arena, shown, n);
    peer->out_of_memory |= !name;
    for (size_t i = 0; name && i < sizeof known / sizeof *known; i++) {
        if (!is_named(name, n, known[i].name))
            continue;
        *known[i].number = whole(value); /* 0, not known, for a range or a variable */
        if (*known[i].number)
            return;
    }
    if (name)
        bp_peer_list(peer, name, value, "of the launcher or its environment");
}

static void read_launcher(struct bp_peer *peer, const struct bp_word *words, size_t n, struct bp_args *ret)
{
    struct launch launch = {.nodes = 1};
    for (size_t i = 0; i < n; i++) {
        const char *text = words[i].text, *equals = strchr(text, '=');
        if (equals)
            note_launch(peer, &launch, text, (size_t)(equals - text), equals + 1);
        else if (is_option(&words[i]) && i + 1 < n && !is_option(&words[i + 1]))
            note_launch(peer, &launch, text, strlen(text), words[++i].text);
        else if (is_option(&words[i]))
            note_launch(peer, &launch, text, strlen(text), "");
    }
    ret->world_size = launch.world;
    if (!launch.world && launch.per_node)
        ret->world_size = bp_peer_product(peer, "--nproc_per_node", launch.per_node, launch.nodes);
}

static bool is_value(const struct bp_word *word)
{
    const char *text = word->text;
    return text[0] != '-' || strchr("0123456789.", text[1]) != NULL;
}

/* A word that a shell would make several of can hide arguments. One plain variable is taken for one value, where the
 * argument is known to have one. */
static void take_value(struct bp_peer *peer, struct bp_arg *arg, const struct bp_word *word)
{
    bool sure = arg->row && arg->row->values != BP_ARG_FLAG && !arg->n_values && !strpbrk(word->text, "@*");
    if (word->expands && !sure)
        bp_problems_add(peer->problems, BP_E_invalid_request, arg->shown,
                        "line %u, column %u: %.64s would be expanded by a shell: give what comes out of it", word->line,
                        word->column, word->text);
    bp_arg_add_value(peer, arg, word->text);
}

/* One option and the values behind it; where the next begins. */
static size_t read_option(struct bp_peer *peer, const struct bp_word *words, size_t i, size_t n, struct bp_args *ret)
{
    const struct bp_word *word = &words[i++];
    size_t name_len = strcspn(word->text, "=");
    const char *shown = bp_arena_strndup(peer->arena, word->text, name_len);
    struct bp_arg *arg = shown ? bp_args_add(peer, ret, shown, word->line, word->column) : NULL;
    if (!arg) {
        peer->out_of_memory = true;
        return n;
    }
    enum bp_arg_values values = arg->row ? arg->row->values : BP_ARG_LIST;
    bool glued = word->text[name_len] == '=';
    if (glued)
        take_value(peer, arg, &(struct bp_word){word->text + name_len + 1, word->line, word->column, word->expands});
    else if (word->expands)
        bp_arg_problem(peer, arg, BP_E_invalid_request, "its name would be expanded by a shell");
    size_t most = values == BP_ARG_FLAG || (glued && values == BP_ARG_VALUE) ? 0 : values == BP_ARG_VALUE ? 1 : n;
    for (; i < n && most && is_value(&words[i]); i++, most--)
        take_value(peer, arg, &words[i]);
    if (values == BP_ARG_FLAG && glued)
        bp_arg_problem(peer, arg, BP_E_wrong_type, "takes no value");
    if (values == BP_ARG_VALUE && !arg->n_values)
        bp_arg_problem(peer, arg, BP_E_missing_key, "needs a value");
    return i;
}

/* The last of several wins, as argparse has it. */
static void replace_earlier(struct bp_args *args)
{
    for (size_t i = args->n; i-- > 0;)
        for (size_t j = 0; args->at[i].row && !args->at[i].replaced && j < i; j++)
            args->at[j].replaced |= args->at[j].row == args->at[i].row;
}

void bp_args_read_words(struct bp_peer *peer, struct bp_peer_text text, struct bp_args *ret)
{
    struct bp_word *words;
    size_t n;
    bp_words_split(peer, text, &words, &n);
    size_t i = find_script(words, n);
    if (i)
        read_launcher(peer, words, i - 1, ret);
    while (i < n && bp_args_have_room(peer, ret)) {
        if (is_option(&words[i])) {
            i = read_option(peer, words, i, n, ret);
            continue;
        }
        bp_problems_add(peer->problems, BP_E_invalid_request, "",
                        "line %u, column %u: %.64s is neither an argument nor the value of one", words[i].line,
                        words[i].column, words[i].text);
        i++;
    }
    replace_earlier(ret);
}
