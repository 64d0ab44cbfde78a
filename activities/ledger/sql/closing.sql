-- name: lock_run_to_close
-- The run that is to be closed, locked against whoever else decides about it, and the moment. $1 run_id
SELECT r.phase, r.selected, r.slices, r.plan_hash, r.started_by, r.approved_by, r.canceling, r.canary_lines,
       r.request, r.locked_at, r.planned_at, r.approved_at, ledger_now() AS now
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

-- name: write_report
-- Keep what the close found, before it closes: whoever is told of the close reads it. $1 run_id $2 report
UPDATE billing_runs SET report = $2 WHERE run_id = $1 AND phase NOT IN ('closed', 'failed') RETURNING run_id
