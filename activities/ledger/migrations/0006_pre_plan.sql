-- What a plan needs: slices with a canary in front, and what a takeover changed.

-- The slice of the line that is the `place`-th to be charged (from 1; 0 is before the first). The canary is
-- slice 0, and the rest begins with slice 1.
CREATE FUNCTION plan_slice(place bigint, slice_lines bigint, canary_lines bigint) RETURNS integer
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN place <= canary_lines THEN 0
                ELSE (greatest(place - canary_lines - 1, 0) / slice_lines
                      + CASE WHEN canary_lines > 0 THEN 1 ELSE 0 END)::integer END
$$;

-- The earlier run's books must add up after its line has gone elsewhere.
ALTER TABLE takeovers
    ADD COLUMN from_state   text,
    ADD COLUMN currency     text,
    ADD COLUMN amount_minor bigint;
