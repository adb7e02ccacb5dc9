"""Whatever goes wrong with a request, as a status and one sentence: `Refused`, and errors of pydantic and starlette."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from albert.inference.server.batching import Service
from albert.runtime.errors import UsageError
from albert.tasks.pipeline import ReplyTooLarge

_STATUS = {
    "protocol": 400,
    "json": 400,
    "client gone": 400,
    "body": 413,
    "texts": 413,
    "characters": 413,
    "candidates": 413,
    "type": 415,
    "host": 421,
    "inability": 422,
    "fields": 422,
    "usage": 422,
    "queue": 429,
    "internal": 500,
    "not finite": 500,
    "connections": 503,
    "starting": 503,
    "broken": 503,
    "ended": 503,
    "memory": 503,
    "deadline": 504,
}
"""Reason for refusing a request -> status; refusals are counted by reason."""


class Refused(HTTPException):
    """A refused request; by default the status is that of the reason."""

    def __init__(self, reason: str, why: str, status: int | None = None, **headers: str) -> None:
        super().__init__(
            status or _STATUS[reason], why, {name.replace("_", "-"): value for name, value in headers.items()}
        )
        self.reason = reason


_UNREADY = {
    "starting": "the model is being loaded, try again in a moment",
    "broken": "the server failed and must be restarted",
}


def refuse_unready(service: Service) -> None:
    """Raises Refused while the service is starting or broken."""
    state = service.state
    if state != "ready":
        raise Refused(state, _UNREADY[state], retry_after="2")


def refusal(service: Service, refused: Refused) -> JSONResponse:
    """Count a refusal, and return its reply."""
    service.metrics.refused.labels(refused.reason).inc()
    return JSONResponse({"error": refused.detail}, refused.status_code, refused.headers)


def add_error_replies(app: FastAPI, service: Service) -> None:
    """Turn every error into a status and one sentence; server errors are logged."""

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        if not isinstance(error, Refused):
            status = HTTPStatus(error.status_code)
            headers = {name.lower(): value for name, value in (error.headers or {}).items()}
            methods = headers.get("allow", "").split(", ")
            if "GET" in methods:
                headers["allow"] = ", ".join([*methods, "HEAD"])
            phrase = status.phrase.lower()
            why = _MESSAGES.get(status, phrase)
            if status == HTTPStatus.NOT_FOUND and len(request.url.path) > 1 and request.url.path.endswith("/"):
                why = "no such address; write it without the slash at its end"
            if status == HTTPStatus.BAD_REQUEST:
                why = _unreadable(error.__cause__)
            error = Refused(phrase, why, status, **headers)
        return refusal(service, error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            parsed = json.JSONDecodeError(first["ctx"]["error"], error.body, first["loc"][-1])
            return refusal(service, Refused("json", f"the body is not JSON: {parsed}"))
        where = ".".join(str(part) for part in first["loc"][1:]) or "body"
        return refusal(service, Refused("fields", f"{where}: {_why_invalid(first)}"))

    @app.exception_handler(UsageError)
    async def usage_error(request: Request, error: UsageError) -> Response:
        return refusal(service, Refused("usage", str(error)))

    @app.exception_handler(ReplyTooLarge)
    async def reply_too_large(request: Request, error: ReplyTooLarge) -> Response:
        return refusal(service, Refused("candidates", str(error)))

    @app.exception_handler(Exception)
    async def internal_error(request: Request, error: Exception) -> Response:
        return refusal(service, Refused("internal", "internal error"))


_EXPECTED = {
    "model_type": "an object",
    "model_attributes_type": "an object",
    "list_type": "a list",
    "string_type": "a text",
    "int_type": "a whole number",
    "bool_type": "true or false",
}
"""Type of an error of pydantic -> what the value should be in JSON."""
_JSON_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
}
_SHOWN_CHARACTERS = 40


def _why_invalid(error: Mapping[str, Any]) -> str:
    """What is wrong with a value of a request, and what is expected, for an error of pydantic."""
    problem = error["type"]
    value = error.get("input")
    bounds = error.get("ctx") or {}
    if problem == "missing" and len(error["loc"]) == 1:
        return "is empty, a JSON object is expected"
    if problem == "missing":
        return "is missing"
    if problem == "extra_forbidden":
        return "is not a field of this request"
    if problem == "too_short" and bounds["actual_length"] == 0:
        return f"is an empty list; give at least {bounds['min_length']}"
    if problem == "too_short":
        return f"has {bounds['actual_length']}, at least {bounds['min_length']} are needed"
    if problem == "too_long":
        return f"has {bounds['actual_length']}, at most {bounds['max_length']} are allowed"
    if problem == "greater_than_equal":
        return f"is {value}, at least {bounds['ge']} is needed"
    if problem == "less_than_equal":
        return f"is {value}, at most {bounds['le']} is allowed"
    if problem == "literal_error":
        return f"is {json.dumps(value)[:_SHOWN_CHARACTERS]}; use {bounds['expected']}"
    if problem in _EXPECTED:
        expected = "a JSON object" if len(error["loc"]) == 1 else _EXPECTED[problem]
        return f"is {_JSON_NAMES.get(type(value), 'null')}, {expected} is expected"
    return error["msg"]


def _unreadable(error: BaseException | None) -> str:
    """Why a body is no JSON in UTF-8."""
    if isinstance(error, UnicodeDecodeError):
        return f"the body is not UTF-8: byte 0x{error.object[error.start]:02x} at position {error.start}"
    if isinstance(error, RecursionError):
        return "the body is not JSON that can be read: it is nested too deeply"
    return "the body is not JSON that can be read"


_MESSAGES = {
    HTTPStatus.NOT_FOUND: "no such address; GET /openapi.json lists them",
    HTTPStatus.METHOD_NOT_ALLOWED: "this address does not support this method; GET /openapi.json lists them",
}
