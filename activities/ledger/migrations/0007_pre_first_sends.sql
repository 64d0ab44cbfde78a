-- The gate before first sends: once a hold, a cancel or an end of a run has committed, no first intent of a
-- create or confirm of it commits any more. A condition in the intent's own statement is not enough for that:
-- its snapshot may be older than a hold that commits before it does. So whoever opens a key holds the run's gate
-- in common until the commit, and whoever closes the gate waits for those inside and keeps others out. An
-- advisory lock, because a row lock would be written into the run's row for every batch of intents, and because
-- newcomers queue behind a waiting hold, where a stream of row lockers would keep it waiting.
CREATE FUNCTION run_gate(wanted_run_id text) RETURNS integer
LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtext(wanted_run_id)
$$;

-- Whether a run may begin something new, which then stays true until the caller's transaction has ended.
-- Volatile, so that the row is read under a snapshot from after the gate was passed.
CREATE FUNCTION run_may_begin(wanted_run_id text) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(7240912, run_gate(wanted_run_id));
    RETURN EXISTS (SELECT FROM billing_runs
                    WHERE run_id = wanted_run_id
                      AND phase IN ('charging', 'settling', 'retrying') AND hold IS NULL AND NOT canceling);
END
$$;

CREATE FUNCTION close_run_gate() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(7240912, run_gate(NEW.run_id));
    RETURN NEW;
END
$$;

CREATE TRIGGER billing_runs_close_gate BEFORE UPDATE ON billing_runs
    FOR EACH ROW
    WHEN (OLD.phase IN ('charging', 'settling', 'retrying') AND OLD.hold IS NULL AND NOT OLD.canceling
          AND (NEW.phase NOT IN ('charging', 'settling', 'retrying') OR NEW.hold IS NOT NULL OR NEW.canceling))
    EXECUTE FUNCTION close_run_gate();
