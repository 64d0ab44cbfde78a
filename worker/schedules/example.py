"""A file of schedules with every key: what is commented out is the default, or an example of it."""

EXAMPLE = """\
# What chargeonce bills by the calendar. `chargeonce schedule sync --file FILE` makes Temporal's schedules
# what this file says, `schedule preview` prints the next firings, and `schedule sweep` finds what was missed.

[[schedule]]
name = "monthly"
account = "acct_1"

# The account's time zone: periods begin and end at its midnights.
zone = "America/New_York"

# month, quarter, week or day.
every = "month"

# The first period that is billed; older ones are no business of the sweep. `until` names the last one.
since = "2031-01"
# until = "2032-12"

# Relative to this file. {period} becomes 2031-01, 2031-Q1, 2031-W01 or 2031-01-31.
source = "exports/{period}.csv"

# The day on which a month or quarter begins, 1 to 31 or "last"; of a week, "mon" to "sun".
# anchor = 1

# A firing bills the period that has ended or, with "current", the one that begins: 0 to 27 days after that
# bound, at this local time. Where clocks skip that, it fires as much later; where they show it twice, first.
# bills = "previous"
# days_after = 0
# at = "06:00"

# Each plan waits for somebody's approval. "any" approves every plan beforehand, and `approve_within` those
# that are within these totals and of no other currency.
# approve = "plan"
# approve_within = { usd = "250000.00" }

# Of firings that were missed the sweep bills none unasked, or the "latest", or "all".
# missed = "ask"

# So late Temporal may still fire by itself after an outage of its own; so long a firing waits for its source.
# catch_up = "3d"
# source_wait = "6h"

# The rest as in `chargeonce run start`. Without canary_max_declined a person looks at every canary, and
# without retry_policy the one counts that `chargeonce retry-policy show` prints.
# skip_invalid = false
# below_minimum = "charge"
# change_percent = 20.0
# canary = 0
# canary_max_declined = 2.0
# retry_policy = "retries.toml"
# slice_size = 500
"""

RECONCILE_EXAMPLE = """\

# What is compared with Stripe by the calendar, as `chargeonce reconcile --since` does it.
[[reconcile]]
name = "nightly"
account = "acct_1"

# It fires at this local time, as a day, week or month begins; `anchor` as above.
zone = "America/New_York"
# every = "day"
# anchor = 1
# at = "05:00"

# Every charge that was first sent in so many days before. Debits and refunds take days to be final.
# look_back_days = 7

# What moves no money is repaired at once. A refund never is: somebody approves it.
# repair = false

# So late Temporal may still fire by itself after an outage of its own.
# catch_up = "3d"
"""
