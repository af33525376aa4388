/* The store: plans, snapshots with their lineage and evidence, replays and accepted jobs, in one SQLite file.
 *
 * It sees bytes and digests and knows nothing of what they mean. One writer thread owns the only connection that writes
 * and the only checkpoints; what callers hand in is committed in groups, and a caller is told "committed" only after
 * COMMIT returned, which with WAL and synchronous=FULL means after the rows are on disk. Reads run on a small pool of
 * read-only connections, each call under a deadline.
 *
 * Threads. bp_store_open and bp_store_close: one thread, nothing else running on the store. bp_store_submit, every
 * read, bp_store_ready, bp_store_stats, bp_store_ask and bp_store_has_answered: any thread, at any time in between,
 * completion callbacks included. Packers: one thread each. The rest is pure. Locks, of which no thread ever holds two:
 * the writer's queue, the pool of readers, the counters. No lock is held while a callback runs or while SQLite works.
 *
 * Times are microseconds since 1970-01-01T00:00:00Z and come from the caller. Texts read back are NUL-terminated
 * besides having a length.
 */
#ifndef BP_STORE_STORE_H
#define BP_STORE_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/digest.h"
#include "common/base/err.h"

/* ---- Opening ---- */

struct bp_store;

/* Told on the writer thread, outside its locks, after each group that was committed and each checkpoint, whether
 * readers were in its way or not: how many units, and how long COMMIT (which writes and syncs the log) or the
 * checkpoint took. All NULL: nobody is. */
struct bp_store_observer {
    void (*committed)(void *data, uint64_t units, uint64_t nanoseconds);
    void (*checkpointed)(void *data, uint64_t nanoseconds);
    void *data;
};

/* Zero means the default given here. */
struct bp_store_options {
    const char *path;          /* of the database file; it is made when absent, its directory is not */
    unsigned batch;            /* most units in one transaction: 64 */
    unsigned readers;          /* read-only connections: 4 */
    unsigned read_deadline_ms; /* of one read, the wait for a connection included: 1000 */
    uint64_t wal_limit;        /* bytes of write-ahead log from which on new work is to be refused: 1 GiB. The log is
                                * checkpointed at 8 MiB; it only grows past that while another process keeps reading. */
    struct bp_store_observer observer;
};

/* Takes the lock on realpath(path).lock for the life of the store, checks the schema, applies the migrations that are
 * missing, checkpoints (rows that a crash left unsynced are synced before anyone is answered), starts the writer.
 * Codes: database_locked (the message names the other process), schema_newer (the file is left as it was),
 * storage_failed, out_of_memory. */
int bp_store_open(const struct bp_store_options *options, struct bp_store **ret, struct bp_err *err);

/* Whether bp_store_open made the database: there was no file, or an empty one. */
bool bp_store_is_new(const struct bp_store *store);

/* Commits whatever is queued, calls every callback, checkpoints, gives the lock back. NULL does nothing. Not from a
 * callback. */
void bp_store_close(struct bp_store *store);

/* 0 when the store takes new work. -1: wal_full (passes when the foreign readers leave) or storage_failed (a failed
 * write or sync after which the connection is not to be trusted: stays so until the process starts again). Costs two
 * atomic loads. A disk that is full fails the units that did not fit, no more. */
int bp_store_ready(const struct bp_store *store, struct bp_err *err);

/* Asks the writer to turn around once, which it does between groups. Never waits for it. */
void bp_store_ask(struct bp_store *store);

/* Whether it has since it was last asked. */
bool bp_store_has_answered(struct bp_store *store);

enum bp_store_plan_state { BP_STORE_COMMITTED, BP_STORE_REJECTED, BP_STORE_FAILED, BP_STORE_PLAN_STATE_N };
extern const char *const bp_store_plan_state_names[]; /* "committed", "rejected", "failed"; NULL-terminated */

/* For metrics. The counts are of rows on disk; kept, not counted, so this is cheap. */
struct bp_store_stats {
    uint64_t database_bytes, wal_bytes;
    uint64_t disk_free_bytes; /* for us, where the file is; UINT64_MAX when that cannot be said */
    uint64_t plans[BP_STORE_PLAN_STATE_N], snapshots, derivations, replays, jobs_unfinished;
    uint64_t queued;                       /* units waiting for the writer */
    uint64_t commits, units, failed_units; /* since the start */
    uint64_t checkpoints, busy_checkpoints;
};
void bp_store_stats(struct bp_store *store, struct bp_store_stats *ret);

/* The migrations a file lacks: from `ret_from` (0: there is no file) to `ret_to`. Applies them unless `dry_run`. Takes
 * the lock. Codes as bp_store_open. */
int bp_store_migrate(const char *path, bool dry_run, unsigned *ret_from, unsigned *ret_to, struct bp_err *err);

/* One thing that is not as it must be. Borrowed for the call. */
struct bp_store_defect {
    const char *table;  /* "file" of what is not in one table */
    const char *key;    /* what names the row to people; "" when none does */
    const char *reason; /* "the stored bytes are not those of the digest" */
};

struct bp_store_verifier {
    void (*defect)(void *data, const struct bp_store_defect *defect);
    void *data;
    const atomic_bool *stop; /* or NULL; once true the check ends with deadline_exceeded */
};

/* How many rows were looked at, and how many defects were told. */
struct bp_store_verified {
    uint64_t plans, snapshots, derivations, edges, evidence, replays, jobs, audit, defects;
};

/* Checks a file that may be in use: SQLite's own integrity and references, every snapshot against its digest, and what
 * must hold between rows (verify.def: edges, derivations, evidence, plans' stages, replays, jobs). Writes nothing. -1:
 * it could not be looked at, or not to the end; defects alone are no error. */
int bp_store_verify(const char *path, const struct bp_store_verifier *verifier, struct bp_store_verified *ret,
                    struct bp_err *err);

/* Opens a file, which may be in use, for the reads below and bp_store_close alone: no lock, no writer, no deadline.
 * Codes: as bp_store_open; storage_failed too when the file is not there or its schema is an older one. */
int bp_store_open_reader(const char *path, struct bp_store **ret, struct bp_err *err);

/* ---- Backups ---- */

struct bp_store_backup {
    const atomic_bool *stop;               /* or NULL; once true the copy ends with `stopping` */
    atomic_uint_fast64_t pages, all_pages; /* copied so far, and in all; read by others meanwhile */
};

/* Copies the database as it is now to `to`, which must not be there, while it is being written to: through a reader of
 * its own, whose state is that of one moment. The write-ahead log cannot be cut meanwhile. The copy is one file, in no
 * use and synced, of mode 0600; it is removed again when it fails. Any thread. */
int bp_store_backup(struct bp_store *store, const char *to, struct bp_store_backup *backup, struct bp_err *err);

/* ---- Records: the same shapes are written and read back ---- */

struct bp_store_text {
    const char *at; /* NULL: absent */
    size_t n;
};

/* A place among the finished plans in the order in which they finished. All zero: before the first. */
struct bp_store_place {
    int64_t committed_at, seq;
};

struct bp_store_evidence {
    const char *check, *kind, *verdict;
    uint64_t compared;
};

struct bp_store_snapshot {
    struct bp_digest digest; /* of the canonical bytes */
    const char *stage, *schema;
    uint64_t bytes;                           /* how many canonical bytes there are */
    struct bp_store_text packed;              /* by bp_store_pack; when read back: absent */
    const struct bp_store_evidence *evidence; /* of the gate, for a snapshot that no pass made; else none */
    size_t n_evidence;
};

struct bp_store_derivation {
    const char *pass;
    unsigned revision;
    struct bp_digest source, target; /* snapshots, of this plan or stored before */
    struct bp_digest binding;        /* fingerprint of the bindings that enter at the target; zero for none */
    const struct bp_store_evidence *evidence;
    size_t n_evidence;
};

/* A finished plan. Snapshots in the order of the stages, derivations in the order in which they ran. */
struct bp_store_plan {
    struct bp_digest id;
    enum bp_store_plan_state state;
    int64_t created_at, committed_at;
    const char *model, *parameters, *mode;   /* name, decimal count, "training" or "inference" */
    struct bp_store_text request;            /* canonical JSON; absent in lists */
    struct bp_store_text facts, diagnostics; /* JSON, or absent */
    const struct bp_store_snapshot *snapshots;
    size_t n_snapshots;
    const struct bp_store_derivation *derivations; /* none in lists */
    size_t n_derivations;
};

struct bp_store_replay {
    struct bp_digest id, plan;
    const char *verdict;         /* "identical" or "divergent" */
    struct bp_store_text record; /* JSON: the answer's stages */
    int64_t created_at;
};

/* Durably accepted work. Allowed next states: queued -> running, done, failed, superseded; running -> running (taken up
 * again), done, failed, superseded. */
enum bp_store_job_state {
    BP_STORE_JOB_QUEUED,
    BP_STORE_JOB_RUNNING,
    BP_STORE_JOB_DONE,
    BP_STORE_JOB_FAILED,
    BP_STORE_JOB_SUPERSEDED,
    BP_STORE_JOB_STATE_N
};
extern const char *const bp_store_job_state_names[]; /* NULL-terminated */

struct bp_store_job {
    struct bp_digest id; /* of a job of kind "plan": the plan's */
    const char *kind;
    struct bp_store_text request; /* what is to be done */
    struct bp_store_text passes;  /* JSON: the passes and revisions that `id` stands for */
    int64_t created_at;
    /* Set by the store; ignored when a job is handed in, which is accepted as queued with no attempts. */
    enum bp_store_job_state state;
    unsigned attempts; /* how often it began to run */
    int64_t updated_at;
    bool has_superseded_by;
    struct bp_digest superseded_by;
    int64_t seq;                  /* order of acceptance */
    struct bp_store_place place;  /* where it has come to among the plans */
    struct bp_store_text problem; /* JSON: why it failed; absent when it did not, or nobody said */
};

/* A step of a job. To `running` counts an attempt, so commit it before the work begins. */
struct bp_store_job_change {
    struct bp_digest id;
    enum bp_store_job_state state;
    struct bp_digest superseded_by; /* with BP_STORE_JOB_SUPERSEDED */
    struct bp_store_text problem;   /* JSON; with BP_STORE_JOB_FAILED, or absent */
    int64_t at;
};

/* What a job has counted: a name and how much is added to it. */
struct bp_store_tally {
    const char *name;
    uint64_t n;
};

/* A plan that does not come out as it is stored, where that begins ("" and 0 for no pass), and which checks tell of it.
 */
struct bp_store_divergence {
    struct bp_digest plan;
    const char *pass;
    unsigned revision, current_revision; /* 0: there is none now */
    const char *const *checks;
    size_t n_checks;
    struct bp_store_text record; /* JSON */
};

/* How far a job has come since the last time. The attempt that came so far counts as its first. */
struct bp_store_progress {
    struct bp_digest job;
    int64_t at;
    struct bp_store_place place;
    const struct bp_store_tally *tallies;
    size_t n_tallies;
    const struct bp_store_divergence *divergences;
    size_t n_divergences;
};

/* Takes finished plans out of the store, oldest first, and what no other plan needs: their derivations with evidence
 * and edges, their snapshots, replays and jobs. Then the ended jobs of other kinds than "plan", with what they found.
 * Plans that are pinned stay. As many as `budget_ns` allows, one at the least. Adds to the tallies of `job`: plans,
 * snapshots, derivations, replays, jobs, and bytes, which the snapshots took. */
struct bp_store_collection {
    struct bp_digest job;
    int64_t at;
    int64_t before; /* plans that finished, and jobs that ended, before that time */
    int64_t budget_ns;
    struct bp_store_place from;  /* where to go on */
    struct bp_store_place place; /* set by the store: where it has come to */
    uint64_t plans;              /* set by the store: how many went */
    bool ended;                  /* set by the store: nothing is left to take */
};

/* Keeps a plan from every collection, or lets it go. */
struct bp_store_pin {
    struct bp_digest plan;
    bool remove;
    int64_t at;   /* when it was pinned; set by the store when it was before */
    bool missing; /* set by the store: there is no such plan, or no such pin to remove */
};

/* Somebody asked for something, `times` times between two moments. */
struct bp_store_audit {
    int64_t at, until;
    uint64_t times;
    const char *caller, *origin, *action;
    const struct bp_digest *plan; /* NULL: of no one plan */
};

/* Most rows of the audit that one unit takes out. */
#define BP_STORE_AUDIT_FORGET_MAX 4096

/* ---- Writing ---- */

/* What is committed together or not at all, in this order: accept, plan, replay, pin, collection, progress, change,
 * audit, forget. The parts that are NULL are not there. All that a unit points at, and the unit, stay the caller's and
 * must live, unchanged, until `done` ran.
 *
 * accept: a job of this id that is queued or running is left alone (`existed`); one that ended is accepted anew.
 * probe:  nothing but a real write: the schema's version once more, unless the file's is another (`schema_differs`).
 * plan:   a plan of this id that is committed or rejected is left alone (`existed`); a failed one is replaced.
 *         Snapshots and derivations that are stored already are shared. */
struct bp_store_unit {
    const struct bp_store_job *accept;
    const struct bp_store_plan *plan;
    const struct bp_store_replay *replay;
    struct bp_store_pin *pin;
    struct bp_store_collection *collection;
    const struct bp_store_progress *progress;
    const struct bp_store_job_change *change;
    const struct bp_store_audit *audit;
    size_t n_audit;
    int64_t audit_forget_before; /* takes the oldest rows of the audit out, up to the first that ended at this time or
                                  * later; 0: none */
    /* Called once, on the writer thread, after COMMIT returned (`err` NULL: the rows are on disk and every read that
     * begins now sees them), or when the unit was not written: storage_failed, out_of_memory, or internal (the unit
     * itself breaks a rule of the schema; the others of its group are committed). Must be short; may free the unit,
     * submit and read. */
    void (*done)(struct bp_store_unit *unit, const struct bp_err *err);
    void *data; /* the caller's */
    bool probe;
    bool existed, schema_differs;
    unsigned audit_forgotten;   /* how many rows went, at most BP_STORE_AUDIT_FORGET_MAX */
    struct bp_store_unit *next; /* the store's */
};

/* Queues the unit. Never waits, never fails: a store that failed says so through `done`. It does not ask
 * bp_store_ready: what was accepted before the log was full is written. */
void bp_store_submit(struct bp_store *store, struct bp_store_unit *unit);

/* Compression for what is stored (zstd level 1), its memory kept between calls: one packer per worker. */
struct bp_store_packer;
struct bp_store_packer *bp_store_packer_new(void); /* NULL when memory runs out */
void bp_store_packer_free(struct bp_store_packer *packer);

/* Longest canonical text of one snapshot. */
#define BP_STORE_SNAPSHOT_MAX (UINT64_C(256) << 20)

/* Adds the packed form of n bytes to `out`. -1: out_of_memory; quantity_overflow past BP_STORE_SNAPSHOT_MAX. */
int bp_store_pack(struct bp_store_packer *packer, const void *bytes, size_t n, struct bp_buf *out, struct bp_err *err);

/* Adds what was packed, which must come out `n_bytes` long, to `out`; nothing on failure. -1: snapshot_corrupt,
 * out_of_memory. */
int bp_store_unpack(struct bp_store_packer *packer, const void *packed, size_t n, uint64_t n_bytes, struct bp_buf *out,
                    struct bp_err *err);

/* ---- Reading ----
 * Memory of what is read comes from `arena`. Every read can also fail with deadline_exceeded, storage_failed and
 * out_of_memory. */

enum bp_store_kind { BP_STORE_PLANS, BP_STORE_SNAPSHOTS, BP_STORE_REPLAYS, BP_STORE_JOBS };

#define BP_STORE_CANDIDATES_MAX 8
struct bp_store_candidates {
    struct bp_digest at[BP_STORE_CANDIDATES_MAX];
    size_t n;
    bool more; /* there are others */
};

/* The id that `text` names: "sha256:" (or not) and 8 to 64 lower-case hex digits. All 64 digits are taken as they are,
 * without a look at the store: the read that follows says not_found. Plans are looked for among finished ones and
 * jobs of kind "plan"; jobs among those of other kinds. Codes: invalid_id, not_found, ambiguous_prefix (only then
 * `ret_candidates` is filled). */
int bp_store_find(struct bp_store *store, enum bp_store_kind kind, const char *text, struct bp_digest *ret,
                  struct bp_store_candidates *ret_candidates, struct bp_err *err);

/* A finished plan, whole, but for the snapshots' bytes. not_found. */
int bp_store_plan_read(struct bp_store *store, const struct bp_digest *id, struct bp_arena *arena,
                       struct bp_store_plan *ret, struct bp_err *err);

/* Of a page. What is wrong with one that is handed in has the path "/cursor". */
#define BP_STORE_CURSOR_TEXT 320

/* Which finished plans; NULL is any. */
struct bp_store_plan_filter {
    const enum bp_store_plan_state *state;
    const char *model, *mode;
};
struct bp_store_plan_page {
    const struct bp_store_plan *plans;
    size_t n;
    char next[BP_STORE_CURSOR_TEXT]; /* cursor of the next page; "" at the end */
};

/* At most `limit` (1 to 500) plans, last stored first, from `cursor` on (NULL or "": from the start). A cursor stays
 * good whatever is stored meanwhile: no plan is seen twice or missed but those that are new. invalid_query when it is
 * not one of ours. */
int bp_store_plan_list(struct bp_store *store, const struct bp_store_plan_filter *filter, size_t limit,
                       const char *cursor, struct bp_arena *arena, struct bp_store_plan_page *ret, struct bp_err *err);

/* The canonical bytes, checked against the digest, added to `out`; nothing is added on failure. not_found,
 * snapshot_corrupt. One indexed lookup. */
int bp_store_snapshot_read(struct bp_store *store, const struct bp_digest *digest, struct bp_buf *out,
                           struct bp_err *err);

/* For replay: the bytes as they unpack, not checked against the digest. `ret_unpacked` is false, and `out` as it was,
 * when they do not unpack. not_found. */
int bp_store_snapshot_read_raw(struct bp_store *store, const struct bp_digest *digest, struct bp_buf *out,
                               bool *ret_unpacked, struct bp_err *err);

enum bp_store_direction { BP_STORE_ANCESTORS, BP_STORE_DESCENDANTS };
struct bp_store_node {
    struct bp_digest digest;
    const char *stage;
};
struct bp_store_edge {
    struct bp_digest source, target;
    const char *pass;
    unsigned revision;
};
struct bp_store_lineage {
    const struct bp_store_node *nodes;
    size_t n_nodes;
    const struct bp_store_edge *edges; /* those that led to the page's nodes */
    size_t n_edges;
    char next[BP_STORE_CURSOR_TEXT];
};

/* What a snapshot came from or what came from it, itself first, depth first: at most `limit` (1 to 500) nodes from
 * `cursor` on. A page costs two lookups a node however far in it is. not_found, invalid_query. */
int bp_store_lineage_read(struct bp_store *store, const struct bp_digest *digest, enum bp_store_direction direction,
                          size_t limit, const char *cursor, struct bp_arena *arena, struct bp_store_lineage *ret,
                          struct bp_err *err);

/* not_found */
int bp_store_replay_read(struct bp_store *store, const struct bp_digest *id, struct bp_arena *arena,
                         struct bp_store_replay *ret, struct bp_err *err);

struct bp_store_replay_page {
    const struct bp_store_replay *replays;
    size_t n;
    char next[BP_STORE_CURSOR_TEXT];
};

/* Of one plan, last stored first; paging as in bp_store_plan_list. A plan without any, or unknown, has none. */
int bp_store_replay_list(struct bp_store *store, const struct bp_digest *plan, size_t limit, const char *cursor,
                         struct bp_arena *arena, struct bp_store_replay_page *ret, struct bp_err *err);

/* not_found */
int bp_store_job_read(struct bp_store *store, const struct bp_digest *id, struct bp_arena *arena,
                      struct bp_store_job *ret, struct bp_err *err);

struct bp_store_job_page {
    const struct bp_store_job *jobs;
    size_t n;
    char next[BP_STORE_CURSOR_TEXT]; /* of a list */
};

/* Queued and running jobs accepted after the one whose `seq` is `after` (0: all), first accepted first, at most
 * `limit`. Fewer than `limit` means these were the last. */
int bp_store_jobs_unfinished(struct bp_store *store, int64_t after, size_t limit, struct bp_arena *arena,
                             struct bp_store_job_page *ret, struct bp_err *err);

/* Jobs of other kinds than "plan", last accepted first; paging as in bp_store_plan_list. */
int bp_store_job_list(struct bp_store *store, size_t limit, const char *cursor, struct bp_arena *arena,
                      struct bp_store_job_page *ret, struct bp_err *err);

struct bp_store_plan_name {
    struct bp_store_place place;
    struct bp_digest id;
};

/* The finished plans after a place, oldest first, at most `limit`; fewer mean that these were the last. */
int bp_store_plans_after(struct bp_store *store, const struct bp_store_place *after, size_t limit,
                         struct bp_arena *arena, const struct bp_store_plan_name **ret, size_t *ret_n,
                         struct bp_err *err);

/* How many plans finished at or after `from` and before `until`. An index is counted through. */
int bp_store_plans_count(struct bp_store *store, int64_t from, int64_t until, uint64_t *ret, struct bp_err *err);

/* What a collection of this plan would take: of snapshots and derivations those that no plan needs that stays, counted
 * with the first of the plans that share them. `takes` is false for one that is pinned or gone. */
struct bp_store_takings {
    bool takes;
    uint64_t snapshots, derivations, replays, bytes;
};
int bp_store_plan_takings(struct bp_store *store, const struct bp_store_plan_name *plan, int64_t before,
                          struct bp_store_takings *ret, struct bp_err *err);

/* What a job has counted so far, by name. */
struct bp_store_tally_page {
    const struct bp_store_tally *tallies;
    size_t n;
};
int bp_store_tallies(struct bp_store *store, int64_t job_seq, struct bp_arena *arena, struct bp_store_tally_page *ret,
                     struct bp_err *err);

/* The divergences that a job found, in the order in which it did. */
struct bp_store_divergence_page {
    const struct bp_store_text *records;
    size_t n;
    char next[BP_STORE_CURSOR_TEXT];
};
int bp_store_divergences(struct bp_store *store, int64_t job_seq, size_t limit, const char *cursor,
                         struct bp_arena *arena, struct bp_store_divergence_page *ret, struct bp_err *err);

/* The same counted by where they begin and what check tells of them, the largest group first: at most `limit`. */
struct bp_store_group {
    const char *pass, *check;
    unsigned revision, current_revision;
    uint64_t plans;
};
struct bp_store_group_page {
    const struct bp_store_group *groups;
    size_t n;
};
int bp_store_groups(struct bp_store *store, int64_t job_seq, size_t limit, struct bp_arena *arena,
                    struct bp_store_group_page *ret, struct bp_err *err);

/* Pins, last one first. */
struct bp_store_pin_page {
    const struct bp_store_pin *pins;
    size_t n;
    char next[BP_STORE_CURSOR_TEXT];
};
int bp_store_pin_list(struct bp_store *store, size_t limit, const char *cursor, struct bp_arena *arena,
                      struct bp_store_pin_page *ret, struct bp_err *err);

/* ---- Times ---- */

/* "2026-01-31T23:59:59.000001Z" and a NUL. */
#define BP_TIME_TEXT 32

/* RFC 3339, UTC, six digits of fraction; years 0 to 9999, a time outside is clamped. */
void bp_time_format(int64_t microseconds, char text[BP_TIME_TEXT]);

/* The reverse of what it gives, with any number of digits of fraction or none; or a date alone, for its first moment.
 */
bool bp_time_parse(const char *text, int64_t *ret);

#endif
