-- Rate limits: one bucket per account and endpoint, which all worker processes share.
--
-- Time is real here, clock_timestamp(), never ledger_now(): Stripe counts real seconds, whatever a drill does to
-- the ledger's clock. A slot is a moment at which one request may leave. Slots of a bucket are at least
-- 1/rate apart, whoever leases them, so no second ever has more of them than the rate. Leases of a worker
-- that was killed leave slots unused; nothing gives them back.

CREATE TABLE rate_limits (
    account      text NOT NULL CHECK (account <> ''),
    endpoint     text NOT NULL CHECK (endpoint <> ''),
    next_slot    timestamptz NOT NULL DEFAULT clock_timestamp(),  -- the first that nobody has leased
    paused_until timestamptz NOT NULL DEFAULT clock_timestamp(),
    share        double precision NOT NULL DEFAULT 1 CHECK (share > 0 AND share <= 1),  -- when the pause ends
    PRIMARY KEY (account, endpoint)
) WITH (fillfactor = 50);

-- Every slot that was leased, where a proof asked for it.
CREATE TABLE rate_grants (
    account  text NOT NULL,
    endpoint text NOT NULL,
    slot     timestamptz NOT NULL,
    backend  integer NOT NULL DEFAULT pg_backend_pid()
);

-- The share of the configured rate at a moment: from a 429 on, 2 percent of the rate come back each second.
CREATE FUNCTION rate_share(share double precision, paused_until timestamptz, moment timestamptz)
RETURNS double precision
LANGUAGE sql IMMUTABLE
RETURN least(1, share + 0.02 * greatest(0, extract(epoch FROM moment - paused_until)));

-- Leases at most `wanted` slots, none of them more than 5 seconds and one spacing ahead. Without any, the first
-- free one is `first_in_seconds` away. A bucket further ahead than a lease or a pause (60 seconds) can take it
-- shows that the clock was set back: it begins again within those.
--
-- Never call it inside a transaction that writes anything else: its commit does not wait for the disk, which
-- would keep requests waiting. It need not: what is sent has an intent, whose commit comes later, does wait, and
-- takes everything before it to the disk as well.
CREATE FUNCTION lease_slots(
    of_account text, of_endpoint text, rate_per_second double precision, wanted integer, recorded boolean,
    OUT slots integer, OUT first_in_seconds double precision, OUT spacing_seconds double precision,
    OUT share_now double precision
)
LANGUAGE plpgsql AS $$
DECLARE
    bucket     rate_limits;
    moment     timestamptz;
    paused     timestamptz;
    spacing    interval;
    ahead      interval;
    first_slot timestamptz;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT * INTO bucket FROM rate_limits
     WHERE account = of_account AND endpoint = of_endpoint FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO rate_limits (account, endpoint) VALUES (of_account, of_endpoint) ON CONFLICT DO NOTHING;
        SELECT * INTO STRICT bucket FROM rate_limits
         WHERE account = of_account AND endpoint = of_endpoint FOR UPDATE;
    END IF;
    moment := clock_timestamp();  -- not before the lock is held: the wait for it may be long
    paused := least(bucket.paused_until, moment + interval '60 seconds');
    share_now := rate_share(bucket.share, paused, moment);
    -- Half a percent more than the rate asks for: timers are late by a few ms, each by another few.
    spacing := ceil(1.005e6 / (rate_per_second * share_now)) * interval '1 microsecond';
    ahead := spacing + interval '5 seconds';
    first_slot := greatest(moment, paused, least(bucket.next_slot, moment + ahead));
    first_in_seconds := extract(epoch FROM first_slot - moment);
    spacing_seconds := extract(epoch FROM spacing);
    slots := greatest(0, least(wanted, floor((extract(epoch FROM ahead) - first_in_seconds) / spacing_seconds)));
    UPDATE rate_limits SET next_slot = first_slot + slots * spacing, paused_until = paused
     WHERE account = of_account AND endpoint = of_endpoint;
    IF recorded THEN
        INSERT INTO rate_grants (account, endpoint, slot)
        SELECT of_account, of_endpoint, first_slot + number * spacing
          FROM generate_series(0, slots - 1) AS number;
    END IF;
END
$$;

-- After a 429: pause, then go on at seven tenths, never below a twentieth. A volley counts once: who was
-- refused while the bucket paused already only makes the pause longer.
CREATE FUNCTION slow_down_slots(of_account text, of_endpoint text, pause_seconds double precision)
RETURNS void
LANGUAGE sql AS $$
INSERT INTO rate_limits AS bucket (account, endpoint, paused_until, share)
VALUES (of_account, of_endpoint, clock_timestamp() + pause_seconds * interval '1 second', 0.7)
ON CONFLICT (account, endpoint) DO UPDATE SET
    paused_until = greatest(bucket.paused_until, excluded.paused_until),
    share = CASE
        WHEN bucket.paused_until > clock_timestamp() THEN bucket.share
        ELSE greatest(0.05, 0.7 * rate_share(bucket.share, bucket.paused_until, clock_timestamp()))
    END
$$;
