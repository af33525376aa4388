-- Long work that goes on over restarts, pins, and what taking plans out of the history needs.

-- Where a job that goes through the plans has come to, as the time and the row of the last one; '' before the first, and for
-- jobs of kind 'plan'.
ALTER TABLE jobs ADD COLUMN position TEXT NOT NULL DEFAULT '';

-- What a job has counted so far.
CREATE TABLE job_tallies (
    job INTEGER NOT NULL REFERENCES jobs (seq),
    name TEXT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (job, name)
) STRICT, WITHOUT ROWID;

-- What a replay of the history found of a plan that does not come out as it is stored. The plan may be gone since.
CREATE TABLE divergences (
    seq INTEGER PRIMARY KEY,
    job INTEGER NOT NULL REFERENCES jobs (seq),
    plan BLOB NOT NULL CHECK (length(plan) = 32),
    record TEXT NOT NULL
) STRICT;
CREATE INDEX divergences_by_job ON divergences (job);

-- The same, counted by where it begins and by what check tells of it; '' for no pass and no check.
CREATE TABLE divergence_groups (
    job INTEGER NOT NULL REFERENCES jobs (seq),
    pass TEXT NOT NULL,
    revision INTEGER NOT NULL,
    current_revision INTEGER NOT NULL,
    check_id TEXT NOT NULL,
    plans INTEGER NOT NULL,
    PRIMARY KEY (job, pass, revision, current_revision, check_id)
) STRICT, WITHOUT ROWID;

-- Plans that no collection takes.
CREATE TABLE pins (
    seq INTEGER PRIMARY KEY,
    plan BLOB NOT NULL UNIQUE REFERENCES plans (id) DEFERRABLE INITIALLY DEFERRED,
    created_at INTEGER NOT NULL
) STRICT;

-- Jobs by what superseded them, and those that are no plan's by age.
CREATE INDEX jobs_by_successor ON jobs (superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX jobs_of_operators ON jobs (updated_at) WHERE kind <> 'plan';

-- Plans by age; and who refers to what may go with a plan.
CREATE INDEX plans_by_time ON plans (committed_at);
CREATE INDEX plan_derivations_by_derivation ON plan_derivations (derivation);
CREATE INDEX derivations_by_source ON derivations (source);
CREATE INDEX derivations_by_target ON derivations (target);
CREATE INDEX edges_by_derivation ON edges (derivation);
