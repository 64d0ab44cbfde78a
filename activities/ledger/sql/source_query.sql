-- What the ledger's part for sources says itself; the query is its author's, in a file of their own.

-- name: limit_source_statements
-- Ends a statement of this transaction that takes longer than $1 milliseconds, written as a text.
SELECT set_config('statement_timeout', $1, true)
