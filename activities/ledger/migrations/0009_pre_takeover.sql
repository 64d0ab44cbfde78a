-- A charge that ended without success, charged again by a later run: with the keys and the PaymentIntent that it has.

-- Whether an answer or a lookup showed this very PaymentIntent canceled: it can never succeed any more (I11).
CREATE FUNCTION is_shown_canceled(wanted_charge_id text, wanted_intent text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM keys k JOIN attempts a USING (key)
                    WHERE k.charge_id = wanted_charge_id
                      AND a.payment_intent = wanted_intent
                      AND a.payment_intent_status = 'canceled'
                   OFFSET 0)
        OR EXISTS (SELECT FROM decisions d
                    WHERE d.charge_id = wanted_charge_id
                      AND d.evidence ->> 'payment_intent' = wanted_intent
                      AND d.evidence ->> 'state' = 'canceled'
                   OFFSET 0)
$$;

-- Whether a request of a charge may still be running: it is younger than the window, and no answer says what it did
-- (I12); a replayed one says that it has run. What is older is looked up before anything else is sent (I4).
CREATE FUNCTION may_still_run(wanted_charge_id text, window_seconds double precision) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM keys k JOIN attempts a USING (key)
                    WHERE k.charge_id = wanted_charge_id
                      AND k.operation IN ('create', 'confirm')
                      AND k.first_intended_at > ledger_now() - window_seconds * interval '1 second'
                      AND (a.proof IS NULL OR a.proof = 'unknown')
                   OFFSET 0)
$$;

-- What a run canceled on its way to another PaymentIntent is not at its end: the run goes on with it. That is what a
-- cancel is for in a run that took the charge over and is not being canceled itself.
CREATE FUNCTION goes_on_after_cancel(wanted_charge_id text, wanted_run_id text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM billing_runs r
                    WHERE r.run_id = wanted_run_id AND r.phase IN ('planned', 'charging', 'settling') AND NOT r.canceling)
       AND EXISTS (SELECT FROM takeovers t
                    WHERE t.charge_id = wanted_charge_id AND t.to_run = wanted_run_id
                   OFFSET 0)
$$;

-- What a run wants of a charge whose PaymentIntent is of another body and can still succeed. Until Stripe has shown
-- it canceled, the charge's row says what that PaymentIntent is of: if it is paid after all, it was paid like that.
CREATE TABLE corrections (
    charge_id    text NOT NULL REFERENCES charges,
    run_id       text NOT NULL REFERENCES billing_runs,
    currency     text NOT NULL,
    amount_minor bigint NOT NULL CHECK (amount_minor >= 0),
    description  text,
    decided_at   timestamptz NOT NULL,
    applied_at   timestamptz,
    PRIMARY KEY (charge_id, run_id)
);

CREATE INDEX corrections_by_run ON corrections (run_id);

CREATE FUNCTION check_charge_body() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT is_shown_canceled(NEW.charge_id, NEW.payment_intent) THEN
        RAISE EXCEPTION 'charge %: its PaymentIntent is of another amount and can still be paid', NEW.charge_id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER charges_check_body BEFORE UPDATE OF currency, amount_minor ON charges
    FOR EACH ROW
    WHEN (NEW.payment_intent IS NOT NULL
          AND (OLD.currency <> NEW.currency OR OLD.amount_minor <> NEW.amount_minor))
    EXECUTE FUNCTION check_charge_body();

-- As before, and one thing more is legal: beside a PaymentIntent that is canceled a late one of an earlier create may
-- turn up, which is then the charge's own until it is canceled too.
CREATE OR REPLACE FUNCTION check_charge_step() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state <> NEW.state
       AND NOT EXISTS (SELECT FROM charge_transitions t WHERE t.before = OLD.state AND t.after = NEW.state) THEN
        RAISE EXCEPTION 'charge %: no transition % -> %', OLD.charge_id, OLD.state, NEW.state
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.create_version NOT IN (OLD.create_version, OLD.create_version + 1)
       OR NEW.confirm_version NOT IN (OLD.confirm_version, OLD.confirm_version + 1)
       OR NEW.cancel_version NOT IN (OLD.cancel_version, OLD.cancel_version + 1) THEN
        RAISE EXCEPTION 'charge %: a version goes up by one', OLD.charge_id USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.payment_intent IS DISTINCT FROM OLD.payment_intent AND OLD.payment_intent IS NOT NULL
       AND NEW.create_version = OLD.create_version
       AND (NEW.payment_intent IS NULL OR NOT is_shown_canceled(OLD.charge_id, OLD.payment_intent)) THEN
        RAISE EXCEPTION 'charge %: its PaymentIntent is written once per create version', OLD.charge_id
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.fence < OLD.fence THEN
        RAISE EXCEPTION 'charge %: a fence never goes back', OLD.charge_id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;
