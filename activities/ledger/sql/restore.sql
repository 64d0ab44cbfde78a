-- name: lock_unmoved
-- The charge as it is now, locked until the transaction ends, if it is still as it was read. $1 charge_id $2 state
-- $3 create version $4 confirm version $5 PaymentIntent $6 currency $7 amount $8 customer
SELECT is_shown_canceled(c.charge_id, c.payment_intent) AS is_canceled
  FROM charges c
 WHERE charge_id = $1 AND state = $2 AND create_version = $3 AND confirm_version = $4
   AND payment_intent = $5 AND currency = $6 AND amount_minor = $7 AND customer = $8
   FOR UPDATE

-- name: restore_charge
-- Give a charge back the body of its PaymentIntent; the trigger charges_check_body looks at that again. $1 charge_id
-- $2 state $3 create version $4 confirm version $5 PaymentIntent $6 currency $7 amount $8 customer $9 new currency
-- $10 new amount $11 new customer
UPDATE charges
   SET currency = $9, amount_minor = $10, customer = $11
 WHERE charge_id = $1 AND state = $2 AND create_version = $3 AND confirm_version = $4
   AND payment_intent = $5 AND currency = $6 AND amount_minor = $7 AND customer = $8
RETURNING *
