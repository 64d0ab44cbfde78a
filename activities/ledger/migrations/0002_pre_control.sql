-- What people decide about a run: approve its plan, hold it, go on, cancel it, raise its cap. Each decision is
-- one guarded write and one event in the same transaction, so no decision is without who, when and why.

ALTER TABLE billing_runs DROP CONSTRAINT billing_runs_phase_check;
ALTER TABLE billing_runs ADD CONSTRAINT billing_runs_phase_check
    CHECK (phase IN ('locked', 'planned', 'charging', 'settling', 'closed', 'failed'));

DROP INDEX billing_runs_one_between_lock_and_settle;
CREATE UNIQUE INDEX billing_runs_one_between_lock_and_settle
    ON billing_runs (account, period) WHERE phase IN ('locked', 'planned', 'charging', 'settling');

-- A held run sends nothing for the first time and opens no new version; what is in flight may settle.
-- A run that is being canceled does neither, and its open charges are canceled. Neither is ever undone by a
-- repeated call; `canceling` is never undone at all.
ALTER TABLE billing_runs
    ADD COLUMN hold            text CHECK (hold IN ('paused', 'canary', 'breaker', 'cap')),
    ADD COLUMN hold_reason     text,
    ADD COLUMN canceling       boolean NOT NULL DEFAULT false,
    ADD COLUMN approved_hash   text,
    ADD COLUMN approved_at     timestamptz,
    ADD COLUMN approved_by     text,
    ADD COLUMN canary_lines    integer NOT NULL DEFAULT 0 CHECK (canary_lines >= 0),
    ADD COLUMN canary_released boolean NOT NULL DEFAULT false,
    ADD COLUMN request         jsonb NOT NULL DEFAULT '{}',  -- what the run was asked for: recovering needs it
    ADD COLUMN report          jsonb,  -- what the close found, frozen with the counts
    ADD CONSTRAINT billing_runs_hold_has_reason CHECK ((hold IS NULL) = (hold_reason IS NULL)),
    ADD CONSTRAINT billing_runs_approved_its_plan
        CHECK (approved_hash IS NULL OR approved_hash = plan_hash),
    ADD CONSTRAINT billing_runs_charges_only_approved
        CHECK (phase NOT IN ('charging', 'settling') OR approved_hash IS NOT NULL);

-- What was approved and what the run may move at most, per currency, in minor units.
CREATE TABLE run_totals (
    run_id       text NOT NULL REFERENCES billing_runs,
    currency     text NOT NULL,
    lines        bigint NOT NULL CHECK (lines >= 0),
    amount_minor bigint NOT NULL CHECK (amount_minor >= 0),
    cap_minor    bigint NOT NULL CHECK (cap_minor >= 0),
    PRIMARY KEY (run_id, currency)
);

CREATE FUNCTION check_cap_step() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.cap_minor < OLD.cap_minor OR NEW.amount_minor <> OLD.amount_minor OR NEW.lines <> OLD.lines THEN
        RAISE EXCEPTION 'run %: totals are frozen, and a cap only goes up', OLD.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER run_totals_check_step BEFORE UPDATE ON run_totals
    FOR EACH ROW EXECUTE FUNCTION check_cap_step();

-- A run that has a plan never goes back to being planned: it would take new totals, and with them new caps.
CREATE FUNCTION refuse_to_plan_again() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'run %: it was %, and is not planned again', OLD.run_id, OLD.phase
        USING ERRCODE = 'check_violation';
END
$$;

CREATE TRIGGER billing_runs_plan_once BEFORE UPDATE OF phase ON billing_runs
    FOR EACH ROW WHEN (NEW.phase = 'locked' AND OLD.phase <> 'locked')
    EXECUTE FUNCTION refuse_to_plan_again();

-- Totals come with the plan and never after it: the proxy's caps are made of them, and it does not trust whoever
-- writes here to know how much is enough. The run's row is held until the commit, or a plan that is being finished
-- meanwhile would not be seen.
CREATE FUNCTION check_totals_come_with_the_plan() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM billing_runs r WHERE r.run_id = NEW.run_id AND r.phase = 'locked' FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'run %: totals come with the plan, and it has been made', NEW.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.cap_minor > NEW.amount_minor * 11 / 10 THEN
        RAISE EXCEPTION 'run %: a cap begins at the total and a tenth, at most', NEW.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER run_totals_come_with_the_plan BEFORE INSERT ON run_totals
    FOR EACH ROW EXECUTE FUNCTION check_totals_come_with_the_plan();

-- Who decided what about a run, when and why: appended, never changed.
CREATE TABLE run_events (
    event_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id   text NOT NULL REFERENCES billing_runs,
    at       timestamptz NOT NULL,
    action   text NOT NULL,
    who      text NOT NULL CHECK (who <> ''),
    reason   text NOT NULL CHECK (reason <> ''),
    detail   jsonb NOT NULL DEFAULT '{}'
);

CREATE INDEX run_events_by_run ON run_events (run_id, event_id);

-- The one way to raise caps, for roles that may not write them: with who and why, or not at all. It also lifts the
-- hold of a run that stands at its cap. NULL where nothing was raised.
CREATE FUNCTION raise_run_caps(wanted_run_id text, currencies text[], caps_minor bigint[], who text, reason text)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    raised   jsonb;
    resumed  boolean;
    recorded bigint;
BEGIN
    PERFORM FROM billing_runs r
      WHERE r.run_id = wanted_run_id AND r.phase IN ('planned', 'charging', 'settling', 'retrying')
        AND NOT r.canceling
        FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    WITH higher AS (
        UPDATE run_totals t
           SET cap_minor = w.cap_minor
          FROM unnest(currencies, caps_minor) AS w (currency, cap_minor)
         WHERE t.run_id = wanted_run_id AND t.currency = w.currency AND t.cap_minor < w.cap_minor
        RETURNING t.currency, old.cap_minor AS cap_before, t.cap_minor AS cap_now
    )
    SELECT jsonb_object_agg(h.currency, jsonb_build_array(h.cap_before, h.cap_now)) INTO raised FROM higher h;
    IF raised IS NULL THEN
        RETURN NULL;
    END IF;
    UPDATE billing_runs r SET hold = NULL, hold_reason = NULL WHERE r.run_id = wanted_run_id AND r.hold = 'cap';
    resumed := FOUND;
    INSERT INTO run_events (run_id, at, action, who, reason, detail)
    VALUES (wanted_run_id, ledger_now(), 'cap_raised', raise_run_caps.who, raise_run_caps.reason,
            jsonb_build_object('caps_minor', raised, 'resumed', resumed))
    RETURNING event_id INTO recorded;
    RETURN recorded;
END
$$;

REVOKE ALL ON FUNCTION raise_run_caps(text, text[], bigint[], text, text) FROM PUBLIC;

DROP TRIGGER billing_runs_check_counts ON billing_runs;
CREATE TRIGGER billing_runs_check_counts BEFORE UPDATE OF phase ON billing_runs
    FOR EACH ROW WHEN (NEW.phase IN ('planned', 'charging', 'closed') AND OLD.phase IS DISTINCT FROM NEW.phase)
    EXECUTE FUNCTION check_run_counts();
