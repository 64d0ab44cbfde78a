-- name: lease_slots
-- Slots for requests, spaced by the rate, and how far away the first is. $1 account $2 endpoint
-- $3 requests per second $4 slots wanted $5 whether the grants are recorded
SELECT slots, first_in_seconds, spacing_seconds, share_now FROM lease_slots($1, $2, $3, $4, $5)

-- name: slow_down_slots
-- A bucket pauses and goes on more slowly. $1 account $2 endpoint $3 seconds of pause
SELECT slow_down_slots($1, $2, $3)
