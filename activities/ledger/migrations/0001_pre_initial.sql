-- The ledger: what is owed, what was intended, what Stripe answered.
--
-- No column here is ever the only witness of a request: an intent (keys, attempts) is committed before the
-- request leaves, and its answer after. The database checks what it can: transitions, version steps, counts.

-- Time is one function, so that tests and drills can move it. `movable` is set when the database is made and
-- is false in production, where nobody, the owner included, can move the clock through move_ledger_clock.
CREATE TABLE ledger_clock (
    only_row       boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    movable        boolean NOT NULL,
    offset_seconds double precision NOT NULL DEFAULT 0,
    frozen_at      timestamptz
);

CREATE FUNCTION ledger_now() RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT coalesce(frozen_at, clock_timestamp() + offset_seconds * interval '1 second') FROM ledger_clock
$$;

CREATE FUNCTION move_ledger_clock(new_offset_seconds double precision, new_frozen_at timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE ledger_clock SET offset_seconds = new_offset_seconds, frozen_at = new_frozen_at WHERE movable;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the clock of this ledger can not be moved' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN ledger_now();
END
$$;

-- One row per run. The primary key refuses a second row for the same workflow, the partial index a second
-- run between lock and settle for the same account and period, whatever started it.
CREATE TABLE billing_runs (
    run_id        text PRIMARY KEY,
    account       text NOT NULL CHECK (account <> ''),
    period        text NOT NULL CHECK (period <> ''),
    owner         text NOT NULL CHECK (owner <> ''),  -- run id of the workflow's first execution
    phase         text NOT NULL CHECK (phase IN ('locked', 'charging', 'settling', 'closed', 'failed')),
    source        text NOT NULL,
    source_sha256 text NOT NULL,
    started_by    text NOT NULL,
    selected      bigint CHECK (selected >= 0),  -- rows of the source, frozen at planning
    slices        integer CHECK (slices >= 0),
    plan_hash     text,
    reason        text,
    locked_at     timestamptz NOT NULL,
    planned_at    timestamptz,
    closed_at     timestamptz,
    counts        jsonb,  -- frozen at close
    CHECK ((selected IS NULL) = (planned_at IS NULL)),
    CHECK ((phase = 'closed') = (counts IS NOT NULL))
);

CREATE UNIQUE INDEX billing_runs_one_between_lock_and_settle
    ON billing_runs (account, period) WHERE phase IN ('locked', 'charging', 'settling');

-- Fences come from the database, never from a clock of a worker: a later claim always has a larger one.
CREATE SEQUENCE fences;

-- One row per line that is owed: (account, customer, period, line), across all runs.
-- No index covers a column that the send path changes, so that its updates stay heap-only.
CREATE TABLE charges (
    charge_id        text PRIMARY KEY CHECK (charge_id ~ '^[0-9a-f]{32}$'),
    run_id           text NOT NULL REFERENCES billing_runs,
    account          text NOT NULL,
    customer         text NOT NULL,
    period           text NOT NULL,
    line             text NOT NULL,
    source_row       bigint NOT NULL,
    slice_no         integer NOT NULL CHECK (slice_no >= 0),
    currency         text NOT NULL,
    amount_minor     bigint NOT NULL CHECK (amount_minor >= 0),
    payment_method   text,
    description      text,
    state            text NOT NULL CHECK (state IN (
        'planned', 'creating', 'prepared', 'confirming', 'canceling', 'succeeded', 'processing', 'declined',
        'needs_customer', 'refused', 'review', 'canceled', 'skipped')),
    reason           text,
    fence            bigint NOT NULL DEFAULT 0,
    create_version   integer NOT NULL DEFAULT 0 CHECK (create_version >= 0),
    confirm_version  integer NOT NULL DEFAULT 0 CHECK (confirm_version >= 0),
    cancel_version   integer NOT NULL DEFAULT 0 CHECK (cancel_version >= 0),
    payment_intent   text,
    latest_charge    text,
    due_at           timestamptz,  -- nothing happens to the charge before; NULL means now
    changed_at       timestamptz NOT NULL,
    CONSTRAINT charges_once_per_line UNIQUE (account, customer, period, line),
    CONSTRAINT charges_skipped_has_reason CHECK (state <> 'skipped' OR reason IS NOT NULL),
    CONSTRAINT charges_confirmed_has_intent CHECK (confirm_version = 0 OR create_version > 0)
) WITH (fillfactor = 60);

CREATE INDEX charges_by_slice ON charges (run_id, slice_no);

-- The legal steps, the same table as workflows.domain.states.TRANSITIONS (a test compares them).
CREATE TABLE charge_transitions (
    before text NOT NULL,
    after  text NOT NULL,
    PRIMARY KEY (before, after)
);

INSERT INTO charge_transitions (before, after) VALUES
    ('planned', 'canceled'),
    ('planned', 'canceling'),
    ('planned', 'confirming'),
    ('planned', 'creating'),
    ('planned', 'declined'),
    ('planned', 'needs_customer'),
    ('planned', 'processing'),
    ('planned', 'refused'),
    ('planned', 'review'),
    ('planned', 'skipped'),
    ('planned', 'succeeded'),
    ('creating', 'canceled'),
    ('creating', 'canceling'),
    ('creating', 'declined'),
    ('creating', 'needs_customer'),
    ('creating', 'prepared'),
    ('creating', 'processing'),
    ('creating', 'refused'),
    ('creating', 'review'),
    ('creating', 'succeeded'),
    ('prepared', 'canceled'),
    ('prepared', 'canceling'),
    ('prepared', 'confirming'),
    ('prepared', 'creating'),
    ('prepared', 'processing'),
    ('prepared', 'review'),
    ('prepared', 'succeeded'),
    ('confirming', 'canceled'),
    ('confirming', 'canceling'),
    ('confirming', 'creating'),
    ('confirming', 'declined'),
    ('confirming', 'needs_customer'),
    ('confirming', 'processing'),
    ('confirming', 'refused'),
    ('confirming', 'review'),
    ('confirming', 'succeeded'),
    ('canceling', 'canceled'),
    ('canceling', 'declined'),
    ('canceling', 'needs_customer'),
    ('canceling', 'planned'),
    ('canceling', 'processing'),
    ('canceling', 'review'),
    ('canceling', 'succeeded'),
    ('processing', 'canceled'),
    ('processing', 'declined'),
    ('processing', 'needs_customer'),
    ('processing', 'review'),
    ('processing', 'succeeded'),
    ('declined', 'canceled'),
    ('declined', 'canceling'),
    ('declined', 'confirming'),
    ('declined', 'creating'),
    ('declined', 'planned'),
    ('declined', 'processing'),
    ('declined', 'review'),
    ('declined', 'succeeded'),
    ('needs_customer', 'canceled'),
    ('needs_customer', 'canceling'),
    ('needs_customer', 'confirming'),
    ('needs_customer', 'declined'),
    ('needs_customer', 'planned'),
    ('needs_customer', 'processing'),
    ('needs_customer', 'review'),
    ('needs_customer', 'succeeded'),
    ('refused', 'canceled'),
    ('refused', 'canceling'),
    ('refused', 'confirming'),
    ('refused', 'creating'),
    ('refused', 'planned'),
    ('refused', 'processing'),
    ('refused', 'succeeded'),
    ('review', 'canceled'),
    ('review', 'canceling'),
    ('review', 'declined'),
    ('review', 'processing'),
    ('review', 'succeeded'),
    ('canceled', 'creating'),
    ('canceled', 'planned'),
    ('canceled', 'processing'),
    ('canceled', 'succeeded'),
    ('skipped', 'planned');

CREATE FUNCTION check_charge_step() RETURNS trigger
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
       AND NEW.create_version = OLD.create_version THEN
        RAISE EXCEPTION 'charge %: its PaymentIntent is written once per create version', OLD.charge_id
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.fence < OLD.fence THEN
        RAISE EXCEPTION 'charge %: a fence never goes back', OLD.charge_id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER charges_check_step BEFORE UPDATE ON charges
    FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state OR OLD.fence IS DISTINCT FROM NEW.fence
          OR OLD.payment_intent IS DISTINCT FROM NEW.payment_intent
          OR OLD.create_version <> NEW.create_version OR OLD.confirm_version <> NEW.confirm_version
          OR OLD.cancel_version <> NEW.cancel_version)
    EXECUTE FUNCTION check_charge_step();

-- Source rows that have no charge of this run, each with its reason: rows that can't be billed, and lines that
-- an earlier run already owns.
CREATE TABLE skipped_rows (
    run_id     text NOT NULL REFERENCES billing_runs,
    source_row bigint NOT NULL,
    customer   text,
    line       text,
    reason     text NOT NULL,
    detail     text,
    PRIMARY KEY (run_id, source_row)
);

-- A later run takes a charge over; the earlier run's counts go on saying so.
CREATE TABLE takeovers (
    charge_id  text NOT NULL REFERENCES charges,
    from_run   text NOT NULL REFERENCES billing_runs,
    to_run     text NOT NULL REFERENCES billing_runs,
    at         timestamptz NOT NULL,
    reason     text NOT NULL,
    PRIMARY KEY (charge_id, from_run)
);

-- One row per idempotency key: its body and path are frozen here before the first send and resent as stored.
CREATE TABLE keys (
    key                  text PRIMARY KEY CHECK (key <> '' AND length(key) <= 255),
    charge_id            text NOT NULL REFERENCES charges,
    operation            text NOT NULL CHECK (operation IN ('create', 'confirm', 'cancel', 'refund')),
    version              integer NOT NULL CHECK (version >= 1),
    payment_intent       text,
    path                 text NOT NULL,
    parameters           text NOT NULL,
    fingerprint          text NOT NULL,
    first_intended_at    timestamptz NOT NULL,
    latest_charge_before text,  -- a failed charge newer than this one is this confirm's own
    stored_failure       boolean NOT NULL DEFAULT false,  -- Stripe replays a 5xx under this key
    reason               text NOT NULL
);

CREATE INDEX keys_by_charge ON keys (charge_id);

-- One row per request on the wire, committed before it leaves; answered_at stays NULL where no answer came.
CREATE TABLE attempts (
    key                   text NOT NULL REFERENCES keys,
    send_no               integer NOT NULL CHECK (send_no >= 1),
    fence                 bigint NOT NULL,
    reason                text NOT NULL,
    intended_at           timestamptz NOT NULL,
    answered_at           timestamptz,
    transport             text,
    http_status           integer,
    error_type            text,
    code                  text,
    decline_code          text,
    advice_code           text,
    message               text,
    replayed              boolean,
    request_id            text,
    stripe_date           timestamptz,
    payment_intent        text,
    payment_intent_status text,
    proof                 text,
    cause                 text,
    proved_state          text,
    verdict               text,
    PRIMARY KEY (key, send_no),
    CHECK ((answered_at IS NULL) = (proof IS NULL))
) WITH (fillfactor = 60);

-- Why something happened to a charge that no answer to a send explains: adopted, re-keyed, waiting, alarm.
CREATE TABLE decisions (
    decision_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    charge_id   text NOT NULL REFERENCES charges,
    at          timestamptz NOT NULL,
    decision    text NOT NULL,
    reason      text NOT NULL,
    alarm       boolean NOT NULL DEFAULT false,
    evidence    jsonb NOT NULL DEFAULT '{}'
);

CREATE INDEX decisions_by_charge ON decisions (charge_id);

-- Counts of a run by where its lines stand. I9: they add up to `selected`, always.
CREATE FUNCTION run_counts(wanted_run_id text) RETURNS TABLE (standing text, lines bigint)
LANGUAGE sql STABLE AS $$
    SELECT state, count(*) FROM charges WHERE run_id = wanted_run_id GROUP BY state
    UNION ALL
    SELECT 'skipped_rows', count(*) FROM skipped_rows WHERE run_id = wanted_run_id
    UNION ALL
    SELECT 'taken_over', count(*) FROM takeovers WHERE from_run = wanted_run_id
$$;

CREATE FUNCTION check_run_counts() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    counted bigint := (SELECT coalesce(sum(lines), 0) FROM run_counts(NEW.run_id));
BEGIN
    IF counted <> NEW.selected THEN
        RAISE EXCEPTION 'run %: % lines were selected, but % are accounted for', NEW.run_id, NEW.selected, counted
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER billing_runs_check_counts BEFORE UPDATE OF phase ON billing_runs
    FOR EACH ROW WHEN (NEW.phase IN ('charging', 'closed') AND OLD.phase IS DISTINCT FROM NEW.phase)
    EXECUTE FUNCTION check_run_counts();
