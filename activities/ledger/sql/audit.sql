-- name: audited_accounts
-- The accounts that have runs. $1 locked at or after, or NULL
SELECT DISTINCT account FROM billing_runs WHERE $1::timestamptz IS NULL OR locked_at >= $1 ORDER BY account

-- name: runs_in_order
-- The runs of an account, oldest first. $1 account $2 locked at or after, or NULL
SELECT run_id
  FROM billing_runs
 WHERE account = $1 AND ($2::timestamptz IS NULL OR locked_at >= $2)
 ORDER BY locked_at, run_id

-- name: audited_runs
-- The runs that are audited, the row count that I9 promises of each, and the earliest moment at which anything of it
-- can have been sent: charges that were taken over have keys older than the run's lock. $1 run_ids
SELECT r.run_id, r.account, r.period, r.phase, r.selected,
       (SELECT count(*) FROM charges c WHERE c.run_id = r.run_id)
       + (SELECT count(*) FROM skipped_rows s WHERE s.run_id = r.run_id)
       + (SELECT count(*) FROM takeovers t WHERE t.from_run = r.run_id) AS accounted,
       least(r.locked_at,
             (SELECT min(k.first_intended_at)
                FROM charges c JOIN keys k USING (charge_id)
               WHERE c.run_id = r.run_id)) AS earliest_at
  FROM billing_runs r
 WHERE r.run_id = ANY ($1::text[])

-- name: audited_lines
-- Every charge of some runs, as little of it as a comparison needs. $1 run_ids
SELECT charge_id, customer, line, currency, amount_minor, state, payment_intent, run_id,
       coalesce((SELECT sum(f.amount_minor) FROM refunds f
                  WHERE f.charge_id = c.charge_id AND f.status NOT IN ('failed', 'canceled')), 0)::bigint
  FROM charges c
 WHERE run_id = ANY ($1::text[])

-- name: known_identities
-- Which of these identities the ledger has, in whatever run. $1 charge_ids
SELECT charge_id FROM charges WHERE charge_id = ANY ($1::text[])

-- name: audited_lines_again
-- These charges as they are now. $1 run_ids $2 charge_ids
SELECT charge_id, customer, line, currency, amount_minor, state, payment_intent, run_id,
       coalesce((SELECT sum(f.amount_minor) FROM refunds f
                  WHERE f.charge_id = c.charge_id AND f.status NOT IN ('failed', 'canceled')), 0)::bigint
  FROM charges c
 WHERE run_id = ANY ($1::text[]) AND charge_id = ANY ($2::text[])

-- name: charged_customers
-- The customers of charges that anything was ever sent for. $1 run_id $2 limit
SELECT DISTINCT customer FROM charges WHERE run_id = $1 AND create_version > 0 LIMIT $2
