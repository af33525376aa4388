/* Megatron-LM's arguments: how they are looked up, the model they describe, and what becomes of the rest. */
#include "common/request/import_megatron.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static struct bp_arg *find(const struct bp_megatron *m, const char *name)
{
    for (size_t i = m->args->n; i-- > 0;)
        if (m->args->at[i].row && strcmp(m->args->at[i].row->name, name) == 0)
            return &m->args->at[i];
    return NULL;
}

struct bp_arg *bp_megatron_get(struct bp_megatron *m, const char *name)
{
    struct bp_arg *arg = find(m, name);
    if (arg)
        arg->used = true;
    return arg;
}

bool bp_megatron_has(const struct bp_megatron *m, const char *name)
{
    return find(m, name) != NULL;
}

void bp_megatron_refuse(struct bp_megatron *m, const char *name, enum bp_code code, const char *format, ...)
{
    char message[400], path[BP_POINTER_MAX];
    const struct bp_arg *arg = find(m, name);
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    snprintf(path, sizeof path, "--%s", name);
    if (arg)
        bp_arg_problem(m->peer, arg, code, "%s", message);
    else
        bp_problems_add(m->peer->problems, code, path, "%s", message);
}

void bp_megatron_list(struct bp_megatron *m, const char *name, const char *why)
{
    struct bp_arg *arg = bp_megatron_get(m, name);
    if (arg)
        bp_peer_list(m->peer, arg->shown, bp_arg_text(m->peer, arg), "%s", why);
}

void bp_megatron_assume(struct bp_megatron *m, const char *name, uint64_t value, const char *why)
{
    const char *shown = bp_arena_printf(m->peer->arena, "--%s", name);
    const char *text = bp_arena_printf(m->peer->arena, "%llu", (unsigned long long)value);
    m->peer->out_of_memory |= !shown || !text;
    if (shown && text)
        bp_peer_list(m->peer, shown, text, "%s", why);
}

/* The one value of an argument, NULL after a problem. */
static const char *one_value(struct bp_megatron *m, const struct bp_arg *arg)
{
    if (arg->n_values == 1)
        return arg->values[0];
    bp_arg_problem(m->peer, arg, BP_E_wrong_type, "needs one value");
    return NULL;
}

uint64_t bp_megatron_count(struct bp_megatron *m, const char *name, uint64_t least, uint64_t fallback)
{
    struct bp_arg *arg = bp_megatron_get(m, name);
    const char *text = arg ? one_value(m, arg) : NULL;
    uint64_t value = 0;
    bool fits = true;
    if (!text)
        return fallback;
    size_t digits = strspn(text, "0123456789");
    if (!digits || text[digits]) {
        bp_arg_problem(m->peer, arg, BP_E_wrong_type, "\"%.64s\" is not a whole number", text);
        return fallback;
    }
    for (; *text && fits; text++) {
        value = 10 * value + (uint64_t)(*text - '0');
        fits = value <= BP_JSON_INT_MAX;
    }
    if (fits && value >= least)
        return value;
    bp_arg_problem(m->peer, arg, BP_E_out_of_range, "must be between %llu and %llu", (unsigned long long)least,
                   (unsigned long long)BP_JSON_INT_MAX);
    return fallback;
}

uint64_t bp_megatron_required(struct bp_megatron *m, const char *name)
{
    if (!find(m, name))
        bp_megatron_refuse(m, name, BP_E_missing_key, "is required");
    return bp_megatron_count(m, name, 1, 0);
}

/* A switch on the command line has no value, in YAML a truth. False after a problem. */
static bool truth(struct bp_megatron *m, const struct bp_arg *arg)
{
    static const char *const words[] = {"true", "false", "True", "False", "TRUE", "FALSE",
                                        "yes",  "no",    "Yes",  "No",    "on",   "off"};
    if (!arg->n_values && !m->args->yaml)
        return !arg->inverted;
    const char *text = one_value(m, arg);
    for (size_t i = 0; text && i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], text) == 0)
            return (i % 2 == 0) != arg->inverted;
    if (text)
        bp_arg_problem(m->peer, arg, BP_E_wrong_type, "must be true or false");
    return false;
}

bool bp_megatron_flag(struct bp_megatron *m, const char *name)
{
    struct bp_arg *arg = bp_megatron_get(m, name);
    return arg && truth(m, arg);
}

int bp_megatron_enum(struct bp_megatron *m, const char *name, const char *const *names, int fallback)
{
    struct bp_arg *arg = bp_megatron_get(m, name);
    const char *text = arg ? one_value(m, arg) : NULL;
    char known[256] = "";
    if (!text)
        return fallback;
    for (int i = 0; names[i]; i++) {
        if (strcmp(names[i], text) == 0)
            return i;
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", names[i]);
    }
    bp_arg_problem(m->peer, arg, BP_E_unknown_value, "\"%.64s\" is none of %s", text, known);
    return fallback;
}

/* Whether the text is a decimal number, as Python writes them, of no digit but 0. */
static bool read_decimal(const char *text, bool *ret_zero)
{
    size_t whole = strspn(text, "0123456789"), zeros = strspn(text, "0.");
    const char *at = text + whole;
    size_t part = 0;
    if (*at == '.')
        part = strspn(at + 1, "0123456789"), at += 1 + part;
    *ret_zero = text + zeros >= at;
    if (*at == 'e' || *at == 'E') {
        at += 1 + (at[1] == '-' || at[1] == '+');
        size_t exponent = strspn(at, "0123456789");
        at += exponent;
        if (!exponent)
            return false;
    }
    return whole + part > 0 && !*at;
}

bool bp_megatron_is_zero(struct bp_megatron *m, const char *name, bool fallback)
{
    struct bp_arg *arg = bp_megatron_get(m, name);
    const char *text = arg ? one_value(m, arg) : NULL;
    bool zero = fallback;
    if (text && !read_decimal(text, &zero))
        bp_arg_problem(m->peer, arg, BP_E_wrong_type, "\"%.64s\" is not a number of at least 0", text);
    return zero;
}

/* Megatron keeps a gated MLP's parameters near an ungated one's: 8H/3, rounded down to a multiple of 64. */
static uint64_t default_width(struct bp_megatron *m, uint64_t hidden_size, bool swiglu)
{
    uint64_t width = bp_peer_product(m->peer, "--hidden-size", 4, hidden_size);
    return swiglu ? bp_peer_product(m->peer, "--hidden-size", 2, width) / 3 / 64 * 64 : width;
}

static bool read_activation(struct bp_megatron *m, struct bp_peer_job *job)
{
    static const char *const functions[] = {"gelu", "swiglu", "squaredrelu", NULL};
    int function = m->args->yaml ? bp_megatron_enum(m, "activation-func", functions, 0) : 0;
    bool swiglu = bp_megatron_flag(m, "swiglu") || function == 1;
    bool squared = bp_megatron_flag(m, "squared-relu") || function == 2, quick = bp_megatron_flag(m, "quick-geglu");
    if (swiglu + squared + quick > 1)
        bp_megatron_refuse(m, squared ? "squared-relu" : "quick-geglu", BP_E_conflict,
                           "a second activation: Megatron takes one");
    if (squared)
        bp_megatron_list(m, function == 2 ? "activation-func" : "squared-relu",
                         "planned as relu: the square is not counted, what is kept is the same");
    if (quick)
        bp_megatron_list(m, "quick-geglu", "planned as geglu: the same tensors");
    job->activation = swiglu ? "swiglu" : quick ? "geglu" : squared ? "relu" : "gelu";
    return swiglu;
}

static void read_heads(struct bp_megatron *m, struct bp_peer_job *job)
{
    job->num_attention_heads = bp_megatron_required(m, "num-attention-heads");
    job->head_dim = bp_megatron_count(m, "kv-channels", 1, 0);
    if (!job->head_dim && job->num_attention_heads && job->hidden_size % job->num_attention_heads != 0)
        bp_megatron_refuse(m, "num-attention-heads", BP_E_not_divisible,
                           "does not divide --hidden-size, and --kv-channels is not given");
    if (m->args->yaml ? bp_megatron_has(m, "num-query-groups") : bp_megatron_flag(m, "group-query-attention"))
        job->num_key_value_heads = bp_megatron_count(m, "num-query-groups", 1, 1);
    else
        bp_megatron_list(m, "num-query-groups", "no effect without --group-query-attention");
}

static void read_positions(struct bp_megatron *m, struct bp_peer_job *job)
{
    static const char *const types[] = {"learned_absolute", "rope", "mrope", "none", "relative", NULL};
    static const char *const positions[] = {"learned", "rope", "rope", "none", "none"};
    int type = bp_megatron_enum(m, "position-embedding-type", types, 0);
    if (bp_megatron_flag(m, "use-rotary-position-embeddings"))
        type = 1;
    if (type == 4)
        bp_megatron_refuse(m, "position-embedding-type", BP_E_unsupported_feature,
                           "relative positions are not modelled");
    if (bp_megatron_flag(m, "no-position-embedding")) {
        if (type == 0)
            bp_megatron_refuse(m, "no-position-embedding", BP_E_conflict,
                               "Megatron takes it with rope alone: --position-embedding-type says it");
        bp_megatron_list(m, "no-position-embedding", "the position embedding's type says it");
    }
    job->position = positions[type];
    uint64_t rows = bp_megatron_count(m, "max-position-embeddings", 1, 0);
    if (type == 0 && !rows && !bp_megatron_has(m, "max-position-embeddings"))
        bp_megatron_required(m, "max-position-embeddings");
    if (rows && rows < job->sequence_length)
        bp_megatron_refuse(m, "max-position-embeddings", BP_E_conflict, "Megatron wants no less than --seq-length");
    if (type == 0)
        job->max_position_embeddings = rows;
    else
        bp_megatron_list(m, "max-position-embeddings", "a bound of the length: there is no table of positions");
}

/* Megatron's tokenizers know their size; a request must be told. */
static void read_vocabulary(struct bp_megatron *m, struct bp_peer_job *job)
{
    const struct bp_peer_options *options = m->peer->options;
    const struct bp_arg *tokenizer = bp_megatron_get(m, "tokenizer-type");
    bool counts_one_more = tokenizer && tokenizer->n_values == 1 && strcmp(tokenizer->values[0], "NullTokenizer") == 0;
    uint64_t said = bp_megatron_count(m, "vocab-size", 1, 0), padded = bp_megatron_count(m, "padded-vocab-size", 1, 0);
    uint64_t multiple = bp_megatron_count(m, "make-vocab-size-divisible-by", 1, 128);
    job->vocab_size = options->vocab_size ? options->vocab_size : padded ? padded : said ? said + counts_one_more : 0;
    if (options->vocab_size) {
        bp_megatron_list(m, "vocab-size", "the caller gave another");
        bp_megatron_list(m, "padded-vocab-size", "the caller gave another");
    } else if (padded) {
        bp_megatron_list(m, "vocab-size", "the padded size is used");
    } else if (said && counts_one_more) {
        bp_megatron_list(m, "vocab-size", "one more: the NullTokenizer has a token for the end of a document");
    }
    if (!options->vocab_size && !bp_megatron_has(m, "padded-vocab-size") && !bp_megatron_has(m, "vocab-size"))
        bp_megatron_refuse(m, "vocab-size", BP_E_missing_key,
                           "is required: a request cannot ask the tokenizer (an option can give it)");
    if (padded && !options->vocab_size)
        bp_megatron_list(m, "make-vocab-size-divisible-by", "the padded size is used");
    else if (m->peer->options->form == BP_PEER_FIT)
        job->vocab_multiple =
            bp_peer_product(m->peer, "--make-vocab-size-divisible-by", multiple, job->tensor_parallel);
    else
        bp_megatron_assume(m, "make-vocab-size-divisible-by", multiple,
                           "a plan is of one block: only a fit pads the vocabulary");
    bp_megatron_list(m, "tokenizer-type", "of the data");
}

static void read_experts(struct bp_megatron *m, struct bp_peer_job *job)
{
    job->num_experts = bp_megatron_count(m, "num-experts", 0, 0);
    if (!job->num_experts) {
        static const char *const names[] = {"moe-router-topk", "moe-ffn-hidden-size",
                                            "moe-shared-expert-intermediate-size", "moe-router-enable-expert-bias"};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            bp_megatron_list(m, names[i], "no effect without --num-experts");
        return;
    }
    job->experts_per_token = bp_megatron_count(m, "moe-router-topk", 1, 2);
    job->expert_intermediate_size = bp_megatron_count(m, "moe-ffn-hidden-size", 1, job->intermediate_size);
    job->shared_expert_intermediate_size = bp_megatron_count(m, "moe-shared-expert-intermediate-size", 1, 0);
    job->score_correction_bias = bp_megatron_flag(m, "moe-router-enable-expert-bias");
}

static void read_model(struct bp_megatron *m)
{
    static const char *const norms[] = {"LayerNorm", "RMSNorm", NULL};
    struct bp_peer_job *job = &m->peer->job;
    job->label = "megatron";
    job->hidden_size = bp_megatron_required(m, "hidden-size");
    bool swiglu = read_activation(m, job);
    job->intermediate_size = bp_megatron_count(m, "ffn-hidden-size", 1, 0);
    if (!bp_megatron_has(m, "ffn-hidden-size"))
        job->intermediate_size = default_width(m, job->hidden_size, swiglu);
    job->norm = bp_megatron_enum(m, "normalization", norms, 0) ? "rmsnorm" : "layernorm";
    job->bias = !bp_megatron_flag(m, "disable-bias-linear");
    job->qkv_bias = bp_megatron_flag(m, "add-qkv-bias") && !job->bias;
    job->qk_norm = bp_megatron_flag(m, "qk-layernorm");
    job->hidden_dropout = job->embedding_dropout = !bp_megatron_is_zero(m, "hidden-dropout", false);
    job->attention_dropout = !bp_megatron_is_zero(m, "attention-dropout", false);
    job->tie_word_embeddings = !bp_megatron_flag(m, "untie-embeddings-and-output-weights");
    read_heads(m, job);
    read_positions(m, job);
    read_experts(m, job);
    read_vocabulary(m, job);
}

static bool is_off(struct bp_megatron *m, const struct bp_arg *arg)
{
    static const char *const off[] = {"False", "false", "FALSE", "None", "no", "off"};
    const char *harmless = arg->row->harmless;
    if (arg->row->values == BP_ARG_FLAG)
        return !truth(m, arg);
    if (arg->n_values != 1)
        return false;
    for (size_t i = 0; m->args->yaml && i < sizeof off / sizeof *off; i++)
        if (strcmp(off[i], arg->values[0]) == 0)
            return true;
    return harmless && strcmp(harmless, arg->values[0]) == 0;
}

/* What nothing has read. */
static void judge_rest(struct bp_megatron *m)
{
    for (size_t i = 0; i < m->args->n; i++) {
        const struct bp_arg *arg = &m->args->at[i];
        const char *value = arg->used && !arg->replaced ? "" : bp_arg_text(m->peer, arg);
        if (arg->replaced)
            bp_peer_list(m->peer, arg->shown, value, "given again later: the last one counts");
        else if (!arg->row)
            bp_peer_list(m->peer, arg->shown, value, "not an argument that is known here: not taken into account");
        else if (arg->row->fate == BP_ARG_LISTED)
            bp_peer_list(m->peer, arg->shown, value, "%s", arg->row->why);
        else if (arg->row->fate == BP_ARG_REFUSED && !is_off(m, arg))
            bp_arg_problem(m->peer, arg, BP_E_unsupported_feature, "%s", arg->row->why);
        else if (arg->row->fate == BP_ARG_READ && !arg->used)
            bp_peer_list(m->peer, arg->shown, value, "no effect beside the other arguments");
    }
}

/* YAML begins with a key or a directive, a command line with neither. */
static bool is_yaml(struct bp_peer_text text)
{
    const char *at = text.data, *end = at + text.len;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *line_end = newline ? newline : end;
        while (at < line_end && (*at == ' ' || *at == '\t' || *at == '\r'))
            at++;
        if (at < line_end && *at != '#') {
            size_t n = 0, left = (size_t)(line_end - at);
            while (n < left && strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-\"'", at[n]))
                n++;
            bool key = n && n < left && at[n] == ':' && (n + 1 == left || strchr(" \t\r", at[n + 1]));
            return key || *at == '%' || *at == '{' || (left >= 3 && strncmp(at, "---", 3) == 0);
        }
        at = newline ? newline + 1 : end;
    }
    return false;
}

int bp_megatron_import(struct bp_peer_text text, const struct bp_peer_options *options, struct bp_arena *arena,
                       struct bp_problems *problems, struct bp_peer_request *ret)
{
    struct bp_peer peer = {.options = options, .arena = arena, .problems = problems};
    struct bp_args args = {0};
    struct bp_megatron m = {&peer, &args};
    if (text.len > BP_PEER_TEXT_MAX)
        bp_problems_add(problems, BP_E_out_of_range, "", "the text is longer than %d bytes", BP_PEER_TEXT_MAX);
    else if (is_yaml(text))
        bp_args_read_yaml(&peer, text, &args);
    else
        bp_args_read_words(&peer, text, &args);
    if (bp_problems_none(problems) && !peer.out_of_memory) {
        bp_megatron_read_workload(&m);
        bp_megatron_read_strategy(&m);
        read_model(&m);
        judge_rest(&m);
    }
    return bp_peer_finish(&peer, ret);
}
