-- name: lock_refunded_charge
-- Let requests for one charge come one after another. A statement of its own: whoever waited for the lock in
-- `request_refund` itself would sum over the requests as they were before it waited. $1 charge_id
SELECT FROM charges WHERE charge_id = $1 FOR UPDATE

-- name: request_refund
-- Keep a request, under the charge's lock that this transaction has: what is asked for, with every other open request and all that went back
-- already, is never more than was paid. No row back: it would be. $1 request_id $2 charge_id $3 PaymentIntent
-- $4 amount $5 currency $6 kind $7 who $8 reason $9 paid $10 went back at Stripe, requests that were made included
WITH charge AS MATERIALIZED (
    SELECT charge_id, account, run_id FROM charges WHERE charge_id = $2
),
open AS (
    SELECT coalesce(sum(q.amount_minor), 0) AS amount_minor
      FROM refund_requests q JOIN charge USING (charge_id)
     WHERE q.payment_intent = $3 AND q.state IN ('requested', 'sending', 'review')
),
kept AS (
    INSERT INTO refund_requests (request_id, charge_id, account, run_id, payment_intent, amount_minor, currency,
                                 kind, who, reason, state, requested_at, changed_at)
    SELECT $1, c.charge_id, c.account, c.run_id, $3, $4, $5, $6, $7, $8, 'requested', ledger_now(), ledger_now()
      FROM charge c, open
     WHERE open.amount_minor + $4::bigint + $10::bigint <= $9::bigint
    RETURNING *
),
told AS (
    INSERT INTO decisions (charge_id, at, decision, reason, evidence)
    SELECT charge_id, requested_at, 'refund_requested',
           amount_minor || ' ' || currency || ' (minor units) of ' || payment_intent || ' by ' || who || ': ' || reason,
           jsonb_build_object('request', request_id, 'refunded_intent', payment_intent, 'amount_minor', amount_minor,
                              'currency', currency, 'who', who)
      FROM kept
)
SELECT * FROM kept

-- name: read_refund_request
-- One request. $1 request_id
SELECT * FROM refund_requests WHERE request_id = $1

-- name: may_have_been_forgotten
-- Whether the ledger was restored after a request was made: its send may be what was forgotten. $1 request_id
SELECT EXISTS (SELECT FROM ledger_restores r JOIN refund_requests q ON r.found_at >= q.requested_at
                WHERE q.request_id = $1)

-- name: intend_refund
-- Freeze the key of a request and commit its first send (I1, I3, I7). No row back: somebody has begun. $1 request_id
-- $2 key $3 path $4 parameters $5 fingerprint
WITH moment AS MATERIALIZED (SELECT ledger_now() AS at),
begun AS (
    UPDATE refund_requests SET state = 'sending', changed_at = moment.at
      FROM moment
     WHERE request_id = $1 AND state = 'requested' AND NOT is_restored()
    RETURNING charge_id, payment_intent
),
frozen AS (
    INSERT INTO keys (key, charge_id, operation, version, payment_intent, path, parameters, fingerprint,
                      first_intended_at, reason)
    SELECT $2, charge_id, 'refund', 1, payment_intent, $3, $4, $5, moment.at, 'refund request ' || $1
      FROM begun, moment
    RETURNING key
)
INSERT INTO attempts (key, send_no, fence, reason, intended_at)
SELECT key, 1, nextval('fences'), 'requested', moment.at FROM frozen, moment
RETURNING key, send_no

-- name: intend_refund_again
-- Commit one more send of a request's key, while the key is younger than window minus margin (I5). $1 request_id $2 key
-- $3 reason $4 window minus margin in seconds
WITH moment AS MATERIALIZED (SELECT ledger_now() AS at),
guarded AS (
    UPDATE refund_requests q SET changed_at = moment.at
      FROM moment
     WHERE q.request_id = $1 AND q.state = 'sending' AND NOT is_restored()
       AND EXISTS (SELECT FROM keys k
                    WHERE k.key = $2 AND k.first_intended_at > moment.at - $4 * interval '1 second')
    RETURNING q.request_id
)
INSERT INTO attempts (key, send_no, fence, reason, intended_at)
SELECT $2, 1 + (SELECT max(a.send_no) FROM attempts a WHERE a.key = $2), nextval('fences'), $3, moment.at
  FROM guarded, moment
RETURNING key, send_no

-- name: record_refund_answer
-- Complete the journal, always; then end the request, if the answer ends it and nobody has. $1 key $2 send_no
-- $3 request_id $4 state or NULL $5 refund_id $6 reason $7 transport $8 http status $9 error type $10 code
-- $11 message $12 replayed $13 request id of Stripe's $14 Stripe's date $15 proof $16 cause $17 PaymentIntent
WITH moment AS MATERIALIZED (SELECT ledger_now() AS at),
journaled AS (
    UPDATE attempts a
       SET answered_at = moment.at, transport = $7, http_status = $8, error_type = $9, code = $10, message = $11,
           replayed = $12, request_id = $13, stripe_date = $14, proof = $15, cause = $16, verdict = $6,
           payment_intent = $17
      FROM moment
     WHERE a.key = $1 AND a.send_no = $2 AND a.answered_at IS NULL
),
flagged AS (
    UPDATE keys SET stored_failure = true WHERE key = $1 AND $16::text = 'stored_failure' AND NOT stored_failure
),
ended AS (
    UPDATE refund_requests q SET state = $4, refund_id = $5, detail = $6, changed_at = moment.at
      FROM moment
     WHERE q.request_id = $3 AND $4::text IS NOT NULL AND q.state IN ('sending', 'review') AND q.state <> $4
    RETURNING q.*
)
INSERT INTO decisions (charge_id, at, decision, reason, alarm, evidence)
SELECT charge_id, changed_at, 'refund_' || state, 'refund request ' || request_id || ': ' || detail,
       state IN ('refused', 'review'),
       jsonb_build_object('request', request_id, 'refund', refund_id, 'refunded_intent', payment_intent)
  FROM ended

-- name: end_refund_request
-- End a request by what a lookup showed, or before it was ever sent, since it can't be. $1 request_id $2 state $3 refund_id $4 reason
WITH ended AS (
    UPDATE refund_requests SET state = $2, refund_id = $3, detail = $4, changed_at = ledger_now()
     WHERE request_id = $1 AND state <> $2
       AND (state IN ('sending', 'review') OR (state = 'requested' AND $2 = 'refused'))
    RETURNING *
)
INSERT INTO decisions (charge_id, at, decision, reason, alarm, evidence)
SELECT charge_id, changed_at, 'refund_' || state, 'refund request ' || request_id || ': ' || detail,
       state = 'review',
       jsonb_build_object('request', request_id, 'refund', refund_id, 'refunded_intent', payment_intent)
  FROM ended

-- name: list_refund_requests
-- Requests, the newest first, with what became of them at Stripe. $1 charge_id or NULL $2 run_id or NULL $3 limit
SELECT q.*, f.status, f.failure_reason
  FROM refund_requests q LEFT JOIN refunds f ON f.refund_id = q.refund_id
 WHERE ($1::text IS NULL OR q.charge_id = $1) AND ($2::text IS NULL OR q.run_id = $2)
 ORDER BY q.requested_at DESC, q.request_id
 LIMIT $3
