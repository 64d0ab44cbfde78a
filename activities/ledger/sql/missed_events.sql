-- name: missing_events
-- Which of these events are about charges of the scope and are not in the inbox. $1 event_ids $2 charge ids
-- $3 account $4 run_id, NULL for all of the account
SELECT i.event_id
  FROM unnest($1::text[], $2::text[]) AS i (event_id, charge_id)
  JOIN charges c ON c.charge_id = i.charge_id AND c.account = $3 AND c.run_id = coalesce($4::text, c.run_id)
 WHERE NOT EXISTS (SELECT FROM inbox_events e WHERE e.event_id = i.event_id)

-- name: charges_by_payment_intent
-- Whose these PaymentIntents are, as far as the ledger knows. Reads all charges of the account, so it is asked once
-- and for many. $1 account $2 PaymentIntents
SELECT payment_intent, charge_id FROM charges WHERE account = $1 AND payment_intent = ANY ($2::text[])
 UNION
SELECT payment_intent, charge_id FROM refunds WHERE account = $1 AND payment_intent = ANY ($2::text[])
 UNION
SELECT payment_intent, charge_id FROM disputes WHERE account = $1 AND payment_intent = ANY ($2::text[])

-- name: types_received
-- Of which types the account's inbox has ever had an event. $1 account
SELECT DISTINCT type FROM inbox_events WHERE account = $1
