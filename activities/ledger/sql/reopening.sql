-- name: read_history
-- What is known of a charge's keys before it is sent again, and what its run wants of it that its PaymentIntent is
-- not of. $1 charge_id
SELECT c.create_version, c.confirm_version, c.payment_intent,
       c.payment_intent IS NOT NULL AND is_shown_canceled(c.charge_id, c.payment_intent) AS is_canceled,
       x.charge_id IS NOT NULL AS is_corrected,
       EXISTS (SELECT FROM decisions d
                WHERE d.charge_id = c.charge_id AND d.decision = 'leftover_to_cancel'
                  AND d.evidence ->> 'payment_intent' = c.payment_intent
               OFFSET 0) AS is_leftover,
       EXISTS (SELECT FROM takeovers t
                WHERE t.charge_id = c.charge_id AND t.to_run = c.run_id AND t.from_state = 'needs_customer'
               OFFSET 0) AS was_handed_over,
       found.first_create_at, found.newest_create_at, found.newest_confirm_at,
       sends.open_creates, sends.open_confirms, ledger_now() AS now
  FROM charges c
  LEFT JOIN corrections x ON x.charge_id = c.charge_id AND x.run_id = c.run_id AND x.applied_at IS NULL
 CROSS JOIN LATERAL (
           SELECT min(k.first_intended_at) FILTER (WHERE k.operation = 'create') AS first_create_at,
                  max(k.first_intended_at) FILTER (WHERE k.operation = 'create') AS newest_create_at,
                  max(k.first_intended_at) FILTER (WHERE k.operation = 'confirm') AS newest_confirm_at
             FROM keys k WHERE k.charge_id = c.charge_id
       ) found
 CROSS JOIN LATERAL (
           SELECT count(*) FILTER (WHERE k.operation = 'create') AS open_creates,
                  count(*) FILTER (WHERE k.operation = 'confirm') AS open_confirms
             FROM keys k JOIN attempts a USING (key)
            WHERE k.charge_id = c.charge_id AND (a.proof IS NULL OR a.proof = 'unknown')
       ) sends
 WHERE c.charge_id = $1

-- name: apply_correction
-- Let the charge be what its run wants, now that no PaymentIntent of another body can be paid any more: the trigger
-- charges_check_body looks at that again. $1 charge_id $2 run_id $3 fence
WITH corrected AS (
    UPDATE charges c
       SET currency = x.currency, amount_minor = x.amount_minor, description = x.description,
           changed_at = ledger_now()
      FROM corrections x
     WHERE c.charge_id = $1 AND c.run_id = $2 AND c.fence = $3 AND c.state = 'planned'
       AND x.charge_id = c.charge_id AND x.run_id = c.run_id AND x.applied_at IS NULL
    RETURNING c.*
),
applied AS (
    UPDATE corrections x
       SET applied_at = corrected.changed_at
      FROM corrected
     WHERE x.charge_id = corrected.charge_id AND x.run_id = corrected.run_id AND x.applied_at IS NULL
)
SELECT * FROM corrected

-- name: take_leftover
-- Let a late PaymentIntent of an earlier create be the charge's own, so that it is canceled before another is created
-- (I11): the charge has none, or one that Stripe has shown to be canceled. $1 charge_id $2 fence
-- $3 PaymentIntent before $4 PaymentIntent found $5 its latest charge $6 evidence
WITH taken AS (
    UPDATE charges c
       SET payment_intent = $4, latest_charge = $5, changed_at = ledger_now()
     WHERE c.charge_id = $1 AND c.fence = $2 AND c.state = 'planned'
       AND c.payment_intent IS NOT DISTINCT FROM $3::text
       AND ($3::text IS NULL OR is_shown_canceled($1, $3))
    RETURNING c.*
),
noted AS (
    INSERT INTO decisions (charge_id, at, decision, reason, evidence)
    SELECT charge_id, changed_at, 'leftover_to_cancel',
           'a PaymentIntent of an earlier create came late: it is canceled before another is created', $6
      FROM taken
)
SELECT * FROM taken
