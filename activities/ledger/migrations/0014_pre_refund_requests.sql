-- Refunds that somebody asked for here: each a request with a key of its own, frozen before it is sent.
--
-- What Stripe made of it is in `refunds`, beside every other refund of the charge: its status changes there, by looks.

CREATE TABLE refund_requests (
    request_id     text PRIMARY KEY CHECK (request_id ~ '^[0-9a-f]{24}$'),
    charge_id      text NOT NULL REFERENCES charges,
    account        text NOT NULL CHECK (account <> ''),
    run_id         text NOT NULL REFERENCES billing_runs,
    payment_intent text NOT NULL,
    amount_minor   bigint NOT NULL CHECK (amount_minor > 0),
    currency       text NOT NULL,
    kind           text NOT NULL CHECK (kind IN ('requested_by_customer', 'duplicate')),  -- Stripe's words
    who            text NOT NULL,
    reason         text NOT NULL,
    state          text NOT NULL CHECK (state IN ('requested', 'sending', 'made', 'refused', 'review')),
    refund_id      text,
    detail         text,
    requested_at   timestamptz NOT NULL,
    changed_at     timestamptz NOT NULL,
    CHECK ((state = 'made') = (refund_id IS NOT NULL))
);

CREATE INDEX refund_requests_by_charge ON refund_requests (charge_id);
CREATE INDEX refund_requests_open ON refund_requests (requested_at) WHERE state IN ('requested', 'sending', 'review');

CREATE FUNCTION check_refund_step() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.state, NEW.state) NOT IN (('requested', 'sending'), ('requested', 'refused'), ('sending', 'made'), ('sending', 'refused'),
                                      ('sending', 'review'), ('review', 'made')) THEN
        RAISE EXCEPTION 'refund request %: no transition % -> %', OLD.request_id, OLD.state, NEW.state
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER refund_requests_check_step BEFORE UPDATE ON refund_requests
    FOR EACH ROW WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION check_refund_step();

-- What was asked for stays what it was.
CREATE FUNCTION refuse_another_refund() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'refund request %: what was asked for can not be changed', OLD.request_id
        USING ERRCODE = 'check_violation';
END
$$;

CREATE TRIGGER refund_requests_frozen BEFORE UPDATE ON refund_requests
    FOR EACH ROW
    WHEN ((OLD.charge_id, OLD.payment_intent, OLD.amount_minor, OLD.currency, OLD.kind)
          IS DISTINCT FROM (NEW.charge_id, NEW.payment_intent, NEW.amount_minor, NEW.currency, NEW.kind))
    EXECUTE FUNCTION refuse_another_refund();
