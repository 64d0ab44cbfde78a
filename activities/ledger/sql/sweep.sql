-- name: lock_swept_charge
-- The charge of a PaymentIntent that may be swept, its row locked until the transaction ends: what adopts a
-- PaymentIntent writes this row, so it comes either before or after, and each sees the other. $1 charge_id
SELECT c.*, ledger_now() AS now FROM charges c WHERE charge_id = $1 FOR UPDATE

-- name: newest_cancel
-- The newest cancel key of a PaymentIntent. $1 charge_id $2 PaymentIntent
SELECT * FROM keys
 WHERE charge_id = $1 AND operation = 'cancel' AND payment_intent = $2
 ORDER BY version DESC
 LIMIT 1

-- name: freeze_sweep
-- Freeze a cancel of a PaymentIntent that is not the charge's own, and journal its first send. Cancels of a charge
-- are counted by one number, whichever PaymentIntent they are of (T12). The row stays as it is otherwise.
-- $1 charge_id $2 PaymentIntent $3 states in which nothing is swept $4 version $5 key $6 path $7 parameters
-- $8 fingerprint $9 reason
WITH guarded AS (
    UPDATE charges c
       SET cancel_version = $4
     WHERE c.charge_id = $1
       AND c.payment_intent IS DISTINCT FROM $2
       AND c.state <> ALL ($3::text[])
       AND c.cancel_version = $4 - 1
    RETURNING c.charge_id, c.fence
),
moment AS MATERIALIZED (SELECT ledger_now() AS at),
frozen AS (
    INSERT INTO keys (key, charge_id, operation, version, payment_intent, path, parameters, fingerprint,
                      first_intended_at, reason)
    SELECT $5, g.charge_id, 'cancel', $4, $2, $6, $7, $8, moment.at, $9 FROM guarded g, moment
    RETURNING *
),
sent AS (
    INSERT INTO attempts (key, send_no, fence, reason, intended_at)
    SELECT f.key, 1, g.fence, $9, moment.at FROM frozen f, guarded g, moment
    RETURNING send_no, intended_at
)
SELECT f.*, s.send_no, s.intended_at FROM frozen f, sent s

-- name: send_sweep_again
-- Journal one more send of a sweep's key, while it is younger than window minus margin (I5).
-- $1 charge_id $2 PaymentIntent $3 states in which nothing is swept $4 key $5 reason $6 window minus margin in seconds
WITH moment AS MATERIALIZED (SELECT ledger_now() AS at),
sent AS (
    INSERT INTO attempts (key, send_no, fence, reason, intended_at)
    SELECT k.key, 1 + (SELECT max(a.send_no) FROM attempts a WHERE a.key = k.key), c.fence, $5, moment.at
      FROM moment, charges c JOIN keys k ON k.charge_id = c.charge_id AND k.key = $4
     WHERE c.charge_id = $1
       AND c.payment_intent IS DISTINCT FROM $2
       AND c.state <> ALL ($3::text[])
       AND k.first_intended_at > moment.at - $6 * interval '1 second'
    RETURNING key, send_no, intended_at
)
SELECT k.*, s.send_no, s.intended_at FROM sent s JOIN keys k USING (key)

-- name: note_swept
-- Record once that Stripe shows a PaymentIntent canceled whose sweep got no answer that says so: who creates another
-- one asks the journal for that (I11). $1 charge_id $2 PaymentIntent $3 reason $4 evidence
INSERT INTO decisions (charge_id, at, decision, reason, evidence)
SELECT $1, ledger_now(), 'swept', $3, $4
 WHERE EXISTS (SELECT FROM keys k WHERE k.charge_id = $1 AND k.operation = 'cancel' AND k.payment_intent = $2)
   AND NOT is_shown_canceled($1, $2)
