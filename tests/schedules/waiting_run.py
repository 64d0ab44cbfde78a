"""A run that goes no further than its beginning: in a module of its own, which the sandbox loads alone."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from workflows.contracts import RunInput


@workflow.defn(name="BillingRun")
class WaitingRun:
    """Waits, so that a test says what becomes of it."""

    @workflow.run
    async def run(self, _run: RunInput) -> None:
        """Wait to be terminated."""
        await workflow.wait_condition(lambda: False)
