-- name: has_run
-- Whether an account has a run. $1 run_id $2 account
SELECT EXISTS (SELECT FROM billing_runs WHERE run_id = $1 AND account = $2)

-- name: open_reconciliation
-- Keep a reconciliation, once for its owner. NULL times: the earliest send of the run, and now. $1 workflow_id
-- $2 owner $3 account $4 run_id or NULL $5 since or NULL $6 until or NULL $7 repair $8 who $9 reason
INSERT INTO reconciliations (reconciliation_id, workflow_id, owner, account, run_id, since, until, repair, who, reason, phase,
                             opened_at)
SELECT $1 || '/' || (SELECT count(*) + 1 FROM reconciliations w WHERE w.workflow_id = $1), $1, $2, $3, $4,
       coalesce($5,
                (SELECT least(r.locked_at, (SELECT min(k.first_intended_at)
                                              FROM charges c JOIN keys k USING (charge_id)
                                             WHERE c.run_id = r.run_id))
                   FROM billing_runs r WHERE r.run_id = $4)),
       coalesce($6, ledger_now()), $7, $8, $9, 'open', ledger_now()
 WHERE NOT EXISTS (SELECT FROM reconciliations w WHERE w.owner = $2)

-- name: reconciliation_of_owner
-- The one that a workflow has opened. $1 owner
SELECT * FROM reconciliations WHERE owner = $1

-- name: read_reconciliation
-- One reconciliation. $1 reconciliation_id
SELECT * FROM reconciliations WHERE reconciliation_id = $1

-- name: newest_reconciliations
-- The newest ones. $1 limit
SELECT * FROM reconciliations ORDER BY opened_at DESC, reconciliation_id DESC LIMIT $1

-- name: count_scope
-- How many charges of the scope anything was ever sent for, and of how many customers. $1 reconciliation_id
SELECT count(*) AS charges, count(DISTINCT customer) AS customers
  FROM reconciliation_scope($1)

-- name: choose_way
-- Say how it is gone about; falling back from a scan to customers is for good. $1 reconciliation_id $2 how
UPDATE reconciliations SET how = $2
 WHERE reconciliation_id = $1 AND phase = 'open' AND (how IS NULL OR $2 = 'customers')

-- name: cut_slices
-- Cut the time of the scan by the creates of the scope; each whole second belongs to one slice at least. $1
-- reconciliation_id $2 creates per slice $3 seconds before the first
INSERT INTO reconciliation_slices (reconciliation_id, slice_no, created_from, created_until)
SELECT $1, row_number() OVER (ORDER BY first) - 1,
       CASE WHEN lag(first) OVER (ORDER BY first) IS NULL THEN least(first, w.since) - $3 * interval '1 second'
            ELSE date_trunc('second', first) END,
       coalesce(date_trunc('second', lead(first) OVER (ORDER BY first)),
                CASE WHEN w.run_id IS NULL THEN w.until + $3 * interval '1 second' END)
  FROM reconciliations w,
       LATERAL (SELECT min(at) AS first
                  FROM (SELECT s.first_create_at AS at,
                               (row_number() OVER (ORDER BY s.first_create_at) - 1) / $2::integer AS tile
                          FROM reconciliation_scope($1) s
                         UNION ALL
                        SELECT w.since, 0) t
                 GROUP BY tile) tiles
 WHERE w.reconciliation_id = $1
ON CONFLICT DO NOTHING

-- name: count_slices
-- How many slices there are. $1 reconciliation_id
SELECT count(*) FROM reconciliation_slices WHERE reconciliation_id = $1

-- name: read_slice
-- One slice, and how the reconciliation is gone about by now. $1 reconciliation_id $2 slice_no
SELECT s.created_from, s.created_until, s.done_at, r.how
  FROM reconciliation_slices s JOIN reconciliations r USING (reconciliation_id)
 WHERE s.reconciliation_id = $1 AND s.slice_no = $2

-- name: finish_slice
-- A slice has been read to its end. $1 reconciliation_id $2 slice_no
UPDATE reconciliation_slices SET done_at = ledger_now()
 WHERE reconciliation_id = $1 AND slice_no = $2 AND done_at IS NULL

-- name: count_requests
-- Add to what Stripe was asked. $1 reconciliation_id $2 purpose $3 requests
INSERT INTO reconciliation_requests AS q (reconciliation_id, purpose, requests) VALUES ($1, $2, $3)
ON CONFLICT (reconciliation_id, purpose) DO UPDATE SET requests = q.requests + EXCLUDED.requests
RETURNING requests

-- name: note_gap
-- Say what could not be read, or what else people should know. $1 reconciliation_id $2 what $3 why
-- $4 whether anything could not be read
INSERT INTO reconciliation_gaps (reconciliation_id, what, why, is_gap) VALUES ($1, $2, $3, $4)
ON CONFLICT (reconciliation_id, what) DO UPDATE SET why = EXCLUDED.why

-- name: lines_of
-- What the ledger says about these charges, in whatever run, as an auditor reads it. $1 account $2 charge_ids
SELECT c.charge_id, c.customer, c.line, c.currency, c.amount_minor, c.state, c.payment_intent, c.run_id,
       coalesce((SELECT sum(f.amount_minor) FROM refunds f
                  WHERE f.charge_id = c.charge_id AND f.status NOT IN ('failed', 'canceled')), 0)::bigint
         AS returned_minor,
       r.phase = 'closed' AS closed,
       (SELECT min(k.first_intended_at) FROM keys k WHERE k.charge_id = c.charge_id) AS first_intended_at
  FROM charges c JOIN billing_runs r USING (run_id)
 WHERE c.charge_id = ANY ($2::text[]) AND c.account = $1

-- name: mark_seen
-- These agree with what Stripe shows. $1 reconciliation_id $2 charge_ids
INSERT INTO reconciliation_seen (reconciliation_id, charge_id)
SELECT $1, charge_id FROM unnest($2::text[]) AS t (charge_id) ORDER BY charge_id
ON CONFLICT DO NOTHING

-- name: mark_suspect
-- These have to be looked at. $1 reconciliation_id $2 charge_ids $3 customers $4 why
INSERT INTO reconciliation_suspects (reconciliation_id, charge_id, customer, why)
SELECT $1, charge_id, customer, $4 FROM unnest($2::text[], $3::text[]) AS t (charge_id, customer) ORDER BY charge_id
ON CONFLICT DO NOTHING

-- name: mark_unseen
-- Suspect what no page has shown though Stripe should have it, what is in flight, and what was refunded otherwise than
-- the ledger knows. $1 reconciliation_id $2 whether everything is to be looked at
WITH scope AS MATERIALIZED (SELECT * FROM reconciliation_scope($1))
INSERT INTO reconciliation_suspects (reconciliation_id, charge_id, customer, why)
SELECT $1, s.charge_id, s.customer,
       CASE WHEN NOT $2 AND s.state IN ('creating', 'confirming', 'canceling') THEN 'in flight'
            WHEN NOT EXISTS (SELECT FROM reconciliation_seen n
                              WHERE n.reconciliation_id = $1 AND n.charge_id = s.charge_id OFFSET 0) THEN 'not shown'
            ELSE 'refunds differ' END
  FROM scope s
 WHERE s.state IN ('creating', 'confirming', 'canceling')
    OR (($2 OR s.payment_intent IS NOT NULL OR s.state IN ('succeeded', 'processing'))
        AND NOT EXISTS (SELECT FROM reconciliation_seen n
                         WHERE n.reconciliation_id = $1 AND n.charge_id = s.charge_id OFFSET 0))
    OR coalesce((SELECT sum(f.amount_minor) FROM refunds f
                  WHERE f.charge_id = s.charge_id AND f.status NOT IN ('failed', 'canceled')), 0)
       <> coalesce((SELECT n.returned_minor FROM reconciliation_refunds n
                     WHERE n.reconciliation_id = $1 AND n.payment_intent = s.payment_intent), 0)
ON CONFLICT DO NOTHING

-- name: keep_refunds
-- What went back, by PaymentIntent. $1 reconciliation_id $2 PaymentIntents $3 minor units
INSERT INTO reconciliation_refunds (reconciliation_id, payment_intent, returned_minor)
SELECT $1, payment_intent, returned_minor
  FROM unnest($2::text[], $3::bigint[]) AS t (payment_intent, returned_minor)
ON CONFLICT (reconciliation_id, payment_intent) DO UPDATE SET returned_minor = EXCLUDED.returned_minor

-- name: refunds_of
-- What went back of these PaymentIntents, as it was listed. $1 reconciliation_id $2 PaymentIntents
SELECT payment_intent, returned_minor FROM reconciliation_refunds
 WHERE reconciliation_id = $1 AND payment_intent = ANY ($2::text[])

-- name: next_suspects
-- The next ones to look at, those that were tried least first, all of one customer together. $1 reconciliation_id
-- $2 limit
SELECT charge_id, customer, why, tries FROM reconciliation_suspects
 WHERE reconciliation_id = $1 AND looked_at IS NULL
 ORDER BY tries, customer, charge_id
 LIMIT $2

-- name: count_suspects
-- How many are still to be looked at. $1 reconciliation_id
SELECT count(*) FROM reconciliation_suspects WHERE reconciliation_id = $1 AND looked_at IS NULL

-- name: end_suspects
-- They have been looked at. $1 reconciliation_id $2 charge_ids $3 outcomes $4 settled
UPDATE reconciliation_suspects s SET looked_at = ledger_now(), outcome = t.outcome, settled = s.settled OR t.settled
  FROM unnest($2::text[], $3::text[], $4::boolean[]) AS t (charge_id, outcome, settled)
 WHERE s.reconciliation_id = $1 AND s.charge_id = t.charge_id AND s.looked_at IS NULL

-- name: put_suspects_off
-- They could not be looked at this time. $1 reconciliation_id $2 charge_ids
UPDATE reconciliation_suspects SET tries = tries + 1
 WHERE reconciliation_id = $1 AND charge_id = ANY ($2::text[]) AND looked_at IS NULL

-- name: sum_up
-- What a reconciliation came to, but for its differences. $1 reconciliation_id
SELECT (SELECT count(*) FROM reconciliation_scope($1)) AS charges,
       (SELECT count(*) FROM reconciliation_suspects WHERE reconciliation_id = $1) AS suspects,
       (SELECT count(DISTINCT coalesce(customer, charge_id))
          FROM reconciliation_suspects WHERE reconciliation_id = $1) AS customers,
       (SELECT count(*) FROM reconciliation_suspects WHERE reconciliation_id = $1 AND settled) AS settled,
       (SELECT count(*) FROM reconciliation_suspects
         WHERE reconciliation_id = $1 AND outcome = 'in_flight') AS in_flight,
       (SELECT count(*) FROM reconciliation_suspects
         WHERE reconciliation_id = $1 AND outcome = 'differs') AS differing,
       (SELECT count(*) FROM reconciliation_suspects
         WHERE reconciliation_id = $1 AND outcome = 'unread') AS unread

-- name: requests_of
-- How often Stripe was asked. $1 reconciliation_id
SELECT purpose, requests FROM reconciliation_requests WHERE reconciliation_id = $1 ORDER BY purpose

-- name: gaps_of
-- What could not be read, and what else is to be said. $1 reconciliation_id
SELECT what, why, is_gap FROM reconciliation_gaps WHERE reconciliation_id = $1 ORDER BY what

-- name: close_reconciliation
-- Freeze the report. $1 reconciliation_id $2 report
UPDATE reconciliations SET phase = 'closed', closed_at = ledger_now(), report = $2
 WHERE reconciliation_id = $1 AND phase = 'open'

-- name: forget_suspects
-- Drop what was only needed on the way. $1 reconciliation_id
DELETE FROM reconciliation_suspects WHERE reconciliation_id = $1

-- name: forget_seen
-- $1 reconciliation_id
DELETE FROM reconciliation_seen WHERE reconciliation_id = $1

-- name: forget_slices
-- $1 reconciliation_id
DELETE FROM reconciliation_slices WHERE reconciliation_id = $1

-- name: forget_refunds
-- $1 reconciliation_id
DELETE FROM reconciliation_refunds WHERE reconciliation_id = $1
