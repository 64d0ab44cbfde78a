"""What each role of the ledger's database may do, and nothing more: applied again by every migration."""

# Workers and commands. What is appended is never rewritten by them: the journal's past is nobody's to change.
APP = """
GRANT USAGE ON SCHEMA public TO {role};
GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role};
GRANT INSERT, UPDATE ON billing_runs, charges, keys, attempts TO {role};
GRANT INSERT ON skipped_rows, takeovers, decisions, run_totals, run_events TO {role};
GRANT INSERT ON corrections TO {role};
GRANT UPDATE (applied_at) ON corrections TO {role};
GRANT INSERT, UPDATE ON follow_ups TO {role};
GRANT EXECUTE ON FUNCTION notice_restore() TO {role};
GRANT INSERT, UPDATE ON ledger_restores TO {role};
GRANT EXECUTE ON FUNCTION raise_run_caps(text, text[], bigint[], text, text) TO {role};
GRANT INSERT, UPDATE ON rate_limits TO {role};
GRANT INSERT ON rate_grants TO {role};
GRANT INSERT ON notifications, delivery_attempts TO {role};
GRANT UPDATE (deliverer, claimed_at, state, ended_at) ON notifications TO {role};
GRANT UPDATE (status, detail, ended_at) ON delivery_attempts TO {role};
GRANT INSERT ON calendar_decisions TO {role};
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role};
GRANT INSERT ON vault_keys TO {role};
GRANT UPDATE (expires_at, revoked_at, revoked_by, revoked_reason) ON vault_keys TO {role};
GRANT INSERT (budget, currency, cap_minor, daily) ON vault_budgets TO {role};
GRANT INSERT, UPDATE ON inbox_events, refunds, disputes, refund_requests TO {role};
GRANT INSERT, UPDATE ON reconciliations, drift, reconciliation_requests, reconciliation_gaps TO {role};
GRANT INSERT, UPDATE, DELETE ON reconciliation_slices, reconciliation_suspects, reconciliation_seen,
    reconciliation_refunds TO {role};
"""

# The spend-cap proxy does not trust the workers, and is not trusted with the ledger: it writes through its
# functions only.
PROXY = """
GRANT USAGE ON SCHEMA public TO {role};
GRANT SELECT ON vault_keys, vault_budgets, vault_calls, vault_answers, vault_intents, vault_open,
    vault_alarms, vault_audit, vault_standing TO {role};
GRANT EXECUTE ON FUNCTION vault_admit(jsonb, jsonb), vault_answer(jsonb), vault_due(integer, interval)
    TO {role};
"""

# The webhook receiver is what the internet talks to: it may keep an event, and see that it has it.
WEB = """
GRANT USAGE ON SCHEMA public TO {role};
GRANT SELECT ON ledger_clock, inbox_events TO {role};
GRANT INSERT ON inbox_events TO {role};
"""

# Whoever verifies reads everything and writes nothing, not even a temporary table.
AUDITOR = """
GRANT USAGE ON SCHEMA public TO {role};
GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role};
"""
