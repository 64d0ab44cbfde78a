-- The webhook inbox: every verified event once, as a nudge to look at an object; and what went back of a charge's
-- money, or is being claimed back, beside the charge and never instead of it.
--
-- A body is not kept: it holds client secrets and personal data, and it is outdated when it arrives.

CREATE TABLE inbox_events (
    event_id       text PRIMARY KEY,
    event_no       bigint GENERATED ALWAYS AS IDENTITY,
    account        text NOT NULL CHECK (account <> ''),
    type           text NOT NULL CHECK (type <> ''),
    created_at     timestamptz NOT NULL,  -- Stripe's, to the second: for people, never for order
    received_at    timestamptz NOT NULL,
    object_kind    text,
    object_id      text,
    payment_intent text,  -- what is looked at: all events of one are answered by one look
    charge_id      text,  -- as the event's object claims; a look at Stripe decides
    request_id     text,
    state          text NOT NULL DEFAULT 'waiting'
                   CHECK (state IN ('waiting', 'unmatched', 'done', 'ignored', 'parked')),
    reason         text,
    tries          integer NOT NULL DEFAULT 0 CHECK (tries >= 0),
    due_at         timestamptz NOT NULL,  -- by the ledger's clock
    claim          bigint,
    claimed_until  timestamptz,           -- by real time: a lease outlives no stopped clock
    ended_at       timestamptz,
    CHECK ((ended_at IS NULL) = (state IN ('waiting', 'unmatched'))),
    CHECK ((claim IS NULL) = (claimed_until IS NULL)),
    CHECK (state IN ('waiting', 'done') OR reason IS NOT NULL)
) WITH (fillfactor = 80);

-- What is open is found without reading what is not; newest first for people; one look per object.
CREATE INDEX inbox_events_open ON inbox_events (due_at, event_no) WHERE state IN ('waiting', 'unmatched');
CREATE INDEX inbox_events_open_by_object
    ON inbox_events (payment_intent) WHERE state IN ('waiting', 'unmatched');
CREATE INDEX inbox_events_parked ON inbox_events (event_no) WHERE state = 'parked';
CREATE UNIQUE INDEX inbox_events_in_order ON inbox_events (event_no);

CREATE SEQUENCE inbox_claims;

-- A look at Stripe takes its number before it asks. What it found applies only over what an earlier look found:
-- each change at Stripe makes an event, whose look comes after the change and has the larger number.
CREATE SEQUENCE inbox_looks;

CREATE TABLE refunds (
    refund_id      text PRIMARY KEY,
    charge_id      text NOT NULL REFERENCES charges,
    account        text NOT NULL,
    payment_intent text NOT NULL,
    amount_minor   bigint NOT NULL CHECK (amount_minor >= 0),
    currency       text NOT NULL,
    status         text NOT NULL,
    reason         text,
    failure_reason text,
    created_at     timestamptz NOT NULL,  -- Stripe's
    look           bigint NOT NULL,
    seen_at        timestamptz NOT NULL
);

CREATE INDEX refunds_by_charge ON refunds (charge_id);

CREATE TABLE disputes (
    dispute_id     text PRIMARY KEY,
    charge_id      text NOT NULL REFERENCES charges,
    account        text NOT NULL,
    payment_intent text NOT NULL,
    amount_minor   bigint NOT NULL CHECK (amount_minor >= 0),
    currency       text NOT NULL,
    status         text NOT NULL,
    reason         text,
    due_by         timestamptz,           -- until when Stripe takes evidence
    created_at     timestamptz NOT NULL,  -- Stripe's
    look           bigint NOT NULL,
    seen_at        timestamptz NOT NULL
);

CREATE INDEX disputes_by_charge ON disputes (charge_id);
