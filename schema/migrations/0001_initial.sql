-- The first schema. Migrations are append-only: a change is a new file.
--
-- Digests and ids are the 32 bytes of a SHA-256; `seq` is the order in which rows were stored; times are microseconds
-- since 1970 in UTC. The views at the end are for people with a shell (`sqlite3 -readonly FILE`) and are a contract like
-- the API; the tables are not.

-- Canonical snapshots. `bytes` is the length of the canonical text, `data` that text as one zstd frame; it comes last so
-- that reading the other columns does not walk its overflow pages.
CREATE TABLE snapshots (
    seq INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    stage TEXT NOT NULL,
    schema TEXT NOT NULL,
    bytes INTEGER NOT NULL CHECK (bytes > 0),
    data BLOB NOT NULL
) STRICT;

-- What the gate found of a snapshot that no pass made: the model stage.
CREATE TABLE snapshot_evidence (
    snapshot INTEGER NOT NULL REFERENCES snapshots (seq),
    position INTEGER NOT NULL,
    check_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    verdict TEXT NOT NULL,
    compared INTEGER NOT NULL,
    PRIMARY KEY (snapshot, position)
) STRICT, WITHOUT ROWID;

-- A pass at a revision made `target` from `source` under the bindings with this fingerprint (32 zero bytes: none).
CREATE TABLE derivations (
    seq INTEGER PRIMARY KEY,
    pass TEXT NOT NULL,
    revision INTEGER NOT NULL CHECK (revision > 0),
    source INTEGER NOT NULL REFERENCES snapshots (seq),
    target INTEGER NOT NULL REFERENCES snapshots (seq),
    binding BLOB NOT NULL CHECK (length(binding) = 32),
    UNIQUE (pass, revision, source, target, binding)
) STRICT;

CREATE TABLE evidence (
    derivation INTEGER NOT NULL REFERENCES derivations (seq),
    position INTEGER NOT NULL,
    check_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    verdict TEXT NOT NULL,
    compared INTEGER NOT NULL,
    PRIMARY KEY (derivation, position)
) STRICT, WITHOUT ROWID;

-- The lineage. A target is stored after its source, so lineage has no cycle.
CREATE TABLE edges (
    source INTEGER NOT NULL REFERENCES snapshots (seq),
    target INTEGER NOT NULL REFERENCES snapshots (seq),
    derivation INTEGER NOT NULL REFERENCES derivations (seq),
    PRIMARY KEY (source, target, derivation),
    CHECK (source < target)
) STRICT, WITHOUT ROWID;
CREATE INDEX edges_by_target ON edges (target, source);

-- Finished plans.
CREATE TABLE plans (
    seq INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 32),
    state TEXT NOT NULL CHECK (state IN ('committed', 'rejected', 'failed')),
    created_at INTEGER NOT NULL,
    committed_at INTEGER NOT NULL,
    model TEXT NOT NULL,
    parameters TEXT NOT NULL,
    mode TEXT NOT NULL,
    facts TEXT,
    diagnostics TEXT,
    request TEXT NOT NULL
) STRICT;
CREATE INDEX plans_by_model ON plans (model);
CREATE INDEX plans_by_mode ON plans (mode);
CREATE INDEX plans_not_committed ON plans (state) WHERE state <> 'committed';

CREATE TABLE plan_snapshots (
    plan INTEGER NOT NULL REFERENCES plans (seq),
    position INTEGER NOT NULL,
    snapshot INTEGER NOT NULL REFERENCES snapshots (seq),
    PRIMARY KEY (plan, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX plan_snapshots_by_snapshot ON plan_snapshots (snapshot);

CREATE TABLE plan_derivations (
    plan INTEGER NOT NULL REFERENCES plans (seq),
    position INTEGER NOT NULL,
    derivation INTEGER NOT NULL REFERENCES derivations (seq),
    PRIMARY KEY (plan, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE replays (
    seq INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 32),
    plan BLOB NOT NULL REFERENCES plans (id) DEFERRABLE INITIALLY DEFERRED,
    verdict TEXT NOT NULL CHECK (verdict IN ('identical', 'divergent')),
    created_at INTEGER NOT NULL,
    record TEXT NOT NULL
) STRICT;
CREATE INDEX replays_by_plan ON replays (plan);

-- Durably accepted work of every kind. `attempts` counts how often it began to run.
CREATE TABLE jobs (
    seq INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 32),
    kind TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'done', 'failed', 'superseded')),
    attempts INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    superseded_by BLOB CHECK (length(superseded_by) = 32),
    passes TEXT NOT NULL,
    request TEXT NOT NULL,
    CHECK ((state = 'superseded') = (superseded_by IS NOT NULL))
) STRICT;
CREATE INDEX jobs_unfinished ON jobs (seq) WHERE state IN ('queued', 'running');

-- plan_stages: the stages that a plan committed, in order.
--   plan      id of the plan, 'sha256:' and 64 hex digits        plan_id    the same as a blob
--   digest    digest of the snapshot, in the same form           snapshot   the same as a blob
--   position  0 for the model                                    stage, schema, bytes
--   model, mode, state, created_at (RFC 3339) of the plan
-- Which plans used this ModelIR (a blob literal is looked up in an index, the text form would be compared row by row):
--   SELECT plan, created_at FROM plan_stages WHERE stage = 'model' AND snapshot = x'0123...cdef';
CREATE VIEW plan_stages AS
SELECT 'sha256:' || lower(hex(p.id)) AS plan,
    ps.position AS position,
    s.stage AS stage,
    'sha256:' || lower(hex(s.digest)) AS digest,
    s.schema AS schema,
    s.bytes AS bytes,
    p.model AS model,
    p.mode AS mode,
    p.state AS state,
    strftime('%Y-%m-%dT%H:%M:%fZ', p.created_at / 1e6, 'unixepoch') AS created_at,
    p.id AS plan_id,
    s.digest AS snapshot
FROM plan_snapshots AS ps
    JOIN plans AS p ON p.seq = ps.plan
    JOIN snapshots AS s ON s.seq = ps.snapshot;

-- pass_outputs: what each pass derived.
--   pass, revision
--   source_stage, source, target_stage, target   digests, 'sha256:' and 64 hex digits
--   binding   fingerprint of the bindings that entered, in the same form
--   checks    how many checks held; violated: how many did not
-- What was derived by revision 1 of a pass:
--   SELECT target_stage, target, source FROM pass_outputs
--   WHERE pass = 'plan-transformer-training' AND revision = 1;
CREATE VIEW pass_outputs AS
SELECT d.pass AS pass,
    d.revision AS revision,
    s.stage AS source_stage,
    'sha256:' || lower(hex(s.digest)) AS source,
    t.stage AS target_stage,
    'sha256:' || lower(hex(t.digest)) AS target,
    'sha256:' || lower(hex(d.binding)) AS binding,
    (SELECT count(*) FROM evidence AS e WHERE e.derivation = d.seq AND e.verdict = 'holds') AS checks,
    (SELECT count(*) FROM evidence AS e WHERE e.derivation = d.seq AND e.verdict <> 'holds') AS violated
FROM derivations AS d
    JOIN snapshots AS s ON s.seq = d.source
    JOIN snapshots AS t ON t.seq = d.target;
