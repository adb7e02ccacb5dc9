"""HTTP: checks before a request's body is read, request handling, endpoints, the web page, and error replies.

Under overload nearly all requests are refused by `RequestMiddleware`, at the cost of reading their header. `respond`
queues an accepted one and waits for its result, its deadline or a disconnect. Every name of a pipeline is an
endpoint; its requests and replies are checked and described by models of `albert.inference.server.models`."""

import asyncio
import json
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from email.message import Message as EmailMessage
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import TypeAdapter
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Send

from albert import __version__
from albert.checkpoints.hub import example_rows, name_of
from albert.inference.predictor import Predictor
from albert.inference.server import batching
from albert.inference.server.batching import Request as Accepted
from albert.inference.server.limits import Limits
from albert.inference.server.models import ErrorReply, ModelReply, reply_model, request_model
from albert.inference.texts import check_second_texts
from albert.runtime.errors import UsageError
from albert.tasks.pipeline import Pipeline
from albert.tasks.pipelines import endpoints

ACCEPTED = "albert.accepted"  # Key of the ASGI scope that an endpoint sets when it has queued its request
_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
"""Headers of every reply."""

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


DISCARDED_BYTES = 32_000_000
"""Bytes of a refused body that are read and dropped."""
DISCARD_SECONDS = 5.0
"""Seconds to wait for the next part of a refused body."""


class _Body:
    """A request's body while it arrives; `receive` raises Refused when it is longer than `limit` bytes."""

    def __init__(self, headers: Headers, receive: Receive, limit: int) -> None:
        length = int(headers.get("content-length", "0"))
        is_chunked = "transfer-encoding" in headers
        self._receive = receive
        self._limit = limit
        self._bytes = 0
        self._is_long = is_chunked or length > limit
        self._is_complete = not is_chunked and length == 0

    @property
    def is_left(self) -> bool:
        """Whether so much of it may be left that the connection is closed; uvicorn skips the rest of a short one."""
        return self._is_long and not self._is_complete

    async def receive(self) -> Message:
        message = await self._next()
        if self._bytes > self._limit:
            raise too_large(self._limit)
        return message

    async def discard(self) -> None:
        """Read and drop what is left: a client that still sends when the connection is closed loses the reply."""
        end = self._bytes + DISCARDED_BYTES
        with suppress(TimeoutError, asyncio.CancelledError):  # cancelled: the time to shut down is over
            while not self._is_complete and self._bytes < end:
                await asyncio.wait_for(self._next(), DISCARD_SECONDS)

    async def _next(self) -> Message:
        message = await self._receive()
        self._bytes += len(message.get("body", b""))
        self._is_complete = not message.get("more_body", False)
        return message


class RequestMiddleware:
    """ASGI middleware that checks requests by their headers; `addresses` are those that take a body and need the
    model."""

    def __init__(self, inner: ASGIApp, service: batching.Service, addresses: frozenset[str]) -> None:
        self._inner = inner
        self._service = service
        self._addresses = addresses

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0
        body = _Body(Headers(raw=scope["headers"]), receive, self._service.limits.body_bytes)
        closes = False

        async def send_with_headers(message: Message) -> None:
            nonlocal status, closes
            if message["type"] == "http.response.start":
                status = message["status"]
                closes = body.is_left
                close = [(b"connection", b"close")] if closes else []
                message["headers"] = [*message.get("headers", []), *_HEADERS, *close]
            elif closes and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await body.discard()
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        try:
            try:
                self._check(scope)
            except Refused as refused:
                await refusal(self._service, refused)(scope, receive, send_with_headers)
            else:
                # uvicorn leaves out the body of a reply to HEAD; the routes are those of GET
                inner = dict(scope, method="GET") if scope["method"] == "HEAD" else scope
                await self._inner(inner, body.receive, send_with_headers)
        finally:
            if scope.get(ACCEPTED):
                self._service.in_progress -= 1
            address = scope["path"] if scope["path"] in self._addresses else "other"
            seconds = time.perf_counter() - started
            self._service.metrics.request_seconds.labels(address, str(status)).observe(seconds)

    def _check(self, scope: Message) -> None:
        """Raises Refused by a request's header."""
        limits = self._service.limits
        headers = Headers(raw=scope["headers"])
        length = headers.get("content-length")
        if length is not None and "transfer-encoding" in headers:
            raise Refused("protocol", "Content-Length and Transfer-Encoding contradict each other")
        if self._service.is_crowded():
            raise Refused("connections", "too many connections, try again", retry_after="2", connection="close")
        if not all(map(self._service.hosts.allow, headers.getlist("host"))):
            why = "the Host header is not allowed by this server; add it by albert serve --allowed-host NAME"
            raise Refused("host", why)
        if length is not None and int(length) > limits.body_bytes:
            raise too_large(limits.body_bytes)
        if scope["method"] == "POST" and scope["path"] in self._addresses:
            refuse_unready(self._service)
            if self._service.batcher.backlog.is_full:
                raise queue_is_full(self._service.batcher.backlog.retry_after)
            content_type = EmailMessage()
            content_type["content-type"] = headers.get("content-type", "")
            charset = content_type.get_content_charset("utf-8")
            if content_type.get_content_type() != "application/json" or charset not in ("", "utf-8", "utf8"):
                raise Refused("type", "requests must be JSON in UTF-8 with Content-Type: application/json")
            if headers.get("content-encoding", "identity").lower() != "identity":
                raise Refused("type", "compressed bodies are not supported")


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


# --------------------------------------------------------------------------------------------------------------------
# Handling of a request: sizes, the queue, the deadline, disconnected clients.

logger = logging.getLogger("albert.server")


async def respond(
    service: batching.Service, request: Request, call: batching.Call, inputs: Sequence[batching.Input]
) -> Response:
    """Queue the inputs and wait for their results; the reply has `Server-Timing` in milliseconds."""
    refuse_unready(service)
    refuse_too_much(service.limits, inputs)
    try:
        accepted = service.batcher.submit(call, inputs)
    except batching.QueueFull as full:
        raise queue_is_full(full.args[0]) from None
    request.scope[ACCEPTED] = True
    service.in_progress += 1
    results = await _wait(service, request, accepted)
    assert accepted.started is not None and accepted.ended is not None
    queued = accepted.started - accepted.arrived
    computed = accepted.ended - accepted.started
    timing = f"queue;dur={1000 * queued:.2f}, model;dur={1000 * computed:.2f}"
    return Response(await _body(results), media_type="application/json", headers={"server-timing": timing})


async def _body(results: Sequence[Any]) -> str:
    """The results as JSON; yields to the event loop after each, since a result may have megabytes."""
    parts = []
    for result in results:
        try:
            parts.append(json.dumps(result, default=np.ndarray.tolist, allow_nan=False, separators=(",", ":")))
        except ValueError:
            raise Refused("not finite", "the model's output for this text is not finite") from None
        await asyncio.sleep(0)
    return f'{{"results":[{",".join(parts)}]}}'


async def _wait(service: batching.Service, request: Request, accepted: Accepted) -> list[Any]:
    gone = asyncio.ensure_future(_disconnected(request))
    waited = {accepted.answers, gone}
    try:
        await asyncio.wait(waited, timeout=service.limits.request_seconds, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:  # the time to shut down is over
        service.unanswered += 1
        raise Refused("ended", "the server shut down before this was computed") from None
    finally:
        gone.cancel()
    if accepted.answers.done():
        error = accepted.answers.exception()
        if error is not None:
            raise _failure(error)
        return accepted.answers.result()
    if gone.done():
        service.batcher.drop(accepted, "client gone")
        raise Refused("client gone", "the client went away")  # nobody reads this
    service.batcher.drop(accepted, "deadline")
    raise Refused("deadline", f"no answer within {service.limits.request_seconds:g} seconds")


def _failure(error: BaseException) -> Refused:
    """The refusal for a failed computation; unexpected errors are logged."""
    if batching.lacks_memory(error):
        logger.error("not enough memory: %s", str(error).partition("\n")[0])
        why = "the server has not enough memory for this; send fewer or shorter texts, or try again later"
        return Refused("memory", why, retry_after="2")
    if isinstance(error, UsageError):
        return Refused("usage", str(error))
    logger.error("a text could not be computed", exc_info=error)
    return Refused("internal", "this text could not be computed")


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue


def refuse_too_much(limits: Limits, inputs: Sequence[batching.Input]) -> None:
    """Raises Refused for too many texts, or a text that is too long."""
    texts = sum(entry.text_count for entry in inputs)
    if texts > limits.texts:
        raise Refused("texts", f"{texts} texts in a request, at most {limits.texts} are allowed")
    longest = max((entry.longest for entry in inputs), default=0)
    if longest > limits.text_characters:
        why = f"a text of {longest} characters, at most {limits.text_characters} are allowed"
        raise Refused("characters", why)


# --------------------------------------------------------------------------------------------------------------------
# An endpoint for each task.

_REFUSALS = (400, 413, 415, 421, 422, 429, 503, 504)


def pipeline_routes(service: batching.Service) -> APIRouter:
    """An endpoint for each task."""
    router = APIRouter(tags=["inference"])
    for endpoint in endpoints().values():
        _add_endpoint(router, service, endpoint)
    return router


def _add_endpoint(router: APIRouter, service: batching.Service, endpoint: type[Pipeline]) -> None:
    shape: Any = request_model(endpoint)
    checked = TypeAdapter(endpoint.Request)

    async def answer(request: Request, body: shape) -> Response:  # type: ignore[valid-type]
        refuse_unready(service)
        predictor = service.predictor
        if not predictor.can(endpoint.name):
            can = " and ".join(predictor.abilities) or "only embed texts"
            raise Refused("inability", f"this model cannot {endpoint.needs}; it can {can}")
        pipeline = predictor.pipeline(endpoint.name)
        content = checked.validate_python(body.model_dump())
        examples = pipeline.examples(content)
        if pipeline.takes_pair:
            second = "pair" if hasattr(content, "pair") else "pairs"
            check_second_texts(second, getattr(content, second) is not None, predictor.reads_pairs)
        service.warn_of_unknown(examples)
        why = pipeline.too_much(content)
        if why is not None:
            raise Refused("candidates", why)
        call = batching.Call(pipeline.name, pipeline.settings(content), len(examples[0].texts) > 1)
        sized = [batching.as_input(predictor, example, pipeline.is_windowed) for example in examples]
        return await respond(service, request, call, sized)

    replies: dict[int | str, dict[str, Any]] = {
        200: {"model": reply_model(endpoint), "description": "One result for each text."}
    }
    replies |= {status: {"model": ErrorReply} for status in _REFUSALS}
    answer.__doc__ = endpoint.about
    router.post(f"/{endpoint.name}", name=endpoint.name, responses=replies, response_model=None)(answer)


def addresses_of(predictor: Predictor) -> list[str]:
    """The endpoints that this model supports."""
    return [f"/{pipeline.name}" for pipeline in predictor.pipelines]


def model_facts(predictor: Predictor, limits: Limits) -> dict[str, Any]:
    """Properties of the model for clients; without its path on this machine."""
    labelled = any(pipeline.has_labels for pipeline in predictor.pipelines)
    facts = {
        "name": name_of(Path(predictor.name)),
        "abilities": list(predictor.abilities) or ["embed texts"],
        "addresses": addresses_of(predictor),
        "labels": predictor.labels if labelled else [],
        "pairs": predictor.reads_pairs,
        "columns": predictor.columns,
        "problem_type": predictor.extra.get("problem_type"),
        "device": str(predictor.device),
        "limits": asdict(limits),
    }
    others = {**vars(predictor.config), **vars(predictor), "max_length": predictor.read_length}
    return {name: facts[name] if name in facts else others[name] for name in ModelReply.model_fields}


# --------------------------------------------------------------------------------------------------------------------
# The web page and its documentation: files in page/, read once, without external resources.

_TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_NAMES = {"index.html": "/", "documentation.html": "/docs"}


def page_routes(service: batching.Service) -> APIRouter:
    """An endpoint for each file of the web page."""
    router = APIRouter(include_in_schema=False)

    def add(name: str, content: bytes) -> None:
        kind = _TYPES["." + name.rsplit(".", 1)[1]]

        @router.get(_NAMES.get(name, f"/page/{name}"))
        async def file() -> Response:
            return Response(content, headers={"content-type": kind})

    for entry in files("albert.inference.server").joinpath("page").iterdir():
        add(entry.name, entry.read_bytes())

    @router.get("/page/tasks.json")
    async def tasks() -> Response:
        """The tasks that have a tab; page/tasks.js has their fields and views."""
        with_tab = [endpoint for endpoint in endpoints().values() if endpoint.reads_rows]
        tabs = sorted(with_tab, key=lambda endpoint: not endpoint.has_first_tab)
        return JSONResponse([{"address": f"/{task.name}", "title": task.name, "hint": task.about} for task in tabs])

    @router.get("/page/examples.json")
    async def examples() -> Response:
        refuse_unready(service)
        return JSONResponse({"examples": example_rows(Path(service.predictor.name))})

    return router


# --------------------------------------------------------------------------------------------------------------------
# Endpoints without input: /model, /healthz, /readyz, /metrics.


def report_routes(service: batching.Service) -> APIRouter:
    """The endpoints without input."""
    router = APIRouter(tags=["status"], responses={421: {"model": ErrorReply}})

    @router.get("/model", response_model=None, responses={200: {"model": ModelReply}, 503: {"model": ErrorReply}})
    async def model() -> Response:
        """Abilities and properties of the model, and limits of the server."""
        refuse_unready(service)
        return JSONResponse(model_facts(service.predictor, service.limits))

    @router.get("/healthz", response_model=None)
    async def health() -> Response:
        """Liveness."""
        return JSONResponse({"state": service.state}, 500 if service.state == "broken" else 200)

    @router.get("/readyz", response_model=None, responses={503: {"description": "Starting or broken."}})
    async def readiness() -> Response:
        """Readiness: whether requests are accepted."""
        return JSONResponse({"state": service.state}, 200 if service.state == "ready" else 503)

    @router.get("/metrics", response_model=None, response_class=Response)
    async def metrics() -> Response:
        """Prometheus metrics."""
        return Response(generate_latest(service.metrics.registry), headers={"content-type": CONTENT_TYPE_LATEST})

    return router


# --------------------------------------------------------------------------------------------------------------------
# The application: endpoints, error handlers, and the OpenAPI document of this model.

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
        return _with_examples(document | {"paths": paths}, service.predictor)

    app.openapi = supported_document
    for routes in (pipeline_routes(service), report_routes(service), page_routes(service)):
        app.include_router(routes)
    _add_errors(app, service)
    return RequestMiddleware(app, service, frozenset(f"/{name}" for name in endpoints()))


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
    changed = {name: schemas[name] | {"examples": [example]} for name, example in examples.items()}
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
