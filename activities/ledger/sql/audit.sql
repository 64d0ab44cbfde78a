-- name: audited_run
-- The run that is audited, the row count that I9 promises, and the earliest moment at which anything of it can
-- have been sent: charges that were taken over have keys older than the run's lock. $1 run_id
SELECT r.run_id, r.account, r.period, r.phase, r.selected,
       (SELECT count(*) FROM charges c WHERE c.run_id = r.run_id)
       + (SELECT count(*) FROM skipped_rows s WHERE s.run_id = r.run_id)
       + (SELECT count(*) FROM takeovers t WHERE t.from_run = r.run_id) AS accounted,
       least(r.locked_at,
             (SELECT min(k.first_intended_at)
                FROM charges c JOIN keys k USING (charge_id)
               WHERE c.run_id = r.run_id)) AS earliest_at
  FROM billing_runs r
 WHERE r.run_id = $1

-- name: audited_lines
-- Every charge of the run, as little of it as a comparison needs. $1 run_id
SELECT charge_id, customer, line, currency, amount_minor, state, payment_intent
  FROM charges
 WHERE run_id = $1

-- name: known_identities
-- Which of these identities the ledger has, in whatever run. $1 charge_ids
SELECT charge_id FROM charges WHERE charge_id = ANY ($1::text[])

-- name: audited_lines_again
-- These charges as they are now. $1 run_id $2 charge_ids
SELECT charge_id, customer, line, currency, amount_minor, state, payment_intent
  FROM charges
 WHERE run_id = $1 AND charge_id = ANY ($2::text[])

-- name: charged_customers
-- The customers of charges that anything was ever sent for. $1 run_id $2 limit
SELECT DISTINCT customer FROM charges WHERE run_id = $1 AND create_version > 0 LIMIT $2
