/* Renders what our tables say into Markdown pages: render DIRECTORY writes passes/, one page a pass and README.md, the
 * coverage table, with the text that the API serves and `blueprint passes` prints; and metrics.md of metrics.def.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/pipeline.h"

/* Markdown's TeX: \( \) becomes $` `$ and \[ \] a math block, which is what renderers of Markdown agree on. */
static void add_theory(struct bp_buf *out, const char *text)
{
    static const struct {
        const char *from, *to;
    } marks[] = {{"\\(", "$`"}, {"\\)", "`$"}, {"\\[ ", "```math\n"}, {" \\]", "\n```"}};
    while (*text) {
        size_t i = 0, n_marks = sizeof marks / sizeof *marks;
        while (i < n_marks && strncmp(text, marks[i].from, strlen(marks[i].from)) != 0)
            i++;
        if (i == n_marks) {
            bp_buf_addch(out, *text++);
        } else {
            bp_buf_addstr(out, marks[i].to);
            text += strlen(marks[i].from);
        }
    }
}

static void add_bindings(struct bp_buf *out, const struct bp_pass *pass)
{
    const char *comma = "";
    for (size_t i = 0; bp_binding_names[i]; i++) {
        if (!(pass->bindings >> i & 1))
            continue;
        bp_buf_addf(out, "%s%s", comma, bp_binding_names[i]);
        comma = ", ";
    }
    bp_buf_addstr(out, comma[0] ? "" : "none");
}

/* TeX within a table, where a bar would end the cell. */
static void add_statement(struct bp_buf *out, const char *text)
{
    bp_buf_addstr(out, "$`");
    for (; *text; text++) {
        if (*text == '|')
            bp_buf_addstr(out, "\\vert ");
        else
            bp_buf_addch(out, *text);
    }
    bp_buf_addstr(out, "`$");
}

static void add_laws(struct bp_buf *out, const struct bp_pass *pass)
{
    for (size_t g = 0; g < pass->n_laws; g++) {
        for (size_t i = 0; i < pass->laws[g]->n; i++) {
            const struct bp_law *law = &pass->laws[g]->at[i];
            if (g == 0 && i == 0)
                bp_buf_addstr(out, "\n## Laws\n\nEach is evaluated on the request's symbols and compared with what was "
                                   "built, on every commit.\n\n| law | statement | for | from |\n|---|---|---|---|\n");
            bp_buf_addf(out, "| `%s` | ", law->id);
            add_statement(out, law->statement);
            bp_buf_addf(out, " | %s | %s |\n", law->condition, law->source);
        }
    }
}

static void add_checks(struct bp_buf *out, const struct bp_pass *pass)
{
    bp_buf_addstr(out, "\n## Checks\n\n| check | kind | what it holds |\n|---|---|---|\n");
    for (size_t g = 0; g < pass->n_checks; g++) {
        for (size_t i = 0; i < pass->checks[g]->n; i++) {
            const struct bp_check *check = &pass->checks[g]->at[i];
            bp_buf_addf(out, "| `%s` | %s | %s |\n", check->id, bp_check_kind_names[check->kind], check->what);
        }
    }
}

static void add_page(struct bp_buf *out, const struct bp_pass *pass)
{
    bp_buf_addf(out, "# %s\n\n%s\n\n", pass->title, pass->summary);
    bp_buf_addf(out, "- name: `%s`, revision %u\n- boundary: %s to %s\n- lineage rule: `%s`\n- bindings: ", pass->name,
                pass->revision, bp_stage_names[pass->source], bp_stage_names[pass->target], pass->rule);
    add_bindings(out, pass);
    bp_buf_addf(out, "\n- formulas from: %s\n\n## Theory\n\n", pass->formula_source);
    add_theory(out, pass->theory);
    add_laws(out, pass);
    add_checks(out, pass);
    bp_buf_addstr(out, "\n## References\n\n");
    for (size_t i = 0; i < pass->n_references; i++) {
        const struct bp_reference *reference = &pass->references[i];
        bp_buf_addf(out, reference->url ? "- %s. <%s>\n" : "- %s.\n", reference->citation, reference->url);
    }
}

/* The kinds of check that a snapshot of the pass must pass, each once. */
static void add_evidence(struct bp_buf *out, const struct bp_pass *pass)
{
    size_t counts[BP_CHECK_CAPACITY + 1] = {0};
    for (size_t g = 0; g < pass->n_checks; g++)
        for (size_t i = 0; i < pass->checks[g]->n; i++)
            counts[pass->checks[g]->at[i].kind]++;
    for (size_t g = 0; g < pass->n_laws; g++)
        counts[BP_CHECK_LAW] += pass->laws[g]->n;
    const char *comma = "";
    for (size_t kind = 0; kind <= BP_CHECK_CAPACITY; kind++) {
        if (counts[kind] == 0)
            continue;
        bp_buf_addf(out, "%s%s (%zu)", comma, bp_check_kind_names[kind], counts[kind]);
        comma = ", ";
    }
}

static void add_index(struct bp_buf *out)
{
    bp_buf_addstr(out,
                  "# Passes\n\nRendered by `make docs` from `common/passes`; do not edit. A pass is described once, "
                  "in its own file.\n\n| pass | boundary | formula source | commit evidence: kind (checks) |\n"
                  "|---|---|---|---|\n");
    for (size_t i = 0; i < bp_passes_n; i++) {
        const struct bp_pass *pass = bp_passes[i];
        bp_buf_addf(out, "| [`%s`](%s.md) | %s to %s | %s | ", pass->name, pass->name, bp_stage_names[pass->source],
                    bp_stage_names[pass->target], pass->formula_source);
        add_evidence(out, pass);
        bp_buf_addstr(out, " |\n");
    }
}

/* ---- Metrics ---- */

static const struct {
    const char *suffix, *key;
} labels[] = {
#define BP_LABEL(suffix, n, key) {#suffix, key},
#include "daemon/metrics.def"
#undef BP_LABEL
};

static void add_labels(struct bp_buf *out, const char *const *suffixes, size_t n)
{
    const char *comma = "";
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof labels / sizeof *labels; k++)
            if (*labels[k].key && strcmp(labels[k].suffix, suffixes[i]) == 0) {
                bp_buf_addf(out, "%s`%s`", comma, labels[k].key);
                comma = ", ";
            }
}

static const struct {
    const char *name, *type, *labels[3], *help;
} metrics[] = {
#define BP_COUNTERS(suffix, name, a, b, c, help) {name, "counter", {#a, #b, #c}, help},
#define BP_COUNTER(suffix, name, help) {name, "counter", {"", "", ""}, help},
#define BP_GAUGE(suffix, name, help) {name, "gauge", {"", "", ""}, help},
#define BP_SAMPLED(suffix, type, unit, name, help) {name, type, {"", "", ""}, help},
#define BP_HISTOGRAM(suffix, name, label, buckets, help) {name, "histogram", {#label, "", ""}, help},
#include "daemon/metrics.def"
};

static void add_metrics(struct bp_buf *out)
{
    bp_buf_addstr(out,
                  "# Metrics\n\nRendered by `make docs` from `daemon/metrics.def`; do not edit. What they are for: "
                  "[operating.md](operating.md#observing).\n\n| metric | type | labels | |\n|---|---|---|---|\n"
                  "| `blueprint_build_info` | gauge | `version`, `compiler` | The program that answers; always 1. "
                  "|\n");
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++) {
        bp_buf_addf(out, "| `%s` | %s | ", metrics[i].name, metrics[i].type);
        add_labels(out, metrics[i].labels, 3);
        bp_buf_addf(out, " | %s |\n", metrics[i].help);
    }
}

/* Writes and releases the text. */
static int write_page(const char *directory, const char *name, struct bp_buf *text)
{
    struct bp_buf path = {0};
    bp_buf_addf(&path, "%s/%s.md", directory, name);
    FILE *file = text->failed ? NULL : fopen(bp_buf_string(&path), "w");
    bool written = file && fwrite(text->data, 1, text->len, file) == text->len;
    if (file && fclose(file) != 0)
        written = false;
    if (!written)
        fprintf(stderr, "render: %s: %s\n", bp_buf_string(&path), text->failed ? "out of memory" : strerror(errno));
    bp_buf_release(&path);
    bp_buf_release(text);
    return written ? 0 : -1;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: render DIRECTORY\n");
        return 2;
    }
    struct bp_buf index = {0}, table = {0};
    char passes[4096];
    snprintf(passes, sizeof passes, "%s/passes", argv[1]);
    add_metrics(&table);
    add_index(&index);
    int status = write_page(argv[1], "metrics", &table);
    if (status == 0)
        status = write_page(passes, "README", &index);
    else
        bp_buf_release(&index);
    for (size_t i = 0; i < bp_passes_n && status == 0; i++) {
        struct bp_buf page = {0};
        add_page(&page, bp_passes[i]);
        status = write_page(passes, bp_passes[i]->name, &page);
    }
    return status == 0 ? 0 : 1;
}
