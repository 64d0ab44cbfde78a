-- name: reasons_of_outcomes
-- Why lines of a run ended otherwise than paid, the most frequent first. $1 run_id $2 limit
SELECT state AS standing, coalesce(reason, 'no reason recorded') AS reason, count(*) AS lines
  FROM charges
 WHERE run_id = $1 AND state IN ('declined', 'needs_customer', 'refused', 'review', 'canceled', 'skipped')
 GROUP BY 1, 2
 UNION ALL
SELECT 'skipped', reason, count(*) FROM skipped_rows WHERE run_id = $1 GROUP BY 2
 ORDER BY 3 DESC, 1, 2
 LIMIT $2
