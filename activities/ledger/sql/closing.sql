-- name: lock_run_to_close
-- The run that is to be closed, locked against whoever else decides about it, and the moment. $1 run_id
SELECT r.phase, r.selected, r.slices, r.plan_hash, r.started_by, r.approved_by, r.canceling, r.canary_lines,
       r.request, r.locked_at, r.planned_at, r.approved_at, r.charging_closed_at, ledger_now() AS now
  FROM billing_runs r
 WHERE r.run_id = $1
   FOR UPDATE

-- name: amounts_to_close
-- Lines and money by currency and state, and what a later run has taken over. $1 run_id
SELECT currency, state, count(*) AS lines, sum(amount_minor)::bigint AS amount_minor
  FROM charges WHERE run_id = $1 GROUP BY currency, state
 UNION ALL
SELECT currency, 'taken_over', count(*), sum(amount_minor)::bigint
  FROM takeovers WHERE from_run = $1 AND currency IS NOT NULL GROUP BY currency
 ORDER BY 1, 2

-- name: caps_to_close
-- What was planned and what the run might move at most. $1 run_id
SELECT currency, lines, amount_minor, cap_minor FROM run_totals WHERE run_id = $1 ORDER BY currency

-- name: close_charging
-- The charging of a run is over, and something is waited for: the run goes on beside later ones, and people are told
-- how it stands. $1 run_id $2 report
WITH closed AS (
    UPDATE billing_runs r
       SET phase = 'retrying', charging_closed_at = ledger_now(), charging_report = $2
     WHERE run_id = $1 AND phase IN ('charging', 'settling') AND NOT canceling
       AND EXISTS (SELECT FROM follow_ups f WHERE f.run_id = r.run_id AND f.closed_at IS NULL)
       AND NOT EXISTS (SELECT FROM charges c
                        WHERE c.run_id = r.run_id
                          AND c.state IN ('planned', 'creating', 'prepared', 'confirming', 'canceling'))
    RETURNING *
)
INSERT INTO run_events (run_id, at, action, who, reason, detail)
SELECT run_id, charging_closed_at, 'charging_closed', 'rule',
       'every line has been charged or turned down; what can still be paid is waited for',
       (SELECT jsonb_object_agg(standing, lines) FROM run_counts(run_id))
  FROM closed
RETURNING event_id

-- name: write_report
-- Keep what the close found, before it closes: whoever is told of the close reads it. $1 run_id $2 report
UPDATE billing_runs SET report = $2 WHERE run_id = $1 AND phase NOT IN ('closed', 'failed') RETURNING run_id
