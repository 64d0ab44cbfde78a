-- name: frozen_totals
-- What was planned, per currency, and the cap as it stands. $1 run_id
SELECT currency, lines, amount_minor, cap_minor FROM run_totals WHERE run_id = $1 ORDER BY currency

-- name: planned_outcomes
-- Where the lines that were to be charged stand, why, and what they come to; those of a later run too.
-- Beyond so many reasons of one standing the rest is one. $1 run_id $2 reasons named of each standing
WITH outcomes AS (
    SELECT currency, state AS standing, coalesce(reason, '') AS reason, count(*) AS lines,
           sum(amount_minor) AS amount_minor
      FROM charges WHERE run_id = $1 AND state <> 'skipped' GROUP BY 1, 2, 3
     UNION ALL
    SELECT currency, 'taken_over', 'by run ' || to_run, count(*), sum(amount_minor)
      FROM takeovers WHERE from_run = $1 AND from_state <> 'skipped' GROUP BY 1, 3
), ranked AS (
    SELECT *, row_number() OVER (PARTITION BY currency, standing ORDER BY lines DESC, reason) AS place
      FROM outcomes
)
SELECT currency, standing, CASE WHEN place <= $2 THEN reason ELSE 'other reasons' END AS reason,
       sum(lines)::bigint AS lines, sum(amount_minor)::bigint AS amount_minor
  FROM ranked
 GROUP BY 1, 2, 3
 ORDER BY currency, lines DESC, standing, reason

-- name: count_other_amounts
-- Charges whose money moved under frozen parameters that name another amount or currency than the ledger:
-- none, by construction. $1 run_id
SELECT count(*)
  FROM charges c
  JOIN keys k ON k.charge_id = c.charge_id AND k.operation = 'create' AND k.version = c.create_version
 WHERE c.run_id = $1 AND c.state IN ('succeeded', 'processing')
   AND ((k.parameters::jsonb ->> 'amount')::bigint, k.parameters::jsonb ->> 'currency')
       IS DISTINCT FROM (c.amount_minor, c.currency)
