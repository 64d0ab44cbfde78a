-- What a run waits for after its charging. A follow-up changes only under the fence that its charge was claimed with,
-- so of two who work on one, the earlier is harmless.

-- name: follow_up_candidates
-- Charges of a slice of which something may be waited for and is not yet, with the newest decline, and whether a
-- confirm may still do something (I12). $1 run_id $2 slice_no
SELECT c.*, d.*, confirm_is_undetermined(c.charge_id) AS undetermined
  FROM (SELECT *
          FROM charges
         WHERE run_id = $1 AND slice_no = $2 AND state IN ('declined', 'needs_customer', 'processing')
           AND NOT EXISTS (SELECT FROM follow_ups f
                            WHERE f.charge_id = charges.charge_id AND f.closed_at IS NULL
                           OFFSET 0)) c
  LEFT JOIN LATERAL newest_decline(c.charge_id) d ON true
 ORDER BY c.charge_id

-- name: open_follow_ups
-- Begin to wait, for each charge that still stands as it was when that was decided, with the decision in its journal.
-- Both rows are locked: a planner that was frozen meanwhile must find the run closed, or the charge in another run.
-- Of customers whose PaymentIntents were not handed over by this run before, one event tells.
-- $1 run_id $2 charge_ids $3 confirm versions $4 kinds $5 rules $6 steps $7 since $8 due $9 ends $10 reasons
WITH input AS MATERIALIZED (
    SELECT *
      FROM unnest($2::text[], $3::integer[], $4::text[], $5::text[], $6::integer[], $7::timestamptz[],
                  $8::timestamptz[], $9::timestamptz[], $10::text[])
        AS t (charge_id, confirm_version, kind, rule, step, since, due_at, ends_at, reason)
     LIMIT (SELECT 1000)
),
opened AS (
    INSERT INTO follow_ups (charge_id, run_id, kind, rule, payment_intent, handed_over, step, confirm_version, since,
                            due_at, ends_at, reason, opened_at)
    SELECT c.charge_id, c.run_id, i.kind, i.rule, CASE i.kind WHEN 'customer' THEN c.payment_intent END,
           i.kind = 'customer' AND NOT EXISTS (SELECT FROM follow_ups f
                                                WHERE f.charge_id = c.charge_id AND f.run_id = c.run_id
                                                  AND f.payment_intent = c.payment_intent AND f.handed_over
                                               OFFSET 0),
           i.step, c.confirm_version, i.since, i.due_at, i.ends_at, i.reason, ledger_now()
      FROM input i JOIN charges c USING (charge_id) JOIN billing_runs r ON r.run_id = c.run_id
     WHERE c.run_id = $1
       AND c.state = follow_up_state(i.kind)
       AND c.confirm_version = i.confirm_version
       AND c.payment_intent IS NOT NULL
       AND r.phase IN ('charging', 'settling', 'retrying')
       AND NOT r.canceling
       FOR NO KEY UPDATE OF c
       FOR SHARE OF r
    ON CONFLICT DO NOTHING
    RETURNING *
),
noted AS (
    INSERT INTO decisions (charge_id, at, decision, reason, evidence)
    SELECT charge_id, opened_at,
           CASE kind WHEN 'retry' THEN 'retry_planned' WHEN 'customer' THEN 'waits_for_customer'
                     ELSE 'waits_for_bank' END,
           reason, jsonb_build_object('rule', rule, 'step', step, 'due_at', due_at, 'ends_at', ends_at)
      FROM opened
),
told AS (
    INSERT INTO run_events (run_id, at, action, who, reason, detail)
    SELECT $1, ledger_now(), 'customer_needed', 'rule',
           count(*) || ' customers have to pay by themselves',
           jsonb_build_object('customers', count(*), 'payment_intents', jsonb_agg(payment_intent ORDER BY charge_id))
      FROM opened WHERE handed_over
    HAVING count(*) > 0
)
SELECT charge_id FROM opened

-- name: note_not_retried
-- Why charges are not tried again, once for each decline. $1 charge_ids $2 confirm versions $3 decisions $4 reasons
INSERT INTO decisions (charge_id, at, decision, reason, evidence)
SELECT i.charge_id, ledger_now(), i.decision, i.reason, jsonb_build_object('confirm_version', i.confirm_version)
  FROM unnest($1::text[], $2::integer[], $3::text[], $4::text[]) AS i (charge_id, confirm_version, decision, reason)
 WHERE NOT EXISTS (SELECT FROM decisions d
                    WHERE d.charge_id = i.charge_id AND d.decision = i.decision
                      AND d.evidence ->> 'confirm_version' = i.confirm_version::text
                   OFFSET 0)

-- name: follow_ups_due
-- How much is waited for and how much of it can be looked at now. What is in flight is not: settling comes first.
-- What has moved on is due at once, whatever moved it. Of a held run no retry is, and of one that is being canceled
-- everything. $1 run_id
SELECT count(*) AS open,
       count(*) FILTER (WHERE kind = 'retry') AS retries,
       count(*) FILTER (WHERE kind = 'customer') AS customers,
       count(*) FILTER (WHERE kind = 'debit') AS debits,
       count(*) FILTER (WHERE ready AND due) AS due_now,
       extract(epoch FROM min(due_at) FILTER (WHERE ready) - ledger_now())::double precision AS next_due_seconds,
       extract(epoch FROM min(due_at) FILTER (WHERE ready))::double precision AS next_due_epoch_seconds
  FROM (SELECT f.kind, f.due_at,
               c.state NOT IN ('planned', 'creating', 'prepared', 'confirming', 'canceling')
               AND (f.kind <> 'retry' OR r.hold IS NULL OR moved) AS ready,
               moved OR r.canceling OR f.due_at <= ledger_now() AS due
          FROM follow_ups f
          JOIN billing_runs r USING (run_id)
          JOIN charges c USING (charge_id)
               CROSS JOIN LATERAL (SELECT c.state <> follow_up_state(f.kind)
                                          OR c.confirm_version <> f.confirm_version AS moved) m
         WHERE f.run_id = $1 AND f.closed_at IS NULL) waiting

-- name: claim_follow_ups
-- Take up to $2 follow-ups of a run that can be looked at now, their charges under a new fence, with the newest
-- decline of each. $1 run_id $2 limit
WITH due AS MATERIALIZED (
    SELECT f.follow_up_id, c.charge_id
      FROM follow_ups f
      JOIN billing_runs r USING (run_id)
      JOIN charges c USING (charge_id)
           CROSS JOIN LATERAL (SELECT c.state <> follow_up_state(f.kind)
                                      OR c.confirm_version <> f.confirm_version AS moved) m
     WHERE f.run_id = $1 AND f.closed_at IS NULL
       AND c.state NOT IN ('planned', 'creating', 'prepared', 'confirming', 'canceling')
       AND (f.kind <> 'retry' OR r.hold IS NULL OR moved)
       AND (moved OR r.canceling OR f.due_at <= ledger_now())
     ORDER BY f.due_at, f.follow_up_id
     LIMIT $2
       FOR UPDATE OF c SKIP LOCKED
),
token AS MATERIALIZED (SELECT nextval('fences') AS fence FROM (SELECT count(*) FROM due) AS locked),
claimed AS (
    UPDATE charges c
       SET fence = token.fence
      FROM token, due
     WHERE c.charge_id = due.charge_id
    RETURNING c.*, due.follow_up_id
)
SELECT c.*, f.kind, f.step, f.confirm_version AS booked_version, f.since, f.due_at AS follow_up_due_at, f.ends_at,
       d.*, confirm_is_undetermined(c.charge_id) AS undetermined, confirmed_with(c.charge_id), ledger_now() AS now
  FROM claimed c
  JOIN follow_ups f USING (follow_up_id)
  LEFT JOIN LATERAL newest_decline(c.charge_id) d ON true
 ORDER BY f.due_at, f.follow_up_id

-- name: read_followed
-- One follow-up with its charge as it is now. $1 follow_up_id
SELECT c.*, f.follow_up_id, f.kind, f.step, f.confirm_version AS booked_version, f.since,
       f.due_at AS follow_up_due_at, f.ends_at, d.*, confirm_is_undetermined(c.charge_id) AS undetermined,
       confirmed_with(c.charge_id), ledger_now() AS now
  FROM follow_ups f
  JOIN charges c USING (charge_id)
  LEFT JOIN LATERAL newest_decline(c.charge_id) d ON true
 WHERE f.follow_up_id = $1

-- name: advance_follow_up
-- Wait for the next time, with the decision in the charge's journal. $1 follow_up_id $2 fence $3 rule $4 step $5 since
-- $6 due $7 ends $8 reason
WITH advanced AS (
    UPDATE follow_ups f
       SET rule = $3, step = $4, confirm_version = c.confirm_version, since = $5, due_at = $6, ends_at = $7, reason = $8
      FROM charges c
     WHERE f.follow_up_id = $1 AND f.closed_at IS NULL
       AND c.charge_id = f.charge_id AND c.fence = $2 AND c.state = follow_up_state(f.kind)
    RETURNING f.*, old.step AS step_before
),
noted AS (
    INSERT INTO decisions (charge_id, at, decision, reason, evidence)
    SELECT charge_id, ledger_now(), 'retry_planned', reason,
           jsonb_build_object('rule', rule, 'step', step, 'due_at', due_at, 'ends_at', ends_at)
      FROM advanced WHERE step <> step_before
)
SELECT follow_up_id FROM advanced

-- name: postpone_follow_up
-- Look again later: what was to be done could not be. Why is noted once, and not with each time that it is so.
-- $1 follow_up_id $2 fence $3 seconds $4 reason
WITH postponed AS (
    UPDATE follow_ups f
       SET due_at = ledger_now() + $3 * interval '1 second',
           ends_at = greatest(f.ends_at, ledger_now() + $3 * interval '1 second'), reason = $4
      FROM charges c
     WHERE f.follow_up_id = $1 AND f.closed_at IS NULL AND c.charge_id = f.charge_id AND c.fence = $2
    RETURNING f.*, old.reason AS reason_before
),
noted AS (
    INSERT INTO decisions (charge_id, at, decision, reason, evidence)
    SELECT charge_id, ledger_now(), 'put_off', reason, jsonb_build_object('kind', kind, 'due_at', due_at)
      FROM postponed WHERE reason <> reason_before
)
SELECT follow_up_id FROM postponed

-- name: end_follow_up
-- Wait no longer, with the decision in the charge's journal. $1 follow_up_id $2 fence $3 outcome $4 reason $5 alarm
WITH ended AS (
    UPDATE follow_ups f
       SET closed_at = ledger_now(), outcome = $3, reason = $4
      FROM charges c
     WHERE f.follow_up_id = $1 AND f.closed_at IS NULL AND c.charge_id = f.charge_id AND c.fence = $2
    RETURNING f.*
)
INSERT INTO decisions (charge_id, at, decision, reason, alarm, evidence)
SELECT charge_id, closed_at, 'waits_no_longer', reason, $5, jsonb_build_object('kind', kind, 'outcome', outcome)
  FROM ended
RETURNING charge_id

-- name: follow_up_summary
-- What a run waits for, by kind, and what came of what it has waited for. $1 run_id
SELECT kind, outcome, count(*) AS lines, min(due_at) AS due_at, max(ends_at) AS ends_at
  FROM follow_ups WHERE run_id = $1 GROUP BY kind, outcome ORDER BY kind, outcome NULLS FIRST

-- name: follow_ups_of_charge
-- What was waited for with one charge, oldest first. $1 charge_id
SELECT run_id, kind, rule, payment_intent, handed_over, step, since, due_at, ends_at, reason, opened_at, closed_at,
       outcome
  FROM follow_ups WHERE charge_id = $1 ORDER BY follow_up_id
