-- What a run waits for after its charging, over days: a retry, a customer, a bank. The run is then `retrying`: it
-- holds the charges that it waits for, and no longer its period, so the next run begins beside it.

ALTER TABLE billing_runs DROP CONSTRAINT billing_runs_phase_check;
ALTER TABLE billing_runs ADD CONSTRAINT billing_runs_phase_check
    CHECK (phase IN ('locked', 'planned', 'charging', 'settling', 'retrying', 'closed', 'failed'));
ALTER TABLE billing_runs DROP CONSTRAINT billing_runs_charges_only_approved;
ALTER TABLE billing_runs ADD CONSTRAINT billing_runs_charges_only_approved
    CHECK (phase NOT IN ('charging', 'settling', 'retrying') OR approved_hash IS NOT NULL);

-- What people are told when the charging is over, frozen then: retries change the counts afterwards.
ALTER TABLE billing_runs
    ADD COLUMN charging_closed_at timestamptz,
    ADD COLUMN charging_report    jsonb,
    ADD CONSTRAINT billing_runs_retries_after_charging
        CHECK (phase <> 'retrying' OR charging_closed_at IS NOT NULL);

DROP TRIGGER billing_runs_check_counts ON billing_runs;
CREATE TRIGGER billing_runs_check_counts BEFORE UPDATE OF phase ON billing_runs
    FOR EACH ROW
    WHEN (NEW.phase IN ('planned', 'charging', 'retrying', 'closed') AND OLD.phase IS DISTINCT FROM NEW.phase)
    EXECUTE FUNCTION check_run_counts();

-- What issuer and network say about trying again: the retry policy goes by it.
ALTER TABLE attempts
    ADD COLUMN network_decline_code text,
    ADD COLUMN network_advice_code  text;

-- One row per thing that is waited for. A run has one of a charge at a time: while it is open nobody takes the
-- charge over, since its PaymentIntent may be paid meanwhile, by a retry, by the customer or by the bank.
CREATE TABLE follow_ups (
    follow_up_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    charge_id       text NOT NULL REFERENCES charges,
    run_id          text NOT NULL REFERENCES billing_runs,
    kind            text NOT NULL CHECK (kind IN ('retry', 'customer', 'debit')),
    rule            text NOT NULL,  -- of the run's policy
    payment_intent  text,           -- which one a customer is to pay
    handed_over     boolean NOT NULL DEFAULT false,  -- whether people were told of it
    step            integer NOT NULL CHECK (step >= 0),  -- delays of the policy that are used up in this run
    confirm_version integer NOT NULL,  -- as of `step`: a later version is a step that nobody has booked yet
    since           timestamptz NOT NULL,
    due_at          timestamptz NOT NULL,
    ends_at         timestamptz NOT NULL,
    reason          text NOT NULL,
    opened_at       timestamptz NOT NULL,
    closed_at       timestamptz,
    outcome         text,
    CHECK ((closed_at IS NULL) = (outcome IS NULL)),
    CHECK (kind <> 'customer' OR payment_intent IS NOT NULL),
    CHECK (kind = 'customer' OR NOT handed_over)
);

CREATE UNIQUE INDEX follow_ups_one_open ON follow_ups (charge_id) WHERE closed_at IS NULL;
CREATE INDEX follow_ups_by_charge ON follow_ups (charge_id);
CREATE INDEX follow_ups_open_by_run ON follow_ups (run_id, follow_up_id) WHERE closed_at IS NULL;
-- Handed over once, however often a run comes to that point: whoever is asked a second time may pay twice elsewhere.
CREATE UNIQUE INDEX follow_ups_one_hand_over ON follow_ups (run_id, payment_intent) WHERE handed_over;

-- The state of its charge that a follow-up waits on, as workflows.domain.follow_up.WAITS_ON (a test compares them).
CREATE FUNCTION follow_up_state(kind text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE kind WHEN 'retry' THEN 'declined' WHEN 'customer' THEN 'needs_customer' ELSE 'processing' END
$$;

-- A check in the statement that takes a charge over would see its own snapshot; this one sees what has committed.
CREATE FUNCTION refuse_takeover_of_what_is_waited_for() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM follow_ups f WHERE f.charge_id = NEW.charge_id AND f.closed_at IS NULL) THEN
        RAISE EXCEPTION 'charge %: run % still waits for it', NEW.charge_id, OLD.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER charges_stay_while_waited_for BEFORE UPDATE OF run_id ON charges
    FOR EACH ROW WHEN (OLD.run_id IS DISTINCT FROM NEW.run_id)
    EXECUTE FUNCTION refuse_takeover_of_what_is_waited_for();

-- Why a charge was declined last, by the answer to a confirm or by a lookup: what the policy goes by.
CREATE FUNCTION newest_decline(wanted_charge_id text)
RETURNS TABLE (decline_code text, decline_advice text, decline_network_advice text)
LANGUAGE sql STABLE AS $$
    SELECT code, advice, network_advice
      FROM (SELECT a.answered_at AS at, coalesce(a.decline_code, a.code) AS code, a.advice_code AS advice,
                   a.network_advice_code AS network_advice
              FROM keys k JOIN attempts a USING (key)
             WHERE k.charge_id = wanted_charge_id AND a.proved_state = 'declined'
             UNION ALL
            SELECT d.at, d.evidence #>> '{decline,code}', d.evidence #>> '{decline,advice}',
                   d.evidence #>> '{decline,network_advice}'
              FROM decisions d
             WHERE d.charge_id = wanted_charge_id AND d.evidence ? 'decline') known
     ORDER BY at DESC
     LIMIT 1
$$;

-- Whether a confirm of a charge may still do something (I12): a send of it has no answer that says what it did. Where
-- a lookup found the decline of a key that was never answered, one send of that key has done it.
CREATE FUNCTION confirm_is_undetermined(wanted_charge_id text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT
          FROM (SELECT k.version, count(*) FILTER (WHERE a.proof IS NULL OR a.proof = 'unknown') AS open_sends,
                       bool_or(a.proof = 'proved') AS is_answered
                  FROM keys k JOIN attempts a USING (key)
                 WHERE k.charge_id = wanted_charge_id AND k.operation = 'confirm'
                 GROUP BY k.version) sent
         WHERE open_sends > CASE WHEN NOT coalesce(is_answered, false)
                                      AND EXISTS (SELECT FROM decisions d
                                                   WHERE d.charge_id = wanted_charge_id
                                                     AND d.evidence #>> '{decline,confirm_version}' = sent.version::text)
                                 THEN 1 ELSE 0 END)
$$;

-- The payment method of a charge's newest confirm, which is the one that was declined.
CREATE FUNCTION confirmed_with(wanted_charge_id text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT k.parameters::jsonb ->> 'payment_method'
      FROM keys k
     WHERE k.charge_id = wanted_charge_id AND k.operation = 'confirm'
     ORDER BY k.version DESC
     LIMIT 1
$$;
