-- A run's vault keys end with it, in the transaction that ends the run: nothing that survives a close, no
-- frozen sender and no worker that heard of it too late, gets through the proxy after it. What may come afterwards
-- stays: keys that reconcile, which move no money, and approved refunds, which bring none in.

CREATE FUNCTION revoke_vault_keys_of_run() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE vault_keys
       SET revoked_at = ledger_now(), revoked_by = 'close', revoked_reason = 'the run has ended: ' || NEW.phase
     WHERE run_id = NEW.run_id AND revoked_at IS NULL
       AND scope <> 'refund' AND (scope <> 'reconcile' OR budget IS NOT NULL);
    RETURN NULL;
END
$$;

CREATE TRIGGER billing_runs_end_vault_keys AFTER UPDATE OF phase ON billing_runs
    FOR EACH ROW WHEN (NEW.phase IN ('closed', 'failed') AND OLD.phase IS DISTINCT FROM NEW.phase)
    EXECUTE FUNCTION revoke_vault_keys_of_run();
