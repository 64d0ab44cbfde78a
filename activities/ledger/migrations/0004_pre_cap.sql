-- What the spend-cap proxy knows: who may call, what each may move at most, what was asked, what Stripe said.
--
-- The proxy's role reads these tables and writes them through the functions below, and through nothing else:
-- it can neither mark a charge paid nor change a line of the audit. Money is counted per (account, intent),
-- where an intent is a PaymentIntent's id, or `create:KEY` and `refund:KEY` for a request whose object has no
-- id yet. It is held before a request leaves, settled by a success, and released only when none of the
-- intent's requests is open: an unknown outcome holds.

CREATE TABLE vault_keys (
    key_id         text PRIMARY KEY CHECK (key_id <> ''),  -- public: nothing of the key can be told from it
    key_sha256     bytea NOT NULL UNIQUE CHECK (length(key_sha256) = 32),
    scope          text NOT NULL CHECK (scope IN ('billing', 'planning', 'reconcile', 'refund', 'custom')),
    serial         integer NOT NULL DEFAULT 1 CHECK (serial >= 1),
    run_id         text REFERENCES billing_runs,
    account        text NOT NULL CHECK (account <> ''),
    mode           text NOT NULL CHECK (mode IN ('test', 'live')),
    allow          text[] NOT NULL CHECK (cardinality(allow) >= 1),  -- workflows.domain.vault.ENDPOINTS
    budget         text,  -- NULL: the key moves no money
    label          text NOT NULL DEFAULT '',  -- of a derived key: the use that it was derived for
    issued_at      timestamptz NOT NULL,
    issued_by      text NOT NULL CHECK (issued_by <> ''),
    issued_reason  text NOT NULL DEFAULT '',  -- where somebody approved it
    expires_at     timestamptz NOT NULL,
    revoked_at     timestamptz,
    revoked_by     text,
    revoked_reason text,
    UNIQUE (run_id, scope, label, serial),
    -- Every key of a run shares the run's budget: a second key must not double the cap.
    -- Only what was approved apart from the plan (a refund, a resend) counts by itself.
    CONSTRAINT vault_keys_own_budget CHECK (budget IS NULL OR budget = run_id OR budget = key_id),
    CONSTRAINT vault_keys_billing_has_run CHECK (scope <> 'billing' OR (run_id IS NOT NULL AND budget = run_id)),
    CONSTRAINT vault_keys_revoked_has_reason CHECK ((revoked_at IS NULL) = (revoked_reason IS NULL))
);

-- The most that may move, per budget and currency, and what is counted against it (minor units). A currency
-- without a row may not move at all. `excess_minor` is what Stripe reported beyond the cap: above 0 is an
-- alarm. A daily budget counts what was settled since midnight UTC.
CREATE TABLE vault_budgets (
    budget        text NOT NULL CHECK (budget <> ''),
    currency      text NOT NULL CHECK (currency ~ '^[a-z]{3}$'),
    cap_minor     bigint NOT NULL CHECK (cap_minor >= 0),
    held_minor    bigint NOT NULL DEFAULT 0 CHECK (held_minor >= 0),
    settled_minor bigint NOT NULL DEFAULT 0 CHECK (settled_minor >= 0),
    excess_minor  bigint NOT NULL DEFAULT 0 CHECK (excess_minor >= 0),
    daily         boolean NOT NULL DEFAULT false,
    day           date,
    PRIMARY KEY (budget, currency),
    CONSTRAINT vault_budgets_within_cap CHECK (held_minor + settled_minor <= cap_minor + excess_minor)
) WITH (fillfactor = 50);

-- Whoever issues a key may give it a budget of its own. A run's is made of its totals: nobody adds a currency to it.
CREATE FUNCTION check_budget() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM vault_keys k WHERE k.key_id = NEW.budget)
       AND NOT EXISTS (SELECT FROM run_totals t
                        WHERE t.run_id = NEW.budget AND t.currency = NEW.currency AND t.cap_minor = NEW.cap_minor)
    THEN
        RAISE EXCEPTION 'budget %: no key has it, and no run has such a cap', NEW.budget
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER vault_budgets_check BEFORE INSERT ON vault_budgets
    FOR EACH ROW WHEN (NEW.cap_minor > 0 OR NEW.daily) EXECUTE FUNCTION check_budget();

-- The cap of a run is what its plan says, and follows when it is raised.
CREATE FUNCTION follow_run_total() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        PERFORM vault_take_turn();  -- two currencies raised at once, and a batch that counts both
    END IF;
    INSERT INTO vault_budgets (budget, currency, cap_minor) VALUES (NEW.run_id, NEW.currency, NEW.cap_minor)
    ON CONFLICT (budget, currency) DO UPDATE SET cap_minor = EXCLUDED.cap_minor;
    RETURN NULL;
END
$$;

CREATE TRIGGER run_totals_set_budget AFTER INSERT OR UPDATE OF cap_minor ON run_totals
    FOR EACH ROW EXECUTE FUNCTION follow_run_total();

-- Every request through the proxy, committed before it leaves or is refused. Appended, never changed.
CREATE SEQUENCE vault_call_order;

CREATE TABLE vault_calls (
    call_id         uuid PRIMARY KEY,
    seq             bigint NOT NULL UNIQUE DEFAULT nextval('vault_call_order'),
    called_at       timestamptz NOT NULL,
    key_id          text,  -- NULL: the proxy asked for itself
    run_id          text,
    account         text,
    method          text NOT NULL,
    path            text NOT NULL,
    endpoint        text,  -- NULL: not in the catalog
    effect          text,
    idempotency_key text,
    intent          text,
    asked_minor     bigint,  -- what the decision was about: named by the request, or else by the proxy's own record
    asked_currency  text,
    decision        text NOT NULL  -- forward, or the code of the refusal
);

CREATE INDEX vault_calls_by_key ON vault_calls (key_id, seq);
CREATE INDEX vault_calls_by_intent ON vault_calls (account, intent) WHERE intent IS NOT NULL;

-- What came back. A call without a row here: the answer was never recorded. Appended, never changed.
CREATE TABLE vault_answers (
    call_id               uuid PRIMARY KEY REFERENCES vault_calls,
    answered_at           timestamptz NOT NULL,
    outcome               text NOT NULL CHECK (outcome IN ('executed', 'not_executed', 'unknown', 'read')),
    http_status           integer,  -- as the caller was told
    code                  text,
    request_id            text,
    replayed              boolean NOT NULL DEFAULT false,
    payment_intent        text,
    payment_intent_status text,
    reported_minor        bigint,
    reported_currency     text,
    latest_charge         text,
    latency_ms            real
);

-- What money is counted for. amount_minor NULL: not known for sure, so Stripe is asked before a confirm.
-- Reads that began before `status_floor` or `amount_floor` (by vault_call_order) say nothing new.
CREATE TABLE vault_intents (
    account         text NOT NULL,
    intent          text NOT NULL,
    budget          text,  -- that counts it; NULL: nothing was ever held for it
    amount_minor    bigint CHECK (amount_minor >= 0),
    currency        text,
    status          text,
    held_minor      bigint NOT NULL DEFAULT 0 CHECK (held_minor >= 0),
    held_currency   text,
    settled_minor   bigint,  -- NULL: not settled
    status_floor    bigint NOT NULL DEFAULT 0,
    amount_floor    bigint NOT NULL DEFAULT 0,
    first_sent_at   timestamptz,  -- of the key in `create:KEY` and `refund:KEY`
    became          text,  -- the PaymentIntent that `create:KEY` turned out to be
    created_by      text,  -- the other way round
    looks           integer NOT NULL DEFAULT 0,
    next_look_at    timestamptz,
    PRIMARY KEY (account, intent),
    CONSTRAINT vault_intents_held_has_budget
        CHECK (held_minor = 0 OR (budget IS NOT NULL AND held_currency IS NOT NULL))
) WITH (fillfactor = 60);

CREATE INDEX vault_intents_held ON vault_intents (next_look_at) WHERE held_minor > 0;
CREATE INDEX vault_intents_by_budget ON vault_intents (budget) WHERE held_minor > 0;

-- Requests that may still move money or change an amount: their outcome is not determined.
CREATE TABLE vault_open (
    call_id         uuid PRIMARY KEY,
    account         text NOT NULL,
    intent          text NOT NULL,
    kind            text NOT NULL CHECK (kind IN ('money', 'amount')),
    idempotency_key text,
    opened_at       timestamptz NOT NULL
);

CREATE INDEX vault_open_by_intent ON vault_open (account, intent);

-- What should never happen, for whoever is on call. Appended, never changed.
CREATE TABLE vault_alarms (
    alarm_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       timestamptz NOT NULL,
    account  text NOT NULL,
    intent   text NOT NULL,
    budget   text,
    kind     text NOT NULL,
    detail   jsonb NOT NULL DEFAULT '{}'
);

CREATE VIEW vault_audit AS
SELECT c.seq, c.call_id, c.called_at, c.key_id, c.run_id, c.account, c.method, c.path, c.idempotency_key, c.intent,
       c.asked_minor, c.asked_currency, c.decision, a.answered_at, a.outcome, a.http_status, a.code, a.request_id,
       a.replayed, a.payment_intent, a.payment_intent_status, a.reported_minor, a.reported_currency, a.latency_ms
  FROM vault_calls c LEFT JOIN vault_answers a USING (call_id);

CREATE VIEW vault_standing AS
SELECT b.budget, b.currency, b.cap_minor, CASE WHEN d.over THEN 0 ELSE b.settled_minor END AS settled_minor,
       b.held_minor,
       coalesce(h.processing_minor, 0)::bigint AS processing_minor,
       coalesce(h.unresolved_minor, 0)::bigint AS unresolved_minor,
       CASE WHEN d.over THEN 0 ELSE b.excess_minor END AS excess_minor,
       coalesce(h.open_calls, 0)::bigint AS open_calls
  FROM vault_budgets b
 CROSS JOIN LATERAL (  -- what a daily budget had settled on an earlier day counts no more
        SELECT b.daily AND b.day IS DISTINCT FROM (ledger_now() AT TIME ZONE 'UTC')::date AS over
       ) d
  LEFT JOIN LATERAL (
        SELECT sum(i.held_minor) FILTER (WHERE i.status = 'processing') AS processing_minor,
               sum(i.held_minor) FILTER (WHERE o.calls > 0) AS unresolved_minor,
               sum(o.calls) AS open_calls
          FROM vault_intents i
         CROSS JOIN LATERAL (SELECT count(*) AS calls FROM vault_open v
                              WHERE v.account = i.account AND v.intent = i.intent AND v.kind = 'money') o
         WHERE i.budget = b.budget AND i.held_minor > 0 AND i.held_currency = b.currency
       ) h ON true;

-- Within this age of its first send Stripe replays a key (24 h, less a margin); beyond it a send is a new one.
CREATE FUNCTION vault_window() RETURNS interval
LANGUAGE sql IMMUTABLE AS $$ SELECT interval '23 hours 45 minutes' $$;

-- One writer at a time counts: caps are exact, and no two batches can wait for each other.
CREATE FUNCTION vault_take_turn() RETURNS void
LANGUAGE sql AS $$ SELECT pg_advisory_xact_lock(7240912) $$;

-- Hold `needed` for an intent in all: NULL, or why not. What is held already is not held again, whoever asks; but
-- only the budget that holds it can hold more of it. `i`: as it stands, read in this turn.
CREATE FUNCTION vault_hold(i vault_intents, by_budget text, needed bigint, in_currency text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    counted_by text := CASE WHEN i.held_minor > 0 THEN i.budget ELSE by_budget END;
    more bigint := needed - i.held_minor;
    today date;
BEGIN
    IF by_budget IS NULL THEN
        RETURN 'no_budget';
    ELSIF i.held_minor > 0 AND i.held_currency <> in_currency THEN
        RETURN 'currency_held';
    ELSIF more > 0 AND counted_by <> by_budget THEN
        RETURN 'held_by_another';
    END IF;
    IF more > 0 THEN
        today := (ledger_now() AT TIME ZONE 'UTC')::date;
        UPDATE vault_budgets
           SET held_minor = held_minor + more,
               settled_minor = CASE WHEN daily AND day IS DISTINCT FROM today THEN 0 ELSE settled_minor END,
               excess_minor = CASE WHEN daily AND day IS DISTINCT FROM today THEN 0 ELSE excess_minor END,
               day = CASE WHEN daily THEN today ELSE day END
         WHERE budget = counted_by
           AND currency = in_currency
           AND held_minor + more
               + CASE WHEN daily AND day IS DISTINCT FROM today THEN 0 ELSE settled_minor END <= cap_minor;
        IF NOT FOUND THEN
            RETURN 'spend_cap_exceeded';
        END IF;
    END IF;
    UPDATE vault_intents
       SET held_minor = greatest(held_minor, needed), held_currency = in_currency, budget = counted_by,
           looks = 0, next_look_at = ledger_now() + interval '2 minutes'
     WHERE account = i.account AND intent = i.intent;
    RETURN NULL;
END
$$;

-- Decide on a request that moves money or changes an amount: `forward`, or why not, or `ask_first`; and about how
-- much that was. Every writer of holds has taken its turn, so rows are read here without locking them.
CREATE FUNCTION vault_decide(
    ask jsonb, k vault_keys, OUT decision text, OUT needed_minor bigint, OUT needed_currency text
)
LANGUAGE plpgsql AS $$
DECLARE
    wanted text := ask ->> 'intent';
    effect text := ask ->> 'effect';
    opens text := CASE WHEN effect IN ('change', 'increment') THEN 'amount' ELSE 'money' END;
    new_object boolean := effect IN ('create_confirmed', 'refund');
    moment timestamptz := ledger_now();
    open_money boolean;
    open_amount boolean;
    i vault_intents;
BEGIN
    needed_minor := (ask ->> 'amount')::bigint;
    needed_currency := ask ->> 'currency';
    decision := 'ask_first';
    IF effect = 'refund' AND (needed_minor IS NULL OR needed_currency IS NULL) THEN
        RETURN;
    END IF;
    IF new_object OR effect = 'change' THEN
        INSERT INTO vault_intents (account, intent, first_sent_at) VALUES (k.account, wanted, moment)
        ON CONFLICT DO NOTHING;
    END IF;
    SELECT * INTO i FROM vault_intents WHERE account = k.account AND intent = wanted;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT coalesce(bool_or(v.kind = 'money'), false),
           coalesce(bool_or(v.kind = 'amount' AND (
               opens = 'money' OR v.idempotency_key IS DISTINCT FROM ask ->> 'idempotency_key')), false)
      INTO open_money, open_amount
      FROM vault_open v WHERE v.account = k.account AND v.intent = wanted;

    IF new_object THEN
        IF i.held_minor > 0 OR open_money THEN
            IF i.first_sent_at <= moment - vault_window() THEN
                decision := 'key_outside_window';  -- Stripe may have forgotten the key and would execute it again
                RETURN;
            END IF;
        ELSIF (i.became IS NOT NULL OR i.status IN ('succeeded', 'canceled'))
              AND i.first_sent_at > moment - vault_window() THEN
            decision := 'forward';  -- Stripe replays what is counted already
            RETURN;
        ELSE
            UPDATE vault_intents
               SET first_sent_at = moment, became = NULL, status = NULL, settled_minor = NULL, budget = NULL
             WHERE account = k.account AND intent = wanted;
        END IF;
    ELSIF i.status IN ('succeeded', 'canceled') THEN
        decision := 'forward';  -- for good: Stripe refuses, and nothing moves
        RETURN;
    ELSIF open_amount OR (opens = 'amount' AND open_money) THEN
        decision := 'lock_timeout';
        RETURN;
    ELSIF effect = 'change' THEN
        IF i.held_minor > 0 AND needed_currency <> i.held_currency THEN
            decision := 'currency_held';
            RETURN;
        END IF;
    ELSIF i.amount_minor IS NULL OR i.currency IS NULL THEN
        RETURN;
    ELSE
        needed_minor := CASE WHEN effect = 'confirm' THEN greatest(i.amount_minor, needed_minor)
                             ELSE coalesce(needed_minor, i.amount_minor) END;
        needed_currency := i.currency;
    END IF;

    IF effect <> 'change' OR i.held_minor > 0 THEN
        decision := vault_hold(
            i, k.budget, greatest(coalesce(needed_minor, 0), i.held_minor),
            coalesce(needed_currency, i.held_currency)
        );
        IF decision IS NOT NULL THEN
            RETURN;
        END IF;
    END IF;
    INSERT INTO vault_open (call_id, account, intent, kind, idempotency_key, opened_at)
    VALUES ((ask ->> 'call_id')::uuid, k.account, wanted, opens, ask ->> 'idempotency_key', moment);
    decision := 'forward';
END
$$;

-- Whether a key may make this call at all: NULL, or why not.
CREATE FUNCTION vault_refuse(ask jsonb, accounts jsonb, k vault_keys) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN k.revoked_at IS NOT NULL THEN 'vault_key_revoked'
        WHEN k.expires_at <= ledger_now() THEN 'vault_key_expired'
        WHEN ask ->> 'account' <> k.account OR accounts ->> k.account IS NULL THEN 'account_not_allowed'
        WHEN accounts ->> k.account <> k.mode THEN 'mode_not_allowed'
        WHEN ask ->> 'refused' IS NOT NULL THEN ask ->> 'refused'
        WHEN ask ->> 'endpoint' IS NULL OR NOT ask ->> 'endpoint' = ANY (k.allow) THEN 'endpoint_not_allowed'
    END
$$;

-- Decide on a batch of requests and write down each, in order. `accounts` are those that the proxy has real
-- keys for, each with its mode. A key that nobody issued and `ask_first` leave no row. `left_minor`, over the
-- cap: how much the budget still allows, beyond what is held for this very intent.
CREATE FUNCTION vault_admit(asks jsonb, accounts jsonb)
RETURNS TABLE (
    call_id uuid, decision text, key_id text, run_id text, account text, asked_minor bigint, currency text,
    cap_minor bigint, left_minor bigint
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
DECLARE
    ask jsonb;
    k vault_keys;
    needed text;
    moment timestamptz := ledger_now();
BEGIN
    IF asks @? '$[*] ? (@.counts == true)' THEN
        PERFORM vault_take_turn();
    END IF;
    FOR ask IN SELECT value FROM jsonb_array_elements(asks) LOOP
        call_id := (ask ->> 'call_id')::uuid;
        asked_minor := (ask ->> 'amount')::bigint; currency := ask ->> 'currency';
        cap_minor := NULL; left_minor := NULL;
        SELECT v.* INTO k FROM vault_keys v WHERE v.key_sha256 = decode(ask ->> 'key_sha256', 'hex');
        key_id := k.key_id; run_id := k.run_id; account := k.account;
        IF (ask ->> 'own')::boolean THEN  -- the proxy asks Stripe for itself
            decision := 'forward';
            account := ask ->> 'account';
        ELSIF k.key_id IS NULL THEN
            decision := 'vault_key_unknown';
            RETURN NEXT;
            CONTINUE;
        ELSE
            decision := vault_refuse(ask, accounts, k);
            IF decision IS NULL AND (ask ->> 'counts')::boolean THEN
                SELECT d.decision, d.needed_minor, d.needed_currency INTO decision, asked_minor, currency
                  FROM vault_decide(ask, k) d;
            END IF;
            decision := coalesce(decision, 'forward');
        END IF;
        IF decision <> 'ask_first' THEN
            INSERT INTO vault_calls (call_id, called_at, key_id, run_id, account, method, path, endpoint, effect,
                                     idempotency_key, intent, asked_minor, asked_currency, decision)
            VALUES (call_id, moment, key_id, run_id, account, ask ->> 'method', ask ->> 'path', ask ->> 'endpoint',
                    ask ->> 'effect', ask ->> 'idempotency_key', ask ->> 'intent', asked_minor, currency, decision);
        END IF;
        IF decision = 'spend_cap_exceeded' THEN
            needed := currency;
            SELECT s.cap_minor, greatest(0, s.cap_minor - s.settled_minor - s.held_minor)
              INTO cap_minor, left_minor
              FROM vault_standing s
             WHERE s.budget = k.budget AND s.currency = needed;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Count an intent by what is known of it now: settle, release, or go on holding. Returns the alarms raised.
CREATE FUNCTION vault_count(wanted_account text, wanted_intent text) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    i vault_intents;
    freed bigint := 0;
    moved bigint := 0;
    alarms integer := 0;
    today date := (ledger_now() AT TIME ZONE 'UTC')::date;
BEGIN
    SELECT * INTO i FROM vault_intents WHERE account = wanted_account AND intent = wanted_intent;
    IF i.status IN ('succeeded', 'canceled') THEN  -- for good: no request can move anything any more
        DELETE FROM vault_open WHERE account = wanted_account AND intent = wanted_intent;
    END IF;
    IF i.budget IS NULL THEN
        RETURN 0;
    END IF;
    IF i.status = 'succeeded' AND i.settled_minor IS NULL THEN
        moved := i.amount_minor;
        freed := i.held_minor;
        IF moved > i.held_minor OR i.currency IS DISTINCT FROM i.held_currency THEN
            -- Nothing held: it was declined or given up, and paid after that by somebody who has another key.
            alarms := CASE WHEN i.held_minor > 0 THEN 1 ELSE 0 END;
            INSERT INTO vault_alarms (at, account, intent, budget, kind, detail)
            VALUES (ledger_now(), wanted_account, wanted_intent, i.budget,
                    CASE WHEN i.held_minor > 0 THEN 'moved_more_than_held' ELSE 'paid_elsewhere' END,
                    jsonb_build_object('moved_minor', moved, 'currency', i.currency,
                                       'held_minor', i.held_minor, 'held_currency', i.held_currency));
        END IF;
    ELSIF i.held_minor > 0 THEN
        IF i.status IN ('succeeded', 'canceled') THEN
            freed := i.held_minor;
        ELSIF EXISTS (SELECT FROM vault_open WHERE account = wanted_account AND intent = wanted_intent) THEN
            RETURN 0;
        ELSIF i.status IS NULL OR i.status IN ('requires_payment_method', 'requires_confirmation') THEN
            freed := i.held_minor;
        ELSIF i.amount_minor < i.held_minor THEN  -- an increment that did not come about
            freed := i.held_minor - i.amount_minor;
        END IF;
    END IF;
    IF freed = 0 AND moved = 0 THEN
        RETURN 0;
    END IF;
    UPDATE vault_intents
       SET held_minor = held_minor - freed,
           settled_minor = CASE WHEN i.status = 'succeeded' THEN coalesce(settled_minor, moved) END
     WHERE account = wanted_account AND intent = wanted_intent;
    IF moved > 0 AND i.currency IS DISTINCT FROM i.held_currency THEN
        UPDATE vault_budgets SET held_minor = held_minor - freed
         WHERE budget = i.budget AND currency = i.held_currency;
        freed := 0;
        i.held_currency := i.currency;
    END IF;
    -- What moved has moved, whether or not it was allowed for.
    UPDATE vault_budgets b
       SET held_minor = b.held_minor - freed,
           settled_minor = moved + CASE WHEN moved > 0 AND b.daily AND b.day IS DISTINCT FROM today
                                        THEN 0 ELSE b.settled_minor END,
           excess_minor = CASE WHEN moved = 0 THEN b.excess_minor
                               WHEN b.daily AND b.day IS DISTINCT FROM today
                               THEN greatest(0, b.held_minor - freed + moved - b.cap_minor)
                               ELSE greatest(b.excess_minor,
                                             b.held_minor - freed + b.settled_minor + moved - b.cap_minor) END,
           day = CASE WHEN b.daily AND moved > 0 THEN today ELSE b.day END
     WHERE b.budget = i.budget AND b.currency = i.held_currency;
    IF NOT FOUND AND moved > 0 THEN
        INSERT INTO vault_budgets (budget, currency, cap_minor, settled_minor, excess_minor)
        VALUES (i.budget, i.currency, 0, moved, moved);
    END IF;
    RETURN alarms;
END
$$;

-- A create that confirmed at once has named its PaymentIntent: what it holds is held for that from now on.
CREATE FUNCTION vault_name(wanted_account text, created text, named text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    c vault_intents;
    p vault_intents;
BEGIN
    SELECT * INTO c FROM vault_intents WHERE account = wanted_account AND intent = created;
    IF NOT FOUND OR c.became = named THEN
        RETURN;
    END IF;
    INSERT INTO vault_intents (account, intent) VALUES (wanted_account, named) ON CONFLICT DO NOTHING;
    SELECT * INTO p FROM vault_intents WHERE account = wanted_account AND intent = named;
    UPDATE vault_intents SET created_by = created WHERE account = wanted_account AND intent = named;
    UPDATE vault_open SET intent = named WHERE account = wanted_account AND intent = created;
    IF p.held_minor > 0 OR p.settled_minor IS NOT NULL THEN
        UPDATE vault_budgets SET held_minor = held_minor - c.held_minor
         WHERE budget = c.budget AND currency = c.held_currency AND c.held_minor > 0;
    ELSE
        UPDATE vault_intents
           SET held_minor = c.held_minor, held_currency = c.held_currency, budget = c.budget,
               next_look_at = ledger_now()
         WHERE account = wanted_account AND intent = named AND c.held_minor > 0;
    END IF;
    UPDATE vault_intents SET held_minor = 0, became = named WHERE account = wanted_account AND intent = created;
END
$$;

-- Take over what an answer showed of an intent. A replayed answer is history: it may end an intent or say that
-- money is on its way, and says nothing else. Two answers that crossed: money on its way outranks. What was
-- captured in part before a cancel has come in.
CREATE FUNCTION vault_see(c vault_calls, told jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    shown text := told ->> 'intent';
    new_status text := CASE WHEN told ->> 'intent_status' = 'canceled' AND (told ->> 'amount_received')::bigint > 0
                            THEN 'succeeded' ELSE told ->> 'intent_status' END;
    replayed boolean := (told ->> 'replayed')::boolean;
    ends boolean := new_status IN ('succeeded', 'canceled');
    waits boolean := new_status IN ('requires_payment_method', 'requires_confirmation');
    moves boolean := c.effect IN ('confirm', 'capture', 'increment', 'create_confirmed', 'refund');
    changes boolean := c.effect IN ('change', 'increment');
    i vault_intents;
BEGIN
    IF (c.effect IN ('prepare', 'create_confirmed', 'ask')) AND NOT (replayed AND c.effect = 'prepare') THEN
        INSERT INTO vault_intents (account, intent) VALUES (c.account, shown) ON CONFLICT DO NOTHING;
    END IF;
    SELECT * INTO i FROM vault_intents WHERE account = c.account AND intent = shown;
    IF NOT FOUND OR i.status IN ('succeeded', 'canceled') THEN
        RETURN;
    END IF;
    IF ends OR (waits AND NOT replayed AND c.seq > i.status_floor)
            OR (NOT waits AND (replayed AND i.held_minor > 0 OR moves OR c.seq > i.status_floor)) THEN
        i.status := new_status;
    END IF;
    IF moves AND NOT replayed THEN
        i.status_floor := nextval('vault_call_order');
    END IF;
    IF changes AND told ->> 'outcome' = 'executed' THEN
        i.amount_minor := CASE WHEN NOT replayed THEN (told ->> 'amount')::bigint END;
        i.currency := CASE WHEN NOT replayed THEN told ->> 'currency' END;
        i.amount_floor := nextval('vault_call_order');
    ELSIF NOT replayed AND c.seq > i.amount_floor AND NOT EXISTS (
              SELECT FROM vault_open WHERE account = c.account AND intent = shown AND kind = 'amount') THEN
        i.amount_minor := (told ->> 'amount')::bigint;
        i.currency := told ->> 'currency';
    END IF;
    IF new_status = 'succeeded' THEN  -- what came in, which a partial capture makes less
        i.amount_minor := (told ->> 'amount_received')::bigint;
        i.currency := told ->> 'currency';
    END IF;
    UPDATE vault_intents
       SET status = i.status, amount_minor = i.amount_minor, currency = i.currency,
           status_floor = i.status_floor, amount_floor = i.amount_floor
     WHERE account = c.account AND intent = shown;
END
$$;

-- As many failed charges of a PaymentIntent are new to us as there are keys of open confirms: so each of those
-- was executed and declined, and none can be executed any more.
CREATE FUNCTION vault_match_charges(c vault_calls, charges jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    fresh integer;
    undetermined integer;
BEGIN
    SELECT count(*) INTO fresh
      FROM jsonb_array_elements_text(charges) AS listed (charge)
     WHERE NOT EXISTS (
        SELECT FROM vault_calls o JOIN vault_answers a USING (call_id)
         WHERE o.account = c.account
           AND o.intent IN (c.intent, (SELECT i.created_by FROM vault_intents i
                                        WHERE i.account = c.account AND i.intent = c.intent))
           AND a.payment_intent = c.intent AND a.latest_charge = listed.charge AND a.outcome = 'executed');
    SELECT count(DISTINCT coalesce(o.idempotency_key, o.call_id::text)) INTO undetermined
      FROM vault_open o
      JOIN vault_calls oc USING (call_id)
     WHERE o.account = c.account AND o.intent = c.intent AND o.kind = 'money' AND oc.seq < c.seq;
    IF undetermined > 0 AND fresh >= undetermined THEN
        DELETE FROM vault_open o USING vault_calls oc
         WHERE oc.call_id = o.call_id AND o.account = c.account AND o.intent = c.intent AND o.kind = 'money'
           AND oc.seq < c.seq;
    END IF;
END
$$;

-- Write down a batch of answers, in order, and count what they show. The first answer of a call is its answer.
-- Does not wait for the disk: an answer that a power cut takes back leaves its call open, which holds, and whoever
-- builds on it commits behind it in the same log. Returns the alarms raised.
CREATE FUNCTION vault_answer(answers jsonb) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    told jsonb;
    c vault_calls;
    alarms integer := 0;
    moment timestamptz := ledger_now();
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    IF answers @? '$[*] ? (@.counts == true)' THEN
        PERFORM vault_take_turn();
    END IF;
    FOR told IN SELECT value FROM jsonb_array_elements(answers) LOOP
        SELECT * INTO c FROM vault_calls WHERE call_id = (told ->> 'call_id')::uuid;
        CONTINUE WHEN NOT FOUND;
        INSERT INTO vault_answers (call_id, answered_at, outcome, http_status, code, request_id, replayed,
                                   payment_intent, payment_intent_status, reported_minor, reported_currency,
                                   latest_charge, latency_ms)
        VALUES (c.call_id, moment, told ->> 'outcome', (told ->> 'http_status')::integer, told ->> 'code',
                told ->> 'request_id', (told ->> 'replayed')::boolean, told ->> 'intent', told ->> 'intent_status',
                coalesce((told ->> 'amount_received')::bigint, (told ->> 'amount')::bigint), told ->> 'currency',
                told ->> 'latest_charge', (told ->> 'latency_ms')::real)
        ON CONFLICT (call_id) DO NOTHING;
        CONTINUE WHEN NOT FOUND OR NOT (told ->> 'counts')::boolean;
        IF told ->> 'outcome' IN ('executed', 'not_executed') THEN
            DELETE FROM vault_open WHERE call_id = c.call_id;
        END IF;
        IF told ->> 'outcome' = 'executed' AND c.idempotency_key IS NOT NULL THEN
            -- Stripe executes a key once within the window: what answers one send answers them all.
            DELETE FROM vault_open
             WHERE account = c.account AND intent = c.intent AND idempotency_key = c.idempotency_key
               AND opened_at > c.called_at - vault_window();
        END IF;
        IF told ->> 'intent' IS NOT NULL THEN
            IF c.intent LIKE 'create:%' THEN
                PERFORM vault_name(c.account, c.intent, told ->> 'intent');
            END IF;
            PERFORM vault_see(c, told);
            alarms := alarms + vault_count(c.account, told ->> 'intent');
        END IF;
        IF told -> 'charges' IS NOT NULL THEN
            PERFORM vault_match_charges(c, told -> 'charges');
        END IF;
        IF c.intent IS DISTINCT FROM told ->> 'intent' THEN
            alarms := alarms + vault_count(c.account, c.intent);
        END IF;
    END LOOP;
    RETURN alarms;
END
$$;

-- Take up to `most` intents whose hold waits for a lookup; each is not taken again for a while.
CREATE FUNCTION vault_due(most integer, older_than interval)
RETURNS TABLE (account text, intent text, status text, opened_at timestamptz, open_calls bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH due AS MATERIALIZED (
        SELECT i.account, i.intent
          FROM vault_intents i
         WHERE i.held_minor > 0
           AND i.next_look_at <= ledger_now() + interval '2 minutes' - older_than
         ORDER BY i.next_look_at
         LIMIT most
           FOR UPDATE SKIP LOCKED
    ),
    taken AS (
        UPDATE vault_intents i
           SET looks = i.looks + 1,
               next_look_at = ledger_now() + least(interval '6 hours', interval '2 minutes' * (2 ^ least(i.looks, 10)))
          FROM due
         WHERE i.account = due.account AND i.intent = due.intent AND i.held_minor > 0
        RETURNING i.account, i.intent, i.status
    )
    SELECT t.account, t.intent, t.status, min(o.opened_at), count(o.call_id)
      FROM taken t LEFT JOIN vault_open o ON o.account = t.account AND o.intent = t.intent
     GROUP BY t.account, t.intent, t.status
$$;

REVOKE EXECUTE ON FUNCTION
    vault_admit(jsonb, jsonb), vault_answer(jsonb), vault_due(integer, interval), vault_take_turn(),
    vault_hold(vault_intents, text, bigint, text), vault_decide(jsonb, vault_keys),
    vault_refuse(jsonb, jsonb, vault_keys), vault_count(text, text), vault_name(text, text, text),
    vault_see(vault_calls, jsonb), vault_match_charges(vault_calls, jsonb)
FROM PUBLIC;
