#include "common/view/contract.h"

static void text_member(struct bp_writer *writer, const char *key, const char *text)
{
    bp_writer_put_string(writer, key, text);
}

static void references_write(struct bp_writer *writer, const struct bp_pass *pass)
{
    bp_writer_array(writer);
    for (size_t i = 0; i < pass->n_references; i++) {
        bp_writer_object(writer);
        text_member(writer, "citation", pass->references[i].citation);
        bp_writer_key(writer, "url");
        if (pass->references[i].url)
            bp_writer_string(writer, pass->references[i].url);
        else
            bp_writer_null(writer);
        bp_writer_end(writer);
    }
    bp_writer_end(writer);
}

static void bindings_write(struct bp_writer *writer, const struct bp_pass *pass)
{
    bp_writer_array(writer);
    for (unsigned i = 0; bp_binding_names[i]; i++)
        if (pass->bindings >> i & 1)
            bp_writer_string(writer, bp_binding_names[i]);
    bp_writer_end(writer);
}

static void laws_write(struct bp_writer *writer, const struct bp_pass *pass)
{
    bp_writer_array(writer);
    for (size_t i = 0; i < pass->n_laws; i++) {
        for (const struct bp_law *law = pass->laws[i]->at; law < pass->laws[i]->at + pass->laws[i]->n; law++) {
            bp_writer_object(writer);
            text_member(writer, "id", law->id);
            text_member(writer, "statement", law->statement);
            text_member(writer, "condition", law->condition);
            text_member(writer, "source", law->source);
            bp_writer_end(writer);
        }
    }
    bp_writer_end(writer);
}

static void checks_write(struct bp_writer *writer, const struct bp_pass *pass)
{
    bp_writer_array(writer);
    for (size_t i = 0; i < pass->n_checks; i++) {
        for (size_t j = 0; j < pass->checks[i]->n; j++) {
            const struct bp_check *check = &pass->checks[i]->at[j];
            bp_writer_object(writer);
            text_member(writer, "id", check->id);
            text_member(writer, "kind", bp_check_kind_names[check->kind]);
            text_member(writer, "what", check->what);
            bp_writer_end(writer);
        }
    }
    bp_writer_end(writer);
}

void bp_contract_write(struct bp_writer *writer, const struct bp_pass *pass)
{
    bp_writer_object(writer);
    text_member(writer, "name", pass->name);
    bp_writer_put_uint(writer, "revision", pass->revision);
    text_member(writer, "title", pass->title);
    text_member(writer, "summary", pass->summary);
    text_member(writer, "source", bp_stage_names[pass->source]);
    text_member(writer, "target", bp_stage_names[pass->target]);
    text_member(writer, "rule", pass->rule);
    text_member(writer, "formula_source", pass->formula_source);
    text_member(writer, "theory", pass->theory);
    bp_writer_key(writer, "references");
    references_write(writer, pass);
    bp_writer_key(writer, "bindings");
    bindings_write(writer, pass);
    bp_writer_key(writer, "laws");
    laws_write(writer, pass);
    bp_writer_key(writer, "checks");
    checks_write(writer, pass);
    bp_writer_end(writer);
}
