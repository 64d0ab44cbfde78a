-- Reconciliation: what was compared with Stripe and how far, what differed, and what was done about it.
--
-- A reconciliation is worked through in slices that are kept here, so whoever takes it over after a kill knows what
-- is left. What it found is kept by subject: found again, a difference keeps the moment at which it was first seen.

CREATE TABLE reconciliations (
    reconciliation_id text PRIMARY KEY,  -- the workflow's id and, after a slash, a number
    workflow_id       text NOT NULL CHECK (workflow_id <> ''),
    owner             text NOT NULL UNIQUE CHECK (owner <> ''),  -- run id of the workflow's first execution
    account           text NOT NULL CHECK (account <> ''),
    run_id            text REFERENCES billing_runs,  -- NULL: everything of the account in the span
    since             timestamptz NOT NULL,  -- of the first send of what is compared; by the ledger's clock
    until             timestamptz NOT NULL,
    repair            boolean NOT NULL,  -- what moves no money is repaired at once
    who               text NOT NULL,
    reason            text NOT NULL,
    phase             text NOT NULL CHECK (phase IN ('open', 'closed', 'failed')),
    how               text CHECK (how IN ('scan', 'customers')),
    opened_at         timestamptz NOT NULL,
    closed_at         timestamptz,
    report            jsonb,
    CHECK ((phase = 'open') = (closed_at IS NULL)),
    CHECK (phase <> 'closed' OR report IS NOT NULL)
);

CREATE INDEX reconciliations_by_workflow ON reconciliations (workflow_id);
CREATE INDEX reconciliations_newest ON reconciliations (opened_at DESC);

-- A scan reads the account's PaymentIntents by the time of their creation, one slice after the other.
CREATE TABLE reconciliation_slices (
    reconciliation_id text NOT NULL REFERENCES reconciliations,
    slice_no          integer NOT NULL CHECK (slice_no >= 0),
    created_from      timestamptz NOT NULL,
    created_until     timestamptz,  -- NULL: whatever is there by the time of reading
    done_at           timestamptz,
    PRIMARY KEY (reconciliation_id, slice_no)
);

-- Charges whose own PaymentIntent a scan has shown, and which agree with it in everything. Unlogged: after a crash of
-- the database more is looked at one by one, and nothing is concluded from a row that is missing here.
CREATE UNLOGGED TABLE reconciliation_seen (
    reconciliation_id text NOT NULL,
    charge_id         text NOT NULL,
    PRIMARY KEY (reconciliation_id, charge_id)
);

-- What went back of a PaymentIntent, as Stripe listed it: read once, and asked for again where it matters.
CREATE TABLE reconciliation_refunds (
    reconciliation_id text NOT NULL REFERENCES reconciliations,
    payment_intent    text NOT NULL,
    returned_minor    bigint NOT NULL,
    PRIMARY KEY (reconciliation_id, payment_intent)
);

-- How often Stripe was asked, by purpose, whoever was killed in between.
CREATE TABLE reconciliation_requests (
    reconciliation_id text NOT NULL REFERENCES reconciliations,
    purpose           text NOT NULL,
    requests          bigint NOT NULL,
    PRIMARY KEY (reconciliation_id, purpose)
);

-- What could not be read, so that the absence of a difference proves nothing there; and what else is to be said.
CREATE TABLE reconciliation_gaps (
    reconciliation_id text NOT NULL REFERENCES reconciliations,
    what              text NOT NULL,
    why               text NOT NULL,
    is_gap            boolean NOT NULL,
    PRIMARY KEY (reconciliation_id, what)
);

-- What does not agree at first sight, or was not shown: looked at one by one, on both sides, before anything is said.
CREATE TABLE reconciliation_suspects (
    reconciliation_id text NOT NULL REFERENCES reconciliations,
    charge_id         text NOT NULL,  -- the identity; the ledger may have no such charge
    customer          text,  -- of the PaymentIntent that made it suspect; the row may name another
    why               text NOT NULL,
    tries             integer NOT NULL DEFAULT 0,
    looked_at         timestamptz,
    outcome           text CHECK (outcome IN ('agrees', 'differs', 'in_flight', 'unread')),
    settled           boolean NOT NULL DEFAULT false,  -- it was in flight, and is not any more
    PRIMARY KEY (reconciliation_id, charge_id)
);

CREATE INDEX reconciliation_suspects_open
    ON reconciliation_suspects (reconciliation_id, charge_id) WHERE looked_at IS NULL;

-- What differs. One row per account, kind and subject, however often it is found.
CREATE TABLE drift (
    drift_id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account              text NOT NULL,
    kind                 text NOT NULL CHECK (kind IN (
        'missing_at_stripe', 'missing_in_ledger', 'duplicate', 'amount', 'currency', 'status', 'customer', 'refund',
        'orphan', 'event_gap')),
    subject              text NOT NULL,  -- a charge, a PaymentIntent or an event: what a repair would touch
    charge_id            text,
    run_id               text,
    customer             text,
    line                 text,
    payment_intents      text[] NOT NULL DEFAULT '{}',
    amount_minor         bigint,  -- of what a repair would move
    currency             text,
    ledger_says          text NOT NULL,
    stripe_says          text NOT NULL,
    repair               text NOT NULL CHECK (repair IN (
        'merge', 'restore', 'cancel', 'keep_event', 'save_refunds', 'refund', 'resolve', 'none')),
    repair_state         text NOT NULL CHECK (repair_state IN ('proposed', 'repaired', 'failed', 'gone')),
    repair_detail        text,
    occurred_at          timestamptz,  -- when it happened at Stripe, where that is known
    first_seen_at        timestamptz NOT NULL,
    last_seen_at         timestamptz NOT NULL,
    ended_at             timestamptz,
    first_reconciliation text NOT NULL REFERENCES reconciliations,
    last_reconciliation  text NOT NULL REFERENCES reconciliations,
    UNIQUE (account, kind, subject),
    CHECK ((ended_at IS NULL) = (repair_state IN ('proposed', 'failed')))
);

CREATE INDEX drift_by_charge ON drift (charge_id);
CREATE INDEX drift_by_reconciliation ON drift (last_reconciliation);
CREATE INDEX drift_open ON drift (account, drift_id) WHERE repair_state IN ('proposed', 'failed');

-- The charges that a reconciliation is about: a run's, or those of an account whose first create is of the span.
-- Nothing was ever sent for the others.
CREATE FUNCTION reconciliation_scope(wanted text)
RETURNS TABLE (charge_id text, customer text, state text, payment_intent text, first_create_at timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT c.charge_id, c.customer, c.state, c.payment_intent, k.first_create_at
      FROM reconciliations w
      JOIN billing_runs r ON r.account = w.account
       AND (w.run_id = r.run_id
            OR (w.run_id IS NULL AND r.locked_at <= w.until AND coalesce(r.closed_at, w.until) >= w.since))
      JOIN charges c ON c.run_id = r.run_id
      LEFT JOIN LATERAL (SELECT min(k.first_intended_at) AS first_create_at
                           FROM keys k
                          WHERE k.charge_id = c.charge_id AND k.operation = 'create') k ON true
     WHERE w.reconciliation_id = wanted
       AND (k.first_create_at IS NOT NULL OR c.payment_intent IS NOT NULL OR c.state IN ('succeeded', 'processing'))
       AND (w.run_id IS NOT NULL
            OR coalesce(k.first_create_at, c.changed_at) BETWEEN w.since AND w.until)
$$;
