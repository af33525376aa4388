#include "common/request/import_job.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/canon.h"

void bp_peer_list(struct bp_peer *peer, const char *name, const char *value, const char *format, ...)
{
    char why[256];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    if (peer->n_leftovers == peer->n_allocated) {
        size_t n = peer->n_allocated ? 2 * peer->n_allocated : 32;
        struct bp_leftover *grown = bp_arena_array(peer->arena, n, sizeof *grown);
        if (grown && peer->n_leftovers)
            memcpy(grown, peer->leftovers, peer->n_leftovers * sizeof *grown);
        peer->out_of_memory |= !grown;
        if (!grown)
            return;
        peer->leftovers = grown;
        peer->n_allocated = n;
    }
    const char *kept = bp_arena_strndup(peer->arena, why, strlen(why));
    peer->out_of_memory |= !kept;
    peer->leftovers[peer->n_leftovers++] = (struct bp_leftover){name, value ? value : "", kept};
}

uint64_t bp_peer_product(struct bp_peer *peer, const char *name, uint64_t a, uint64_t b)
{
    bp_u128 product = (bp_u128)a * b;
    if (product <= BP_JSON_INT_MAX)
        return (uint64_t)product;
    bp_problems_add(peer->problems, BP_E_out_of_range, name, "makes a number past 2^53 - 1");
    return 0;
}

void bp_peer_deal(struct bp_peer *peer, const char *name, const uint64_t *of_stage)
{
    struct bp_peer_job *job = &peer->job;
    uint64_t p = job->pipeline_parallel, v = job->virtual_stages;
    if (p > BP_RUNS_MAX || v > BP_RUNS_MAX || p * v > BP_RUNS_MAX) {
        bp_problems_add(peer->problems, BP_E_out_of_range, name, "uneven stages are at most %d runs of layers",
                        BP_RUNS_MAX);
        return;
    }
    for (uint64_t stage = 0; stage < p; stage++) {
        if (of_stage[stage] % v != 0) {
            bp_problems_add(peer->problems, BP_E_not_divisible, name,
                            "%llu layers of stage %llu are not divisible by %llu virtual stages",
                            (unsigned long long)of_stage[stage], (unsigned long long)stage, (unsigned long long)v);
            return;
        }
        for (uint64_t chunk = 0; chunk < v; chunk++)
            job->pipeline_layers[chunk * p + stage] = of_stage[stage] / v;
    }
    job->n_pipeline_layers = p * v;
}

static void write_text(struct bp_writer *writer, const char *key, const char *text)
{
    if (text)
        bp_writer_put_string(writer, key, text);
}

static void write_uint(struct bp_writer *writer, const char *key, uint64_t value)
{
    if (value)
        bp_writer_put_uint(writer, key, value);
}

static void write_true(struct bp_writer *writer, const char *key, bool value)
{
    if (value)
        bp_writer_put_bool(writer, key, true);
}

/* A bias of every linear is one of the experts' too. */
static void write_experts(struct bp_writer *writer, const struct bp_peer_job *job)
{
    write_uint(writer, "num_experts", job->num_experts);
    write_uint(writer, "experts_per_token", job->experts_per_token);
    write_uint(writer, "expert_intermediate_size", job->expert_intermediate_size);
    write_uint(writer, "shared_expert_intermediate_size", job->shared_expert_intermediate_size);
    write_true(writer, "expert_bias", job->bias);
    write_true(writer, "score_correction_bias", job->score_correction_bias);
}

static void write_transformer(struct bp_writer *writer, const struct bp_peer_job *job)
{
    bp_writer_key(writer, "transformer");
    bp_writer_object(writer);
    write_text(writer, "name", job->label);
    write_uint(writer, "hidden_size", job->hidden_size);
    write_uint(writer, "num_hidden_layers", job->num_hidden_layers);
    write_uint(writer, "num_attention_heads", job->num_attention_heads);
    write_uint(writer, "num_key_value_heads", job->num_key_value_heads);
    write_uint(writer, "head_dim", job->head_dim);
    if (job->num_experts)
        write_experts(writer, job);
    else
        write_uint(writer, "intermediate_size", job->intermediate_size);
    write_uint(writer, "vocab_size", job->vocab_size);
    write_uint(writer, "max_position_embeddings", job->max_position_embeddings);
    write_text(writer, "activation", job->activation);
    write_text(writer, "norm", job->norm);
    write_text(writer, "position", job->position);
    write_true(writer, "bias", job->bias);
    write_true(writer, "qkv_bias", job->qkv_bias);
    write_true(writer, "qk_norm", job->qk_norm);
    write_true(writer, "hidden_dropout", job->hidden_dropout);
    write_true(writer, "attention_dropout", job->attention_dropout);
    write_true(writer, "embedding_dropout", job->embedding_dropout);
    write_true(writer, "tie_word_embeddings", job->tie_word_embeddings);
    bp_writer_end(writer);
}

static void write_workload(struct bp_writer *writer, const struct bp_peer_job *job)
{
    bp_writer_key(writer, "workload");
    bp_writer_object(writer);
    write_text(writer, "mode", bp_mode_names[job->inference ? BP_MODE_INFERENCE : BP_MODE_TRAINING]);
    write_text(writer, "dtype", bp_dtype_names[job->dtype]);
    if (job->inference) {
        write_text(writer, "phase", bp_inference_phase_names[BP_PREFILL]);
        write_uint(writer, "batch_size", job->micro_batch_size);
        write_uint(writer, "context_length", job->sequence_length);
    } else {
        write_uint(writer, "sequence_length", job->sequence_length);
        write_uint(writer, "micro_batch_size", job->micro_batch_size);
        write_uint(writer, "global_batch_size", job->global_batch_size);
        write_text(writer, "gradient_dtype", bp_dtype_names[job->gradient_dtype]);
    }
    bp_writer_end(writer);
}

static void write_pipeline_layers(struct bp_writer *writer, const struct bp_peer_job *job)
{
    if (!job->n_pipeline_layers)
        return;
    bp_writer_key(writer, "pipeline_layers");
    bp_writer_array(writer);
    for (size_t i = 0; i < job->n_pipeline_layers; i++)
        bp_writer_uint(writer, job->pipeline_layers[i]);
    bp_writer_end(writer);
}

static void write_training_strategy(struct bp_writer *writer, const struct bp_peer_job *job)
{
    write_uint(writer, "data_parallel", job->data_parallel);
    write_uint(writer, "context_parallel", job->context_parallel);
    write_text(writer, "cp_comm", job->cp_comm);
    write_uint(writer, "expert_parallel", job->expert_parallel);
    write_uint(writer, "expert_tensor_parallel", job->expert_tensor_parallel);
    bp_writer_put_bool(writer, "sequence_parallel", job->sequence_parallel);
    write_text(writer, "recompute", bp_recompute_names[job->recompute]);
    if (job->gathers_once)
        bp_writer_put_bool(writer, "recompute_all_gather", false);
    write_true(writer, "recompute_activation", job->recompute_activation);
    if (job->pipeline_parallel > 1)
        write_text(writer, "pipeline_schedule",
                   bp_schedule_names[job->virtual_stages > 1 ? BP_SCHEDULE_INTERLEAVED : BP_SCHEDULE_1F1B]);
    write_uint(writer, "virtual_stages", job->virtual_stages);
    bp_writer_put_uint(writer, "zero_stage", job->zero_stage);
    write_text(writer, "optimizer", job->optimizer);
}

static void write_strategy(struct bp_writer *writer, const struct bp_peer_job *job)
{
    bp_writer_key(writer, "strategy");
    bp_writer_object(writer);
    write_uint(writer, "tensor_parallel", job->tensor_parallel);
    write_uint(writer, "pipeline_parallel", job->pipeline_parallel);
    write_pipeline_layers(writer, job);
    write_uint(writer, "vocab_multiple", job->vocab_multiple);
    if (job->inference)
        write_uint(writer, "replicas", job->data_parallel);
    else
        write_training_strategy(writer, job);
    bp_writer_end(writer);
}

static void write_request(struct bp_writer *writer, const struct bp_peer *peer)
{
    const struct bp_peer_job *job = &peer->job;
    bp_writer_object(writer);
    bp_writer_key(writer, "model");
    bp_writer_object(writer);
    write_transformer(writer, job);
    bp_writer_end(writer);
    write_workload(writer, job);
    write_strategy(writer, job);
    if (peer->options->form == BP_PEER_FIT)
        write_uint(writer, "memory_bytes", peer->options->memory_bytes);
    if (job->attention_kernel) {
        bp_writer_key(writer, "conventions");
        bp_writer_object(writer);
        write_text(writer, "attention_kernel", job->attention_kernel);
        bp_writer_end(writer);
    }
    bp_writer_end(writer);
}

int bp_peer_finish(struct bp_peer *peer, struct bp_peer_request *ret)
{
    struct bp_buf text = {0};
    struct bp_writer writer = {.out = &text, .any_order = true};
    if (bp_problems_none(peer->problems))
        write_request(&writer, peer);
    bool failed = peer->problems->out_of_memory || peer->out_of_memory ||
                  (bp_problems_none(peer->problems) && bp_writer_finish(&writer, NULL) < 0);
    if (failed) {
        bp_buf_release(&text);
        return -1;
    }
    *ret = (struct bp_peer_request){text, peer->leftovers, peer->n_leftovers};
    return 0;
}
