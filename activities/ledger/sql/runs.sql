-- name: lock_run
-- Take the lock of (account, period); no row back means that another run has it, or that it is ours already.
-- $1 run_id $2 account $3 period $4 owner $5 source $6 source_sha256 $7 started_by $8 request
INSERT INTO billing_runs (run_id, account, period, owner, phase, source, source_sha256, started_by, request,
                          locked_at)
VALUES ($1, $2, $3, $4, 'locked', $5, $6, $7, $8, ledger_now())
ON CONFLICT DO NOTHING
RETURNING *

-- name: read_run
-- One run. $1 run_id
SELECT * FROM billing_runs WHERE run_id = $1

-- name: run_holding_period
-- The run between lock and settle for an account and period, if any. $1 account $2 period
SELECT * FROM billing_runs
 WHERE account = $1 AND period = $2 AND phase IN ('locked', 'planned', 'charging', 'settling')

-- name: list_runs
-- Runs, newest first. $1 limit
SELECT * FROM billing_runs ORDER BY locked_at DESC, run_id LIMIT $1

-- name: begin_settling
-- All slices have been worked through. $1 run_id
UPDATE billing_runs SET phase = 'settling' WHERE run_id = $1 AND phase = 'charging' RETURNING *

-- name: close_run
-- Close a run whose lines are all settled, and with none of which anything is waited for; the counts are frozen and
-- must add up. One that was canceled before anybody approved it was never charging. $1 run_id
WITH closed AS (
    UPDATE billing_runs r
       SET phase = 'closed', closed_at = ledger_now(), hold = NULL, hold_reason = NULL,
           counts = (SELECT jsonb_object_agg(standing, lines) FROM run_counts(r.run_id))
     WHERE run_id = $1 AND (phase IN ('charging', 'settling', 'retrying') OR (phase = 'planned' AND canceling))
       AND NOT EXISTS (SELECT FROM follow_ups f WHERE f.run_id = r.run_id AND f.closed_at IS NULL)
       AND NOT EXISTS (SELECT FROM charges c
                        WHERE c.run_id = r.run_id
                          AND c.state IN ('planned', 'creating', 'prepared', 'confirming', 'canceling'))
    RETURNING *
),
noted AS (
    INSERT INTO run_events (run_id, at, action, who, reason, detail)
    SELECT run_id, closed_at, 'closed', 'rule', coalesce(reason, 'every line has got where it was going'), counts
      FROM closed
)
SELECT * FROM closed

-- name: fail_run
-- Give the period back: the run never charged anything. $1 run_id $2 reason
UPDATE billing_runs SET phase = 'failed', reason = $2 WHERE run_id = $1 AND phase = 'locked' RETURNING *

-- name: run_counts
-- Lines by where they stand. $1 run_id
SELECT standing, lines FROM run_counts($1)

-- name: due_summary
-- What is still open in a run, and in how many seconds the next of it is due. What is in flight is counted on its
-- own as well, since a held run carries nothing else on; a cancel is due at once. $1 run_id
SELECT due.*, r.hold, r.hold_reason, r.canceling
  FROM billing_runs r,
       LATERAL (
           SELECT count(*) AS open,
                  count(*) FILTER (WHERE in_flight) AS in_flight,
                  count(*) FILTER (WHERE due_at IS NULL OR due_at <= ledger_now()) AS due_now,
                  extract(epoch FROM min(due_at) - ledger_now())::double precision AS next_due_seconds,
                  extract(epoch FROM min(due_at))::double precision AS next_due_epoch_seconds,
                  count(*) FILTER (WHERE in_flight AND (due_at IS NULL OR due_at <= ledger_now()))
                      AS in_flight_due_now,
                  extract(epoch FROM min(due_at) FILTER (WHERE in_flight) - ledger_now())::double precision
                      AS next_in_flight_due_seconds
             FROM (SELECT CASE WHEN r.canceling AND state IN ('planned', 'prepared', 'confirming') THEN NULL
                               ELSE due_at END AS due_at,
                          state IN ('creating', 'confirming', 'canceling') AS in_flight
                     FROM charges
                    WHERE run_id = r.run_id
                      AND state IN ('planned', 'creating', 'prepared', 'confirming', 'canceling')) open_charges
       ) due
 WHERE r.run_id = $1

-- name: amounts_by_state
-- Money by currency and state. $1 run_id
SELECT currency, state, count(*) AS lines, sum(amount_minor)::bigint AS amount_minor
  FROM charges WHERE run_id = $1 GROUP BY currency, state ORDER BY currency, state

-- name: waiting_reasons
-- Why open charges wait, with how many and until when; no reason of their own: what keeps the run. $1 run_id
SELECT reason, state, count(*) AS lines, min(due_at) AS due_at
  FROM charges
 WHERE run_id = $1 AND state IN ('planned', 'creating', 'prepared', 'confirming', 'canceling')
 GROUP BY 1, 2 ORDER BY 3 DESC

-- name: move_clock
-- Move the ledger's clock, where it may be moved at all. $1 offset seconds $2 frozen at
SELECT move_ledger_clock($1, $2)

-- name: read_clock
-- The clock's settings.
SELECT movable, offset_seconds, frozen_at, ledger_now() AS now FROM ledger_clock
