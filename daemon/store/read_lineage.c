/* Walking the lineage, depth first. Where the walk stands is the path of row numbers from the snapshot asked about to
 * the node shown last; the next node is found from it by index, so a page costs the same wherever it is, and the path
 * is the cursor. What is stored meanwhile has larger row numbers and disturbs nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/store/internal.h"

/* Far above the number of stages. A path in hex fits a cursor. */
enum { DEPTH_MAX = 16 };
_Static_assert(2 + DEPTH_MAX * 17 < BP_STORE_CURSOR_TEXT, "a path fits a cursor");

struct walk {
    struct bp_db *db;
    struct bp_arena *arena;
    enum bp_store_direction direction;
    int64_t path[DEPTH_MAX]; /* path[0] is where it began */
    size_t depth;
    struct bp_store_node *nodes;
    struct bp_store_edge *edges;
    size_t n_nodes, n_edges;
};

/* ---- Cursors: the direction's letter, then the path without its beginning ---- */

static char letter(enum bp_store_direction direction)
{
    return direction == BP_STORE_ANCESTORS ? 'a' : 'd';
}

static void write_cursor(const struct walk *walk, char ret[BP_STORE_CURSOR_TEXT])
{
    int n = snprintf(ret, BP_STORE_CURSOR_TEXT, "%c", letter(walk->direction));
    for (size_t i = 1; i < walk->depth; i++)
        n += snprintf(ret + n, BP_STORE_CURSOR_TEXT - (size_t)n, ".%llx", (unsigned long long)walk->path[i]);
}

/* A node's first neighbour after `after`, in the direction of the walk. */
static struct bp_query neighbour_query(const struct walk *walk, int64_t of, int64_t after)
{
    enum bp_sql sql = walk->direction == BP_STORE_ANCESTORS ? BP_SQL_NEXT_UP : BP_SQL_NEXT_DOWN;
    struct bp_query query = bp_query_of(walk->db, sql, walk->arena);
    bp_bind_int(&query, of);
    bp_bind_int(&query, after);
    return query;
}

static int check_step(const struct walk *walk, int64_t from, int64_t to, struct bp_err *err)
{
    struct bp_query query = neighbour_query(walk, from, to - 1);
    bool is_there = bp_query_row(&query) && bp_row_int(&query, 0) == to;
    if (bp_query_end(&query, err) < 0)
        return -1;
    return is_there ? 0 : bp_fail(err, BP_E_invalid_query, "/cursor", "the cursor does not belong to this lineage");
}

static int read_cursor(struct walk *walk, const char *cursor, struct bp_err *err)
{
    const char *at = cursor + 1;
    bool good = *cursor == letter(walk->direction);
    while (good && *at) {
        size_t n = *at == '.' ? strspn(at + 1, "0123456789abcdef") : 0;
        good = n >= 1 && n <= 15 && walk->depth < DEPTH_MAX;
        if (good) {
            int64_t seq = strtoll(at + 1, NULL, 16);
            if (check_step(walk, walk->path[walk->depth - 1], seq, err) < 0)
                return -1;
            walk->path[walk->depth++] = seq;
            at += 1 + n;
        }
    }
    return good ? 0 : bp_fail(err, BP_E_invalid_query, "/cursor", "the cursor is not one that this list gave");
}

/* ---- The walk ---- */

static int push_node(struct walk *walk, struct bp_query *query, int64_t seq, const struct bp_digest *digest,
                     const char *stage)
{
    struct bp_store_node *nodes = bp_row_array(query, walk->nodes, walk->n_nodes, sizeof *nodes);
    if (!nodes)
        return -1;
    walk->nodes = nodes;
    walk->nodes[walk->n_nodes++] = (struct bp_store_node){*digest, stage};
    walk->path[walk->depth++] = seq;
    return 0;
}

/* The first neighbour of the path's end after `after`, pushed; `ret` says whether there was one. */
static int push_neighbour(struct walk *walk, int64_t after, bool *ret, struct bp_err *err)
{
    *ret = false;
    if (walk->depth == DEPTH_MAX)
        return 0;
    struct bp_query query = neighbour_query(walk, walk->path[walk->depth - 1], after);
    if (bp_query_row(&query)) {
        struct bp_digest digest = bp_row_digest(&query, 1);
        *ret = push_node(walk, &query, bp_row_int(&query, 0), &digest, bp_row_string(&query, 2)) == 0;
    }
    return bp_query_end(&query, err);
}

/* One node on: down to a first child, else to the next sibling of the nearest that has one. */
static int step(struct walk *walk, bool *ret_found, struct bp_err *err)
{
    if (push_neighbour(walk, 0, ret_found, err) < 0)
        return -1;
    while (!*ret_found && walk->depth > 1) {
        int64_t last = walk->path[--walk->depth];
        if (push_neighbour(walk, last, ret_found, err) < 0)
            return -1;
    }
    return 0;
}

/* Every derivation between the last two of the path. */
static int add_edges(struct walk *walk, struct bp_err *err)
{
    int64_t from = walk->path[walk->depth - 2], to = walk->path[walk->depth - 1];
    bool up = walk->direction == BP_STORE_ANCESTORS;
    struct bp_query query = bp_query_of(walk->db, BP_SQL_EDGES, walk->arena);
    bp_bind_int(&query, up ? to : from);
    bp_bind_int(&query, up ? from : to);
    while (bp_query_row(&query)) {
        struct bp_store_edge *edges = bp_row_array(&query, walk->edges, walk->n_edges, sizeof *edges);
        if (!edges)
            break;
        walk->edges = edges;
        edges[walk->n_edges++] = (struct bp_store_edge){.pass = bp_row_string(&query, 0),
                                                        .revision = (unsigned)bp_row_int(&query, 1),
                                                        .source = bp_row_digest(&query, 2),
                                                        .target = bp_row_digest(&query, 3)};
    }
    return bp_query_end(&query, err);
}

/* Where the walk begins. The node itself is shown on the first page. */
static int start(struct walk *walk, const struct bp_digest *digest, const char *cursor, struct bp_err *err)
{
    struct bp_query query = bp_query_of(walk->db, BP_SQL_SNAPSHOT_HEAD, walk->arena);
    bp_bind_digest(&query, digest);
    bool found = bp_query_row(&query);
    if (found)
        push_node(walk, &query, bp_row_int(&query, 0), digest, bp_row_string(&query, 1));
    if (bp_query_end(&query, err) < 0)
        return -1;
    if (!found) {
        char text[BP_DIGEST_TEXT];
        bp_digest_format(digest, text);
        return bp_fail(err, BP_E_not_found, "", "there is no snapshot %s", text);
    }
    if (!cursor || !*cursor)
        return 0;
    walk->n_nodes = 0;
    return read_cursor(walk, cursor, err);
}

static int walk_page(struct walk *walk, size_t limit, char ret_next[BP_STORE_CURSOR_TEXT], struct bp_err *err)
{
    bool found = true;
    while (found) {
        char here[BP_STORE_CURSOR_TEXT];
        bool full = walk->n_nodes == limit;
        if (full)
            write_cursor(walk, here);
        if (step(walk, &found, err) < 0)
            return -1;
        if (found && full) { /* one too many: it belongs to the next page */
            walk->n_nodes--;
            memcpy(ret_next, here, sizeof here);
            return 0;
        }
        if (found && add_edges(walk, err) < 0)
            return -1;
    }
    return 0;
}

int bp_store_lineage_read(struct bp_store *store, const struct bp_digest *digest, enum bp_store_direction direction,
                          size_t limit, const char *cursor, struct bp_arena *arena, struct bp_store_lineage *ret,
                          struct bp_err *err)
{
    struct bp_db *db = bp_store_pool_take(&store->pool, err);
    if (!db)
        return -1;
    struct walk walk = {.db = db, .arena = arena, .direction = direction};
    char next[BP_STORE_CURSOR_TEXT] = "";
    int result = start(&walk, digest, cursor, err);
    if (result == 0)
        result = walk_page(&walk, limit, next, err);
    bp_store_pool_give(&store->pool, db);
    if (result < 0)
        return -1;
    *ret = (struct bp_store_lineage){
        .nodes = walk.nodes, .n_nodes = walk.n_nodes, .edges = walk.edges, .n_edges = walk.n_edges};
    memcpy(ret->next, next, sizeof next);
    return 0;
}
