from tests.staging import stage_named
from tests.web.mail_fixtures import mail, scene

__all__ = ["mail", "scene", "stage"]

stage = stage_named("ledger_of_refunds")
