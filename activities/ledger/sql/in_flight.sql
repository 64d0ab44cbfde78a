-- name: claim_quiet
-- Take charges in flight under a new fence, but none from under a live slice: those whose newest request was
-- intended more than $2 seconds ago, or whose run has ended, or is known to have lost its workflow. When they are due
-- stays as it is. $1 charge_ids $2 seconds $3 phases in which a run charges $4 run_ids that have lost their workflow
WITH quiet AS MATERIALIZED (
    SELECT c.charge_id, r.phase, r.hold, r.canceling
      FROM charges c
      JOIN billing_runs r ON r.run_id = c.run_id
     WHERE c.charge_id = ANY ($1::text[])
       AND c.state IN ('creating', 'confirming', 'canceling')
       AND (r.phase <> ALL ($3::text[])
            OR r.run_id = ANY ($4::text[])
            OR NOT EXISTS (SELECT FROM keys k JOIN attempts a USING (key)
                            WHERE k.charge_id = c.charge_id
                              AND a.intended_at > ledger_now() - $2 * interval '1 second'
                           OFFSET 0))
     ORDER BY c.charge_id
       FOR UPDATE OF c SKIP LOCKED
),
token AS MATERIALIZED (SELECT nextval('fences') AS fence FROM (SELECT count(*) FROM quiet) AS locked)
UPDATE charges c
   SET fence = token.fence
  FROM token, quiet
 WHERE c.charge_id = quiet.charge_id AND c.state IN ('creating', 'confirming', 'canceling')
RETURNING c.*, quiet.phase, quiet.hold, quiet.canceling
