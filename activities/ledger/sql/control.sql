-- Each decision is one statement: a guarded write of the run, and its event from what was written. A statement
-- that matches no row changes nothing, and control.py reads the run to say why.

-- name: standing
-- Where a run stands. $1 run_id
SELECT phase, hold, hold_reason, canceling, canary_released, owner, plan_hash, approved_hash,
       is_restored() AS restored
  FROM billing_runs WHERE run_id = $1

-- name: approve
-- Let a planned run charge, if the hash is its plan's. $1 run_id $2 plan_hash $3 who $4 reason
WITH changed AS (
    UPDATE billing_runs
       SET phase = 'charging', approved_hash = $2, approved_at = ledger_now(), approved_by = $3
     WHERE run_id = $1 AND phase = 'planned' AND plan_hash = $2 AND NOT canceling
    RETURNING run_id, plan_hash
)
INSERT INTO run_events (run_id, at, action, who, reason, detail)
SELECT run_id, ledger_now(), 'approved', $3, $4, jsonb_build_object('plan_hash', plan_hash) FROM changed
RETURNING event_id

-- name: hold
-- Let a run start nothing new. A pause replaces any other hold: a person's word outlasts a rule's.
-- $1 run_id $2 hold $3 who $4 reason $5 action
WITH changed AS (
    UPDATE billing_runs
       SET hold = $2, hold_reason = $4
     WHERE run_id = $1 AND phase IN ('locked', 'planned', 'charging', 'settling', 'retrying') AND NOT canceling
       AND (hold IS NULL OR ($2 = 'paused' AND hold <> 'paused'))
    RETURNING run_id, old.hold AS hold_before
)
INSERT INTO run_events (run_id, at, action, who, reason, detail)
SELECT run_id, ledger_now(), $5, $3, $4,
       jsonb_strip_nulls(jsonb_build_object('instead_of', hold_before))
  FROM changed
RETURNING event_id

-- name: resume
-- Lift whatever hold there is. Whoever lifts a canary's has looked at it, and so has whoever lifts a pause that came
-- in its place: the verdict was in. $1 run_id $2 who $3 reason
WITH changed AS (
    UPDATE billing_runs r
       SET hold = NULL, hold_reason = NULL,
           canary_released = canary_released OR hold = 'canary'
               OR EXISTS (SELECT FROM run_events e WHERE e.run_id = r.run_id AND e.action = 'canary_held')
     WHERE run_id = $1 AND phase IN ('locked', 'planned', 'charging', 'settling', 'retrying') AND NOT canceling
       AND hold IS NOT NULL
    RETURNING run_id, old.hold AS hold_before, canary_released AND NOT old.canary_released AS releases_canary
)
INSERT INTO run_events (run_id, at, action, who, reason, detail)
SELECT run_id, ledger_now(), CASE WHEN releases_canary THEN 'canary_released' ELSE 'resumed' END, $2, $3,
       jsonb_build_object('hold', hold_before)
  FROM changed
RETURNING event_id

-- name: close_breaker
-- Lift a breaker's hold and no other. $1 run_id $2 who $3 reason
WITH changed AS (
    UPDATE billing_runs
       SET hold = NULL, hold_reason = NULL
     WHERE run_id = $1 AND phase IN ('charging', 'settling', 'retrying') AND NOT canceling AND hold = 'breaker'
    RETURNING run_id, old.hold_reason AS reason_before
)
INSERT INTO run_events (run_id, at, action, who, reason, detail)
SELECT run_id, ledger_now(), 'breaker_closed', $2, $3, jsonb_build_object('opened', reason_before) FROM changed
RETURNING event_id

-- name: release_canary
-- Let the rest follow the canary. $1 run_id $2 who $3 reason
WITH changed AS (
    UPDATE billing_runs
       SET canary_released = true
     WHERE run_id = $1 AND phase = 'charging' AND NOT canceling AND NOT canary_released
    RETURNING run_id
)
INSERT INTO run_events (run_id, at, action, who, reason)
SELECT run_id, ledger_now(), 'canary_released', $2, $3 FROM changed
RETURNING event_id

-- name: request_cancel
-- Let a run end. It is held no longer: what is open has to be canceled. $1 run_id $2 who $3 reason
WITH changed AS (
    UPDATE billing_runs
       SET canceling = true, hold = NULL, hold_reason = NULL, reason = 'canceled by ' || $2 || ': ' || $3
     WHERE run_id = $1 AND phase IN ('locked', 'planned', 'charging', 'settling', 'retrying') AND NOT canceling
    RETURNING run_id, old.hold AS hold_before
)
INSERT INTO run_events (run_id, at, action, who, reason, detail)
SELECT run_id, ledger_now(), 'cancel_requested', $2, $3, jsonb_strip_nulls(jsonb_build_object('hold', hold_before))
  FROM changed
RETURNING event_id

-- name: lock_caps
-- The caps of a run that may have them raised, with the run locked: whoever else decides about it waits.
-- $1 run_id
SELECT t.currency, t.cap_minor
  FROM run_totals t
  JOIN (SELECT run_id FROM billing_runs
         WHERE run_id = $1 AND phase IN ('planned', 'charging', 'settling', 'retrying') AND NOT canceling
           FOR UPDATE) r USING (run_id)
 ORDER BY t.currency

-- name: raise_caps
-- Raise caps, and lift the hold of a run that stands at its cap. $1 run_id $2 currencies
-- $3 caps in minor units $4 who $5 reason
SELECT raise_run_caps($1, $2::text[], $3::bigint[], $4, $5)

-- name: recover
-- Let another workflow own a run whose own has died. A slice of the old one that survived it somewhere commits
-- no intent any more for what it has claimed, since that gets a newer fence. One that claims only from now on
-- is a sender like any other: the new workflow's claims take its charges, fence by fence.
-- $1 run_id $2 owner so far $3 owner from now on $4 who $5 reason
WITH changed AS (
    UPDATE billing_runs
       SET owner = $3
     WHERE run_id = $1 AND owner = $2 AND phase IN ('locked', 'planned', 'charging', 'settling', 'retrying')
    RETURNING run_id
),
claimed AS MATERIALIZED (
    SELECT charge_id
      FROM charges
     WHERE run_id = (SELECT run_id FROM changed)
       AND fence > 0
       AND state IN ('planned', 'creating', 'prepared', 'confirming', 'canceling')
     ORDER BY charge_id
       FOR UPDATE
),
token AS MATERIALIZED (SELECT nextval('fences') AS fence FROM (SELECT count(*) FROM claimed) AS locked),
fenced AS (
    UPDATE charges c
       SET fence = token.fence
      FROM token, claimed
     WHERE c.charge_id = claimed.charge_id
    RETURNING c.charge_id
)
INSERT INTO run_events (run_id, at, action, who, reason, detail)
SELECT run_id, ledger_now(), 'recovered', $4, $5,
       jsonb_build_object('owner_before', $2::text, 'owner', $3::text,
                          'charges_fenced', (SELECT count(*) FROM fenced))
  FROM changed
RETURNING event_id

-- name: read_canary
-- How the lines of slice 0 stand, those that were skipped at planning left out. $1 run_id
SELECT count(*) AS lines,
       count(*) FILTER (WHERE state = 'declined') AS declined,
       count(*) FILTER (WHERE state IN ('needs_customer', 'refused', 'review', 'canceled')) AS not_paid_otherwise,
       count(*) FILTER (WHERE state IN ('planned', 'creating', 'prepared', 'confirming', 'canceling')) AS unknown
  FROM charges
 WHERE run_id = $1 AND slice_no = 0 AND state <> 'skipped'

-- name: newest_event
-- The newest event of these kinds: who decided it, when and why. $1 run_id $2 actions
SELECT event_id, at, action, who, reason
  FROM run_events WHERE run_id = $1 AND action = ANY ($2::text[]) ORDER BY event_id DESC LIMIT 1

-- name: note_again
-- A decision that found itself standing already is on record too; its own retry is not.
-- $1 run_id $2 action $3 who $4 reason $5 the event that it found, 0 for none
INSERT INTO run_events (run_id, at, action, who, reason, detail)
SELECT $1, ledger_now(), $2, $3, $4, jsonb_build_object('stands_since_event', nullif($5::bigint, 0))
 WHERE NOT EXISTS (SELECT FROM run_events
                    WHERE run_id = $1 AND event_id > $5 AND action = $2 AND who = $3 AND reason = $4)

-- name: run_events
-- What was decided about a run, in order. $1 run_id
SELECT event_id, at, action, who, reason, detail FROM run_events WHERE run_id = $1 ORDER BY event_id
