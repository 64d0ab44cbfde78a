-- name: record_drift
-- Keep differences: found again, one keeps the moment at which it was first seen, and is open again if it was ended.
-- $1 account $2 reconciliation_id $3 kinds $4 subjects $5 charge_ids $6 run_ids $7 customers $8 lines
-- $9 PaymentIntents, each list joined by commas $10 amounts $11 currencies $12 ledger's words $13 Stripe's words
-- $14 repairs $15 when they happened
WITH input AS MATERIALIZED (
    SELECT *
      FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
                  $10::bigint[], $11::text[], $12::text[], $13::text[], $14::text[], $15::timestamptz[])
        AS t (kind, subject, charge_id, run_id, customer, line, payment_intents, amount_minor, currency,
              ledger_says, stripe_says, repair, occurred_at)
     ORDER BY kind, subject
     LIMIT (SELECT 100000)
),
moment AS MATERIALIZED (SELECT ledger_now() AS at)
INSERT INTO drift AS d (account, kind, subject, charge_id, run_id, customer, line, payment_intents, amount_minor,
                        currency, ledger_says, stripe_says, repair, repair_state, occurred_at, first_seen_at,
                        last_seen_at, first_reconciliation, last_reconciliation)
SELECT $1, i.kind, i.subject, i.charge_id, i.run_id, i.customer, i.line,
       string_to_array(i.payment_intents, ','), i.amount_minor, i.currency, i.ledger_says, i.stripe_says, i.repair,
       'proposed', i.occurred_at, moment.at, moment.at, $2, $2
  FROM input i, moment
ON CONFLICT (account, kind, subject) DO UPDATE
   SET charge_id = EXCLUDED.charge_id, run_id = EXCLUDED.run_id, customer = EXCLUDED.customer,
       line = EXCLUDED.line, payment_intents = EXCLUDED.payment_intents, amount_minor = EXCLUDED.amount_minor,
       currency = EXCLUDED.currency, ledger_says = EXCLUDED.ledger_says, stripe_says = EXCLUDED.stripe_says,
       repair = EXCLUDED.repair, occurred_at = EXCLUDED.occurred_at, last_seen_at = EXCLUDED.last_seen_at,
       last_reconciliation = EXCLUDED.last_reconciliation, ended_at = NULL,
       repair_state = CASE d.repair_state WHEN 'failed' THEN 'failed' ELSE 'proposed' END

-- name: end_drift
-- Say what became of a repair. $1 account $2 kind $3 subject $4 repaired or failed $5 detail
UPDATE drift
   SET repair_state = $4, repair_detail = $5, ended_at = CASE $4 WHEN 'repaired' THEN ledger_now() END
 WHERE account = $1 AND kind = $2 AND subject = $3 AND repair_state IN ('proposed', 'failed')

-- name: end_gone
-- What this reconciliation would have found and has not is gone. $1 reconciliation_id
UPDATE drift d
   SET repair_state = 'gone', ended_at = ledger_now(), repair_detail = 'not found any more by ' || $1
  FROM reconciliations w
 WHERE w.reconciliation_id = $1
   AND d.account = w.account
   AND d.repair_state IN ('proposed', 'failed')
   AND d.last_seen_at < w.opened_at
   AND (CASE WHEN d.kind = 'event_gap' THEN d.occurred_at BETWEEN w.since AND w.until
                                            AND d.run_id IS NOT DISTINCT FROM coalesce(w.run_id, d.run_id)
             WHEN d.charge_id IN (SELECT s.charge_id FROM reconciliation_scope($1) s) THEN true
             ELSE d.occurred_at BETWEEN w.since AND w.until END)

-- name: count_drift
-- Differences that a reconciliation has found, by kind and by where they stand. $1 reconciliation_id
SELECT kind, repair_state, count(*) AS found FROM drift WHERE last_reconciliation = $1 GROUP BY kind, repair_state

-- name: find_drift
-- Differences, the newest first. $1 account or NULL $2 run_id or NULL $3 whether open ones alone $4 reconciliation_id
-- or NULL
SELECT * FROM drift
 WHERE ($1::text IS NULL OR account = $1)
   AND ($2::text IS NULL OR run_id = $2)
   AND (NOT $3 OR repair_state IN ('proposed', 'failed'))
   AND ($4::text IS NULL OR last_reconciliation = $4)
 ORDER BY drift_id DESC
