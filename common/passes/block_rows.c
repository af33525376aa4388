/* What the row tables of training and inference are written with. */
#include "common/passes/block.h"

struct bp_row *bp_block_add(struct bp_block *block, const char *name, enum bp_engine engine)
{
    struct bp_row *row = &block->rows[block->n_rows++];
    *row = (struct bp_row){.name = name, .engine = engine};
    return row;
}

uint32_t bp_block_last(const struct bp_block *block)
{
    return block->n_rows - 1;
}

void bp_row_reads(struct bp_row *row, uint32_t input)
{
    for (uint32_t i = 0; i < row->n_inputs; i++)
        if (row->inputs[i] == input)
            return;
    row->inputs[row->n_inputs++] = input;
}

struct bp_row_work bp_row_work_bytes(struct bp_calc *calc, bp_u128 operations, bp_u128 read, bp_u128 write)
{
    return (struct bp_row_work){
        .has = true,
        .work = {.operations = {operations}, .read = bp_bytes(calc, read), .write = bp_bytes(calc, write)}};
}

struct bp_row_work bp_row_work(struct bp_calc *calc, bp_u128 operations, bp_u128 read, bp_u128 write, bp_u128 e)
{
    return bp_row_work_bytes(calc, operations, bp_mul(calc, read, e), bp_mul(calc, write, e));
}

struct bp_row_work bp_row_collective(struct bp_calc *calc, const struct bp_symbols *s, enum bp_collective collective,
                                     bp_u128 n, bp_u128 ranks)
{
    if (collective == BP_COLLECTIVE_NONE)
        return (struct bp_row_work){0};
    bool gathers = collective == BP_COLLECTIVE_ALL_GATHER, scatters = collective == BP_COLLECTIVE_REDUCE_SCATTER;
    bool reduces = collective == BP_COLLECTIVE_ALL_REDUCE || scatters;
    bp_u128 M = bp_mul(calc, n, s->e), part = gathers || scatters ? bp_div(calc, M, ranks) : M;
    bp_u128 operations = reduces ? bp_div(calc, bp_mul(calc, n, bp_sub(calc, ranks, 1)), ranks) : 0;
    struct bp_row_work work = bp_row_work_bytes(calc, operations, gathers ? part : M, scatters ? part : M);
    work.collective = collective;
    work.work.message = bp_bytes(calc, M);
    return work;
}
