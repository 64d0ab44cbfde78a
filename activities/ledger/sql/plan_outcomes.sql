-- name: frozen_totals
-- What was planned, per currency, and the cap as it stands. $1 run_id
SELECT currency, lines, amount_minor, cap_minor FROM run_totals WHERE run_id = $1 ORDER BY currency

-- name: planned_outcomes
-- Where the lines that were to be charged stand, why, and what they come to; those of a later run too. A line
-- that could not be corrected counts as what its PaymentIntent is of, and the difference to what was planned is one
-- of its own. Beyond so many reasons of one standing the rest is one. $1 run_id $2 reasons named of each standing
WITH uncorrected AS (
    SELECT x.currency, x.amount_minor, coalesce(t.currency, c.currency) AS old_currency,
           coalesce(t.amount_minor, c.amount_minor) AS old_amount_minor,
           CASE WHEN c.state IN ('succeeded', 'processing') THEN 'it was paid as it was before the correction'
                ELSE 'it ended before it was corrected' END AS reason
      FROM corrections x
      JOIN charges c USING (charge_id)
      LEFT JOIN takeovers t ON t.charge_id = x.charge_id AND t.from_run = x.run_id
     WHERE x.run_id = $1 AND x.applied_at IS NULL
), outcomes AS (
    SELECT currency, state AS standing, coalesce(reason, '') AS reason, count(*) AS lines,
           sum(amount_minor) AS amount_minor
      FROM charges WHERE run_id = $1 AND state <> 'skipped' GROUP BY 1, 2, 3
     UNION ALL
    SELECT currency, 'taken_over', 'by run ' || to_run, count(*), sum(amount_minor)
      FROM takeovers WHERE from_run = $1 AND from_state <> 'skipped' GROUP BY 1, 3
     UNION ALL
    SELECT s.currency, 'not_corrected', u.reason, sum(s.lines), sum(s.amount_minor)
      FROM uncorrected u
     CROSS JOIN LATERAL (VALUES (u.currency, 1, u.amount_minor), (u.old_currency, -1, -u.old_amount_minor))
        AS s (currency, lines, amount_minor)
     GROUP BY 1, 3
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
