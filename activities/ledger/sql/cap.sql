-- What the spend-cap proxy says to the ledger. The rules are in functions of migration 0004, since the proxy's
-- role may do nothing else.

-- name: admit_calls
-- Decide on a batch of requests, hold what they may move, and write each down. $1 asks, a JSON array
-- $2 accounts with a real key, a JSON object of account and mode
SELECT * FROM vault_admit($1::jsonb, $2::jsonb)

-- name: record_call_answers
-- Write down a batch of answers, count what they show, and return the alarms raised. $1 answers, a JSON array
SELECT vault_answer($1::jsonb)

-- name: take_unresolved
-- Take intents whose hold waits for a lookup. $1 at most so many $2 held for at least so long
SELECT * FROM vault_due($1, $2)

-- name: find_role_without_rights
-- The role of this connection, where it may not do what the spend-cap proxy does
SELECT current_user
 WHERE NOT (has_schema_privilege('public', 'USAGE')
            AND has_function_privilege('vault_admit(jsonb, jsonb)', 'EXECUTE')
            AND has_function_privilege('vault_answer(jsonb)', 'EXECUTE')
            AND has_function_privilege('vault_due(integer, interval)', 'EXECUTE'))
