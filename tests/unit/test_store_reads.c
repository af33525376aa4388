/* What the store answers: prefixes, pages, lineage, damaged bytes. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/store_fixture.h"

static struct store_fixture fixture;

static void set_up(void)
{
    store_fixture_init(&fixture);
    store_fixture_open(&fixture);
}

static void tear_down(void)
{
    store_fixture_release(&fixture);
}

static struct bp_digest digest_of_hex(const char *hex)
{
    char text[BP_DIGEST_TEXT];
    struct bp_digest digest;
    snprintf(text, sizeof text, "sha256:%s", hex);
    ck_assert(bp_digest_parse(text, &digest));
    return digest;
}

/* A plan without stages under the id given, not under a digest. */
static void put_id(const char *hex, enum bp_store_plan_state state, const char *model, const char *mode)
{
    struct sample sample;
    sample_init(&sample, hex, NULL, 0);
    sample.plan.id = digest_of_hex(hex);
    sample.plan.state = state;
    sample.plan.model = model;
    sample.plan.mode = mode;
    ck_assert_int_eq(sample_put(fixture.store, &sample), BP_OK);
    sample_release(&sample);
}

static void put_numbered(unsigned number, enum bp_store_plan_state state, const char *model, const char *mode)
{
    char hex[65];
    snprintf(hex, sizeof hex, "%064x", number);
    put_id(hex, state, model, mode);
}

/* ---- Prefixes ---- */

static const char id_a[] = "aaaaaaaa1"
                           "0000000000000000000000000000000000000000000000000000000";
static const char id_b[] = "aaaaaaaa2"
                           "0000000000000000000000000000000000000000000000000000000";

START_TEST(test_store_reads__a_prefix_names_the_one_that_begins_with_it)
{
    static const char *const good[] = {"aaaaaaaa1", "sha256:aaaaaaaa1", "aaaaaaaa10000"};
    struct bp_digest expected = digest_of_hex(id_a), id;
    struct bp_store_candidates candidates;
    put_id(id_a, BP_STORE_COMMITTED, "m", "training");
    put_id(id_b, BP_STORE_COMMITTED, "m", "training");
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ck_assert_int_eq(bp_store_find(fixture.store, BP_STORE_PLANS, good[i], &id, &candidates, NULL), 0);
        ck_assert(bp_digest_equal(&id, &expected));
    }
}
END_TEST

START_TEST(test_store_reads__an_ambiguous_prefix_names_the_candidates)
{
    struct bp_digest id, a = digest_of_hex(id_a), b = digest_of_hex(id_b);
    struct bp_store_candidates candidates;
    struct bp_err err = {0};
    put_id(id_b, BP_STORE_COMMITTED, "m", "training");
    put_id(id_a, BP_STORE_COMMITTED, "m", "training");
    ck_assert_int_eq(bp_store_find(fixture.store, BP_STORE_PLANS, "aaaaaaaa", &id, &candidates, &err), -1);
    ck_assert_int_eq(err.code, BP_E_ambiguous_prefix);
    ck_assert_uint_eq(candidates.n, 2);
    ck_assert(!candidates.more);
    ck_assert(bp_digest_equal(&candidates.at[0], &a));
    ck_assert(bp_digest_equal(&candidates.at[1], &b));
}
END_TEST

START_TEST(test_store_reads__many_candidates_are_cut_and_said_to_be)
{
    struct bp_digest id;
    struct bp_store_candidates candidates;
    for (unsigned i = 0; i <= BP_STORE_CANDIDATES_MAX; i++)
        put_numbered(i, BP_STORE_COMMITTED, "m", "training");
    ck_assert_int_eq(bp_store_find(fixture.store, BP_STORE_PLANS, "00000000", &id, &candidates, NULL), -1);
    ck_assert_uint_eq(candidates.n, BP_STORE_CANDIDATES_MAX);
    ck_assert(candidates.more);
}
END_TEST

START_TEST(test_store_reads__what_is_no_prefix_is_refused)
{
    static const struct {
        const char *text;
        enum bp_code code;
    } rows[] = {
        {"", BP_E_invalid_id},         {"aaaaaaa", BP_E_invalid_id},           {"sha256:aaaaaaa", BP_E_invalid_id},
        {"AAAAAAAA", BP_E_invalid_id}, {"aaaaaaaag", BP_E_invalid_id},         {"aaaaaaaa ", BP_E_invalid_id},
        {"bbbbbbbb", BP_E_not_found},  {"sha1:aaaaaaaaaaaa", BP_E_invalid_id}, {"aaaaaaaa3", BP_E_not_found},
    };
    char too_long[66];
    memset(too_long, 'a', 65);
    too_long[65] = '\0';
    put_id(id_a, BP_STORE_COMMITTED, "m", "training");
    for (size_t i = 0; i <= sizeof rows / sizeof *rows; i++) {
        bool last = i == sizeof rows / sizeof *rows;
        struct bp_digest id;
        struct bp_store_candidates candidates;
        struct bp_err err = {0};
        const char *text = last ? too_long : rows[i].text;
        ck_assert_int_eq(bp_store_find(fixture.store, BP_STORE_PLANS, text, &id, &candidates, &err), -1);
        ck_assert_msg(err.code == (last ? BP_E_invalid_id : rows[i].code), "%s: %s", text, err.message);
    }
}
END_TEST

START_TEST(test_store_reads__a_prefix_finds_a_plan_that_is_still_a_job)
{
    struct bp_digest id;
    struct bp_store_candidates candidates;
    struct bp_store_job plan = {.id = digest_of_hex(id_a), .kind = "plan", .request = {"{}", 2}, .passes = {"[]", 2}};
    struct bp_store_job search = {
        .id = digest_of_hex(id_b), .kind = "search", .request = {"{}", 2}, .passes = {"[]", 2}};
    struct bp_store_unit one = {.accept = &plan}, two = {.accept = &search};
    ck_assert_int_eq(store_fixture_commit(&fixture, &one), BP_OK);
    ck_assert_int_eq(store_fixture_commit(&fixture, &two), BP_OK);
    ck_assert_int_eq(bp_store_find(fixture.store, BP_STORE_PLANS, "aaaaaaaa", &id, &candidates, NULL), 0);
    ck_assert(bp_digest_equal(&id, &plan.id));
    /* Once it is a plan as well it is still one. */
    put_id(id_a, BP_STORE_COMMITTED, "m", "training");
    ck_assert_int_eq(bp_store_find(fixture.store, BP_STORE_PLANS, "aaaaaaaa", &id, &candidates, NULL), 0);
}
END_TEST

/* ---- Pages ---- */

/* Reads page after page and checks that what comes is `first`, `first - 1` ... `last`. */
static void check_pages(const struct bp_store_plan_filter *filter, size_t limit, unsigned first, unsigned last,
                        bool write_between)
{
    char cursor[BP_STORE_CURSOR_TEXT] = "";
    unsigned expected = first, written = 1000;
    do {
        struct bp_store_plan_page page;
        ck_assert_int_eq(bp_store_plan_list(fixture.store, filter, limit, cursor, &fixture.arena, &page, NULL), 0);
        ck_assert_uint_le(page.n, limit);
        for (size_t i = 0; i < page.n; i++, expected--) {
            char hex[65];
            snprintf(hex, sizeof hex, "%064x", expected);
            struct bp_digest id = digest_of_hex(hex);
            ck_assert_msg(bp_digest_equal(&page.plans[i].id, &id), "expected plan %u", expected);
        }
        memcpy(cursor, page.next, sizeof cursor);
        if (write_between)
            put_numbered(written++, BP_STORE_COMMITTED, "m", "training");
    } while (*cursor);
    ck_assert_uint_eq(expected, last - 1);
}

START_TEST(test_store_reads__pages_are_newest_first_and_stable_under_writes)
{
    static const size_t limits[] = {1, 3, 5, 10, 500};
    struct bp_store_plan_filter any = {NULL, NULL, NULL};
    for (unsigned i = 1; i <= 10; i++)
        put_numbered(i, BP_STORE_COMMITTED, "m", "training");
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        check_pages(&any, limits[i], 10, 1, false);
    check_pages(&any, 3, 10, 1, true);
}
END_TEST

START_TEST(test_store_reads__lists_are_filtered_by_state_model_and_mode)
{
    static const enum bp_store_plan_state states[] = {BP_STORE_COMMITTED, BP_STORE_REJECTED, BP_STORE_FAILED};
    static const char *const models[] = {"llama", "gpt"}, *const modes[] = {"training", "inference"};
    unsigned number = 0;
    for (size_t round = 0; round < 2; round++)
        for (size_t i = 0; i < 12; i++)
            put_numbered(++number, states[i % 3], models[i / 3 % 2], modes[i / 6]);
    for (size_t mask = 0; mask < 8; mask++)
        for (size_t i = 0; i < 12; i++) {
            struct bp_store_plan_filter filter = {.state = mask & 1 ? &states[i % 3] : NULL,
                                                  .model = mask & 2 ? models[i / 3 % 2] : NULL,
                                                  .mode = mask & 4 ? modes[i / 6] : NULL};
            struct bp_store_plan_page page;
            size_t expected = 24;
            expected /= mask & 1 ? 3 : 1;
            expected /= mask & 2 ? 2 : 1;
            expected /= mask & 4 ? 2 : 1;
            ck_assert_int_eq(bp_store_plan_list(fixture.store, &filter, 500, NULL, &fixture.arena, &page, NULL), 0);
            ck_assert_uint_eq(page.n, expected);
            ck_assert_str_eq(page.next, "");
            for (size_t j = 0; j < page.n; j++) {
                ck_assert(!filter.state || page.plans[j].state == *filter.state);
                ck_assert(!filter.model || strcmp(page.plans[j].model, filter.model) == 0);
                ck_assert(!filter.mode || strcmp(page.plans[j].mode, filter.mode) == 0);
            }
        }
}
END_TEST

START_TEST(test_store_reads__a_list_has_the_snapshots_but_not_the_derivations)
{
    struct bp_store_plan_filter any = {NULL, NULL, NULL};
    struct bp_store_plan_page page;
    store_fixture_put(&fixture, "plan", sample_stages, 4);
    ck_assert_int_eq(bp_store_plan_list(fixture.store, &any, 50, "", &fixture.arena, &page, NULL), 0);
    ck_assert_uint_eq(page.n, 1);
    ck_assert_uint_eq(page.plans[0].n_snapshots, 4);
    ck_assert_str_eq(page.plans[0].snapshots[2].stage, "portable");
    ck_assert_uint_eq(page.plans[0].n_derivations, 0);
    ck_assert_ptr_null(page.plans[0].request.at);
    ck_assert_str_eq(page.plans[0].facts.at, "{\"tasks\":1}");
}
END_TEST

START_TEST(test_store_reads__a_cursor_that_is_not_ours_is_refused)
{
    static const char *const bad[] = {"x", "p", "pzz", "p-1", "1", "p 1", "p11111111111111111", "d.1"};
    struct bp_store_plan_filter any = {NULL, NULL, NULL};
    struct bp_store_plan_page page;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct bp_err err = {0};
        ck_assert_int_eq(bp_store_plan_list(fixture.store, &any, 50, bad[i], &fixture.arena, &page, &err), -1);
        ck_assert_msg(err.code == BP_E_invalid_query && strcmp(err.path, "/cursor") == 0, "%s", bad[i]);
    }
}
END_TEST

/* ---- Snapshots ---- */

static enum bp_code read_snapshot(const char *text, struct bp_buf *out)
{
    struct bp_err err = {0};
    struct bp_digest digest = digest_of_text(text);
    bp_store_snapshot_read(fixture.store, &digest, out, &err);
    return err.code;
}

START_TEST(test_store_reads__a_snapshot_is_the_bytes_of_its_digest)
{
    struct bp_buf out = {0};
    size_t n = 3000000;
    char *large = malloc(n + 1);
    for (size_t i = 0; i < n; i++)
        large[i] = (char)('a' + i * i % 23);
    large[n] = '\0';
    const char *texts[] = {sample_stages[0], large};
    store_fixture_put(&fixture, "plan", texts, 2);
    bp_buf_addstr(&out, "before");
    ck_assert_int_eq(read_snapshot(large, &out), BP_OK);
    ck_assert_uint_eq(out.len, 6 + n);
    ck_assert_mem_eq(out.data, "before", 6);
    ck_assert_mem_eq(out.data + 6, large, n);
    ck_assert_int_eq(read_snapshot("not stored", &out), BP_E_not_found);
    ck_assert_uint_eq(out.len, 6 + n);
    bp_buf_release(&out);
    free(large);
}
END_TEST

START_TEST(test_store_reads__every_flipped_byte_is_found)
{
    struct bp_buf out = {0};
    struct bp_digest digest = digest_of_text(sample_stages[1]);
    char hex[65], sql[512];
    bp_hex(digest.bytes, sizeof digest.bytes, hex);
    store_fixture_put(&fixture, "plan", sample_stages, 4);
    snprintf(sql, sizeof sql, "SELECT length(data) FROM snapshots WHERE digest = x'%s'", hex);
    int64_t n = store_fixture_int(&fixture, sql);
    store_fixture_sql(&fixture, "CREATE TABLE kept AS SELECT seq, data FROM snapshots");
    for (int64_t at = 1; at <= n; at++) {
        /* x'ff' differs from any byte of this text and of the frame's header but itself; x'00' does then. */
        snprintf(sql, sizeof sql,
                 "UPDATE snapshots SET data = CAST(substr(data, 1, %d) || iif(substr(data, %d, 1) = x'ff', x'00', "
                 "x'ff') || substr(data, %d) AS BLOB) WHERE digest = x'%s'",
                 (int)at - 1, (int)at, (int)at + 1, hex);
        store_fixture_sql(&fixture, sql);
        enum bp_code code = read_snapshot(sample_stages[1], &out);
        ck_assert_msg(code == BP_E_snapshot_corrupt, "byte %d: %s", (int)at, bp_code_name(code));
        ck_assert_uint_eq(out.len, 0);
        store_fixture_sql(&fixture,
                          "UPDATE snapshots SET data = (SELECT data FROM kept WHERE kept.seq = snapshots.seq)");
        ck_assert_int_eq(read_snapshot(sample_stages[1], &out), BP_OK);
        bp_buf_clear(&out);
    }
    bp_buf_release(&out);
}
END_TEST

START_TEST(test_store_reads__a_length_that_was_altered_is_found)
{
    struct bp_buf out = {0};
    store_fixture_put(&fixture, "plan", sample_stages, 4);
    store_fixture_sql(&fixture, "UPDATE snapshots SET bytes = 9000000000000000");
    ck_assert_int_eq(read_snapshot(sample_stages[0], &out), BP_E_snapshot_corrupt);
    bp_buf_release(&out);
}
END_TEST

START_TEST(test_store_reads__replay_gets_the_bytes_as_they_are)
{
    struct bp_buf out = {0};
    bool unpacked = false;
    struct bp_digest model = digest_of_text(sample_stages[0]), next = digest_of_text(sample_stages[1]);
    store_fixture_put(&fixture, "plan", sample_stages, 4);
    /* Another's good frame under this digest unpacks, and is not what the digest says. */
    store_fixture_sql(&fixture, "UPDATE snapshots SET (bytes, data) = (SELECT bytes, data FROM snapshots WHERE "
                                "stage = 'distributed') WHERE stage = 'model'");
    ck_assert_int_eq(bp_store_snapshot_read_raw(fixture.store, &model, &out, &unpacked, NULL), 0);
    ck_assert(unpacked);
    ck_assert_uint_eq(out.len, strlen(sample_stages[1]));
    ck_assert_mem_eq(out.data, sample_stages[1], out.len);
    bp_buf_clear(&out);
    ck_assert_int_eq(read_snapshot(sample_stages[0], &out), BP_E_snapshot_corrupt);
    store_fixture_sql(&fixture, "UPDATE snapshots SET data = x'00' WHERE stage = 'distributed'");
    ck_assert_int_eq(bp_store_snapshot_read_raw(fixture.store, &next, &out, &unpacked, NULL), 0);
    ck_assert(!unpacked);
    ck_assert_uint_eq(out.len, 0);
    bp_buf_release(&out);
}
END_TEST

/* ---- Lineage ---- */

/* Reads all pages; the nodes must be `expected`, in order, each but the first with an edge on the same page. */
static void check_lineage(const char *from, enum bp_store_direction direction, size_t limit,
                          const char *const *expected, size_t n)
{
    char cursor[BP_STORE_CURSOR_TEXT] = "";
    struct bp_digest digest = digest_of_text(from);
    size_t seen = 0, edges = 0;
    do {
        struct bp_store_lineage page;
        ck_assert_int_eq(
            bp_store_lineage_read(fixture.store, &digest, direction, limit, cursor, &fixture.arena, &page, NULL), 0);
        ck_assert_uint_le(page.n_nodes, limit);
        ck_assert_uint_eq(page.n_edges, page.n_nodes - (seen == 0));
        for (size_t i = 0; i < page.n_nodes; i++, seen++) {
            ck_assert_uint_lt(seen, n);
            struct bp_digest node = digest_of_text(expected[seen]);
            ck_assert_msg(bp_digest_equal(&page.nodes[i].digest, &node), "node %zu is not %s", seen, expected[seen]);
        }
        edges += page.n_edges;
        memcpy(cursor, page.next, sizeof cursor);
    } while (*cursor);
    ck_assert_uint_eq(seen, n);
    ck_assert_uint_eq(edges, n - 1);
}

START_TEST(test_store_reads__lineage_walks_both_ways_in_pages)
{
    static const char *const down[] = {"m", "d1", "p1", "c1", "c2", "d2", "p2", "c3"}, *const up[] = {"c2", "p1", "d1",
                                                                                                      "m"};
    store_fixture_put_family(&fixture);
    for (size_t limit = 1; limit <= 9; limit++) {
        check_lineage("m", BP_STORE_DESCENDANTS, limit, down, 8);
        check_lineage("c2", BP_STORE_ANCESTORS, limit, up, 4);
        check_lineage("c2", BP_STORE_DESCENDANTS, limit, up, 1);
    }
}
END_TEST

START_TEST(test_store_reads__a_lineage_edge_names_its_derivations)
{
    struct bp_store_lineage page;
    struct bp_digest from = digest_of_text("d1"), target = digest_of_text("p1");
    struct sample again;
    store_fixture_put_family(&fixture);
    sample_init(&again, "with a later pass", sample_family[0], 3);
    again.derivations[1].revision = 2;
    ck_assert_int_eq(sample_put(fixture.store, &again), BP_OK);
    ck_assert_int_eq(
        bp_store_lineage_read(fixture.store, &from, BP_STORE_DESCENDANTS, 2, NULL, &fixture.arena, &page, NULL), 0);
    ck_assert_uint_eq(page.n_nodes, 2);
    ck_assert_str_eq(page.nodes[1].stage, "portable");
    ck_assert_uint_eq(page.n_edges, 2);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_str_eq(page.edges[i].pass, "pass-2");
        ck_assert_uint_eq(page.edges[i].revision, i + 1);
        ck_assert(bp_digest_equal(&page.edges[i].source, &from));
        ck_assert(bp_digest_equal(&page.edges[i].target, &target));
    }
    sample_release(&again);
}
END_TEST

START_TEST(test_store_reads__lineage_of_nothing_and_with_foreign_cursors_is_refused)
{
    static const char *const bad[] = {"a", "d.", "d.fff", "d.2.2", "d.2x", "p2", "d.1111111111111111", "d.2.3.4.5"};
    struct bp_store_lineage page;
    struct bp_digest none = digest_of_text("not stored"), model = digest_of_text("m");
    struct bp_err err = {0};
    store_fixture_put_family(&fixture);
    ck_assert_int_eq(
        bp_store_lineage_read(fixture.store, &none, BP_STORE_ANCESTORS, 9, NULL, &fixture.arena, &page, &err), -1);
    ck_assert_int_eq(err.code, BP_E_not_found);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (struct bp_err){0};
        ck_assert_msg(bp_store_lineage_read(fixture.store, &model, BP_STORE_DESCENDANTS, 9, bad[i], &fixture.arena,
                                            &page, &err) == -1,
                      "%s", bad[i]);
        ck_assert_msg(err.code == BP_E_invalid_query && strcmp(err.path, "/cursor") == 0, "%s: %s", bad[i],
                      err.message);
    }
}
END_TEST

Suite *suite_store_reads(void)
{
    const TTest *const tests[] = {
        test_store_reads__a_prefix_names_the_one_that_begins_with_it,
        test_store_reads__an_ambiguous_prefix_names_the_candidates,
        test_store_reads__many_candidates_are_cut_and_said_to_be,
        test_store_reads__what_is_no_prefix_is_refused,
        test_store_reads__a_prefix_finds_a_plan_that_is_still_a_job,
        test_store_reads__pages_are_newest_first_and_stable_under_writes,
        test_store_reads__lists_are_filtered_by_state_model_and_mode,
        test_store_reads__a_list_has_the_snapshots_but_not_the_derivations,
        test_store_reads__a_cursor_that_is_not_ours_is_refused,
        test_store_reads__a_snapshot_is_the_bytes_of_its_digest,
        test_store_reads__every_flipped_byte_is_found,
        test_store_reads__a_length_that_was_altered_is_found,
        test_store_reads__replay_gets_the_bytes_as_they_are,
        test_store_reads__lineage_walks_both_ways_in_pages,
        test_store_reads__a_lineage_edge_names_its_derivations,
        test_store_reads__lineage_of_nothing_and_with_foreign_cursors_is_refused,
    };
    Suite *suite = suite_create("store_reads");
    TCase *tcase = tcase_create("store_reads");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    return suite;
}
