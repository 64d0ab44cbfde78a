"""A reconciliation that goes no further than its beginning, in a module that the sandbox loads alone."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from workflows.reconcile_contracts import ReconcileRequest


@workflow.defn(name="Reconcile")
class WaitingReconcile:
    """Waits, so that a test says what becomes of it."""

    @workflow.run
    async def run(self, _request: ReconcileRequest) -> None:
        """Wait to be terminated."""
        await workflow.wait_condition(lambda: False)
