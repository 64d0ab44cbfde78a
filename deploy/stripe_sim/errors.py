"""Error answers in Stripe's shape."""

from typing import Any


class ApiError(Exception):
    """An answer other than 2xx.

    `executed` says whether the endpoint had begun its work. Only then is the answer stored under an
    idempotency key (docs.stripe.com/api/idempotent_requests): a request that fails validation leaves its key
    unused.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        executed: bool = False,
        headers: dict[str, str] | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.executed = executed
        self.headers = headers or {}
        self.fields: dict[str, Any] = {"type": kind, "message": message}
        if code is not None:
            self.fields["code"] = code
            self.fields["doc_url"] = error_url(code)
        if param is not None:
            self.fields["param"] = param
        self.fields.update((name, value) for name, value in fields.items() if value is not None)

    def to_body(self) -> dict[str, Any]:
        """Return the body of the answer."""
        return {"error": self.fields}


def error_url(code: str) -> str:
    """Return where Stripe explains an error code."""
    return f"https://stripe.com/docs/error-codes/{code.replace('_', '-')}"


def bad_request(message: str, *, code: str | None = None, param: str | None = None) -> ApiError:
    """Return a parameter error: 400, nothing executed, nothing stored."""
    return ApiError(400, message, code=code, param=param)


def missing_object(noun: str, object_id: str, *, param: str, status: int = 404) -> ApiError:
    """Return `resource_missing`: 404 for an id in the path, 400 for one in a parameter."""
    return ApiError(status, f"No such {noun}: '{object_id}'", code="resource_missing", param=param)
