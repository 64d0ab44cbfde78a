-- A charge that was altered by hand gets back what it was: the body that Stripe was sent, and nothing else.

-- Whether amount, currency and customer are those that are frozen in the create key of this version, and the
-- PaymentIntent is what that key made: by an answer to it, or by a lookup that is on record with the key.
CREATE FUNCTION is_frozen_body(wanted_charge_id text, wanted_version integer, wanted_intent text,
                               wanted_currency text, wanted_amount_minor bigint, wanted_customer text)
RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM keys k
         WHERE k.charge_id = wanted_charge_id
           AND k.operation = 'create'
           AND k.version = wanted_version
           AND k.parameters::jsonb ->> 'currency' = wanted_currency
           AND k.parameters::jsonb ->> 'amount' = wanted_amount_minor::text
           AND k.parameters::jsonb ->> 'customer' = wanted_customer
           AND (EXISTS (SELECT FROM attempts a
                         WHERE a.key = k.key AND a.payment_intent = wanted_intent
                        OFFSET 0)
                OR EXISTS (SELECT FROM decisions d
                            WHERE d.charge_id = wanted_charge_id
                              AND d.evidence ->> 'payment_intent' = wanted_intent
                              AND d.evidence ->> 'create_key' = k.key
                           OFFSET 0))
        OFFSET 0)
$$;

CREATE OR REPLACE FUNCTION check_charge_body() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF is_frozen_body(NEW.charge_id, NEW.create_version, NEW.payment_intent,
                      NEW.currency, NEW.amount_minor, NEW.customer) THEN
        RETURN NEW;
    END IF;
    IF OLD.customer <> NEW.customer THEN
        RAISE EXCEPTION 'charge %: its customer is part of its identity', NEW.charge_id
            USING ERRCODE = 'check_violation';
    END IF;
    IF NOT is_shown_canceled(NEW.charge_id, NEW.payment_intent) THEN
        RAISE EXCEPTION 'charge %: its PaymentIntent is of another amount and can still be paid', NEW.charge_id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;

DROP TRIGGER charges_check_body ON charges;

CREATE TRIGGER charges_check_body BEFORE UPDATE OF currency, amount_minor, customer ON charges
    FOR EACH ROW
    WHEN (NEW.payment_intent IS NOT NULL
          AND (OLD.currency <> NEW.currency OR OLD.amount_minor <> NEW.amount_minor
               OR OLD.customer <> NEW.customer))
    EXECUTE FUNCTION check_charge_body();
