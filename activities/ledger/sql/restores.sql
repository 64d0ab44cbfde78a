-- name: open_restore
-- The restore that nobody has cleared yet.
SELECT restore_id, found_at, why, who, ledger_now() AS now FROM ledger_restores WHERE cleared_at IS NULL

-- name: declare_restore
-- Say that the ledger was restored, where its cluster does not show it. $1 who $2 why
INSERT INTO ledger_restores (found_at, why, who) VALUES (ledger_now(), $2, $1)
ON CONFLICT DO NOTHING
RETURNING restore_id

-- name: clear_restore
-- Let sending go on. $1 restore_id $2 who $3 why $4 counts
UPDATE ledger_restores SET cleared_at = ledger_now(), cleared_by = $2, cleared_why = $3, counts = $4
 WHERE restore_id = $1 AND cleared_at IS NULL
RETURNING restore_id

-- name: runs_to_look_at
-- Runs that have not ended, whose senders may have survived.
SELECT run_id, account, phase FROM billing_runs WHERE phase NOT IN ('closed', 'failed') ORDER BY account, run_id

-- name: open_charges_of
-- Those of these charges of an account for which something may still be sent. $1 account $2 charge_ids
SELECT * FROM charges
 WHERE charge_id = ANY ($2::text[]) AND account = $1
   AND state IN ('planned', 'creating', 'prepared', 'confirming', 'canceling')

-- name: count_open_charges
-- How many charges of an account may still be paid by something that is sent. $1 account
SELECT count(*) FROM charges c JOIN billing_runs r USING (run_id)
 WHERE r.account = $1 AND c.state IN ('planned', 'creating', 'prepared', 'confirming', 'canceling')
