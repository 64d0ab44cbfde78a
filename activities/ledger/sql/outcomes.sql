-- name: reasons_of_outcomes
-- Why lines of some runs ended otherwise than paid, the most frequent first. $1 run_ids $2 limit
SELECT state AS standing, coalesce(reason, 'no reason recorded') AS reason, count(*) AS lines
  FROM charges
 WHERE run_id = ANY ($1::text[]) AND state IN ('declined', 'needs_customer', 'refused', 'review', 'canceled', 'skipped')
 GROUP BY 1, 2
 UNION ALL
SELECT 'skipped', reason, count(*) FROM skipped_rows WHERE run_id = ANY ($1::text[]) GROUP BY 2
 UNION ALL
SELECT 'taken_over', 'by run ' || to_run, count(*) FROM takeovers WHERE from_run = ANY ($1::text[]) GROUP BY 2
 ORDER BY 3 DESC, 1, 2
 LIMIT $2

-- name: unpaid_lines
-- Lines that were to be charged and ended unpaid, those that were skipped last, and how many there are.
-- $1 run_id $2 limit
SELECT customer, line, currency, amount_minor, state AS standing, coalesce(reason, 'no reason recorded') AS reason,
       count(*) OVER () AS of
  FROM charges
 WHERE run_id = $1
   AND (state IN ('declined', 'needs_customer', 'refused', 'review', 'canceled')
        OR (state = 'skipped' AND reason <> 'zero_amount'))
 ORDER BY state = 'skipped', state, customer, line
 LIMIT $2
