-- After a restore the ledger has forgotten what it sent. Nothing is sent again until Stripe has been asked about every
-- charge that is still to be paid, and every sender from before has lost its key (trace T4).

-- Which cluster the ledger has lived in, and on which of its timelines: another one means that it was restored, or that
-- a standby took over that may lack its last commits.
CREATE TABLE ledger_identity (
    only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    system_identifier bigint NOT NULL,
    timeline          text NOT NULL
);

CREATE TABLE ledger_restores (
    restore_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    found_at    timestamptz NOT NULL,
    why         text NOT NULL,
    who         text NOT NULL,
    cleared_at  timestamptz,
    cleared_by  text,
    cleared_why text,
    counts      jsonb,
    CHECK ((cleared_at IS NULL) = (cleared_by IS NULL))
);

CREATE UNIQUE INDEX ledger_restores_one_open ON ledger_restores ((true)) WHERE cleared_at IS NULL;

CREATE FUNCTION is_restored() RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM ledger_restores WHERE cleared_at IS NULL)
$$;

-- Asked by every new connection: a restore has broken all those from before.
CREATE FUNCTION notice_restore() RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    cluster bigint;
    line    text;
BEGIN
    IF pg_is_in_recovery() THEN
        RETURN false;
    END IF;
    cluster := (SELECT system_identifier FROM pg_control_system());
    line := substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8);
    INSERT INTO ledger_identity (system_identifier, timeline) VALUES (cluster, line) ON CONFLICT DO NOTHING;
    UPDATE ledger_identity SET system_identifier = cluster, timeline = line
     WHERE (system_identifier, timeline) IS DISTINCT FROM (cluster, line);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO ledger_restores (found_at, why, who)
    VALUES (ledger_now(), 'the cluster is ' || cluster || ' on timeline ' || line || ', and was another one', 'chargeonce')
    ON CONFLICT DO NOTHING;
    RETURN true;
END
$$;

REVOKE EXECUTE ON FUNCTION notice_restore() FROM PUBLIC;

CREATE OR REPLACE FUNCTION run_may_begin(wanted_run_id text) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(7240912, run_gate(wanted_run_id));
    RETURN NOT is_restored()
       AND EXISTS (SELECT FROM billing_runs
                    WHERE run_id = wanted_run_id
                      AND phase IN ('charging', 'settling', 'retrying') AND hold IS NULL AND NOT canceling);
END
$$;
