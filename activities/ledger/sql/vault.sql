-- Vault keys: who may do what at Stripe through the spend-cap proxy. A key itself never comes here, only its
-- SHA-256. What a run's key may move is not said here either: its budget is the run's own, which the totals
-- of the approved plan make by themselves.

-- name: issue_run_key
-- Issue a key for a run, where the run stands such that this use is due: charging only once its plan is
-- approved. The run's row is locked, so that no key slips in behind a close. No row back: the key was there
-- already, or the run does not stand so. $1 key_id $2 key_sha256 $3 scope $4 serial $5 mode $6 allow
-- $7 label $8 who $9 seconds to expiry $10 account $11 run_id $12 whether it spends the run's budget $13 phases
INSERT INTO vault_keys (key_id, key_sha256, scope, serial, run_id, account, mode, allow, budget, label, issued_at,
                        issued_by, expires_at)
SELECT $1, $2, $3, $4, r.run_id, r.account, $5, $6, CASE WHEN $12 THEN r.run_id END, $7, ledger_now(), $8,
       ledger_now() + $9::float8 * interval '1 second'
  FROM (SELECT run_id, account
          FROM billing_runs
         WHERE run_id = $11 AND account = $10 AND phase = ANY ($13::text[])
           AND (NOT $12 OR approved_hash IS NOT NULL)
           FOR SHARE) r
ON CONFLICT DO NOTHING
RETURNING key_id

-- name: approvable_amounts
-- What the charges of a run in these states come to, by currency: the most that a key of its own may move for
-- them. The run's row is locked, so that none slips in behind a close. $1 run_id $2 account $3 phases $4 states
SELECT c.currency, sum(c.amount_minor)::bigint AS amount_minor
  FROM charges c
 WHERE c.state = ANY ($4::text[])
   AND c.run_id = (SELECT r.run_id FROM billing_runs r
                    WHERE r.run_id = $1 AND r.account = $2 AND r.phase = ANY ($3::text[]) FOR SHARE)
 GROUP BY c.currency
 ORDER BY c.currency

-- name: issue_approved_key
-- Issue a key of a run that somebody approved, with a budget of its own. No row back: it was there already.
-- $1 key_id $2 key_sha256 $3 scope $4 serial $5 mode $6 allow $7 label $8 who $9 seconds to expiry $10 account
-- $11 run_id $12 reason
INSERT INTO vault_keys (key_id, key_sha256, scope, serial, run_id, account, mode, allow, budget, label, issued_at,
                        issued_by, issued_reason, expires_at)
VALUES ($1, $2, $3, $4, $11, $10, $5, $6, $1, $7, ledger_now(), $8, $12,
        ledger_now() + $9::float8 * interval '1 second')
ON CONFLICT DO NOTHING
RETURNING key_id

-- name: issue_account_key
-- Issue a key that reads, for an account and no run. No row back: it was there already. $1 key_id
-- $2 key_sha256 $3 scope $4 serial $5 mode $6 allow $7 label $8 who $9 seconds to expiry $10 account
INSERT INTO vault_keys (key_id, key_sha256, scope, serial, account, mode, allow, label, issued_at, issued_by,
                        expires_at)
VALUES ($1, $2, $3, $4, $10, $5, $6, $7, ledger_now(), $8, ledger_now() + $9::float8 * interval '1 second')
ON CONFLICT DO NOTHING
RETURNING key_id

-- name: newest_derived_key
-- The newest key of a run, or of an account and no run, for one use. $1 run_id or NULL $2 account $3 scope
-- $4 mode $5 label
SELECT key_id, serial, expires_at <= ledger_now() AS expired, revoked_at IS NOT NULL AS revoked, revoked_by,
       revoked_reason
  FROM vault_keys
 WHERE run_id IS NOT DISTINCT FROM $1::text AND account = $2 AND scope = $3 AND mode = $4 AND label = $5
 ORDER BY serial DESC
 LIMIT 1

-- name: forgotten_serials
-- A serial that no key from before the last restore can have reached: its minute. A run issues fewer than one key a
-- minute, and each restore has a later one.
SELECT coalesce(max(floor(extract(epoch FROM found_at) / 60)), 0)::integer FROM ledger_restores

-- name: runs_with_keys
-- Runs that have a key which is neither revoked nor expired.
SELECT DISTINCT run_id, account FROM vault_keys
 WHERE run_id IS NOT NULL AND revoked_at IS NULL AND expires_at > ledger_now()
 ORDER BY account, run_id

-- name: issue_key
-- Issue a key that is no run's. $1 key_id $2 key_sha256 $3 scope $4 account $5 mode $6 allow $7 budget
-- $8 label $9 who $10 seconds to expiry
INSERT INTO vault_keys (key_id, key_sha256, scope, account, mode, allow, budget, label, issued_at, issued_by,
                        expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, ledger_now(), $9, ledger_now() + $10::float8 * interval '1 second')
RETURNING issued_at, expires_at

-- name: insert_budget
-- Cap what a key may move of one currency, in all or on each day. $1 budget $2 currency $3 cap_minor $4 daily
INSERT INTO vault_budgets (budget, currency, cap_minor, daily) VALUES ($1, $2, $3, $4)

-- name: revoke_key
-- Refuse a key from its next request on. $1 key_id $2 who $3 reason
UPDATE vault_keys SET revoked_at = ledger_now(), revoked_by = $2, revoked_reason = $3
 WHERE key_id = $1 AND revoked_at IS NULL
RETURNING key_id

-- name: revoke_keys_of_run
-- Refuse every key of a run from its next request on, but for one, if any. $1 run_id $2 who $3 reason
-- $4 the use they were derived for, or NULL for all $5 key_id to keep, or NULL
UPDATE vault_keys SET revoked_at = ledger_now(), revoked_by = $2, revoked_reason = $3
 WHERE run_id = $1 AND revoked_at IS NULL AND ($4::text IS NULL OR label = $4)
   AND key_id IS DISTINCT FROM $5::text
RETURNING key_id

-- name: revoke_keys_of_account
-- Refuse the keys of an account and no run that were derived for one use, but for one. A key that somebody issued
-- for another job may have the same label, so derived is what is named here, or was issued by nobody in person.
-- $1 account $2 who $3 reason $4 the use $5 scope $6 mode $7 key_id to keep $8 key_ids $9 who issues by itself
UPDATE vault_keys SET revoked_at = ledger_now(), revoked_by = $2, revoked_reason = $3
 WHERE run_id IS NULL AND account = $1 AND label = $4 AND scope = $5 AND mode = $6 AND revoked_at IS NULL
   AND key_id <> $7 AND (key_id = ANY ($8::text[]) OR issued_by = $9)
RETURNING key_id

-- name: list_keys
-- Keys, newest first, with what they may move and have moved. $1 run_id or NULL $2 whether those that are
-- revoked or expired too $3 limit
SELECT k.key_id, k.scope, k.run_id, k.account, k.mode, k.allow, k.label, k.issued_at, k.issued_by, k.expires_at,
       k.revoked_at, k.revoked_by, k.revoked_reason,
       CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked' WHEN k.expires_at <= ledger_now() THEN 'expired'
            ELSE 'valid' END AS standing,
       (SELECT jsonb_object_agg(s.currency, jsonb_build_object('cap_minor', s.cap_minor,
                                'settled_minor', s.settled_minor, 'held_minor', s.held_minor, 'daily', b.daily))
          FROM vault_standing s JOIN vault_budgets b USING (budget, currency)
         WHERE s.budget = k.budget) AS budget
  FROM vault_keys k
 WHERE ($1::text IS NULL OR k.run_id = $1) AND ($2 OR (k.revoked_at IS NULL AND k.expires_at > ledger_now()))
 ORDER BY k.issued_at DESC, k.key_id
 LIMIT $3

-- name: find_key
-- One key by its public id, or by the hash of the whole. $1 key_id or NULL $2 key_sha256 or NULL
SELECT key_id FROM vault_keys WHERE key_id = $1 OR key_sha256 = $2

-- name: has_charging_key
-- Whether a run has sent, or could have sent, through the proxy. $1 run_id
SELECT EXISTS (SELECT FROM vault_keys WHERE run_id = $1 AND scope = 'billing')

-- name: budget_standing
-- What a budget allows and what has become of it, by currency. $1 budget
SELECT * FROM vault_standing WHERE budget = $1 ORDER BY currency

-- name: read_audit
-- Calls, newest first. $1 run_id or NULL $2 key_id or NULL $3 called at or after, or NULL $4 limit
SELECT * FROM vault_audit
 WHERE ($1::text IS NULL OR run_id = $1) AND ($2::text IS NULL OR key_id = $2)
   AND ($3::timestamptz IS NULL OR called_at >= $3)
 ORDER BY seq DESC
 LIMIT $4
