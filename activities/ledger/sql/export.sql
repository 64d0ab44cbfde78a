-- The closing pack of a run. Every block that a file is made of runs in one transaction over one moment, through a
-- server-side cursor, and returns the columns of that file (activities/export/columns.py) by their names; amounts in
-- major units and advice are made of them outside.

-- name: export_header
-- The run whose pack it is, by the ledger's clock. $1 run_id
SELECT r.run_id, r.account, r.period, r.phase, r.selected, r.plan_hash, r.locked_at, r.closed_at, ledger_now() AS now
  FROM billing_runs r
 WHERE r.run_id = $1

-- name: export_plan_totals
-- What was approved, per currency. $1 run_id
SELECT currency, lines, amount_minor, cap_minor FROM run_totals WHERE run_id = $1 ORDER BY currency

-- name: settlement_window
-- From when on, and until when, something of a run's charges can have moved at Stripe: from their first key, which
-- may be older than the run, to the last change of any. $1 run_id
SELECT r.run_id, r.account,
       least(r.locked_at, (SELECT min(k.first_intended_at)
                             FROM charges c JOIN keys k USING (charge_id) WHERE c.run_id = r.run_id)) AS since,
       greatest(r.locked_at, (SELECT max(greatest(c.changed_at, f.seen_at, d.seen_at))
                                FROM charges c
                                LEFT JOIN refunds f USING (charge_id)
                                LEFT JOIN disputes d ON d.charge_id = c.charge_id
                               WHERE c.run_id = r.run_id)) AS until
  FROM billing_runs r
 WHERE r.run_id = $1

-- name: export_runs
-- The run, and those that it shares a charge with. $1 run_id
SELECT CASE WHEN r.run_id = $1 THEN 'exported' WHEN f.from_run IS NOT NULL THEN 'taken_over_from'
            ELSE 'taken_over_by' END AS relation,
       r.run_id, r.account, r.period, r.phase, r.selected,
       (SELECT sum(lines) FROM run_counts(r.run_id))::bigint AS accounted,
       r.source, r.source_sha256, r.slices, r.plan_hash, r.approved_hash, r.approved_by, r.approved_at, r.started_by,
       r.owner, r.hold, r.hold_reason, r.canceling, r.reason, r.locked_at, r.planned_at, r.charging_closed_at,
       r.closed_at
  FROM billing_runs r
  LEFT JOIN (SELECT DISTINCT t.from_run FROM takeovers t WHERE t.to_run = $1) f ON f.from_run = r.run_id
 WHERE r.run_id = $1
    OR f.from_run IS NOT NULL
    OR r.run_id IN (SELECT t.to_run FROM takeovers t WHERE t.from_run = $1)
 ORDER BY r.locked_at, r.run_id

-- name: export_charges
-- Every charge that the run has. $1 run_id
SELECT c.charge_id, c.run_id, c.account, c.customer, c.period, c.line, c.source_row, c.currency, c.amount_minor,
       c.state, c.reason, c.payment_intent, c.latest_charge, c.payment_method, c.description, c.create_version,
       c.confirm_version, c.cancel_version, a.attempts, a.unanswered, a.first_sent_at, a.last_answered_at,
       coalesce((SELECT sum(f.amount_minor) FROM refunds f
                  WHERE f.charge_id = c.charge_id AND f.status NOT IN ('failed', 'canceled')), 0)::bigint
           AS returned_minor,
       (SELECT string_agg(d.status, ' ' ORDER BY d.created_at, d.dispute_id) FROM disputes d
         WHERE d.charge_id = c.charge_id) AS disputes,
       c.changed_at
  FROM charges c
 CROSS JOIN LATERAL (SELECT count(*) AS attempts, count(*) FILTER (WHERE s.answered_at IS NULL) AS unanswered,
                            min(s.intended_at) AS first_sent_at, max(s.answered_at) AS last_answered_at
                       FROM keys k JOIN attempts s USING (key)
                      WHERE k.charge_id = c.charge_id) a
 WHERE c.run_id = $1
 ORDER BY c.slice_no, c.source_row, c.charge_id

-- name: export_attempts
-- Every send of every key of the run's charges, also of those that an earlier run has sent. $1 run_id
SELECT k.charge_id, k.operation, k.version, a.send_no, k.key, k.reason AS key_reason, k.fingerprint, k.path,
       k.first_intended_at AS key_first_intended_at,
       extract(epoch FROM a.intended_at - k.first_intended_at)::double precision AS key_age_seconds,
       a.reason, a.intended_at, a.answered_at, a.verdict, a.proof, a.cause, a.proved_state, a.transport, a.http_status,
       a.request_id, a.replayed, a.error_type, a.code, a.decline_code, a.advice_code, a.network_decline_code,
       a.network_advice_code, a.message, a.payment_intent, a.payment_intent_status, a.stripe_date, a.fence
  FROM charges c
  JOIN keys k ON k.charge_id = c.charge_id
  JOIN attempts a ON a.key = k.key
 WHERE c.run_id = $1
 ORDER BY c.slice_no, c.source_row, c.charge_id, a.intended_at, a.key, a.send_no

-- name: export_unusual_charges
-- Charges that are not paid, or were paid in an unusual way, each with all that is unusual about it. $1 run_id
SELECT u.*
  FROM (
    SELECT 'charge' AS subject,
           concat_ws(' ', CASE WHEN c.state <> 'succeeded' THEN 'not_paid' END,
                     CASE WHEN m.alarms > 0 THEN 'alarm' END,
                     CASE WHEN f.refunds > 0 THEN 'refund' END,
                     CASE WHEN d.disputes IS NOT NULL THEN 'dispute' END,
                     CASE WHEN g.drift IS NOT NULL THEN 'drift' END,
                     CASE WHEN c.create_version > 1 OR c.confirm_version > 1 THEN 're_keyed' END,
                     CASE WHEN s.unanswered > 0 THEN 'no_answer' END) AS unusual,
           c.charge_id, c.customer, c.period, c.line, c.source_row, c.currency, c.amount_minor, c.state, c.reason,
           NULL::text AS other_run, c.payment_intent, n.http_status, n.code, n.decline_code, n.advice_code,
           n.network_decline_code, n.network_advice_code, n.message, n.request_id, m.alarms, m.newest_alarm,
           f.returned_minor, d.disputes, d.dispute_due_by, g.drift, w.kind AS follow_up,
           w.due_at AS follow_up_due_at, w.ends_at AS follow_up_ends_at, r.phase, r.hold, r.hold_reason,
           r.canceling, c.create_version, c.slice_no
      FROM charges c
      JOIN billing_runs r ON r.run_id = c.run_id
      LEFT JOIN follow_ups w ON w.charge_id = c.charge_id AND w.closed_at IS NULL
     CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE a.answered_at IS NULL) AS unanswered
                           FROM keys k JOIN attempts a USING (key) WHERE k.charge_id = c.charge_id) s
      LEFT JOIN LATERAL (SELECT a.* FROM keys k JOIN attempts a USING (key)
                          WHERE k.charge_id = c.charge_id AND coalesce(a.code, a.decline_code, a.message) IS NOT NULL
                          ORDER BY a.intended_at DESC, a.key DESC, a.send_no DESC LIMIT 1) n ON true
     CROSS JOIN LATERAL (SELECT count(*) AS alarms,
                                (array_agg(e.decision || ': ' || e.reason ORDER BY e.decision_id DESC))[1]
                                    AS newest_alarm
                           FROM decisions e WHERE e.charge_id = c.charge_id AND e.alarm) m
     CROSS JOIN LATERAL (SELECT count(*) AS refunds,
                                coalesce(sum(b.amount_minor) FILTER (WHERE b.status NOT IN ('failed', 'canceled')), 0
                                        )::bigint AS returned_minor
                           FROM refunds b WHERE b.charge_id = c.charge_id) f
     CROSS JOIN LATERAL (SELECT string_agg(b.status, ' ' ORDER BY b.created_at, b.dispute_id) AS disputes,
                                min(b.due_by) AS dispute_due_by
                           FROM disputes b WHERE b.charge_id = c.charge_id) d
     CROSS JOIN LATERAL (SELECT string_agg(b.kind, ' ' ORDER BY b.drift_id) AS drift
                           FROM drift b
                          WHERE b.charge_id = c.charge_id AND b.repair_state IN ('proposed', 'failed')) g
     WHERE c.run_id = $1) u
 WHERE u.unusual <> ''
 ORDER BY u.slice_no, u.source_row, u.charge_id

-- name: export_skipped_rows
-- Rows of the source that became no charge of the run. $1 run_id
SELECT 'source_row' AS subject, 'not_paid' AS unusual, s.customer, r.period, s.line, s.source_row,
       'skipped' AS state, concat_ws(': ', s.reason, s.detail) AS reason
  FROM skipped_rows s JOIN billing_runs r USING (run_id)
 WHERE s.run_id = $1
 ORDER BY s.source_row

-- name: export_taken_over
-- Charges that a later run has taken over, as this run left them. $1 run_id
SELECT 'taken_over' AS subject, 'not_paid' AS unusual, t.charge_id, c.customer, c.period, c.line,
       coalesce(t.currency, c.currency) AS currency, coalesce(t.amount_minor, c.amount_minor) AS amount_minor,
       t.from_state AS state, t.reason, t.to_run AS other_run
  FROM takeovers t JOIN charges c USING (charge_id)
 WHERE t.from_run = $1
 ORDER BY t.at, t.charge_id

-- name: export_settlement_lines
-- The run's charges, as far as a comparison with Stripe's balance needs them. $1 run_id
SELECT c.charge_id, c.customer, c.line, c.state, c.currency, c.amount_minor, c.payment_intent
  FROM charges c
 WHERE c.run_id = $1
 ORDER BY c.slice_no, c.source_row, c.charge_id

-- name: audit_run_events
-- Who decided what about the run. $1 run_id
SELECT at, action, who, reason, detail FROM run_events WHERE run_id = $1 ORDER BY event_id

-- name: audit_calendar_decisions
-- What was decided about the run's period by a schedule's owner. $1 run_id
SELECT d.at, d.schedule, d.decision, d.who, d.reason
  FROM calendar_decisions d JOIN billing_runs r USING (account, period)
 WHERE r.run_id = $1
 ORDER BY d.decision_id

-- name: audit_takeovers
-- Which charges changed runs. $1 run_id
SELECT t.at, t.charge_id, t.from_run, t.to_run, t.reason, t.from_state, t.currency, t.amount_minor
  FROM takeovers t
 WHERE t.from_run = $1 OR t.to_run = $1
 ORDER BY t.at, t.charge_id

-- name: audit_decisions
-- What was decided about the run's charges. $1 run_id
SELECT d.at, d.charge_id, d.decision, d.reason, d.alarm, d.evidence
  FROM charges c JOIN decisions d USING (charge_id)
 WHERE c.run_id = $1
 ORDER BY c.slice_no, c.source_row, c.charge_id, d.decision_id

-- name: audit_follow_ups
-- What the run has waited for, and what came of it. $1 run_id
SELECT f.opened_at AS at, f.charge_id, f.kind, f.rule, f.reason, f.payment_intent, f.due_at, f.ends_at, f.closed_at,
       f.outcome
  FROM follow_ups f
 WHERE f.run_id = $1
 ORDER BY f.follow_up_id

-- name: audit_refund_requests
-- Who asked for money of the run's charges to go back, and what became of it. $1 run_id
SELECT q.requested_at AS at, q.charge_id, q.request_id, q.who, q.kind, q.reason, q.payment_intent, q.amount_minor,
       q.currency, q.state, q.refund_id, q.detail, q.changed_at
  FROM charges c JOIN refund_requests q USING (charge_id)
 WHERE c.run_id = $1
 ORDER BY c.slice_no, c.source_row, c.charge_id, q.requested_at, q.request_id

-- name: audit_refunds
-- What went back of the run's charges. $1 run_id
SELECT f.created_at AS at, f.charge_id, f.refund_id, f.payment_intent, f.amount_minor, f.currency, f.status, f.reason,
       f.failure_reason, f.seen_at
  FROM charges c JOIN refunds f USING (charge_id)
 WHERE c.run_id = $1
 ORDER BY c.slice_no, c.source_row, c.charge_id, f.created_at, f.refund_id

-- name: audit_disputes
-- What is being claimed back of the run's charges. $1 run_id
SELECT d.created_at AS at, d.charge_id, d.dispute_id, d.payment_intent, d.amount_minor, d.currency, d.status, d.reason,
       d.due_by, d.seen_at
  FROM charges c JOIN disputes d USING (charge_id)
 WHERE c.run_id = $1
 ORDER BY c.slice_no, c.source_row, c.charge_id, d.created_at, d.dispute_id

-- name: audit_reconciliations
-- How often the run alone was held against Stripe, and by whom. $1 run_id
SELECT r.opened_at AS at, r.reconciliation_id, r.who, r.reason, r.repair, r.phase, r.closed_at
  FROM reconciliations r
 WHERE r.run_id = $1
 ORDER BY r.opened_at, r.reconciliation_id

-- name: audit_drift
-- What differed between the ledger and Stripe, and what was done about it. $1 run_id
SELECT d.first_seen_at AS at, d.charge_id, d.kind, d.subject, d.ledger_says, d.stripe_says, d.amount_minor, d.currency,
       d.repair, d.repair_state, d.repair_detail, d.last_seen_at, d.ended_at
  FROM drift d
 WHERE d.run_id = $1
    OR EXISTS (SELECT FROM charges c WHERE c.charge_id = d.charge_id AND c.run_id = $1 OFFSET 0)
 ORDER BY d.drift_id

-- name: audit_proxy_calls
-- Every call through the spend-cap proxy by one of the run's keys. $1 run_id
SELECT v.called_at AS at, v.call_id, v.key_id, v.method, v.path, v.idempotency_key, v.intent, v.asked_minor,
       v.asked_currency, v.decision, v.answered_at, v.outcome, v.http_status, v.code, v.request_id, v.replayed,
       v.payment_intent, v.payment_intent_status, v.reported_minor, v.reported_currency, v.latency_ms
  FROM vault_audit v
 WHERE v.run_id = $1
 ORDER BY v.seq

-- name: audit_proxy_alarms
-- What the proxy says should never have happened to the run's budget. $1 run_id
SELECT a.at, a.intent, a.kind, a.detail FROM vault_alarms a WHERE a.budget = $1 ORDER BY a.alarm_id
