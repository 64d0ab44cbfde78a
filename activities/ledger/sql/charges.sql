-- Plans of these statements are made once, often while the tables are empty, and are kept until the next ANALYZE.
-- What is best for an empty table, a scan, would then be done to a million rows for each batch. So
-- * batches begin with a limit that none reaches: behind it the planner expects one row, and looks it up;
-- * run_id is compared in a way that no index serves: a whole run is behind one of its values;
-- * OFFSET 0 keeps an EXISTS from being answered by a hash over its whole table.
-- The pool switches scans off as well (database.py), and a test looks at the plans.

-- name: claim_slice
-- Take the charges of a slice that are not settled and due: a new fence makes every earlier sender of them
-- harmless. The fence is drawn once the rows are locked, or a claim that waited for them would come with an
-- older one than they have by then. $1 run_id $2 slice_no $3 states $4 states that are taken before they are due
WITH due AS MATERIALIZED (
    SELECT charge_id
      FROM charges
     WHERE run_id = $1
       AND slice_no = $2
       AND state = ANY ($3::text[])
       AND (due_at IS NULL OR due_at <= ledger_now() OR state = ANY ($4::text[]))
     ORDER BY charge_id
       FOR UPDATE
),
token AS MATERIALIZED (SELECT nextval('fences') AS fence FROM (SELECT count(*) FROM due) AS locked)
UPDATE charges c
   SET fence = token.fence, due_at = NULL
  FROM token, due
 WHERE c.charge_id = due.charge_id
RETURNING c.*

-- name: claim_due
-- Take up to $2 charges of run $1 that are not settled and due, whatever their slice. $3 states $4 states that
-- are taken before they are due
WITH due AS MATERIALIZED (
    SELECT charge_id
      FROM charges
     WHERE run_id = $1
       AND state = ANY ($3::text[])
       AND (due_at IS NULL OR due_at <= ledger_now() OR state = ANY ($4::text[]))
     ORDER BY due_at NULLS FIRST, charge_id
     LIMIT $2
       FOR UPDATE SKIP LOCKED
),
token AS MATERIALIZED (SELECT nextval('fences') AS fence FROM (SELECT count(*) FROM due) AS locked)
UPDATE charges c
   SET fence = token.fence, due_at = NULL
  FROM token, due
 WHERE c.charge_id = due.charge_id
RETURNING c.*

-- name: count_not_started
-- How many charges of a slice wait for their next first send. $1 run_id $2 slice_no
SELECT count(*) FROM charges WHERE run_id = $1 AND slice_no = $2 AND state IN ('planned', 'prepared')

-- name: has_open
-- Whether a charge of the run is not settled yet. $1 run_id
SELECT EXISTS (SELECT FROM charges
                WHERE run_id = $1
                  AND state IN ('planned', 'creating', 'prepared', 'confirming', 'canceling'))

-- name: cancel_planned
-- Of a run that is being canceled, end up to $4 charges that nothing was sent for, under a new fence each. One that
-- an earlier run had sent goes through Stripe, unless its PaymentIntent is canceled already (I12). In a run that
-- nobody approved it does not: it is as the earlier run left it, and that a plan was given up changes nothing there.
-- What somebody else works with at this moment is left to the next call. $1 run_id $2 slice_no, NULL for all
-- $3 reason $4 limit $5 reason of what is given back
WITH unsent AS MATERIALIZED (
    SELECT c.charge_id,
           CASE WHEN c.payment_intent IS NULL OR is_shown_canceled(c.charge_id, c.payment_intent) THEN 'canceled'
                ELSE (SELECT t.from_state FROM takeovers t
                       WHERE t.charge_id = c.charge_id AND t.to_run = $1 AND r.approved_hash IS NULL)
                END AS ends_as
      FROM charges c
      JOIN billing_runs r ON r.run_id = c.run_id AND r.canceling
     WHERE c.run_id = $1
       AND c.slice_no = coalesce($2::integer, c.slice_no)
       AND c.state = 'planned'
       AND (c.payment_intent IS NULL OR r.approved_hash IS NULL
            OR is_shown_canceled(c.charge_id, c.payment_intent))
     LIMIT $4
       FOR UPDATE OF c SKIP LOCKED
),
ended AS (
    UPDATE charges c
       SET state = unsent.ends_as, fence = nextval('fences'), due_at = NULL, changed_at = ledger_now(),
           reason = CASE unsent.ends_as WHEN 'canceled' THEN $3 ELSE $5 END
      FROM unsent
     WHERE c.charge_id = unsent.charge_id AND c.state = 'planned'
    RETURNING c.charge_id
)
SELECT count(*) FROM ended

-- name: cancel_unsent
-- Cancel a charge of a run that is being canceled, where nothing of it can be open at Stripe: planned, without a
-- PaymentIntent or with one that is canceled, or its creates were not executed, each by its own answer (I12). Its
-- fence keeps out whoever could send meanwhile. $1 charge_id $2 fence $3 reason
UPDATE charges c
   SET state = 'canceled', reason = $3, due_at = NULL, changed_at = ledger_now()
 WHERE c.charge_id = $1
   AND c.fence = $2
   AND EXISTS (SELECT FROM billing_runs r WHERE r.run_id = c.run_id AND r.canceling)
   AND ((c.state = 'planned'
         AND (c.payment_intent IS NULL OR is_shown_canceled(c.charge_id, c.payment_intent)))
        OR (c.state = 'creating'
            AND c.payment_intent IS NULL
            AND NOT EXISTS (SELECT FROM keys k JOIN attempts a USING (key)
                             WHERE k.charge_id = c.charge_id AND a.proof IS DISTINCT FROM 'not_executed'
                            OFFSET 0)))
RETURNING *

-- name: read_charges
-- The rows as they are now. $1 charge_ids
SELECT * FROM charges WHERE charge_id = ANY ($1::text[])

-- name: intend_first
-- Commit the first send of each new key: the charge moves under all its guards (I13), the key freezes path and
-- parameters (I3), the attempt is journaled (I7). A version above 1 needs a predecessor that is older than the
-- window (I4). Only a cancel may begin in a run that is held, being canceled or not charging; after the commit of
-- such a decision nothing else does (run_may_begin, 0007). Where the charge has a PaymentIntent, a new create
-- needs an answer or a lookup that showed that very one canceled (I11). Rows that fail a guard are missing from
-- the result.
-- $1 charge_ids $2 run_ids $3 fences $4 states before $5 states after $6 operations $7 versions
-- $8 PaymentIntents before $9 keys $10 previous keys $11 paths $12 parameters $13 fingerprints $14 reasons
-- $15 window in seconds
WITH input AS MATERIALIZED (
    SELECT *
      FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::integer[],
                  $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[])
        AS t (charge_id, run_id, fence, before, after, operation, version,
              payment_intent, key, previous_key, path, parameters, fingerprint, reason)
     LIMIT (SELECT 1000)
),
moment AS MATERIALIZED (SELECT ledger_now() AS at),
-- in one order, so that two batches never wait for each other's runs
beginning AS MATERIALIZED (
    SELECT r.run_id
      FROM (SELECT DISTINCT run_id FROM input WHERE operation <> 'cancel' ORDER BY run_id OFFSET 0) AS r
     WHERE run_may_begin(r.run_id)
),
guarded AS (
    UPDATE charges c
       SET state = i.after,
           create_version = CASE i.operation WHEN 'create' THEN i.version ELSE c.create_version END,
           confirm_version = CASE i.operation WHEN 'confirm' THEN i.version ELSE c.confirm_version END,
           cancel_version = CASE i.operation WHEN 'cancel' THEN i.version ELSE c.cancel_version END,
           payment_intent = CASE i.operation WHEN 'create' THEN NULL ELSE c.payment_intent END,
           reason = NULL,
           due_at = NULL,
           changed_at = moment.at
      FROM input i, moment
     WHERE c.charge_id = i.charge_id
       AND c.run_id IS NOT DISTINCT FROM i.run_id
       AND c.fence = i.fence
       AND c.state = i.before
       AND c.payment_intent IS NOT DISTINCT FROM i.payment_intent
       AND i.version = 1 + CASE i.operation WHEN 'create' THEN c.create_version
                                            WHEN 'confirm' THEN c.confirm_version
                                            ELSE c.cancel_version END
       AND (i.previous_key IS NULL
            OR EXISTS (SELECT FROM keys p
                        WHERE p.key = i.previous_key
                          AND p.first_intended_at <= moment.at - $15 * interval '1 second')
            -- a cancel's versions go on across PaymentIntents (T12): the version before may be another one's
            OR (i.operation = 'cancel'
                AND NOT EXISTS (SELECT FROM keys p
                                 WHERE p.charge_id = i.charge_id AND p.operation = 'cancel'
                                   AND p.payment_intent = i.payment_intent
                                   AND p.first_intended_at > moment.at - $15 * interval '1 second'
                                OFFSET 0)))
       AND (i.operation = 'cancel'
            OR EXISTS (SELECT FROM beginning b WHERE b.run_id = i.run_id OFFSET 0))
       AND (i.operation <> 'create'
            OR i.payment_intent IS NULL
            OR EXISTS (SELECT FROM keys k JOIN attempts a USING (key)
                        WHERE k.charge_id = i.charge_id
                          AND a.payment_intent = i.payment_intent
                          AND a.payment_intent_status = 'canceled'
                       OFFSET 0)
            OR EXISTS (SELECT FROM decisions d
                        WHERE d.charge_id = i.charge_id
                          AND d.evidence ->> 'payment_intent' = i.payment_intent
                          AND d.evidence ->> 'state' = 'canceled'
                       OFFSET 0))
    RETURNING c.charge_id, c.latest_charge
),
frozen AS (
    INSERT INTO keys (key, charge_id, operation, version, payment_intent, path, parameters, fingerprint,
                      first_intended_at, latest_charge_before, reason)
    SELECT i.key, i.charge_id, i.operation, i.version, i.payment_intent, i.path, i.parameters, i.fingerprint,
           moment.at, g.latest_charge, i.reason
      FROM input i JOIN guarded g USING (charge_id), moment
    RETURNING key
)
INSERT INTO attempts (key, send_no, fence, reason, intended_at)
SELECT i.key, 1, i.fence, i.reason, moment.at
  FROM input i JOIN frozen USING (key), moment
RETURNING key, send_no, intended_at

-- name: intend_again
-- Commit one more send of a key that is frozen already, under the same guards, and only while the key is
-- younger than window minus margin (I5). Rows that fail a guard are missing from the result.
-- $1 charge_ids $2 run_ids $3 fences $4 states $5 create versions $6 confirm versions $7 PaymentIntents
-- $8 keys $9 reasons $10 window minus margin in seconds
WITH input AS MATERIALIZED (
    SELECT *
      FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::integer[], $6::integer[], $7::text[],
                  $8::text[], $9::text[])
        AS t (charge_id, run_id, fence, state, create_version, confirm_version, payment_intent, key, reason)
     LIMIT (SELECT 1000)
),
moment AS MATERIALIZED (SELECT ledger_now() AS at),
guarded AS (
    UPDATE charges c
       SET due_at = NULL, changed_at = moment.at
      FROM input i, moment
     WHERE c.charge_id = i.charge_id
       AND NOT is_restored()
       AND c.run_id IS NOT DISTINCT FROM i.run_id
       AND c.fence = i.fence
       AND c.state = i.state
       AND c.create_version = i.create_version
       AND c.confirm_version = i.confirm_version
       AND c.payment_intent IS NOT DISTINCT FROM i.payment_intent
       AND EXISTS (SELECT FROM keys k
                    WHERE k.key = i.key
                      AND k.first_intended_at > moment.at - $10 * interval '1 second')
    RETURNING c.charge_id
)
INSERT INTO attempts (key, send_no, fence, reason, intended_at)
SELECT i.key, 1 + (SELECT max(a.send_no) FROM attempts a WHERE a.key = i.key), i.fence, i.reason, moment.at
  FROM input i JOIN guarded USING (charge_id), moment
RETURNING key, send_no, intended_at

-- name: record_answers
-- Complete the journal, always; then move the charge, but only if state, versions and PaymentIntent are still
-- those of the intent, or the answer is a final word about the row's own PaymentIntent (I11, I14). One that was
-- canceled to make way for another is planned again. What people must look at raises an alarm in the same
-- transaction: a review, or money on what had been given up.
-- $1 keys $2 send_nos $3 charge_ids $4 states before $5 create versions $6 confirm versions
-- $7 PaymentIntents before $8 states after (NULL: none proved) $9 PaymentIntents answered $10 latest charges
-- $11 reasons $12 transports $13 http statuses $14 error types $15 codes $16 decline codes $17 advice codes
-- $18 network decline codes $19 network advice codes $20 messages $21 replayed $22 request ids $23 Stripe dates
-- $24 PaymentIntent statuses $25 proofs $26 causes
WITH input AS MATERIALIZED (
    SELECT *
      FROM unnest($1::text[], $2::integer[], $3::text[], $4::text[], $5::integer[], $6::integer[], $7::text[],
                  $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::integer[], $14::text[],
                  $15::text[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[],
                  $21::boolean[], $22::text[], $23::timestamptz[], $24::text[], $25::text[], $26::text[])
        AS t (key, send_no, charge_id, before, create_version, confirm_version, payment_intent,
              after, answered_intent, latest_charge, reason, transport, http_status, error_type,
              code, decline_code, advice_code, network_decline_code, network_advice_code, message, replayed, request_id,
              stripe_date, payment_intent_status, proof, cause)
     LIMIT (SELECT 1000)
),
moment AS MATERIALIZED (SELECT ledger_now() AS at),
journaled AS (
    UPDATE attempts a
       SET answered_at = moment.at, transport = i.transport, http_status = i.http_status,
           error_type = i.error_type, code = i.code, decline_code = i.decline_code,
           advice_code = i.advice_code, network_decline_code = i.network_decline_code,
           network_advice_code = i.network_advice_code, message = i.message, replayed = i.replayed,
           request_id = i.request_id, stripe_date = i.stripe_date, payment_intent = i.answered_intent,
           payment_intent_status = i.payment_intent_status, proof = i.proof, cause = i.cause,
           proved_state = i.after, verdict = i.reason
      FROM input i, moment
     WHERE a.key = i.key AND a.send_no = i.send_no AND a.answered_at IS NULL
    RETURNING a.key
),
flagged AS (
    UPDATE keys k SET stored_failure = true
      FROM input i
     WHERE k.key = i.key AND i.cause = 'stored_failure' AND NOT k.stored_failure
    RETURNING k.key
),
moved AS (
    UPDATE charges c
       SET state = CASE WHEN i.after = 'canceled' AND c.state IN ('planned', 'canceling')
                             AND goes_on_after_cancel(c.charge_id, c.run_id)
                        THEN 'planned' ELSE i.after END,
           payment_intent = coalesce(c.payment_intent, i.answered_intent),
           latest_charge = coalesce(i.latest_charge, c.latest_charge),
           reason = i.reason,
           due_at = NULL,
           changed_at = moment.at
      FROM input i, moment
     WHERE c.charge_id = i.charge_id
       AND i.after IS NOT NULL
       -- refused needs that no other attempt of the operation can have done anything, or that it is known what
       -- (I12, trace T6); one that commits while this statement waits for the row shows in the row alone, as a
       -- later change
       AND (i.after <> 'refused'
            OR EXISTS (SELECT FROM attempts a
                        WHERE a.key = i.key AND a.send_no = i.send_no AND a.intended_at = c.changed_at
                       OFFSET 0)
           AND NOT EXISTS (SELECT FROM keys k JOIN keys mine ON mine.key = i.key JOIN attempts a ON a.key = k.key
                            WHERE k.charge_id = i.charge_id AND k.operation = mine.operation
                              AND (a.key, a.send_no) IS DISTINCT FROM (i.key, i.send_no)
                              AND a.proof IS DISTINCT FROM 'not_executed'
                              AND a.proved_state IS DISTINCT FROM 'refused'
                              AND (k.version >= mine.version OR coalesce(a.proof, 'unknown') = 'unknown')))
       AND ((c.state = i.before
             AND c.create_version = i.create_version
             AND c.confirm_version = i.confirm_version
             AND c.payment_intent IS NOT DISTINCT FROM i.payment_intent)
            OR (i.after IN ('succeeded', 'canceled')
                AND c.payment_intent = i.answered_intent
                AND c.state NOT IN (i.after, 'succeeded')))
    RETURNING c.*, old.state AS state_before
),
alarmed AS (
    INSERT INTO decisions (charge_id, at, decision, reason, alarm)
    SELECT m.charge_id, moment.at, CASE m.state WHEN 'review' THEN 'review' ELSE 'overturned' END,
           m.state_before || ' -> ' || m.state || ': ' || coalesce(m.reason, ''), true
      FROM moved m, moment
     WHERE m.state = 'review'
        OR (m.state_before IN ('refused', 'canceled', 'review') AND m.state IN ('succeeded', 'processing'))
)
SELECT * FROM moved

-- name: settle_charge
-- Apply what a lookup found, under I14, and record the decision with it: who dies in between must not take an
-- alarm along. What was canceled to make way for another PaymentIntent is planned again. $1 charge_id
-- $2 state before $3 create version $4 confirm version $5 PaymentIntent before
-- $6 state after $7 PaymentIntent found, NULL for none $8 latest charge $9 reason $10 decision $11 alarm $12 evidence
WITH moved AS (
    UPDATE charges c
       SET state = CASE WHEN $6 = 'canceled' AND c.state IN ('planned', 'canceling')
                             AND goes_on_after_cancel(c.charge_id, c.run_id)
                        THEN 'planned' ELSE $6 END,
           payment_intent = coalesce(c.payment_intent, $7),
           latest_charge = coalesce($8, c.latest_charge),
           reason = $9,
           due_at = NULL,
           changed_at = ledger_now()
     WHERE c.charge_id = $1
       AND ((c.state = $2
             AND c.create_version = $3
             AND c.confirm_version = $4
             AND c.payment_intent IS NOT DISTINCT FROM $5::text)
            OR ($6 IN ('succeeded', 'canceled') AND c.payment_intent = $7 AND c.state NOT IN ($6, 'succeeded')))
    RETURNING c.*
),
noted AS (
    INSERT INTO decisions (charge_id, at, decision, reason, alarm, evidence)
    SELECT charge_id, changed_at, $10, $9, $11, $12 FROM moved
)
SELECT * FROM moved

-- name: defer_charge
-- Say when the charge is looked at next, and why, without touching its state. $1 charge_id $2 fence
-- $3 seconds from now $4 reason
UPDATE charges
   SET due_at = ledger_now() + $3 * interval '1 second', reason = $4
 WHERE charge_id = $1 AND fence = $2
   AND state IN ('planned', 'creating', 'prepared', 'confirming', 'canceling')
RETURNING *

-- name: read_key
-- A frozen key, its age, and how many of its sends, and of the sends of earlier versions, have no determined
-- answer. $1 key
SELECT k.*, ledger_now() AS now, count(a.send_no) AS sends,
       coalesce(bool_or(a.proof = 'outdated'), false) AS answered,
       (SELECT min(f.first_intended_at) FROM keys f
         WHERE f.charge_id = k.charge_id AND f.operation = k.operation) AS charge_first_intended_at,
       count(a.send_no) FILTER (WHERE a.proof IS NULL OR a.proof IN ('unknown', 'outdated')) AS open_sends,
       (SELECT count(*) FROM keys e JOIN attempts b USING (key)
         WHERE e.charge_id = k.charge_id AND e.operation = k.operation AND e.version < k.version
           AND (b.proof IS NULL OR b.proof = 'unknown')) AS earlier_open_sends
  FROM keys k LEFT JOIN attempts a USING (key)
 WHERE k.key = $1
 GROUP BY k.key

-- name: cancel_intended
-- The PaymentIntents of a charge that a cancel was ever intended for. $1 charge_id
SELECT payment_intent FROM keys WHERE charge_id = $1 AND operation = 'cancel'

-- name: note_decision
-- Record why something happened to a charge. $1 charge_id $2 decision $3 reason $4 alarm $5 evidence
INSERT INTO decisions (charge_id, at, decision, reason, alarm, evidence)
VALUES ($1, ledger_now(), $2, $3, $4, $5)

-- name: ledger_now
-- The ledger's clock.
SELECT ledger_now()
