-- name: insert_events
-- Keep events, each once however often and to however many endpoints it is delivered, and wake who works through
-- them once this is committed. Returns those that were not known. $1 event_ids $2 accounts $3 types $4 created_ats
-- $5 object kinds $6 object ids $7 PaymentIntents $8 charge ids $9 request ids
WITH input AS MATERIALIZED (
    SELECT *
      FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::text[], $6::text[], $7::text[],
                  $8::text[], $9::text[])
        AS t (event_id, account, type, created_at, object_kind, object_id, payment_intent, charge_id, request_id)
     LIMIT (SELECT 1000)
),
moment AS MATERIALIZED (SELECT ledger_now() AS at),
fresh AS (
    INSERT INTO inbox_events (event_id, account, type, created_at, received_at, object_kind, object_id,
                              payment_intent, charge_id, request_id, due_at)
    SELECT i.event_id, i.account, i.type, i.created_at, moment.at, i.object_kind, i.object_id,
           i.payment_intent, i.charge_id, i.request_id, moment.at
      FROM input i, moment
     -- two batches with the same events must not wait for each other
     ORDER BY i.event_id
    ON CONFLICT (event_id) DO NOTHING
    RETURNING event_id
)
SELECT f.event_id, (SELECT pg_notify('chargeonce_inbox', '') FROM fresh LIMIT 1)::text AS woken FROM fresh f

-- name: claim_events
-- Lease up to $1 events that are due, and with them everything else that waits for the same objects, for $2 seconds
-- of real time. What others work on, or lock at this moment, is left to them.
WITH due AS MATERIALIZED (
    SELECT event_id, payment_intent
      FROM inbox_events
     WHERE state IN ('waiting', 'unmatched')
       AND due_at <= ledger_now()
       AND (claimed_until IS NULL OR claimed_until < clock_timestamp())
     ORDER BY due_at, event_no
     LIMIT $1
       FOR UPDATE SKIP LOCKED
),
siblings AS MATERIALIZED (
    SELECT e.event_id
      FROM inbox_events e
     WHERE e.state IN ('waiting', 'unmatched')
       AND e.payment_intent IN (SELECT DISTINCT payment_intent FROM due OFFSET 0)
       AND (e.claimed_until IS NULL OR e.claimed_until < clock_timestamp())
       FOR UPDATE SKIP LOCKED
),
taken AS MATERIALIZED (SELECT event_id FROM due UNION SELECT event_id FROM siblings),
token AS MATERIALIZED (SELECT nextval('inbox_claims') AS claim FROM (SELECT count(*) FROM taken) AS locked)
UPDATE inbox_events e
   SET claim = token.claim, claimed_until = clock_timestamp() + $2::double precision * interval '1 second'
  FROM taken, token
 WHERE e.event_id = taken.event_id AND e.state IN ('waiting', 'unmatched')
RETURNING e.event_id, e.account, e.type, e.object_kind, e.payment_intent, e.charge_id, e.tries, e.state, e.claim

-- name: end_events
-- End events, or put them off, while their claim still holds: whoever took them over ends them instead.
-- $1 event_ids $2 claims $3 states $4 reasons $5 seconds until they are due again, for those that stay open
WITH input AS MATERIALIZED (
    SELECT *
      FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::double precision[])
        AS t (event_id, claim, state, reason, wait_seconds)
     ORDER BY event_id
     LIMIT (SELECT 100000)
)
UPDATE inbox_events e
   SET state = i.state,
       reason = i.reason,
       tries = e.tries + 1,
       due_at = ledger_now() + i.wait_seconds * interval '1 second',
       ended_at = CASE WHEN i.state IN ('waiting', 'unmatched') THEN NULL ELSE ledger_now() END,
       claim = NULL,
       claimed_until = NULL
  FROM input i
 WHERE e.event_id = i.event_id AND e.claim = i.claim AND e.state IN ('waiting', 'unmatched')

-- name: release_events
-- Give leases back whose holder has stopped working. $1 claims
UPDATE inbox_events SET claim = NULL, claimed_until = NULL
 WHERE claim = ANY ($1::bigint[]) AND state IN ('waiting', 'unmatched')

-- name: replay_events
-- Let events be worked through again from the start, in whatever state they are, and wake who does it.
-- $1 event_ids
WITH again AS (
    UPDATE inbox_events
       SET state = 'waiting', reason = NULL, tries = 0, due_at = ledger_now(), ended_at = NULL,
           claim = NULL, claimed_until = NULL
     WHERE event_id = ANY ($1::text[])
       AND state IN ('waiting', 'unmatched', 'done', 'ignored', 'parked')
    RETURNING event_id
)
SELECT a.event_id, (SELECT pg_notify('chargeonce_inbox', '') FROM again LIMIT 1)::text AS woken FROM again a

-- name: find_events_in_state
-- The ids of up to so many events in a state, oldest first. $1 state $2 limit
SELECT event_id FROM inbox_events WHERE state = $1 ORDER BY event_no LIMIT $2

-- name: list_events
-- The newest events first. $1 states $2 charge_id or NULL $3 PaymentIntent or NULL $4 limit
SELECT event_id, account, type, created_at, received_at, payment_intent, charge_id, state, reason, tries, due_at,
       ended_at
  FROM inbox_events
 WHERE state = ANY ($1::text[])
   AND ($2::text IS NULL OR charge_id = $2)
   AND ($3::text IS NULL OR payment_intent = $3)
 ORDER BY event_no DESC
 LIMIT $4

-- name: read_event
-- One event with all that is known of it. $1 event_id
SELECT event_id, account, type, created_at, received_at, object_kind, object_id, payment_intent, charge_id,
       request_id, state, reason, tries, due_at, claimed_until, ended_at, ledger_now() AS now
  FROM inbox_events WHERE event_id = $1

-- name: count_events
-- How many events there are in each state.
SELECT state, count(*) AS events FROM inbox_events GROUP BY state ORDER BY state

-- name: next_look
-- The number of a look that is about to begin.
SELECT nextval('inbox_looks')

-- name: note_once
-- Record why people must look at a charge, once however often it is found. $1 charge_id $2 decision $3 reason
-- $4 evidence
INSERT INTO decisions (charge_id, at, decision, reason, alarm, evidence)
SELECT $1, ledger_now(), $2, $3, true, $4
 WHERE NOT EXISTS (SELECT FROM decisions d WHERE d.charge_id = $1 AND d.decision = $2 AND d.reason = $3)

-- name: save_refunds
-- Keep the refunds of a charge as a look found them, unless a later look has been here; each change of a status is
-- a line of the charge's story, and one that failed is for people to see. $1 charge_id $2 account $3 PaymentIntent
-- $4 refund_ids $5 amounts $6 currencies $7 statuses $8 reasons $9 failure reasons $10 created_ats $11 look
WITH input AS MATERIALIZED (
    SELECT *
      FROM unnest($4::text[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::text[], $10::timestamptz[])
        AS t (refund_id, amount_minor, currency, status, reason, failure_reason, created_at)
     ORDER BY refund_id
     LIMIT (SELECT 100000)
),
moment AS MATERIALIZED (SELECT ledger_now() AS at),
saved AS (
    INSERT INTO refunds (refund_id, charge_id, account, payment_intent, amount_minor, currency, status, reason,
                         failure_reason, created_at, look, seen_at)
    SELECT i.refund_id, $1, $2, $3, i.amount_minor, i.currency, i.status, i.reason, i.failure_reason,
           i.created_at, $11, moment.at
      FROM input i, moment
    ON CONFLICT (refund_id) DO UPDATE
       SET status = EXCLUDED.status, amount_minor = EXCLUDED.amount_minor, reason = EXCLUDED.reason,
           failure_reason = EXCLUDED.failure_reason, look = EXCLUDED.look, seen_at = EXCLUDED.seen_at
     WHERE refunds.look < EXCLUDED.look
    RETURNING refund_id, charge_id, amount_minor, currency, status, failure_reason, old.status AS status_before
),
told AS (
    INSERT INTO decisions (charge_id, at, decision, reason, alarm, evidence)
    SELECT s.charge_id, moment.at, 'refund_' || s.status,
           s.refund_id || ' of ' || s.amount_minor || ' ' || s.currency || ' (minor units): '
           || coalesce(s.status_before || ' -> ', '') || s.status || coalesce(': ' || s.failure_reason, ''),
           s.status IN ('failed', 'canceled'),
           jsonb_build_object('refund', s.refund_id, 'amount_minor', s.amount_minor, 'currency', s.currency,
                              'status', s.status, 'status_before', s.status_before)
      FROM saved s, moment
     WHERE s.status IS DISTINCT FROM s.status_before
    RETURNING decision_id
)
SELECT count(*) FROM told

-- name: save_disputes
-- Keep the disputes of a charge as a look found them, unless a later look has been here. A new one, and one that
-- was lost, are for people to see. $1 charge_id $2 account $3 PaymentIntent $4 dispute_ids $5 amounts
-- $6 currencies $7 statuses $8 reasons $9 due_bys $10 created_ats $11 look
WITH input AS MATERIALIZED (
    SELECT *
      FROM unnest($4::text[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::timestamptz[],
                  $10::timestamptz[])
        AS t (dispute_id, amount_minor, currency, status, reason, due_by, created_at)
     ORDER BY dispute_id
     LIMIT (SELECT 100000)
),
moment AS MATERIALIZED (SELECT ledger_now() AS at),
saved AS (
    INSERT INTO disputes (dispute_id, charge_id, account, payment_intent, amount_minor, currency, status, reason,
                          due_by, created_at, look, seen_at)
    SELECT i.dispute_id, $1, $2, $3, i.amount_minor, i.currency, i.status, i.reason, i.due_by, i.created_at,
           $11, moment.at
      FROM input i, moment
    ON CONFLICT (dispute_id) DO UPDATE
       SET status = EXCLUDED.status, amount_minor = EXCLUDED.amount_minor, reason = EXCLUDED.reason,
           due_by = EXCLUDED.due_by, look = EXCLUDED.look, seen_at = EXCLUDED.seen_at
     WHERE disputes.look < EXCLUDED.look
    RETURNING dispute_id, charge_id, amount_minor, currency, status, reason, old.status AS status_before
),
told AS (
    INSERT INTO decisions (charge_id, at, decision, reason, alarm, evidence)
    SELECT s.charge_id, moment.at, 'dispute_' || s.status,
           s.dispute_id || ' of ' || s.amount_minor || ' ' || s.currency || ' (minor units): '
           || coalesce(s.status_before || ' -> ', '') || s.status || coalesce(' (' || s.reason || ')', ''),
           s.status_before IS NULL OR s.status = 'lost',
           jsonb_build_object('dispute', s.dispute_id, 'amount_minor', s.amount_minor, 'currency', s.currency,
                              'status', s.status, 'status_before', s.status_before)
      FROM saved s, moment
     WHERE s.status IS DISTINCT FROM s.status_before
    RETURNING decision_id
)
SELECT count(*) FROM told

-- name: money_back_of_charge
-- What went back of a charge, or is being claimed back, oldest first. $1 charge_id
SELECT 'refund' AS kind, refund_id AS id, amount_minor, currency, status, reason, failure_reason, NULL AS due_by,
       created_at
  FROM refunds WHERE charge_id = $1
 UNION ALL
SELECT 'dispute', dispute_id, amount_minor, currency, status, reason, NULL, due_by, created_at
  FROM disputes WHERE charge_id = $1
 ORDER BY created_at, id
