-- name: find_charges
-- Charges that a person may mean, at most $6 of them. Each of $1 beginning of a charge_id, $2 customer, $3 line,
-- $4 PaymentIntent, $5 run_id may be NULL. A run's are those too that a later one has taken over.
SELECT c.charge_id, c.customer, c.line, c.period, c.state, c.run_id
  FROM charges c
 WHERE ($1::text IS NULL OR c.charge_id LIKE $1 || '%')
   AND ($2::text IS NULL OR c.customer = $2)
   AND ($3::text IS NULL OR c.line = $3)
   AND ($5::text IS NULL OR c.run_id = $5
        OR EXISTS (SELECT FROM takeovers t WHERE t.charge_id = c.charge_id AND t.from_run = $5))
   AND ($4::text IS NULL
        OR c.payment_intent = $4
        OR c.charge_id IN (SELECT k.charge_id FROM keys k WHERE k.payment_intent = $4)
        OR c.charge_id IN (SELECT k.charge_id FROM attempts a JOIN keys k USING (key) WHERE a.payment_intent = $4))
 ORDER BY c.period DESC, c.customer, c.line
 LIMIT $6

-- name: story_charge
-- The charge as it stands, with its run, what is still waited for, and the ledger's clock. $1 charge_id
SELECT c.*, r.phase, r.hold, r.hold_reason, r.canceling, r.planned_at, f.kind AS follow_up,
       f.due_at AS follow_up_due_at, f.ends_at AS follow_up_ends_at, ledger_now() AS now
  FROM charges c
  JOIN billing_runs r USING (run_id)
  LEFT JOIN follow_ups f ON f.charge_id = c.charge_id AND f.closed_at IS NULL
 WHERE c.charge_id = $1

-- name: find_skipped
-- Source rows that became no charge of their run, at most $4 of them, newest run first. $1 customer $2 line, NULL for
-- any $3 run_id, NULL for any
SELECT s.run_id, s.source_row, s.customer, s.line, s.reason, s.detail
  FROM skipped_rows s JOIN billing_runs r USING (run_id)
 WHERE s.customer = $1
   AND ($2::text IS NULL OR s.line = $2)
   AND ($3::text IS NULL OR s.run_id = $3)
 ORDER BY r.locked_at DESC, s.source_row
 LIMIT $4

-- name: story_keys
-- Its keys, oldest first. $1 charge_id
SELECT key, operation, version, payment_intent, path, first_intended_at, stored_failure, reason
  FROM keys WHERE charge_id = $1 ORDER BY first_intended_at, key

-- name: story_attempts
-- Every send of its keys, with the age of the key when it was sent. $1 charge_id
SELECT a.*, extract(epoch FROM a.intended_at - k.first_intended_at)::double precision AS key_age_seconds
  FROM keys k JOIN attempts a USING (key)
 WHERE k.charge_id = $1
 ORDER BY a.intended_at, a.key, a.send_no

-- name: story_decisions
-- What was decided about it. $1 charge_id
SELECT at, decision, reason, alarm, evidence FROM decisions WHERE charge_id = $1 ORDER BY decision_id

-- name: story_takeovers
-- Which runs had it, in order, and when their plans were made. $1 charge_id
SELECT t.at, t.from_run, t.to_run, t.reason, r.planned_at
  FROM takeovers t JOIN billing_runs r ON r.run_id = t.from_run
 WHERE t.charge_id = $1 ORDER BY t.at
