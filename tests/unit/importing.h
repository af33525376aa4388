/* What the tests of importers share: texts made requests, read again by the daemon's own reader. One import at a time.
 */
#ifndef BP_TESTS_UNIT_IMPORTING_H
#define BP_TESTS_UNIT_IMPORTING_H

#include "common/request/import_peer.h"
#include "common/request/job.h"
#include "tests/unit/reading.h"

extern struct bp_arena import_arena;
extern struct bp_problems import_problems;
extern struct bp_peer_request imported;
extern struct bp_peer_options import_options;

/* Options back to none; and what was imported last given back. */
void import_begin(void);
void import_forget(void);

int import_bytes(const char *text, size_t n);                    /* Megatron's */
int import_pair(const char *application, const char *execution); /* Calculon's, with ' for " */

/* The canonical form of the plan request, with ' for ", or the job of the fit request, that was imported. */
const char *import_as_plan(void);
struct bp_whole_job import_as_job(void);

/* Imports Megatron's arguments, and the same; or what keeps them from it, as line_of. */
const char *planned(const char *text);
struct bp_whole_job fitted(const char *text);
const char *refused(const char *text);

/* Whether the list of leftovers has the name; aborts the test unless also with that value and that in its why. */
const struct bp_leftover *left(const char *name);
void expect_left(const char *name, const char *value, const char *why);

/* The least that says a model, and a vocabulary. */
#define LEAST                                                                                                          \
    "--num-layers 8 --hidden-size 64 --num-attention-heads 8 --seq-length 32 --max-position-embeddings 32 "            \
    "--micro-batch-size 2 --vocab-size 100 "
#define LEAST_MODEL(more)                                                                                              \
    "{'model':{'transformer':{'activation':'gelu','attention_dropout':true,'bias':true,'embedding_dropout':true,"      \
    "'hidden_dropout':true,'hidden_size':64,'intermediate_size':256,'max_position_embeddings':32,'name':'megatron',"   \
    "'norm':'layernorm','num_attention_heads':8,'num_hidden_layers':8,'position':'learned',"                           \
    "'tie_word_embeddings':true,'vocab_size':100}}," more "}"
#define LEAST_WORK                                                                                                     \
    "'workload':{'dtype':'float32','global_batch_size':2,'micro_batch_size':2,'mode':'training','sequence_length':32}"

extern const char import_gpt3[]; /* the set of Megatron-LM's example for GPT-3 175B */

#endif
