"""What a request passes, from its header to its reply:

1. `RequestMiddleware` checks the header before the body is read: number of connections, host, length, whether the
   model is loaded and the queue has room, and the type of the content.
2. pydantic checks the body by what the pipeline says of its requests (`openapi.request_model`).
3. The endpoint (`_add_endpoint`) lets the pipeline, a file of `albert.tasks`, make examples of the request.
4. `_reply` puts them into the queue (`batching.Batcher`), whose thread computes batches of the texts of all clients by
   `Predictor.replies_or_errors`. `_results` waits for them, until the deadline, or until the client is gone.
5. `_as_json` writes the results.

What is raised on the way becomes a status and one sentence (`refusals`). Addresses without a queue are in `status` and
`page_files`."""

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from email.message import Message as EmailMessage
from typing import Any

import numpy as np
from fastapi import FastAPI
from pydantic import TypeAdapter
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Send

from albert import __version__
from albert.inference.server.batching import Call, QueuedRequest, QueueFull, Service, SizedExample, lacks_memory
from albert.inference.server.openapi import DESCRIPTION, ErrorReply, describe_model, reply_model, request_model
from albert.inference.server.page_files import page_routes
from albert.inference.server.refusals import Refused, add_error_replies, refusal, refuse_unready
from albert.inference.server.status import status_routes
from albert.inference.texts import check_second_texts
from albert.runtime.errors import UsageError
from albert.tasks.pipeline import Pipeline
from albert.tasks.pipelines import endpoints

logger = logging.getLogger("albert.server")


def application(service: Service) -> "RequestMiddleware":
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
    describe_model(app, service)
    for endpoint in endpoints().values():
        _add_endpoint(app, service, endpoint)
    app.include_router(status_routes(service))
    app.include_router(page_routes(service))
    add_error_replies(app, service)
    return RequestMiddleware(app, service, frozenset(f"/{name}" for name in endpoints()))


# --------------------------------------------------------------------------------------------------------------------
# 1. The header, checked before the body is read. Under overload nearly all requests are refused here, at the cost of
# reading their header.

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

DISCARDED_BYTES = 32_000_000
"""Bytes of a refused body that are read and dropped."""
DISCARD_SECONDS = 5.0
"""Seconds to wait for the next part of a refused body."""


class RequestMiddleware:
    """ASGI middleware that checks requests by their headers, and adds headers to every reply; `addresses` are those
    that take a body and need the model."""

    def __init__(self, inner: ASGIApp, service: Service, addresses: frozenset[str]) -> None:
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
            raise _too_long(limits.body_bytes)
        if scope["method"] == "POST" and scope["path"] in self._addresses:
            refuse_unready(self._service)
            if self._service.batcher.backlog.is_full:
                raise _queue_is_full(self._service.batcher.backlog.retry_after)
            content_type = EmailMessage()
            content_type["content-type"] = headers.get("content-type", "")
            charset = content_type.get_content_charset("utf-8")
            if content_type.get_content_type() != "application/json" or charset not in ("", "utf-8", "utf8"):
                raise Refused("type", "requests must be JSON in UTF-8 with Content-Type: application/json")
            if headers.get("content-encoding", "identity").lower() != "identity":
                raise Refused("type", "compressed bodies are not supported")


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
            raise _too_long(self._limit)
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


def _too_long(limit: int) -> Refused:
    return Refused("body", f"the body is longer than {limit} bytes")


def _queue_is_full(retry_after: int) -> Refused:
    return Refused("queue", f"the queue is full, try again in {retry_after} s", retry_after=str(retry_after))


# --------------------------------------------------------------------------------------------------------------------
# 2. and 3. An endpoint for each name of a pipeline: the body, checked by pydantic, to examples with their sizes.

_REFUSALS = (400, 413, 415, 421, 422, 429, 503, 504)


def _add_endpoint(app: FastAPI, service: Service, endpoint: type[Pipeline]) -> None:
    """The endpoint of pipelines with this name, such as `POST /choose`."""
    shape: Any = request_model(endpoint)
    as_dataclass = TypeAdapter(endpoint.Request)

    async def answer(request: Request, body: shape) -> Response:  # type: ignore[valid-type]
        refuse_unready(service)
        predictor = service.predictor
        pipeline = next((own for own in predictor.pipelines if own.name == endpoint.name), None)
        if pipeline is None:
            can = " and ".join(predictor.abilities) or "only embed texts"
            raise Refused("inability", f"this model cannot {endpoint.needs}; it can {can}")
        content = as_dataclass.validate_python(body.model_dump())  # the pipeline's `Request`
        examples = pipeline.examples(content)
        if pipeline.takes_pair:  # of texts, where the model was trained on pairs
            second = "pair" if hasattr(content, "pair") else "pairs"
            check_second_texts(second, getattr(content, second) is not None, predictor.reads_pairs)
        service.warn_of_unknown(examples)
        call = Call(pipeline.with_options_of(content), of_pairs=len(examples[0].texts) > 1)
        sized = [SizedExample.of(example, predictor.max_length, pipeline.is_windowed) for example in examples]
        _refuse_too_much(service, sized)
        return await _reply(service, request, call, sized)

    replies: dict[int | str, dict[str, Any]] = {
        200: {"model": reply_model(endpoint), "description": "One result for each text."}
    }
    replies |= {status: {"model": ErrorReply} for status in _REFUSALS}
    answer.__doc__ = endpoint.about
    route = app.post(
        f"/{endpoint.name}", name=endpoint.name, tags=["inference"], responses=replies, response_model=None
    )
    route(answer)


def _refuse_too_much(service: Service, examples: Sequence[SizedExample]) -> None:
    """Raises Refused for too many texts, or a text that is too long."""
    limits = service.limits
    texts = sum(example.text_count for example in examples)
    if texts > limits.texts:
        raise Refused("texts", f"{texts} texts in a request, at most {limits.texts} are allowed")
    longest = max(example.longest for example in examples)
    if longest > limits.text_characters:
        why = f"a text of {longest} characters, at most {limits.text_characters} are allowed"
        raise Refused("characters", why)


# --------------------------------------------------------------------------------------------------------------------
# 4. and 5. The queue, the deadline, clients that go away, and the reply.


async def _reply(service: Service, request: Request, call: Call, examples: Sequence[SizedExample]) -> Response:
    """Queue the examples and wait for their results; the reply has `Server-Timing` in milliseconds."""
    try:
        queued = service.batcher.submit(call, examples)
    except QueueFull as full:
        raise _queue_is_full(full.args[0]) from None
    request.scope[ACCEPTED] = True
    service.in_progress += 1
    results = await _results(service, request, queued)
    assert queued.started is not None and queued.ended is not None
    waited = queued.started - queued.arrived
    computed = queued.ended - queued.started
    timing = f"queue;dur={1000 * waited:.2f}, model;dur={1000 * computed:.2f}"
    return Response(await _as_json(results), media_type="application/json", headers={"server-timing": timing})


async def _results(service: Service, request: Request, queued: QueuedRequest) -> list[Any]:
    """The reply of the pipeline to each example; raises Refused at the deadline, or when the client goes away."""
    gone = asyncio.ensure_future(_disconnected(request))
    waited = {queued.answers, gone}
    try:
        await asyncio.wait(waited, timeout=service.limits.request_seconds, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:  # the time to shut down is over
        service.unanswered += 1
        raise Refused("ended", "the server shut down before this was computed") from None
    finally:
        gone.cancel()
    if queued.answers.done():
        error = queued.answers.exception()
        if error is not None:
            raise _failure(error)
        return queued.answers.result()
    if gone.done():
        service.batcher.drop(queued, "client gone")
        raise Refused("client gone", "the client went away")  # nobody reads this
    service.batcher.drop(queued, "deadline")
    raise Refused("deadline", f"no answer within {service.limits.request_seconds:g} seconds")


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue


def _failure(error: BaseException) -> Refused:
    """The refusal for a failed computation; unexpected errors are logged."""
    if lacks_memory(error):
        logger.error("albert: error: not enough memory: %s", str(error).partition("\n")[0])
        why = "the server has not enough memory for this; send fewer or shorter texts, or try again later"
        return Refused("memory", why, retry_after="2")
    if isinstance(error, UsageError):
        return Refused("usage", str(error))
    logger.error("albert: error: a text could not be computed", exc_info=error)
    return Refused("internal", "this text could not be computed")


async def _as_json(results: Sequence[Any]) -> str:
    """`{"results": [...]}`; yields to the event loop after each result, since one may have megabytes."""
    parts = []
    for result in results:
        try:
            parts.append(json.dumps(result, default=np.ndarray.tolist, allow_nan=False, separators=(",", ":")))
        except ValueError:
            raise Refused("not finite", "the model's output for this text is not finite") from None
        await asyncio.sleep(0)
    return f'{{"results":[{",".join(parts)}]}}'
