-- name: charges_in_review
-- Charges in review with the newest alarm about each, longest there first. $1 account or NULL $2 run or NULL $3 limit
SELECT c.charge_id, c.run_id, c.account, c.customer, c.period, c.line, c.currency, c.amount_minor, c.payment_intent,
       c.reason, c.changed_at AS since, d.decision AS alarm, d.reason AS alarm_reason,
       (SELECT count(*) FROM keys k JOIN attempts a USING (key) WHERE k.charge_id = c.charge_id) AS attempts,
       (SELECT count(*) FROM decisions x WHERE x.charge_id = c.charge_id) AS decisions,
       (SELECT count(*) FROM inbox_events e WHERE e.charge_id = c.charge_id) AS events
  FROM charges c
  LEFT JOIN LATERAL (SELECT decision, reason FROM decisions d
                      WHERE d.charge_id = c.charge_id AND d.alarm
                      ORDER BY decision_id DESC LIMIT 1) d ON true
 WHERE c.state = 'review'
   AND ($1::text IS NULL OR c.account = $1)
   AND ($2::text IS NULL OR c.run_id = $2)
 ORDER BY c.changed_at, c.charge_id
 LIMIT $3

-- name: review_history
-- What decides whether anything of a charge may still run. $1 charge_id $2 window in seconds
SELECT may_still_run($1, $2) AS may_still_run,
       (SELECT min(first_intended_at) FROM keys WHERE charge_id = $1) AS first_intended_at,
       ledger_now() AS now

-- name: claim_in_review
-- Take a charge in review under a new fence (I13), as it still stands. $1 charge_id $2 create version
-- $3 confirm version $4 PaymentIntent
UPDATE charges SET fence = nextval('fences')
 WHERE charge_id = $1 AND state = 'review' AND create_version = $2 AND confirm_version = $3
   AND payment_intent IS NOT DISTINCT FROM $4::text
RETURNING *

-- name: take_paid_intent
-- Let the PaymentIntent that was paid be the charge's own, in place of one that is shown canceled (the trigger sees to
-- that). $1 charge_id $2 fence $3 PaymentIntent before $4 PaymentIntent that was paid
UPDATE charges SET payment_intent = $4
 WHERE charge_id = $1 AND fence = $2 AND state = 'review' AND payment_intent IS NOT DISTINCT FROM $3::text
RETURNING *

-- name: intents_named_for
-- PaymentIntents that an event, a difference or a decision names for a charge: another customer's list would not
-- show them. $1 charge_id
SELECT e.payment_intent
  FROM inbox_events e JOIN charges c USING (charge_id, account)
 WHERE e.charge_id = $1 AND e.payment_intent IS NOT NULL
UNION
SELECT unnest(d.payment_intents) FROM drift d WHERE d.charge_id = $1
UNION
SELECT evidence ->> 'payment_intent' FROM decisions
 WHERE charge_id = $1 AND evidence ->> 'payment_intent' IS NOT NULL
