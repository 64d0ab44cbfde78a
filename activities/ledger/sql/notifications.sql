-- name: claim_notifications
-- Take what waits for somebody to deliver it; what this deliverer has taken before is its own still. One that has
-- given no sign of life for so long was terminated, and would keep what it took for ever.
-- $1 run_id $2 deliverer $3 seconds after which a deliverer is lost
UPDATE notifications SET deliverer = $2, claimed_at = clock_timestamp()
 WHERE run_id = $1 AND state = 'waiting'
   AND (deliverer IS NULL OR deliverer = $2
        OR claimed_at < clock_timestamp() - $3::double precision * interval '1 second')
RETURNING notification_id, destination

-- name: begin_delivery
-- Put one try into the journal, before it leaves; no row back means that it waits no more. $1 notification_id
WITH waiting AS (
    UPDATE notifications SET claimed_at = clock_timestamp()
     WHERE notification_id = $1 AND state = 'waiting'
    RETURNING notification_id, destination, payload
), begun AS (
    INSERT INTO delivery_attempts (notification_id, attempt_no, at)
    SELECT w.notification_id,
           1 + (SELECT coalesce(max(a.attempt_no), 0)
                  FROM delivery_attempts a WHERE a.notification_id = w.notification_id),
           ledger_now()
      FROM waiting w
    RETURNING attempt_no
)
SELECT b.attempt_no, w.destination, w.payload FROM begun b CROSS JOIN waiting w

-- name: end_delivery
-- Record what became of one try. A late success counts even where it was given up before.
-- $1 notification_id $2 attempt_no $3 delivered or failed $4 detail
WITH ended AS (
    UPDATE delivery_attempts SET status = $3, detail = $4, ended_at = ledger_now()
     WHERE notification_id = $1 AND attempt_no = $2 AND status = 'sending'
    RETURNING notification_id, status
)
UPDATE notifications n SET state = 'delivered', ended_at = ledger_now()
  FROM ended e
 WHERE n.notification_id = e.notification_id AND e.status = 'delivered' AND n.state IN ('waiting', 'given_up')

-- name: give_up_notification
-- Give one up, with an alarm in the run's events. $1 notification_id $2 who
WITH given_up AS (
    UPDATE notifications SET state = 'given_up', ended_at = ledger_now()
     WHERE notification_id = $1 AND state = 'waiting'
    RETURNING notification_id, run_id, destination, kind
), tries AS (
    SELECT count(*) AS tries, (array_agg(a.detail ORDER BY a.attempt_no DESC))[1] AS newest
      FROM delivery_attempts a WHERE a.notification_id = $1
)
INSERT INTO run_events (run_id, at, action, who, reason, detail)
SELECT g.run_id, ledger_now(), 'notification_given_up', $2,
       g.kind || ' could not be delivered to ' || g.destination || ' in ' || t.tries || ' tries: '
       || coalesce(t.newest, 'the last one never came back'),
       jsonb_build_object('alarm', true, 'destination', g.destination, 'kind', g.kind, 'tries', t.tries)
  FROM given_up g CROSS JOIN tries t

-- name: list_notifications
-- What was to be told, newest first, with how often it was tried and what came of the newest try.
-- $1 run_id or NULL $2 limit
SELECT n.run_id, n.kind, n.destination, n.payload ->> 'id' AS id, n.state, n.created_at, n.ended_at,
       coalesce(tried.tries, 0) AS tries, newest.at AS tried_at, newest.status AS newest_status, newest.detail
  FROM notifications n
  LEFT JOIN LATERAL (SELECT count(*) AS tries FROM delivery_attempts a
                      WHERE a.notification_id = n.notification_id) tried ON true
  LEFT JOIN LATERAL (SELECT a.at, a.status, a.detail FROM delivery_attempts a
                      WHERE a.notification_id = n.notification_id
                      ORDER BY a.attempt_no DESC LIMIT 1) newest ON true
 WHERE $1::text IS NULL OR n.run_id = $1
 ORDER BY n.notification_id DESC
 LIMIT $2

-- name: count_waiting_notifications
-- How many wait to be delivered, by whomever. $1 run_id
SELECT count(*) FROM notifications WHERE run_id = $1 AND state = 'waiting'

-- name: find_unattended
-- What waits without a sign of life, by run and by who took it: nobody, or a deliverer that may be gone. Nobody's
-- sign of life is the event itself. $1 seconds without one
SELECT n.run_id, r.account, n.deliverer, max(n.notification_id) AS newest
  FROM notifications n JOIN billing_runs r USING (run_id)
 WHERE n.state = 'waiting'
   AND CASE WHEN n.deliverer IS NULL THEN ledger_now() - n.created_at ELSE clock_timestamp() - n.claimed_at END
       >= $1::double precision * interval '1 second'
 GROUP BY n.run_id, r.account, n.deliverer
 ORDER BY newest

-- name: release_notifications
-- Let others take what a deliverer took that runs no more. $1 deliverer
UPDATE notifications SET deliverer = NULL, claimed_at = NULL WHERE deliverer = $1 AND state = 'waiting'

-- name: retry_notifications
-- Let what waits be taken anew, also from a deliverer that pauses between two tries; of one run also what was given
-- up. $1 run_id or NULL
WITH released AS (
    UPDATE notifications SET state = 'waiting', ended_at = NULL, deliverer = NULL, claimed_at = NULL
     WHERE ($1::text IS NULL AND state = 'waiting') OR (run_id = $1 AND state IN ('waiting', 'given_up'))
    RETURNING run_id, old.deliverer
)
SELECT run_id, r.account, count(*) AS notifications,
       coalesce(array_agg(DISTINCT deliverer) FILTER (WHERE deliverer IS NOT NULL), '{}') AS deliverers
  FROM released JOIN billing_runs r USING (run_id) GROUP BY run_id, r.account ORDER BY run_id
