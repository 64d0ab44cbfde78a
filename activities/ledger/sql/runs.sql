-- name: lock_run
-- Take the lock of (account, period); no row back means that another run has it, or that it is ours already.
-- $1 run_id $2 account $3 period $4 owner $5 source $6 source_sha256 $7 started_by
INSERT INTO billing_runs (run_id, account, period, owner, phase, source, source_sha256, started_by, locked_at)
VALUES ($1, $2, $3, $4, 'locked', $5, $6, $7, ledger_now())
ON CONFLICT DO NOTHING
RETURNING *

-- name: read_run
-- One run. $1 run_id
SELECT * FROM billing_runs WHERE run_id = $1

-- name: run_holding_period
-- The run between lock and settle for an account and period, if any. $1 account $2 period
SELECT * FROM billing_runs
 WHERE account = $1 AND period = $2 AND phase IN ('locked', 'charging', 'settling')

-- name: list_runs
-- Runs, newest first. $1 limit
SELECT * FROM billing_runs ORDER BY locked_at DESC, run_id LIMIT $1

-- name: insert_planned
-- Move the staged lines into the ledger; a line that another run owns becomes a skipped row with its reason.
-- $1 run_id $2 slice size
WITH fresh AS (
    INSERT INTO charges (charge_id, run_id, account, customer, period, line, source_row, slice_no, currency,
                         amount_minor, payment_method, description, state, reason, changed_at)
    SELECT s.charge_id, $1, s.account, s.customer, s.period, s.line, s.source_row,
           ((row_number() OVER (ORDER BY s.source_row) - 1) / $2)::integer, s.currency, s.amount_minor,
           s.payment_method, s.description,
           CASE WHEN s.skip_reason IS NULL THEN 'planned' ELSE 'skipped' END, s.skip_reason, ledger_now()
      FROM staged_lines s
    ON CONFLICT DO NOTHING
    RETURNING charge_id
)
INSERT INTO skipped_rows (run_id, source_row, customer, line, reason, detail)
SELECT $1, s.source_row, s.customer, s.line, 'already_planned', 'by run ' || c.run_id || ', now ' || c.state
  FROM staged_lines s
  JOIN charges c USING (charge_id)
 WHERE c.run_id <> $1

-- name: insert_skipped
-- Record the source rows that can't be billed. $1 run_id
INSERT INTO skipped_rows (run_id, source_row, customer, line, reason, detail)
SELECT $1, source_row, customer, line, reason, detail FROM staged_skips

-- name: finish_plan
-- Freeze the plan: the counts must add up here and at close (a trigger checks). $1 run_id $2 selected
-- $3 plan_hash
UPDATE billing_runs r
   SET phase = 'charging', selected = $2, plan_hash = $3, planned_at = ledger_now(),
       slices = (SELECT coalesce(max(slice_no) + 1, 0) FROM charges c WHERE c.run_id = r.run_id)
 WHERE run_id = $1 AND phase = 'locked'
RETURNING *

-- name: begin_settling
-- All slices have been worked through. $1 run_id
UPDATE billing_runs SET phase = 'settling' WHERE run_id = $1 AND phase = 'charging' RETURNING *

-- name: close_run
-- Close a run whose lines are all settled; the counts are frozen and must add up. $1 run_id
UPDATE billing_runs r
   SET phase = 'closed', closed_at = ledger_now(),
       counts = (SELECT jsonb_object_agg(standing, lines) FROM run_counts(r.run_id))
 WHERE run_id = $1 AND phase IN ('charging', 'settling')
   AND NOT EXISTS (SELECT FROM charges c
                    WHERE c.run_id = r.run_id
                      AND c.state IN ('planned', 'creating', 'prepared', 'confirming', 'canceling'))
RETURNING *

-- name: fail_run
-- Give the period back: the run never charged anything. $1 run_id $2 reason
UPDATE billing_runs SET phase = 'failed', reason = $2 WHERE run_id = $1 AND phase = 'locked' RETURNING *

-- name: run_counts
-- Lines by where they stand. $1 run_id
SELECT standing, lines FROM run_counts($1)

-- name: due_summary
-- What is still open in a run, and in how many seconds the next of it is due. $1 run_id
SELECT count(*) AS open,
       count(*) FILTER (WHERE state IN ('creating', 'confirming', 'canceling')) AS in_flight,
       count(*) FILTER (WHERE due_at IS NULL OR due_at <= ledger_now()) AS due_now,
       extract(epoch FROM min(due_at) - ledger_now())::double precision AS next_due_seconds,
       extract(epoch FROM min(due_at))::double precision AS next_due_epoch_seconds
  FROM charges
 WHERE run_id = $1 AND state IN ('planned', 'creating', 'prepared', 'confirming', 'canceling')

-- name: amounts_by_state
-- Money by currency and state. $1 run_id
SELECT currency, state, count(*) AS lines, sum(amount_minor)::bigint AS amount_minor
  FROM charges WHERE run_id = $1 GROUP BY currency, state ORDER BY currency, state

-- name: waiting_reasons
-- Why open charges wait, with how many and until when. $1 run_id
SELECT coalesce(reason, 'in progress') AS reason, state, count(*) AS lines, min(due_at) AS due_at
  FROM charges
 WHERE run_id = $1 AND state IN ('planned', 'creating', 'prepared', 'confirming', 'canceling')
 GROUP BY 1, 2 ORDER BY 3 DESC

-- name: move_clock
-- Move the ledger's clock, where it may be moved at all. $1 offset seconds $2 frozen at
SELECT move_ledger_clock($1, $2)

-- name: read_clock
-- The clock's settings.
SELECT movable, offset_seconds, frozen_at, ledger_now() AS now FROM ledger_clock
