-- Of a failed job of an operator why, as the JSON of a diagnostic; NULL of other jobs, and of those that failed before.
ALTER TABLE jobs ADD COLUMN problem TEXT;

-- Jobs of operators, last accepted first.
CREATE INDEX jobs_of_operators_by_row ON jobs (seq) WHERE kind <> 'plan';
