-- name: drop_staging
-- Forget what was gathered, also what a planner that was cut off left in a pooled session.
DROP TABLE IF EXISTS staged_lines, staged_skips, staged_owners, staged_customers, staged_methods, plan_lines

-- name: analyze_staged
-- Nobody else gathers statistics of temporary tables.
ANALYZE staged_lines

-- name: find_owners
-- Which staged lines other runs of the period have already, and why they keep them. What ended without success in a
-- run that is through with charging may be taken over, unless something of it is still waited for (a retry, its
-- customer), or a request of it may still be running (I12). $1 run_id $2 account $3 period $4 window in seconds
INSERT INTO staged_owners
SELECT c.charge_id, c.run_id, c.state, c.fence,
       CASE WHEN c.state IN ('succeeded', 'processing') THEN 'already_charged'
            WHEN r.phase NOT IN ('retrying', 'closed', 'failed') THEN 'in_another_run'
            WHEN f.kind = 'customer' THEN 'waiting_for_customer'
            WHEN f.kind IS NOT NULL THEN 'waiting_for_retry'
            WHEN c.state = 'review' THEN 'in_review'
            WHEN c.state NOT IN ('declined', 'needs_customer', 'refused', 'canceled', 'skipped')
            THEN 'in_another_run'
            WHEN c.create_version > 0 AND may_still_run(c.charge_id, $4)
                 AND NOT is_shown_canceled(c.charge_id, c.payment_intent)
            THEN 'undetermined' END
  FROM billing_runs r
  JOIN charges c USING (run_id)
  JOIN staged_lines s USING (charge_id)
  LEFT JOIN follow_ups f ON f.charge_id = c.charge_id AND f.closed_at IS NULL
 WHERE r.account = $2 AND r.period = $3 AND r.run_id <> $1

-- name: find_customers
-- Whom Stripe must be asked about: who has a line to be charged without a payment method.
INSERT INTO staged_customers (customer)
SELECT DISTINCT s.customer
  FROM staged_lines s
  LEFT JOIN staged_owners o USING (charge_id)
 WHERE s.payment_method IS NULL AND s.reason IS NULL AND o.kept_because IS NULL
 ORDER BY s.customer

-- name: read_customers
-- A page of them. $1 after this place $2 limit
SELECT place, customer FROM staged_customers WHERE place > $1 ORDER BY place LIMIT $2

-- name: count_customers
-- How many there are.
SELECT count(*) FROM staged_customers

-- name: use_memory_for_plan
-- The pool's sessions look single rows up and must never read whole tables; this transaction does little else.
SELECT set_config('enable_seqscan', 'on', true), set_config('work_mem', '64MB', true)

-- name: set_refused_apart
-- Lines of customers whom Stripe, or the proxy before it, will not be asked about are rows that can't be billed, and
-- say why. What another run keeps stays as it is.
WITH refused AS (
    DELETE FROM staged_lines s
     USING staged_methods m
     WHERE m.customer = s.customer AND m.detail IS NOT NULL AND s.payment_method IS NULL AND s.reason IS NULL
       AND NOT EXISTS (SELECT FROM staged_owners o WHERE o.charge_id = s.charge_id AND o.kept_because IS NOT NULL)
    RETURNING s.source_row, s.customer, s.line, m.reason, m.detail
)
INSERT INTO staged_skips (source_row, customer, line, reason, detail)
SELECT source_row, customer, line, reason, detail FROM refused

-- name: freeze_plan
-- Decide about every staged line: who owns it already comes first, then why it can't be charged.
INSERT INTO plan_lines
SELECT charge_id, customer, line, source_row, currency, amount_minor, payment_method, description, reason,
       owner_run, owner_state, owner_fence,
       count(*) FILTER (WHERE reason IS NULL) OVER (ORDER BY source_row, charge_id ROWS UNBOUNDED PRECEDING)
  FROM (SELECT s.charge_id, s.customer, s.line, s.source_row, s.currency, s.amount_minor,
               coalesce(s.payment_method, m.payment_method) AS payment_method, s.description,
               coalesce(o.kept_because, s.reason, CASE WHEN s.payment_method IS NULL THEN m.reason END) AS reason,
               o.run_id AS owner_run, o.state AS owner_state, o.fence AS owner_fence
          FROM staged_lines s
          LEFT JOIN staged_owners o USING (charge_id)
          LEFT JOIN staged_methods m ON m.customer = s.customer) judged

-- name: analyze_plan
-- See analyze_staged.
ANALYZE plan_lines

-- name: hash_plan
-- SHA-256 over all that is sent and what is not charged, by identity: no row number, time, run or batch is in it.
-- Fields end with 0x1F and lines with 0x1E, which no cell can hold, so two plans never make one text. Hashed by
-- the first two digits of the identity and then over those hashes, so that no text grows too large.
SELECT encode(sha256(convert_to(coalesce(string_agg(part, '' ORDER BY digits), ''), 'UTF8')), 'hex')
  FROM (SELECT left(charge_id, 2) COLLATE "C" AS digits,
               encode(sha256(convert_to(string_agg(
                   charge_id || E'\x1f' || currency || E'\x1f' || amount_minor || E'\x1f'
                   || coalesce(payment_method, '') || E'\x1f' || coalesce(reason, '') || E'\x1f'
                   || coalesce(description, ''),
                   E'\x1e' ORDER BY charge_id), 'UTF8')), 'hex') AS part
          FROM plan_lines
         GROUP BY 1) parts

-- name: plan_totals
-- What is to be charged, per currency, and how many of the lines nobody knows how to charge: none.
SELECT currency, count(*) AS lines, sum(amount_minor)::bigint AS amount_minor,
       count(*) FILTER (WHERE payment_method IS NULL) AS without_method
  FROM plan_lines WHERE reason IS NULL GROUP BY currency ORDER BY currency

-- name: plan_largest
-- The largest lines of each currency. $1 how many
SELECT currency, customer, line, amount_minor
  FROM (SELECT currency, customer, line, amount_minor,
               row_number() OVER (PARTITION BY currency ORDER BY amount_minor DESC, charge_id) AS place
          FROM plan_lines WHERE reason IS NULL) ranked
 WHERE place <= $1
 ORDER BY currency, place

-- name: plan_customers
-- What each customer is to be charged.
SELECT customer, currency, count(*) AS lines, sum(amount_minor)::bigint AS amount_minor
  FROM plan_lines WHERE reason IS NULL GROUP BY customer, currency ORDER BY customer, currency

-- name: plan_skips
-- Why lines are not charged, and how many.
SELECT reason, sum(lines)::bigint AS lines
  FROM (SELECT reason, count(*) AS lines FROM plan_lines WHERE reason IS NOT NULL GROUP BY reason
         UNION ALL
        SELECT reason, count(*) FROM staged_skips GROUP BY reason) counted
 GROUP BY reason ORDER BY lines DESC, reason

-- name: plan_below_minimum
-- How many lines are to be charged although they are below Stripe's minimum. $1 currencies $2 minimums in minor units
SELECT count(*)
  FROM plan_lines p
  JOIN unnest($1::text[], $2::bigint[]) m (currency, minimum_minor) USING (currency)
 WHERE p.reason IS NULL AND p.amount_minor < m.minimum_minor

-- name: was_period_billed
-- Whether there is anything to compare with. $1 account $2 period
SELECT EXISTS (SELECT FROM billing_runs r JOIN charges c USING (run_id)
                WHERE r.account = $1 AND r.period = $2 AND c.state NOT IN ('skipped', 'canceled'))

-- name: compare_periods
-- Lines of this period beside those of an earlier one: how many are new, gone, changed or the same, and the
-- widest of each but the last. What another run of this period keeps is here as well. $1 account $2 earlier period
-- $3 percent of change that counts $4 how many $5 reasons for which another run keeps a line
WITH before AS (
    SELECT c.customer, c.line, c.currency, c.amount_minor
      FROM billing_runs r JOIN charges c USING (run_id)
     WHERE r.account = $1 AND r.period = $2 AND c.state NOT IN ('skipped', 'canceled')
), compared AS MATERIALIZED (
    SELECT coalesce(n.customer, b.customer) AS customer, coalesce(n.line, b.line) AS line,
           b.currency AS currency_before, b.amount_minor AS before_minor,
           n.currency AS currency_now, n.amount_minor AS now_minor,
           CASE WHEN b.customer IS NULL THEN 'new'
                WHEN n.customer IS NULL THEN 'gone'
                WHEN n.currency <> b.currency
                  OR abs(n.amount_minor - b.amount_minor) * 100.0 > $3::double precision * b.amount_minor
                THEN 'changed' ELSE 'same' END AS kind
      FROM (SELECT * FROM plan_lines WHERE reason IS NULL OR reason = ANY ($5::text[])) n
      FULL JOIN before b ON b.customer = n.customer AND b.line = n.line
), ranked AS (
    SELECT *, count(*) OVER (PARTITION BY kind) AS lines,
           row_number() OVER (PARTITION BY kind ORDER BY abs(coalesce(now_minor, 0) - coalesce(before_minor, 0))
                              DESC, customer, line) AS place
      FROM compared WHERE kind <> 'same'
)
SELECT kind, lines, customer, line, currency_before, before_minor, currency_now, now_minor
  FROM ranked WHERE place <= $4
 UNION ALL
SELECT kind, count(*), NULL, NULL, NULL, NULL, NULL, NULL FROM compared WHERE kind = 'same' GROUP BY kind

-- name: insert_planned
-- The lines that no other run has. The canary's are slice 0, and the rest begins with the next.
-- The clock stands in a query of its own: asked once, and not a million times.
-- $1 run_id $2 account $3 period $4 lines of a slice $5 lines of the canary
INSERT INTO charges (charge_id, run_id, account, customer, period, line, source_row, slice_no, currency,
                     amount_minor, payment_method, description, state, reason, changed_at)
SELECT charge_id, $1, $2, customer, $3, line, source_row, plan_slice(place, $4, $5), currency, amount_minor,
       payment_method, description, CASE WHEN reason IS NULL THEN 'planned' ELSE 'skipped' END, reason,
       (SELECT ledger_now())
  FROM plan_lines
 WHERE owner_run IS NULL
 ORDER BY source_row

-- name: take_over
-- Take the lines that another run is done with: planned again, under a fence that no sender of the other run holds,
-- each as it was when it was decided about. Keys and PaymentIntent stay. Where that PaymentIntent can still succeed
-- and is of another body, the row goes on saying what it is of, and what is wanted is kept beside it.
-- $1 run_id $2 lines of a slice $3 lines of the canary
WITH moment AS MATERIALIZED (SELECT ledger_now() AS at),
wanted AS MATERIALIZED (
    SELECT p.*,
           c.payment_intent IS NOT NULL
           AND (c.currency, c.amount_minor, coalesce(c.description, ''))
               IS DISTINCT FROM (p.currency, p.amount_minor, coalesce(p.description, ''))
           AND NOT is_shown_canceled(c.charge_id, c.payment_intent) AS is_correction
      FROM plan_lines p
      JOIN charges c USING (charge_id)
     WHERE p.owner_run IS NOT NULL AND p.reason IS NULL
), taken AS (
    UPDATE charges c
       SET run_id = $1, source_row = p.source_row, slice_no = plan_slice(p.place, $2, $3),
           currency = CASE WHEN p.is_correction THEN c.currency ELSE p.currency END,
           amount_minor = CASE WHEN p.is_correction THEN c.amount_minor ELSE p.amount_minor END,
           description = CASE WHEN p.is_correction THEN c.description ELSE p.description END,
           payment_method = p.payment_method, state = 'planned', reason = NULL, due_at = NULL,
           fence = nextval('fences'), changed_at = moment.at
      FROM wanted p, moment
     WHERE c.charge_id = p.charge_id AND c.run_id = p.owner_run AND c.state = p.owner_state
       AND c.fence = p.owner_fence
       AND c.state IN ('declined', 'needs_customer', 'refused', 'canceled', 'skipped')
    RETURNING c.charge_id, c.create_version, old.run_id AS from_run, old.state, old.currency, old.amount_minor
), recorded AS (
    INSERT INTO takeovers (charge_id, from_run, to_run, at, reason, from_state, currency, amount_minor)
    SELECT charge_id, from_run, $1, moment.at,
           CASE WHEN create_version = 0 THEN 'nothing was ever sent for it' ELSE 'it ended ' || state END,
           state, currency, amount_minor
      FROM taken, moment
    RETURNING charge_id
), corrected AS (
    INSERT INTO corrections (charge_id, run_id, currency, amount_minor, description, decided_at)
    SELECT p.charge_id, $1, p.currency, p.amount_minor, p.description, moment.at
      FROM wanted p JOIN recorded USING (charge_id), moment
     WHERE p.is_correction
)
SELECT (SELECT count(*) FROM recorded) AS taken, (SELECT count(*) FROM wanted) AS wanted

-- name: plan_takeovers
-- How many lines are taken over, by the state in which the earlier run left them.
SELECT owner_state AS state, count(*) AS lines
  FROM plan_lines WHERE owner_run IS NOT NULL AND reason IS NULL GROUP BY 1 ORDER BY 1

-- name: plan_kept
-- Why other runs keep their lines, and how many. $1 reasons for which they do
SELECT owner_run, reason, count(*) AS lines
  FROM plan_lines WHERE reason = ANY ($1::text[]) GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2

-- name: insert_skipped
-- The source rows without a charge of this run: what can't be billed, and what another run has. $1 run_id
INSERT INTO skipped_rows (run_id, source_row, customer, line, reason, detail)
SELECT $1, source_row, customer, line, reason, detail FROM staged_skips
 UNION ALL
SELECT $1, source_row, customer, line, reason,
       CASE reason WHEN 'already_charged' THEN 'by run ' ELSE 'left with run ' END
       || owner_run || ', now ' || owner_state
  FROM plan_lines
 WHERE owner_run IS NOT NULL AND reason IS NOT NULL

-- name: insert_totals
-- What is approved with the plan, and the cap on it. $1 run_id $2 currencies $3 lines $4 minor units $5 caps
INSERT INTO run_totals (run_id, currency, lines, amount_minor, cap_minor)
SELECT $1, t.* FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[]) t

-- name: finish_plan
-- Freeze the plan: the counts must add up here and at close (a trigger checks). An approved one is charged at
-- once. $1 run_id $2 selected $3 plan hash $4 approved $5 by whom $6 lines of a slice $7 lines of the canary
-- $8 why there is nothing to do, or NULL
UPDATE billing_runs r
   SET phase = CASE WHEN $4 THEN 'charging' ELSE 'planned' END, selected = $2, plan_hash = $3,
       planned_at = ledger_now(), canary_lines = $7::integer,
       approved_hash = CASE WHEN $4 THEN $3::text END, approved_at = CASE WHEN $4 THEN ledger_now() END,
       approved_by = CASE WHEN $4 THEN $5::text END,
       reason = coalesce($8, reason),
       slices = (SELECT CASE WHEN max(place) > 0 THEN plan_slice(max(place), $6, $7) + 1 ELSE 0 END FROM plan_lines)
 WHERE run_id = $1 AND phase = 'locked'
RETURNING *

-- name: record_plan_event
-- What was planned or approved, by whom and why. $1 run_id $2 action $3 who $4 reason $5 detail
INSERT INTO run_events (run_id, at, action, who, reason, detail) VALUES ($1, ledger_now(), $2, $3, $4, $5)
