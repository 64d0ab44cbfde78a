-- What a calendar asks of the ledger: which periods were billed, and what was decided about those that were not.

-- Asked for each period of a calendar, and by every plan that looks for the runs beside it.
CREATE INDEX billing_runs_by_period ON billing_runs (account, period, run_id);

-- A period that nobody billed stays missed until somebody bills it, or says why it will not be. The newest row
-- of an account and period is the one that counts; none is ever changed.
CREATE TABLE calendar_decisions (
    decision_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account     text NOT NULL CHECK (account <> ''),
    period      text NOT NULL CHECK (period <> ''),
    schedule    text NOT NULL,
    decision    text NOT NULL CHECK (decision IN ('bill', 'waive')),
    who         text NOT NULL CHECK (who <> ''),
    reason      text NOT NULL CHECK (reason <> ''),
    at          timestamptz NOT NULL
);

CREATE INDEX calendar_decisions_by_period ON calendar_decisions (account, period, decision_id);
