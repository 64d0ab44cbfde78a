"""What a refusal tells its reader: which amount, endpoint, account or key it was about.

The reader is whoever holds the vault key. Paths were found plain before, and are cut; nothing secret is here.
"""

from collections.abc import Mapping

from activities.ledger.cap import Admission, Ask
from worker.money_shown import show_money
from worker.proxy.answers import ENDPOINT_NOT_ALLOWED, VAULT_KEY_UNKNOWN
from workflows.domain.vault import is_plain_path
from workflows.domain.verdict import CAP_EXCEEDED

PATH_CHARACTERS_MAX = 120


def describe(ask: Ask, admission: Admission, modes: Mapping[str, str]) -> str:
    """Return the detail of a refusal. `modes`: the proxy's accounts, each with its mode."""
    match admission.decision:
        case code if code == CAP_EXCEEDED:
            return _over(admission)
        case code if code == ENDPOINT_NOT_ALLOWED:
            return _not_allowed(ask)
        case code if code == VAULT_KEY_UNKNOWN:
            return "nobody issued this one"
        case "vault_key_revoked" | "vault_key_expired":
            return admission.key_id or ""
        case "account_not_allowed":
            return _other_account(ask, admission, modes)
        case "mode_not_allowed":
            return f"the proxy's key for {admission.account} is a {modes.get(admission.account or '')} key"
        case _:
            return ask.refused_detail


def _over(admission: Admission) -> str:
    asked = show_money(admission.asked_minor, admission.currency)
    if admission.cap_minor is None:
        return f"{asked} asked for, and the key has no cap in this currency"
    left, cap = (show_money(part, admission.currency) for part in (admission.left_minor, admission.cap_minor))
    return f"{asked} asked for, {left} left of {cap}"


def _not_allowed(ask: Ask) -> str:
    if ask.endpoint is not None:
        return ask.endpoint
    path = ask.path[:PATH_CHARACTERS_MAX] if is_plain_path(ask.path) else "this path"
    return f"{ask.method} {path} can't be allowed to any key"


def _other_account(ask: Ask, admission: Admission, modes: Mapping[str, str]) -> str:
    if ask.account is not None and ask.account != admission.account:
        return f"the key is for {admission.account}, the request for {ask.account}"
    return f"the proxy has no Stripe key for {admission.account}" if admission.account not in modes else ""
