#include "daemon/access/tokens.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <nettle/memops.h>

#include "daemon/access/secret.h"

enum { LINE_MAX_BYTES = 512, WORDS_MOST = 8, RANDOM_BYTES = 32 };

/* The file being read. */
struct reading {
    const char *path;
    struct bp_problems *problems;
    unsigned line;
    struct bp_token *at;
    size_t n, allocated;
};

static void complain(struct reading *reading, const char *what)
{
    bp_problems_add(reading->problems, BP_E_config_invalid, reading->path, "line %u: %s", reading->line, what);
}

bool bp_token_name_is_valid(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = strspn(name, allowed);
    return n > 0 && n < BP_TOKEN_NAME && !name[n];
}

/* ---- One line ---- */

typedef const char *read_word(const char *value, struct bp_token *token);

static const char *read_hash(const char *value, struct bp_token *token)
{
    return bp_unhex(value, token->hash.bytes, sizeof token->hash.bytes) ? NULL : "sha256: is followed by 64 hex digits";
}

static const char *read_rate(const char *value, struct bp_token *token)
{
    return bp_limits_read_rate(value, &token->limits);
}

static const char *read_at_once(const char *value, struct bp_token *token)
{
    return bp_limits_read_at_once(value, &token->limits);
}

static const struct word_row {
    const char *prefix;
    read_word *read;
} word_rows[] = {{"sha256:", read_hash}, {"rate=", read_rate}, {"concurrency=", read_at_once}};
enum { N_WORDS = sizeof word_rows / sizeof *word_rows, WORD_HASH = 0 };

/* What is wrong with the words, or NULL. */
static const char *read_words(char *const *words, size_t n, struct bp_token *token)
{
    bool seen[N_WORDS] = {false};
    const char *wrong = bp_token_name_is_valid(words[0]) ? NULL : "a name is of 1 to 64 letters, digits and ._-";
    if (!wrong && n < 2)
        wrong = "a line is NAME SCOPES sha256:HEX and, if wanted, rate=N/s and concurrency=N";
    if (!wrong)
        wrong = bp_scopes_read(words[1], strlen(words[1]), &token->scopes);
    for (size_t i = 2; !wrong && i < n; i++) {
        size_t k = 0;
        while (k < N_WORDS && strncmp(words[i], word_rows[k].prefix, strlen(word_rows[k].prefix)) != 0)
            k++;
        if (k == N_WORDS)
            wrong = "a word is none of sha256:HEX, rate=N/s and concurrency=N";
        else if (seen[k])
            wrong = "a word is given twice";
        else
            wrong = word_rows[k].read(words[i] + strlen(word_rows[k].prefix), token);
        if (!wrong)
            seen[k] = true;
    }
    if (!wrong && !seen[WORD_HASH])
        wrong = "sha256:HEX is missing";
    if (!wrong)
        memcpy(token->name, words[0], strlen(words[0]) + 1);
    return wrong;
}

static bool add(struct reading *reading, const struct bp_token *token)
{
    if (reading->n == reading->allocated) {
        size_t allocated = reading->allocated ? 2 * reading->allocated : 16;
        struct bp_token *at = realloc(reading->at, allocated * sizeof *at);
        if (!at) {
            reading->problems->out_of_memory = true;
            return false;
        }
        reading->at = at;
        reading->allocated = allocated;
    }
    reading->at[reading->n++] = *token;
    return true;
}

static void add_if_new(struct reading *reading, const struct bp_token *token)
{
    for (size_t i = 0; i < reading->n; i++) {
        bool same_name = strcmp(reading->at[i].name, token->name) == 0;
        if (same_name || bp_digest_equal(&reading->at[i].hash, &token->hash)) {
            bp_problems_add(reading->problems, BP_E_config_invalid, reading->path, "line %u: the %s is that of line %u",
                            reading->line, same_name ? "name" : "token", reading->at[i].line);
            return;
        }
    }
    if (reading->n == BP_TOKENS_MAX)
        complain(reading, "there are more than 1024 tokens");
    else
        add(reading, token);
}

/* n bytes without the line's end. */
static void read_line(struct reading *reading, const char *text, size_t n)
{
    char line[LINE_MAX_BYTES], *words[WORDS_MOST], *rest = NULL;
    size_t n_words = 0;
    if (memchr(text, '\0', n)) {
        complain(reading, "it has a NUL");
        return;
    }
    if (n >= sizeof line) {
        complain(reading, "it is longer than 511 bytes");
        return;
    }
    memcpy(line, text, n);
    line[n] = '\0';
    for (char *word = strtok_r(line, " \t\r", &rest); word; word = strtok_r(NULL, " \t\r", &rest)) {
        if (n_words == 0 && *word == '#')
            return;
        if (n_words == WORDS_MOST) {
            complain(reading, "it has too many words");
            return;
        }
        words[n_words++] = word;
    }
    if (n_words == 0)
        return;
    struct bp_token token = {.line = reading->line};
    const char *wrong = read_words(words, n_words, &token);
    if (wrong)
        complain(reading, wrong);
    else
        add_if_new(reading, &token);
}

/* ---- The file ---- */

void bp_tokens_parse(const char *path, const char *text, size_t n, struct bp_tokens *ret, struct bp_problems *problems)
{
    struct reading reading = {.path = path, .problems = problems};
    size_t n_before = problems->n;
    for (const char *at = text, *end = text + n, *stop; at < end; at = stop + 1) {
        stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop)
            stop = end;
        reading.line++;
        read_line(&reading, at, (size_t)(stop - at));
    }
    /* A file that was cut to nothing would lock everybody out. */
    if (reading.n == 0 && problems->n == n_before && !problems->out_of_memory)
        bp_problems_add(problems, BP_E_config_invalid, path, "names no token");
    if (problems->n > n_before || problems->out_of_memory || problems->n_dropped) {
        free(reading.at);
        return;
    }
    *ret = (struct bp_tokens){.at = reading.at, .n = reading.n};
}

void bp_tokens_load(const char *path, struct bp_tokens *ret, struct bp_problems *problems)
{
    struct bp_buf text = {0};
    struct bp_err err = {0};
    if (bp_secret_read(path, BP_FILE_SECRET, &text, &err))
        bp_problems_add(problems, err.code, err.path, "%s", err.message);
    else
        bp_tokens_parse(path, text.data ? text.data : "", text.len, ret, problems);
    bp_secret_release(&text);
}

void bp_tokens_release(struct bp_tokens *tokens)
{
    free(tokens->at);
    *tokens = (struct bp_tokens){0};
}

const struct bp_token *bp_tokens_find(const struct bp_tokens *tokens, const char *token, size_t n)
{
    struct bp_digest hash;
    const struct bp_token *found = NULL;
    bp_digest_of(token, n, &hash);
    for (size_t i = 0; i < tokens->n; i++)
        if (memeql_sec(hash.bytes, tokens->at[i].hash.bytes, sizeof hash.bytes))
            found = &tokens->at[i];
    return found;
}

int bp_token_make(char ret[BP_TOKEN_TEXT], struct bp_err *err)
{
    uint8_t bytes[RANDOM_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return bp_fail(err, BP_E_internal, "", "no random bytes: %s", strerror(errno));
    memcpy(ret, "bp_", 3);
    bp_hex(bytes, sizeof bytes, ret + 3);
    explicit_bzero(bytes, sizeof bytes);
    return 0;
}
