"""Refusals of requests: their reasons and statuses, and those by the state of the server and the size of a request."""

from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from albert.inference.server import batching
from albert.inference.server.limits import Limits

_REASONS: dict[int, tuple[str, ...]] = {
    400: ("protocol", "json", "client gone"),
    413: ("body", "texts", "characters", "candidates"),
    415: ("type",),
    421: ("host",),
    422: ("inability", "fields", "usage"),
    429: ("queue",),
    500: ("internal", "not finite"),
    503: ("connections", "starting", "broken", "ended", "memory"),
    504: ("deadline",),
}
"""Status -> reasons for refusing a request; refusals are counted by reason."""
_STATUS = {reason: status for status, reasons in _REASONS.items() for reason in reasons}


class Refused(HTTPException):
    """A refused request; by default the status is that of the reason."""

    def __init__(self, reason: str, why: str, status: int | None = None, **headers: str) -> None:
        super().__init__(
            status or _STATUS[reason], why, {name.replace("_", "-"): value for name, value in headers.items()}
        )
        self.reason = reason


def too_large(limit: int) -> Refused:
    """The refusal of a body by its length."""
    return Refused("body", f"the body is longer than {limit} bytes")


_UNREADY = {
    "starting": "the model is being loaded, try again in a moment",
    "broken": "the server failed and must be restarted",
}


def refuse_unready(service: batching.Service) -> None:
    """Raises Refused while the service is starting or broken."""
    state = service.state
    if state != "ready":
        raise Refused(state, _UNREADY[state], retry_after="2")


def queue_is_full(retry_after: int) -> Refused:
    """The refusal of a request because the queue is full."""
    return Refused("queue", f"the queue is full, try again in {retry_after} s", retry_after=str(retry_after))


def refusal(service: batching.Service, refused: Refused) -> JSONResponse:
    """Count a refusal, and return its reply."""
    service.metrics.refused.labels(refused.reason).inc()
    return JSONResponse({"error": refused.detail}, refused.status_code, refused.headers)


def refuse_too_much(limits: Limits, inputs: Sequence[batching.Input]) -> None:
    """Raises Refused for too many texts, or a text that is too long."""
    texts = sum(entry.text_count for entry in inputs)
    if texts > limits.texts:
        raise Refused("texts", f"{texts} texts in a request, at most {limits.texts} are allowed")
    longest = max((entry.longest for entry in inputs), default=0)
    if longest > limits.text_characters:
        why = f"a text of {longest} characters, at most {limits.text_characters} are allowed"
        raise Refused("characters", why)
