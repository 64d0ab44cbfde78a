-- What people have to hear of: a run waits for approval, is held, has ended its charging or has closed, or customers
-- have to pay by themselves. What is to be told is written in
-- the transaction that makes it true (an event of the run), so no crash is between the fact and its announcement.
-- Delivery is later, from this table, at least once.

-- `payload` is frozen here: ids, counts and sums, never customers. Its `id` is the same for every destination and
-- every try, so that a receiver can tell a repetition.
CREATE TABLE notifications (
    notification_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id          text NOT NULL REFERENCES billing_runs,
    destination     text NOT NULL CHECK (destination <> ''),  -- a name, never an address: those may hold secrets
    kind            text NOT NULL CHECK (kind IN ('run_closed', 'run_held', 'run_waits_for_approval',
                                                         'charging_closed', 'customer_needed')),
    subject         text NOT NULL,  -- which close, hold or plan
    payload         jsonb NOT NULL,
    created_at      timestamptz NOT NULL,
    deliverer       text,  -- id of the workflow that delivers it
    claimed_at      timestamptz,  -- real time of its newest sign of life: the claim, or the beginning of a try
    state           text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'delivered', 'given_up')),
    ended_at        timestamptz,
    CONSTRAINT notifications_written_once UNIQUE (run_id, kind, destination, subject),
    CHECK ((state = 'waiting') = (ended_at IS NULL))
);

-- One row per try, committed before it leaves: `sending` for ever means that nobody knows what became of it.
CREATE TABLE delivery_attempts (
    notification_id bigint NOT NULL REFERENCES notifications,
    attempt_no      integer NOT NULL CHECK (attempt_no >= 1),
    at              timestamptz NOT NULL,
    status          text NOT NULL DEFAULT 'sending' CHECK (status IN ('sending', 'delivered', 'failed')),
    detail          text,
    ended_at        timestamptz,
    PRIMARY KEY (notification_id, attempt_no),
    CHECK ((status = 'sending') = (ended_at IS NULL))
);

-- `chargeonce.destinations` is a setting of the sessions of a process that was given destinations: their names,
-- joined by commas. Elsewhere it is not set, and nothing is announced.
CREATE FUNCTION announce_run_event() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    destinations text[] := string_to_array(nullif(current_setting('chargeonce.destinations', true), ''), ',');
    told_kind    text := CASE NEW.action WHEN 'planned' THEN 'run_waits_for_approval'
                                         WHEN 'closed' THEN 'run_closed'
                                         WHEN 'charging_closed' THEN 'charging_closed'
                                         WHEN 'customer_needed' THEN 'customer_needed'
                                         ELSE 'run_held' END;
    run          billing_runs;
    told_subject text;
    told         jsonb;
    found        jsonb;
BEGIN
    IF destinations IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT * INTO STRICT run FROM billing_runs r WHERE r.run_id = NEW.run_id;
    found := CASE told_kind WHEN 'charging_closed' THEN run.charging_report ELSE run.report END;
    IF told_kind = 'run_waits_for_approval' AND run.phase <> 'planned' THEN
        RETURN NULL;  -- approved beforehand: nobody has to do anything
    END IF;
    told_subject := CASE told_kind WHEN 'run_closed' THEN 'closed'
                                   WHEN 'charging_closed' THEN 'charging closed'
                                   WHEN 'run_waits_for_approval' THEN run.plan_hash
                                   ELSE 'event ' || NEW.event_id END;
    told := jsonb_build_object(
        'id', run.run_id || '/' || told_kind || '/' || replace(told_subject, ' ', '-'),
        'kind', told_kind,
        'run', run.run_id,
        'account', run.account,
        'period', run.period,
        'at', to_char(NEW.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
        'lines', run.selected,
        'counts', (SELECT coalesce(jsonb_object_agg(c.standing, c.lines) FILTER (WHERE c.lines > 0), '{}')
                     FROM run_counts(run.run_id) c),
        'totals', (SELECT coalesce(jsonb_object_agg(t.currency, jsonb_build_object(
                              'lines', t.lines, 'amount_minor', t.amount_minor, 'cap_minor', t.cap_minor)), '{}')
                     FROM run_totals t WHERE t.run_id = run.run_id));
    told := told || CASE told_kind
        WHEN 'run_waits_for_approval' THEN jsonb_build_object('plan_hash', run.plan_hash)
        WHEN 'run_held' THEN jsonb_build_object('hold', CASE NEW.action
            WHEN 'canary_held' THEN 'canary' WHEN 'breaker_opened' THEN 'breaker' ELSE 'cap' END)
        WHEN 'customer_needed' THEN NEW.detail
        ELSE jsonb_build_object(
            'canceled_by_request', run.canceling,
            'moved_minor', (SELECT coalesce(jsonb_object_agg(m.key, m.value -> 'moved_minor'), '{}')
                              FROM jsonb_each(coalesce(found -> 'totals', '{}')) m),
            'seconds', found #> '{durations,all_seconds}',
            'within_limit', found #> '{durations,within_limit}',
            'double_charge_check', found #> '{double_charges,verdict}',
            'double_charges', found #> '{double_charges,found}',
            'waiting', found -> 'waiting')
        END;
    INSERT INTO notifications (run_id, destination, kind, subject, payload, created_at)
    SELECT run.run_id, named.destination, told_kind, told_subject, told, NEW.at
      FROM unnest(destinations) AS named (destination)
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE TRIGGER run_events_announce AFTER INSERT ON run_events
    FOR EACH ROW WHEN (NEW.action IN ('planned', 'canary_held', 'breaker_opened', 'cap_reached', 'charging_closed',
                                        'customer_needed', 'closed'))
    EXECUTE FUNCTION announce_run_event();

-- A customer has to do something (authenticate, or pay on session): handed over once per PaymentIntent, by the
-- very write that makes the charge wait for it, and never tried again by the run.
CREATE UNIQUE INDEX decisions_one_hand_off
    ON decisions (charge_id, (evidence ->> 'payment_intent')) WHERE decision = 'handed_to_customer';

CREATE FUNCTION hand_to_customer() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO decisions (charge_id, at, decision, reason, evidence)
    VALUES (NEW.charge_id, ledger_now(), 'handed_to_customer', coalesce(NEW.reason, 'the customer has to act'),
            jsonb_build_object('payment_intent', NEW.payment_intent))
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE TRIGGER charges_hand_to_customer AFTER UPDATE OF state ON charges
    FOR EACH ROW WHEN (NEW.state = 'needs_customer' AND OLD.state <> 'needs_customer')
    EXECUTE FUNCTION hand_to_customer();
