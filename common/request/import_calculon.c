/* Calculon's application and execution (calculon/llm/llm.py) as a request.
 *
 * Calculon's model is GPT's: learned positions, as many as a sequence has tokens, a vocabulary of 51200 and biases, as
 * its own parameter count has them, LayerNorm, GELU and dropout. Of a fused activation it keeps the output and not the
 * input: as many bytes as the request's recompute_activation, which keeps the input. */
#include <stdlib.h>
#include <string.h>

#include "common/base/json.h"
#include "common/request/import_job.h"

static const char *const application_keys[] = {"name",       "hidden",    "feedforward", "seq_size",
                                               "attn_heads", "attn_size", "num_blocks",  NULL};

/* What an execution has beside what is read: listed, or refused where it is on. */
static const struct {
    const char *key, *why;
    bool refused;
} unread_keys[] = {
    {"tensor_par_net", "of the network, not of amounts", false},
    {"pipeline_par_net", "of the network, not of amounts", false},
    {"data_par_net", "of the network, not of amounts", false},
    {"tensor_par_overlap", "of overlap and pace, not of amounts", false},
    {"data_par_overlap", "of overlap and pace, not of amounts", false},
    {"in_network_reduction", "reductions within the network are not modelled", true},
    {"weight_offload", "offloading is not modelled", true},
    {"activations_offload", "offloading is not modelled", true},
    {"optimizer_offload", "offloading is not modelled", true},
};
enum { N_UNREAD = sizeof unread_keys / sizeof *unread_keys };

static const char *const execution_keys[] = {"num_procs",
                                             "tensor_par",
                                             "pipeline_par",
                                             "data_par",
                                             "batch_size",
                                             "microbatch_size",
                                             "datatype",
                                             "fused_activation",
                                             "attention_type",
                                             "training",
                                             "activation_recompute",
                                             "pipeline_interleaving",
                                             "optimizer_sharding",
                                             "seq_par_ag_redo",
                                             "tensor_par_comm_type",
                                             NULL};

static uint64_t size(const struct bp_reader *reader, const char *key)
{
    bp_reader_get(reader, key, true);
    return bp_reader_uint(reader, key, 1, BP_JSON_INT_MAX, 0);
}

static const char *value_text(struct bp_peer *peer, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const char *copy = text ? bp_arena_strndup(peer->arena, text, strlen(text)) : NULL;
    free(text);
    peer->out_of_memory |= !copy;
    return copy;
}

static void list_key(struct bp_peer *peer, const struct bp_reader *reader, const char *key, const char *why)
{
    const json_t *value = json_object_get(reader->object, key);
    const char *name = bp_arena_strndup(peer->arena, key, strlen(key));
    peer->out_of_memory |= !name;
    if (value && name)
        bp_peer_list(peer, name, value_text(peer, value), "%s", why);
}

static bool is_one_of(const char *key, const char *const *keys)
{
    while (*keys && strcmp(*keys, key) != 0)
        keys++;
    return *keys != NULL;
}

static size_t unread_place(const char *key)
{
    size_t i = 0;
    while (i < N_UNREAD && strcmp(unread_keys[i].key, key) != 0)
        i++;
    return i;
}

/* What is not read, in the order of the file. */
static void judge_rest(struct bp_peer *peer, const struct bp_reader *reader, const char *const *read)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)reader->object, key, value) {
        size_t i = unread_place(key);
        if (is_one_of(key, read))
            continue;
        if (i == N_UNREAD)
            list_key(peer, reader, key, "not a key that is known here: not taken into account");
        else if (!unread_keys[i].refused)
            list_key(peer, reader, key, unread_keys[i].why);
        else if (bp_reader_bool(reader, key, false))
            bp_reader_problem(reader, BP_E_unsupported_feature, key, "%s", unread_keys[i].why);
    }
}

static void read_application(struct bp_peer *peer, const struct bp_reader *reader)
{
    enum { VOCABULARY = 51200 };
    struct bp_peer_job *job = &peer->job;
    job->label = "calculon";
    job->activation = "gelu";
    job->norm = "layernorm";
    job->position = "learned";
    job->bias = job->hidden_dropout = job->attention_dropout = job->tie_word_embeddings = true;
    job->hidden_size = size(reader, "hidden");
    job->intermediate_size = size(reader, "feedforward");
    job->num_attention_heads = size(reader, "attn_heads");
    job->head_dim = size(reader, "attn_size");
    job->num_hidden_layers = size(reader, "num_blocks");
    job->sequence_length = job->max_position_embeddings = size(reader, "seq_size");
    job->vocab_size = peer->options->vocab_size ? peer->options->vocab_size : VOCABULARY;
    if (!peer->options->vocab_size)
        bp_peer_list(peer, "vocab_size", "51200", "not given: as Calculon's parameter count has it");
    list_key(peer, reader, "name", "a label");
    judge_rest(peer, reader, application_keys);
}

static void read_degrees(struct bp_peer *peer, const struct bp_reader *reader)
{
    struct bp_peer_job *job = &peer->job;
    uint64_t procs = size(reader, "num_procs");
    job->tensor_parallel = size(reader, "tensor_par");
    job->pipeline_parallel = size(reader, "pipeline_par");
    job->data_parallel = size(reader, "data_par");
    struct bp_calc calc = {0};
    bp_u128 ranks = BP_PROD(&calc, job->tensor_parallel, job->pipeline_parallel, job->data_parallel);
    if (procs && ranks && (!bp_calc_ok(&calc) || ranks != procs))
        bp_reader_problem(reader, BP_E_conflict, "num_procs", "is not tensor_par * pipeline_par * data_par");
    if (peer->options->world_size && peer->options->world_size != procs)
        bp_reader_problem(reader, BP_E_conflict, "num_procs", "is not the world size that the caller gave");
}

/* Calculon gives the first stages the layers that do not divide. */
static void read_pipeline(struct bp_peer *peer, const struct bp_reader *reader)
{
    struct bp_peer_job *job = &peer->job;
    uint64_t p = job->pipeline_parallel, layers = job->num_hidden_layers, stages[BP_RUNS_MAX];
    job->virtual_stages = bp_reader_uint(reader, "pipeline_interleaving", 1, BP_JSON_INT_MAX, 1);
    if (!p || layers % p == 0)
        return;
    if (p > BP_RUNS_MAX) {
        bp_reader_problem(reader, BP_E_out_of_range, "pipeline_par", "uneven stages are at most %d", BP_RUNS_MAX);
        return;
    }
    for (uint64_t i = 0; i < p; i++)
        stages[i] = layers / p + (i < layers % p);
    bp_peer_deal(peer, "execution/pipeline_interleaving", stages);
}

static void read_tensor_parallel(struct bp_peer *peer, const struct bp_reader *reader)
{
    static const char *const types[] = {"ar", "p2p_rs_ag", "rs_ag", NULL};
    static const char comm_key[] = "tensor_par_comm_type", redo_key[] = "seq_par_ag_redo";
    struct bp_peer_job *job = &peer->job;
    int type = bp_reader_enum(reader, comm_key, types, 0);
    bool redo = bp_reader_bool(reader, redo_key, false);
    job->sequence_parallel = type == 2 && job->tensor_parallel > 1;
    job->gathers_once = job->sequence_parallel && !redo && job->recompute != BP_RECOMPUTE_FULL;
    if (type == 1)
        list_key(peer, reader, comm_key, "between stages alone: planned as all-reduces");
    if (type == 2 && !job->sequence_parallel)
        list_key(peer, reader, comm_key, "no effect without tensor parallelism");
    if (redo && type != 2)
        bp_reader_problem(reader, BP_E_conflict, redo_key, "Calculon takes it with rs_ag alone");
    if (redo && job->recompute == BP_RECOMPUTE_FULL)
        bp_reader_problem(reader, BP_E_conflict, redo_key, "Calculon takes it without full recomputation");
}

static void read_recompute(struct bp_peer *peer, const struct bp_reader *reader)
{
    static const char *const kinds[] = {"none", "attn_only", "full", NULL};
    static const char fused_key[] = "fused_activation";
    struct bp_peer_job *job = &peer->job;
    bool fused = bp_reader_bool(reader, fused_key, false);
    job->recompute = (enum bp_recompute)bp_reader_enum(reader, "activation_recompute", kinds, 0);
    job->recompute_activation = fused && job->recompute != BP_RECOMPUTE_FULL && !job->inference;
    if (job->recompute_activation)
        list_key(peer, reader, fused_key, "planned as recompute_activation: as many bytes kept, its operations again");
    else if (fused)
        list_key(peer, reader, fused_key, "no effect on what is kept here");
    if (job->inference && job->recompute != BP_RECOMPUTE_NONE)
        bp_reader_problem(reader, BP_E_conflict, "activation_recompute", "Calculon takes it in training alone");
}

static void read_execution(struct bp_peer *peer, const struct bp_reader *reader)
{
    static const char *const attention[] = {"multihead", "multiquery", NULL};
    struct bp_peer_job *job = &peer->job;
    bp_reader_get(reader, "training", true);
    job->inference = !bp_reader_bool(reader, "training", true);
    read_degrees(peer, reader);
    job->global_batch_size = size(reader, "batch_size");
    job->micro_batch_size = size(reader, "microbatch_size");
    job->dtype = (enum bp_dtype)bp_reader_enum(reader, "datatype", bp_dtype_names, -1);
    job->gradient_dtype = BP_DTYPE_FLOAT32;
    if (bp_reader_enum(reader, "attention_type", attention, 0) == 1)
        job->num_key_value_heads = 1;
    read_recompute(peer, reader);
    read_pipeline(peer, reader);
    read_tensor_parallel(peer, reader);
    job->zero_stage = bp_reader_bool(reader, "optimizer_sharding", false);
    if (job->inference) {
        list_key(peer, reader, "batch_size", "inference is of one micro-batch, its prefill");
        list_key(peer, reader, "pipeline_interleaving", "no effect on a step of inference");
        list_key(peer, reader, "optimizer_sharding", "no effect on inference");
    }
    if (peer->options->form == BP_PEER_FIT) {
        job->attention_kernel = "unfused"; /* whose scores Calculon counts and keeps */
        job->optimizer = job->inference ? NULL : "adam";
    }
    judge_rest(peer, reader, execution_keys);
}

/* One of the two texts; NULL after a problem. */
static json_t *parse(struct bp_peer *peer, struct bp_peer_text text, const char *name)
{
    struct bp_json_position position;
    struct bp_err err = {0};
    json_t *value = NULL;
    if (text.len > BP_PEER_TEXT_MAX)
        bp_fail(&err, BP_E_out_of_range, "", "the text is longer than %d bytes", BP_PEER_TEXT_MAX);
    else
        value = bp_json_parse(text.data, text.len, &position, &err);
    peer->out_of_memory |= err.code == BP_E_out_of_memory;
    if (!value)
        bp_problems_add(peer->problems, err.code, name, "%s", err.message);
    return value;
}

int bp_calculon_import(struct bp_peer_text application, struct bp_peer_text execution,
                       const struct bp_peer_options *options, struct bp_arena *arena, struct bp_problems *problems,
                       struct bp_peer_request *ret)
{
    struct bp_peer peer = {.options = options, .arena = arena, .problems = problems};
    json_t *app = parse(&peer, application, "application"), *exe = parse(&peer, execution, "execution");
    if (app && exe) {
        struct bp_reader app_reader = bp_reader_of(app, "application", problems);
        struct bp_reader exe_reader = bp_reader_of(exe, "execution", problems);
        read_application(&peer, &app_reader);
        read_execution(&peer, &exe_reader);
    }
    json_decref(app);
    json_decref(exe);
    return bp_peer_finish(&peer, ret);
}
