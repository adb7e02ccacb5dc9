"""The application: its endpoints, error replies, and the OpenAPI document of this model."""

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from albert import __version__
from albert.checkpoints.hub import example_rows
from albert.inference.predictor import Predictor
from albert.inference.server import batching
from albert.inference.server.endpoints import addresses_of, pipeline_routes, report_routes
from albert.inference.server.middleware import RequestMiddleware
from albert.inference.server.page_files import page_routes
from albert.inference.server.refusals import Refused, refusal
from albert.runtime.errors import UsageError
from albert.tasks.pipelines import endpoints

UNMASKED = "The captain stood on the deck of the ship."
SECOND = "A man stood on the deck."
DESCRIPTION = """HTTP API of a trained model. Requests are JSON with one or more texts; each gets its own result.

The endpoints depend on the model's head; `GET /model` lists them. An error is one sentence under `error`.
"""


def application(service: batching.Service) -> RequestMiddleware:
    """The ASGI application."""
    app = FastAPI(
        title="albert",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # it would redirect to http:// and without the path of a reverse proxy
        servers=[{"url": "."}],  # relative to the address of openapi.json
    )
    full_document = app.openapi

    def supported_document() -> dict[str, Any]:
        """The OpenAPI document without the tasks that the model does not support."""
        document = full_document()
        if service.state == "starting":
            return document
        absent = {f"/{name}" for name in endpoints()} - set(addresses_of(service.predictor))
        paths = {address: methods for address, methods in document["paths"].items() if address not in absent}
        schemas = _referenced(paths, document["components"]["schemas"])
        components = document["components"] | {"schemas": schemas}
        return _with_examples(document | {"paths": paths, "components": components}, service.predictor)

    app.openapi = supported_document
    for routes in (pipeline_routes(service), report_routes(service), page_routes(service)):
        app.include_router(routes)
    _add_errors(app, service)
    return RequestMiddleware(app, service, frozenset(f"/{name}" for name in endpoints()))


def _referenced(paths: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    """The schemas that these paths refer to, and those that these refer to."""
    found: set[str] = set()
    to_read = [json.dumps(paths)]
    while to_read:
        names = set(re.findall(r'"#/components/schemas/([^"]+)"', to_read.pop())) - found
        found |= names
        to_read += [json.dumps(schemas[name]) for name in names]
    return {name: schema for name, schema in schemas.items() if name in found}


def _with_examples(document: dict[str, Any], predictor: Predictor) -> dict[str, Any]:
    """The document with examples that this model answers: of `/layers` without a mask if it fills none, and with a
    second text if it was trained on pairs; where the model's files have a row, it is that one."""
    own = next((row for row in example_rows(Path(predictor.name)) if row.get("text")), None)
    row = own or {"text": UNMASKED}
    if predictor.reads_pairs is True:
        row = {"pair": SECOND} | row
    examples: dict[str, dict[str, Any]] = {}
    if not predictor.can("fill-mask"):
        examples["LayersRequest"] = {name: row[name] for name in ("text", "pair") if row.get(name)}
    if own is not None or row.get("pair"):
        texts = {"texts": [row["text"]], **({"pairs": [row["pair"]]} if row.get("pair") else {})}
        examples |= {"ClassifyRequest": texts, "ScoreRequest": texts}
    schemas = document["components"]["schemas"]
    changed = {name: schemas[name] | {"examples": [example]} for name, example in examples.items() if name in schemas}
    return document | {"components": document["components"] | {"schemas": schemas | changed}}


def _add_errors(app: FastAPI, service: batching.Service) -> None:
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
    kind = error["type"]
    value = error.get("input")
    bounds = error.get("ctx") or {}
    if kind == "missing" and len(error["loc"]) == 1:
        return "is empty, a JSON object is expected"
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return "is not a field of this request"
    if kind == "too_short" and bounds["actual_length"] == 0:
        return f"is an empty list; give at least {bounds['min_length']}"
    if kind == "too_short":
        return f"has {bounds['actual_length']}, at least {bounds['min_length']} are needed"
    if kind == "too_long":
        return f"has {bounds['actual_length']}, at most {bounds['max_length']} are allowed"
    if kind == "greater_than_equal":
        return f"is {value}, at least {bounds['ge']} is needed"
    if kind == "less_than_equal":
        return f"is {value}, at most {bounds['le']} is allowed"
    if kind == "literal_error":
        return f"is {json.dumps(value)[:_SHOWN_CHARACTERS]}; use {bounds['expected']}"
    if kind in _EXPECTED:
        expected = "a JSON object" if len(error["loc"]) == 1 else _EXPECTED[kind]
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
