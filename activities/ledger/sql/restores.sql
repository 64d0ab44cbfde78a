-- name: open_restore
-- The restore that nobody has cleared yet.
SELECT restore_id, found_at, why, who, ledger_now() AS now FROM ledger_restores WHERE cleared_at IS NULL

-- name: declare_restore
-- Say that the ledger was restored, where its cluster does not show it. $1 who $2 why
INSERT INTO ledger_restores (found_at, why, who) VALUES (ledger_now(), $2, $1)
ON CONFLICT DO NOTHING
RETURNING restore_id

-- name: clear_restore
-- Let sending go on, and journal with each charge that may still be sent for that Stripe was asked about it. Refused
-- where there is such a charge of an account that was not asked about. $1 restore_id $2 who $3 why $4 counts
-- $5 accounts that were looked through $6 reason for the journal
WITH cleared AS (
    UPDATE ledger_restores SET cleared_at = ledger_now(), cleared_by = $2, cleared_why = $3, counts = $4
     WHERE restore_id = $1 AND cleared_at IS NULL
       AND NOT EXISTS (SELECT FROM charges c
                        WHERE c.state IN ('planned', 'creating', 'prepared', 'confirming', 'canceling')
                          AND c.account <> ALL ($5::text[])
                       OFFSET 0)
    RETURNING restore_id, cleared_at
),
journaled AS (
    INSERT INTO decisions (charge_id, at, decision, reason, evidence)
    SELECT c.charge_id, cleared.cleared_at, 'looked_at_after_restore', $6,
           jsonb_build_object('restore_id', cleared.restore_id, 'kept', c.payment_intent)
      FROM cleared, charges c
     WHERE c.state IN ('planned', 'creating', 'prepared', 'confirming', 'canceling')
)
SELECT restore_id FROM cleared

-- name: runs_to_look_at
-- Runs that have not ended, whose senders may have survived.
SELECT run_id, account, phase FROM billing_runs WHERE phase NOT IN ('closed', 'failed') ORDER BY account, run_id

-- name: forgotten_since
-- A moment from before anything that the ledger may have forgotten of an account, or may still send: when the first
-- of its runs was locked that has not ended, else the last one, which the backup is younger than. $1 account
SELECT coalesce(min(locked_at) FILTER (WHERE phase NOT IN ('closed', 'failed')), max(locked_at))
  FROM billing_runs WHERE account = $1

-- name: charges_of
-- These charges of an account, in whatever run and state. $1 account $2 charge_ids
SELECT * FROM charges WHERE charge_id = ANY ($2::text[]) AND account = $1

-- name: count_open_charges
-- How many charges of an account may still be paid by something that is sent. $1 account
SELECT count(*) FROM charges c JOIN billing_runs r USING (run_id)
 WHERE r.account = $1 AND c.state IN ('planned', 'creating', 'prepared', 'confirming', 'canceling')

-- name: remember_create
-- Journal the create of a planned charge that the ledger has forgotten and whose PaymentIntent Stripe shows: key and
-- send are as old as that. Under a new fence, and only while a restore is open. $1 charge_id $2 create version before
-- $3 fence before $4 key $5 path $6 parameters $7 fingerprint $8 when the PaymentIntent was created $9 reason
WITH guarded AS (
    UPDATE charges c
       SET state = 'creating', create_version = $2 + 1, fence = nextval('fences'), due_at = NULL,
           changed_at = ledger_now()
     WHERE c.charge_id = $1 AND c.state = 'planned' AND c.create_version = $2 AND c.fence = $3
       AND c.payment_intent IS NULL
       AND is_restored()
    RETURNING *
),
frozen AS (
    INSERT INTO keys (key, charge_id, operation, version, path, parameters, fingerprint, first_intended_at, reason)
    SELECT $4, g.charge_id, 'create', $2 + 1, $5, $6, $7, $8, $9 FROM guarded g
    RETURNING key
),
sent AS (
    INSERT INTO attempts (key, send_no, fence, reason, intended_at)
    SELECT f.key, 1, g.fence, $9, $8 FROM frozen f, guarded g
)
SELECT * FROM guarded
