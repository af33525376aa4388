#include "common/view/facts.h"

#include <string.h>

static void sum_add(struct bp_calc *calc, struct bp_sum *sum, const struct bp_work *work)
{
    sum->tasks++;
    sum->work.operations = bp_ops_add(calc, sum->work.operations, work->operations);
    sum->work.read = bp_bytes_add(calc, sum->work.read, work->read);
    sum->work.write = bp_bytes_add(calc, sum->work.write, work->write);
    sum->work.message = bp_bytes_add(calc, sum->work.message, work->message);
}

int bp_facts_of(const struct bp_distributed_ir *distributed, const struct bp_portable_ir *portable,
                struct bp_facts *ret, struct bp_err *err)
{
    struct bp_calc calc = {0};
    struct bp_facts facts = {.memory = distributed->memory,
                             .mode = distributed->workload.mode,
                             .n_blocks = distributed->n_blocks < BP_KINDS_MAX ? distributed->n_blocks : BP_KINDS_MAX};
    for (uint32_t i = 0; i < facts.n_blocks; i++) {
        const struct bp_distributed_block *block = &distributed->blocks[i];
        facts.by_block[i] = (struct bp_block_sum){block->name, block->layers, {0}, block->memory};
    }
    for (uint32_t i = 0; i < portable->n_tasks; i++) {
        const struct bp_portable_task *task = &portable->tasks[i];
        sum_add(&calc, &facts.all, &task->work);
        sum_add(&calc, &facts.by_phase[task->phase], &task->work);
        sum_add(&calc, &facts.by_engine[task->engine], &task->work);
        for (uint32_t j = 0; j < facts.n_blocks; j++)
            if (strcmp(facts.by_block[j].name, task->block) == 0)
                sum_add(&calc, &facts.by_block[j].sum, &task->work);
    }
    if (bp_calc_check(&calc, "/tasks", "a total of the block", err) != 0)
        return -1;
    *ret = facts;
    return 0;
}

static void sum_write_members(struct bp_writer *writer, const struct bp_sum *sum)
{
    bp_writer_put_uint(writer, "tasks", sum->tasks);
    bp_writer_key(writer, "operations");
    bp_writer_decimal(writer, sum->work.operations.n);
    bp_writer_put_uint(writer, "read_bytes", sum->work.read.n);
    bp_writer_put_uint(writer, "write_bytes", sum->work.write.n);
    bp_writer_put_uint(writer, "message_bytes", sum->work.message.n);
}

static void sums_write(struct bp_writer *writer, const struct bp_sum *sums, const char *const *names)
{
    bp_writer_object(writer);
    for (size_t i = 0; names[i]; i++) {
        if (sums[i].tasks == 0)
            continue;
        bp_writer_key(writer, names[i]);
        bp_writer_object(writer);
        sum_write_members(writer, &sums[i]);
        bp_writer_end(writer);
    }
    bp_writer_end(writer);
}

static void memory_write(struct bp_writer *writer, const struct bp_memory *memory, enum bp_mode mode)
{
    bp_writer_object(writer);
    for (unsigned fact = 0; fact < BP_MEMORY_N; fact++) {
        if (!bp_memory_fact_in((enum bp_memory_fact)fact, mode))
            continue;
        bp_writer_put_uint(writer, bp_memory_names[fact], memory->at[fact].n);
    }
    bp_writer_end(writer);
}

static void blocks_write(struct bp_writer *writer, const struct bp_facts *facts)
{
    bp_writer_object(writer);
    for (uint32_t i = 0; i < facts->n_blocks; i++) {
        const struct bp_block_sum *block = &facts->by_block[i];
        bp_writer_key(writer, block->name);
        bp_writer_object(writer);
        bp_writer_put_uint(writer, "layers", block->layers);
        sum_write_members(writer, &block->sum);
        bp_writer_key(writer, "memory");
        memory_write(writer, &block->memory, facts->mode);
        bp_writer_end(writer);
    }
    bp_writer_end(writer);
}

void bp_facts_write(struct bp_writer *writer, const struct bp_facts *facts)
{
    bp_writer_object(writer);
    bp_writer_put_string(writer, "scope",
                         facts->n_blocks > 1 ? "one block of each kind, one rank" : "one block, one rank");
    sum_write_members(writer, &facts->all);
    bp_writer_key(writer, "by_phase");
    sums_write(writer, facts->by_phase, bp_phase_names);
    bp_writer_key(writer, "by_engine");
    sums_write(writer, facts->by_engine, bp_engine_names);
    if (facts->n_blocks > 1) {
        bp_writer_key(writer, "by_block");
        blocks_write(writer, facts);
    }
    bp_writer_key(writer, "memory");
    memory_write(writer, &facts->memory, facts->mode);
    bp_writer_end(writer);
}
