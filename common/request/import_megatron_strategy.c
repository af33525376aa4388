/* Megatron-LM's arguments: the workload, and how it is spread and recomputed. */
#include <string.h>

#include "common/request/import_megatron.h"

/* What ranks there are: the caller's word, or the launcher's. */
static uint64_t world_size(const struct bp_megatron *m)
{
    return m->peer->options->world_size ? m->peer->options->world_size : m->args->world_size;
}

static void read_degrees(struct bp_megatron *m, struct bp_peer_job *job)
{
    uint64_t world = world_size(m);
    job->tensor_parallel = bp_megatron_count(m, "tensor-model-parallel-size", 1, 1);
    job->pipeline_parallel = bp_megatron_count(m, "pipeline-model-parallel-size", 1, 1);
    job->context_parallel = bp_megatron_count(m, "context-parallel-size", 1, 1);
    bp_u128 model = (bp_u128)job->tensor_parallel * job->pipeline_parallel;
    model = model > BP_JSON_INT_MAX ? model : model * job->context_parallel;
    job->data_parallel = 1;
    if (model > BP_JSON_INT_MAX)
        bp_megatron_refuse(m, "pipeline-model-parallel-size", BP_E_out_of_range, "makes too many ranks");
    else if (world && world % (uint64_t)model != 0)
        bp_megatron_refuse(m, "world-size", BP_E_not_divisible,
                           "%llu is not divisible by tensor, pipeline and context parallelism, %llu ranks",
                           (unsigned long long)world, (unsigned long long)model);
    else if (world)
        job->data_parallel = world / (uint64_t)model;
    else
        bp_megatron_assume(m, "world-size", (uint64_t)model, "not given: one replica is assumed");
}

static void read_context_parallel(struct bp_megatron *m, struct bp_peer_job *job)
{
    static const struct {
        const char *name, *ours;
    } types[] = {{"p2p", "ring"}, {"a2a", "a2a"}, {"allgather", "all_gather"}};
    if (job->context_parallel == 1) {
        job->context_parallel = 0; /* the default */
        bp_megatron_list(m, "cp-comm-type", "no effect without context parallelism");
        return;
    }
    const struct bp_arg *arg = bp_megatron_get(m, "cp-comm-type");
    for (size_t i = 0; arg && arg->n_values == 1 && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, arg->values[0]) == 0)
            job->cp_comm = types[i].ours;
    if (arg && !job->cp_comm)
        bp_megatron_refuse(m, "cp-comm-type", BP_E_unsupported_feature,
                           "one of p2p, a2a, allgather for all layers is modelled");
}

static void read_expert_degrees(struct bp_megatron *m, struct bp_peer_job *job)
{
    bool experts = bp_megatron_count(m, "num-experts", 0, 0) > 0;
    uint64_t ep = bp_megatron_count(m, "expert-model-parallel-size", 1, 1);
    if (experts) {
        job->expert_parallel = ep;
        job->expert_tensor_parallel = bp_megatron_count(m, "expert-tensor-parallel-size", 1, 0);
    } else if (ep > 1) {
        bp_megatron_refuse(m, "expert-model-parallel-size", BP_E_conflict, "Megatron wants --num-experts with it");
    } else {
        bp_megatron_list(m, "expert-tensor-parallel-size", "no effect without --num-experts");
    }
}

static void read_sequence_parallel(struct bp_megatron *m, struct bp_peer_job *job)
{
    job->sequence_parallel = bp_megatron_flag(m, "sequence-parallel");
    if (job->sequence_parallel && job->tensor_parallel == 1) {
        job->sequence_parallel = false;
        bp_megatron_list(m, "sequence-parallel", "switched off, as Megatron does without tensor parallelism");
    }
}

/* What is dealt: the layers, and the embedding and the loss where Megatron is told to count them as layers. */
struct dealing {
    bool first, last; /* there is one layer fewer on the first, on the last run */
    uint64_t all;
};

static struct dealing read_dealing(struct bp_megatron *m, const struct bp_peer_job *job)
{
    struct dealing dealing = {.first = bp_megatron_flag(m, "account-for-embedding-in-pipeline-split"),
                              .last = bp_megatron_flag(m, "account-for-loss-in-pipeline-split")};
    dealing.all = job->num_hidden_layers + dealing.first + dealing.last;
    return dealing;
}

/* How many chunks a stage has. Megatron counts them by one of three arguments. */
static void read_virtual_stages(struct bp_megatron *m, struct bp_peer_job *job, const struct dealing *dealing)
{
    static const char by_layers[] = "num-layers-per-virtual-pipeline-stage";
    static const char *const by_number[] = {"num-virtual-stages-per-pipeline-rank",
                                            "virtual-pipeline-model-parallel-size"};
    uint64_t layers = bp_megatron_count(m, by_layers, 1, 0), p = job->pipeline_parallel;
    unsigned given = layers > 0;
    job->virtual_stages = 1;
    for (size_t i = 0; i < sizeof by_number / sizeof *by_number; i++) {
        uint64_t number = bp_megatron_count(m, by_number[i], 1, 0);
        given += number > 0;
        job->virtual_stages = number ? number : job->virtual_stages;
    }
    if (given > 1)
        bp_megatron_refuse(m, by_layers, BP_E_conflict, "Megatron takes one count of virtual stages");
    else if (layers && (dealing->all % p != 0 || dealing->all / p % layers != 0))
        bp_megatron_refuse(m, by_layers, BP_E_not_divisible, "does not divide the layers of a pipeline stage");
    else if (layers)
        job->virtual_stages = dealing->all / p / layers;
    uint64_t least = bp_megatron_flag(m, "no-overlap-p2p-communication") ? 3 : 2;
    if (job->virtual_stages > 1 && p < least)
        bp_megatron_refuse(m, "pipeline-model-parallel-size", BP_E_conflict,
                           "Megatron wants more stages for an interleaved schedule");
}

/* The stages by --decoder-first-... and --decoder-last-...: those between share the rest evenly. */
static void deal_by_ends(struct bp_megatron *m, struct bp_peer_job *job, uint64_t first, uint64_t last)
{
    const char *name = first ? "decoder-first-pipeline-num-layers" : "decoder-last-pipeline-num-layers";
    uint64_t stages[BP_RUNS_MAX], p = job->pipeline_parallel, middle = p - (first > 0) - (last > 0);
    uint64_t ends = first + last, rest = ends <= job->num_hidden_layers ? job->num_hidden_layers - ends : 0;
    if (p > BP_RUNS_MAX) {
        bp_megatron_refuse(m, name, BP_E_out_of_range, "uneven stages are at most %d", BP_RUNS_MAX);
        return;
    }
    if (ends > job->num_hidden_layers || p < 2 || (middle ? rest % middle != 0 : rest != 0)) {
        bp_megatron_refuse(m, name, BP_E_not_divisible, "leaves layers that the other stages cannot share evenly");
        return;
    }
    for (uint64_t i = 0; i < p; i++)
        stages[i] = i == 0 && first ? first : i == p - 1 && last ? last : rest / middle;
    bp_peer_deal(m->peer, bp_megatron_get(m, name)->shown, stages);
}

static void deal_evenly_but_ends(struct bp_megatron *m, struct bp_peer_job *job, const struct dealing *dealing)
{
    const char *name =
        dealing->first ? "account-for-embedding-in-pipeline-split" : "account-for-loss-in-pipeline-split";
    uint64_t p = job->pipeline_parallel, v = job->virtual_stages;
    if (p == 1) {
        bp_megatron_list(m, "account-for-embedding-in-pipeline-split", "no effect on one stage");
        bp_megatron_list(m, "account-for-loss-in-pipeline-split", "no effect on one stage");
        return;
    }
    if (p > BP_RUNS_MAX || v > BP_RUNS_MAX || p * v > BP_RUNS_MAX || dealing->all % (p * v) != 0) {
        bp_megatron_refuse(m, name, BP_E_not_divisible, "the stages cannot share the layers evenly");
        return;
    }
    job->n_pipeline_layers = p * v;
    for (size_t i = 0; i < job->n_pipeline_layers; i++)
        job->pipeline_layers[i] = dealing->all / (p * v);
    job->pipeline_layers[0] -= dealing->first;
    job->pipeline_layers[p * v - 1] -= dealing->last;
}

static void read_pipeline(struct bp_megatron *m, struct bp_peer_job *job)
{
    static const char group[] = "microbatch-group-size-per-virtual-pipeline-stage";
    job->num_hidden_layers = bp_megatron_required(m, "num-layers");
    uint64_t first = bp_megatron_count(m, "decoder-first-pipeline-num-layers", 1, 0);
    uint64_t last = bp_megatron_count(m, "decoder-last-pipeline-num-layers", 1, 0);
    struct dealing dealing = read_dealing(m, job);
    read_virtual_stages(m, job, &dealing);
    if ((first || last) && (dealing.first || dealing.last))
        bp_megatron_refuse(m, first ? "decoder-first-pipeline-num-layers" : "decoder-last-pipeline-num-layers",
                           BP_E_conflict, "the split also counts the embedding or the loss");
    else if (first || last)
        deal_by_ends(m, job, first, last);
    else if (dealing.first || dealing.last)
        deal_evenly_but_ends(m, job, &dealing);
    if (bp_megatron_count(m, group, 1, job->pipeline_parallel) != job->pipeline_parallel)
        bp_megatron_refuse(m, group, BP_E_unsupported_feature,
                           "only groups of as many micro-batches as stages are modelled");
}

static void read_sharding(struct bp_megatron *m, struct bp_peer_job *job)
{
    static const char *const strategies[] = {"no_shard", "optim", "optim_grads", "optim_grads_params", NULL};
    static const char strategy[] = "data-parallel-sharding-strategy";
    bool distributed = bp_megatron_flag(m, "use-distributed-optimizer"), torch = bp_megatron_flag(m, "use-torch-fsdp2");
    job->zero_stage = distributed;
    if (bp_megatron_flag(m, "use-megatron-fsdp"))
        job->zero_stage = (uint64_t)bp_megatron_enum(m, strategy, strategies, 0);
    else
        bp_megatron_list(m, strategy, "no effect without --use-megatron-fsdp");
    if (torch && distributed)
        bp_megatron_refuse(m, "use-torch-fsdp2", BP_E_conflict,
                           "Megatron takes it without --use-distributed-optimizer");
    if (torch)
        job->zero_stage = bp_megatron_flag(m, "torch-fsdp2-no-reshard-after-forward") ? 2 : 3;
}

static void read_full_recompute(struct bp_megatron *m)
{
    static const char *const methods[] = {"uniform", "block", NULL};
    int method = bp_megatron_enum(m, "recompute-method", methods, 0);
    uint64_t layers = bp_megatron_count(m, "recompute-num-layers", 1, 1);
    if (!bp_megatron_has(m, "recompute-method"))
        bp_megatron_refuse(m, "recompute-method", BP_E_missing_key, "Megatron wants it with full recomputation");
    else if (method == 1 || layers != 1)
        bp_megatron_refuse(m, layers != 1 ? "recompute-num-layers" : "recompute-method", BP_E_unsupported_feature,
                           "only every layer by itself is modelled: uniform, 1");
    bp_megatron_list(m, "recompute-modules", "no effect with full recomputation");
}

static void read_selective_recompute(struct bp_megatron *m)
{
    const struct bp_arg *modules = bp_megatron_get(m, "recompute-modules");
    bool core = !modules || (modules->n_values == 1 && strcmp(modules->values[0], "core_attn") == 0);
    if (!core)
        bp_megatron_refuse(m, "recompute-modules", BP_E_unsupported_feature, "only core_attn alone is modelled");
    if (bp_megatron_has(m, "recompute-method"))
        bp_megatron_refuse(m, "recompute-method", BP_E_conflict, "Megatron takes none with selective recomputation");
    bp_megatron_list(m, "recompute-num-layers", "no effect with selective recomputation");
}

static void read_recompute(struct bp_megatron *m, struct bp_peer_job *job)
{
    static const char *const granularities[] = {"none", "selective", "full", NULL};
    job->recompute = (enum bp_recompute)bp_megatron_enum(m, "recompute-granularity", granularities, 0);
    if (bp_megatron_flag(m, "recompute-activations")) {
        if (job->recompute == BP_RECOMPUTE_FULL)
            bp_megatron_list(m, "recompute-granularity",
                             "made selective, as Megatron does with --recompute-activations");
        job->recompute = BP_RECOMPUTE_SELECTIVE;
    }
    if (job->recompute == BP_RECOMPUTE_FULL)
        read_full_recompute(m);
    else if (job->recompute == BP_RECOMPUTE_SELECTIVE)
        read_selective_recompute(m);
}

static void read_optimizer(struct bp_megatron *m, struct bp_peer_job *job)
{
    static const char *const optimizers[] = {"adam", "sgd", NULL};
    bool sgd = bp_megatron_enum(m, "optimizer", optimizers, 0) == 1;
    bool fit = m->peer->options->form == BP_PEER_FIT;
    if (!sgd)
        bp_megatron_list(m, "sgd-momentum", "no effect with Adam");
    else if (!fit)
        bp_megatron_refuse(m, "optimizer", BP_E_unsupported_feature, "a plan's optimizer is Adam; a fit has others");
    if (fit)
        job->optimizer = !sgd ? "adam" : bp_megatron_is_zero(m, "sgd-momentum", false) ? "sgd" : "sgd-momentum";
}

/* FlashAttention or the like, unless it is switched off. */
static void read_attention_kernel(struct bp_megatron *m, struct bp_peer_job *job)
{
    static const char *const backends[] = {"auto", "flash", "fused", "unfused", "local", NULL};
    static const char *const impls[] = {"transformer_engine", "local", NULL};
    int backend = bp_megatron_enum(m, "attention-backend", backends, 0);
    int impl = bp_megatron_enum(m, "transformer-impl", impls, 0);
    bool flash = bp_megatron_flag(m, "use-flash-attn");
    if (m->peer->options->form == BP_PEER_FIT) {
        job->attention_kernel = backend >= 3 || (impl == 1 && !flash) ? "unfused" : "tiled";
        return;
    }
    static const char *const names[] = {"attention-backend", "transformer-impl", "use-flash-attn"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        bp_megatron_list(m, names[i], "a plan has every step of attention as its own");
}

void bp_megatron_read_strategy(struct bp_megatron *m)
{
    struct bp_peer_job *job = &m->peer->job;
    read_degrees(m, job);
    read_sequence_parallel(m, job);
    read_expert_degrees(m, job);
    read_pipeline(m, job);
    read_sharding(m, job);
    read_recompute(m, job);
    read_optimizer(m, job);
    read_attention_kernel(m, job);
    if (!bp_megatron_has(m, "global-batch-size")) {
        job->global_batch_size =
            bp_peer_product(m->peer, "--micro-batch-size", job->micro_batch_size, job->data_parallel);
        bp_megatron_assume(m, "global-batch-size", job->global_batch_size,
                           "not given: one micro-batch for every replica, as in Megatron");
    }
    read_context_parallel(m, job);
}

static void read_gradient_dtype(struct bp_megatron *m, struct bp_peer_job *job)
{
    bool in_bf16 = bp_megatron_flag(m, "grad-reduce-in-bf16");
    bool in_fp32 = bp_megatron_flag(m, "accumulate-allreduce-grads-in-fp32");
    job->gradient_dtype = BP_DTYPE_FLOAT32;
    if (job->dtype == BP_DTYPE_BFLOAT16 && in_bf16)
        job->gradient_dtype = BP_DTYPE_BFLOAT16;
    else if (in_bf16)
        bp_megatron_list(m, "grad-reduce-in-bf16", "no effect without --bf16");
    if (job->dtype == BP_DTYPE_FLOAT16 && !in_fp32)
        job->gradient_dtype = BP_DTYPE_FLOAT16;
    if (in_fp32 && job->gradient_dtype == BP_DTYPE_BFLOAT16)
        bp_megatron_list(m, "accumulate-allreduce-grads-in-fp32", "switched off by --grad-reduce-in-bf16");
    if (!in_fp32 && job->dtype == BP_DTYPE_BFLOAT16 && !in_bf16)
        bp_peer_list(m->peer, "--accumulate-allreduce-grads-in-fp32", "", "switched on, as Megatron does with --bf16");
}

void bp_megatron_read_workload(struct bp_megatron *m)
{
    struct bp_peer_job *job = &m->peer->job;
    bool bf16 = bp_megatron_flag(m, "bf16"), fp16 = bp_megatron_flag(m, "fp16");
    if (bf16 && fp16)
        bp_megatron_refuse(m, "fp16", BP_E_conflict, "Megatron takes it without --bf16");
    job->dtype = bf16 ? BP_DTYPE_BFLOAT16 : fp16 ? BP_DTYPE_FLOAT16 : BP_DTYPE_FLOAT32;
    read_gradient_dtype(m, job);
    job->sequence_length = bp_megatron_required(m, "seq-length");
    job->micro_batch_size = bp_megatron_required(m, "micro-batch-size");
    job->global_batch_size = bp_megatron_count(m, "global-batch-size", 1, 0);
}
