-- Who asked for which plan, when, and from where. Rows are only ever added at the new end and taken from the old one: a
-- gap in `seq`, which is never given twice, shows that something else was at work.

-- `times` requests between `at` and `until`, microseconds since 1970: repeats of one caller for one plan are counted
-- for a second and stored as one row. `plan` is NULL for an action that is of no one plan.
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    until INTEGER NOT NULL CHECK (until >= at),
    times INTEGER NOT NULL CHECK (times > 0),
    caller TEXT NOT NULL CHECK (caller <> ''),
    origin TEXT NOT NULL,
    action TEXT NOT NULL CHECK (action <> ''),
    plan BLOB CHECK (length(plan) = 32)
) STRICT;
CREATE INDEX audit_by_plan ON audit (plan) WHERE plan IS NOT NULL;

CREATE TRIGGER audit_rows_do_not_change BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'a row of the audit does not change');
END;
CREATE TRIGGER audit_rows_go_oldest_first BEFORE DELETE ON audit
WHEN EXISTS (SELECT 1 FROM audit WHERE seq < OLD.seq)
BEGIN
    SELECT RAISE(ABORT, 'rows of the audit go oldest first');
END;

-- audit_log: the audit for people.
--   seq, at and until (RFC 3339), times
--   caller   token:NAME, uid:NUMBER or anonymous      origin   an address, or unix
--   action   derive, accept, repeat, replay, or the operationId of an administrator's call
--   plan     'sha256:' and 64 hex digits, or NULL     plan_id  the same as a blob, which an index finds
CREATE VIEW audit_log AS
SELECT seq,
    strftime('%Y-%m-%dT%H:%M:%fZ', at / 1e6, 'unixepoch') AS at,
    strftime('%Y-%m-%dT%H:%M:%fZ', until / 1e6, 'unixepoch') AS until,
    times,
    caller,
    origin,
    action,
    iif(plan IS NULL, NULL, 'sha256:' || lower(hex(plan))) AS plan,
    plan AS plan_id
FROM audit;
