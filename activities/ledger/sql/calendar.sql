-- name: calendar_now
-- The ledger's time, by which periods are due.
SELECT ledger_now()

-- name: runs_of_period
-- Every run that a period ever had. $1 account $2 period
SELECT run_id, phase, canceling FROM billing_runs WHERE account = $1 AND period = $2 ORDER BY run_id

-- name: billed_periods
-- Which of some periods have a run that did not fail before it had a plan. $1 account $2 periods
SELECT DISTINCT period FROM billing_runs WHERE account = $1 AND period = ANY ($2::text[]) AND phase <> 'failed'

-- name: waived_periods
-- Which of some periods somebody decided not to bill, by the newest decision of each, who, and why.
-- $1 account $2 periods
SELECT period, who, reason
  FROM (SELECT DISTINCT ON (period) period, decision, who, reason
          FROM calendar_decisions
         WHERE account = $1 AND period = ANY ($2::text[])
         ORDER BY period, decision_id DESC) newest
 WHERE decision = 'waive'

-- name: decide_period
-- Record what was decided about a period that was missed.
-- $1 account $2 period $3 schedule $4 decision $5 who $6 reason
INSERT INTO calendar_decisions (account, period, schedule, decision, who, reason, at)
VALUES ($1, $2, $3, $4, $5, $6, ledger_now())
