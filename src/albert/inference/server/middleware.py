"""Checks of every request before its body is read, and the handling of an accepted request until its reply.

Under a load of many times what the model can do, nearly all requests end in `Gate`, at the cost of reading their
header. `answered` queues an accepted one and waits for its result, its deadline or a client that goes away."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from http import HTTPStatus
from typing import Any

import numpy as np
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from albert.inference.server.batching import Abandoned, Call, Input, Late, NotFinite, QueueFull, lacks_memory
from albert.inference.server.batching import Request as Accepted
from albert.inference.server.limits import Limits
from albert.inference.server.service import Service
from albert.runtime.errors import UsageError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

ACCEPTED = "albert.accepted"
"""Key of the scope under which an endpoint says that its request was accepted."""
CONTENT_SECURITY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": CONTENT_SECURITY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_EVERY_REPLY = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
_UTF_8 = ("", "utf-8", "utf8")


class Refused(HTTPException):
    """A request that is not answered, with the reason under which it is counted."""

    def __init__(self, status: HTTPStatus, reason: str, why: str, **headers: str) -> None:
        super().__init__(status, why, {name.replace("_", "-"): value for name, value in headers.items()})
        self.reason = reason


class Gate:
    """The outermost application.

    Args:
        inner: what answers the requests that pass.
        service: what is served.
        addresses: those that take a body and need the model.
    """

    def __init__(self, inner: Application, service: Service, addresses: frozenset[str]) -> None:
        self._inner, self._service, self._addresses = inner, service, addresses

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Check, pass on, and measure."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *_EVERY_REPLY]
            await send(message)

        try:
            try:
                declared = self._check(scope)
            except Refused as refused:
                await refusal(refused, self._service)(scope, receive, sent)
            else:
                # uvicorn leaves out the body of a reply to HEAD; the routes are those of GET
                inner = dict(scope, method="GET") if scope["method"] == "HEAD" else scope
                await self._inner(inner, self._bounded(receive, declared), sent)
        finally:
            if scope.get(ACCEPTED):
                self._service.in_progress -= 1
            address = scope["path"] if scope["path"] in self._addresses else "other"
            seconds = time.perf_counter() - started
            self._service.measurements.request_seconds.labels(address, str(status)).observe(seconds)

    def _check(self, scope: Message) -> int:
        """Refuse what can be refused by its header; how many bytes of a body may come."""
        limits, headers = self._service.limits, scope["headers"]
        if len(scope["raw_path"]) + sum(len(name) + len(value) + 4 for name, value in headers) > limits.header_bytes:
            why = f"the header is longer than {limits.header_bytes} bytes"
            raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "header", why, connection="close")
        lengths, codings = list(_values(headers, b"content-length")), list(_values(headers, b"transfer-encoding"))
        if lengths and codings:
            why = "Content-Length and Transfer-Encoding contradict each other"
            raise Refused(HTTPStatus.BAD_REQUEST, "protocol", why, connection="close")
        for host in _values(headers, b"host"):
            if not self._service.hosts.allow(host.decode("latin-1")):
                why = "this server does not answer under the name in the Host header; albert serve --allowed-host NAME"
                raise Refused(HTTPStatus.MISDIRECTED_REQUEST, "host", why)
        if lengths and int(lengths[0]) > limits.body_bytes:
            raise self._too_large()
        if scope["method"] == "POST" and scope["path"] in self._addresses:
            self._check_state()
            _check_type(headers)
        return limits.body_bytes

    def _check_state(self) -> None:
        refuse_unready(self._service)
        if self._service.batcher.is_full:
            raise queue_is_full(self._service.batcher.retry_after)

    def _bounded(self, receive: Receive, most: int) -> Receive:
        came = 0

        async def received() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > most:
                raise self._too_large()
            return message

        return received

    def _too_large(self) -> Refused:
        why = f"the body is longer than {self._service.limits.body_bytes} bytes"
        return Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body", why)


def refuse_unready(service: Service) -> None:
    """Nothing while the service takes work.

    Raises:
        Refused: it is starting, ending, or broken.
    """
    said = {
        "starting": "the model is being loaded, try again in a moment",
        "draining": "the server is shutting down",
        "broken": "the server cannot compute any more",
    }
    if service.state != "ready":
        raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, service.state, said[service.state], retry_after="2")


def queue_is_full(retry_after: int) -> Refused:
    """The refusal of a request that finds no room."""
    why = f"the queue is full, try again in {retry_after} s"
    return Refused(HTTPStatus.TOO_MANY_REQUESTS, "queue", why, retry_after=str(retry_after))


def refusal(refused: Refused, service: Service) -> JSONResponse:
    """The reply to a request that was refused, which is counted."""
    service.measurements.refused.labels(refused.reason).inc()
    return JSONResponse({"error": refused.detail}, refused.status_code, refused.headers)


def _values(headers: list[tuple[bytes, bytes]], name: bytes) -> Iterator[bytes]:
    return (value for key, value in headers if key == name)


def _check_type(headers: list[tuple[bytes, bytes]]) -> None:
    said = next(_values(headers, b"content-type"), b"").decode("latin-1").lower()
    kind, *parameters = (part.strip() for part in said.split(";"))
    charset = next((part.removeprefix("charset=").strip('"') for part in parameters if part.startswith("charset=")), "")
    if kind != "application/json" or charset not in _UTF_8:
        why = "a request is JSON in UTF-8, under Content-Type: application/json"
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "type", why)
    coding = next(_values(headers, b"content-encoding"), b"identity").decode("latin-1").lower()
    if coding != "identity":
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "type", "compressed bodies are not read")


# --------------------------------------------------------------------------------------------------------------------
# A request from its acceptance to its reply: sizes, the queue, the deadline, a client that goes away.

logger = logging.getLogger("albert.server")


async def answered(service: Service, request: HttpRequest, call: Call, inputs: Sequence[Input]) -> Response:
    """Queue the inputs, wait for their answers, and say how long both took (`Server-Timing`, milliseconds).

    Raises:
        Refused: too much was asked, there is no room, it took too long, or the model failed on these texts.
    """
    refuse_unready(service)
    refuse_too_much(service.limits, inputs)
    try:
        accepted = service.batcher.submit(call, inputs)
    except QueueFull as full:
        raise queue_is_full(full.retry_after) from None
    request.scope[ACCEPTED] = True
    service.in_progress += 1
    results = await _wait(service, request, accepted)
    return Response(await _body(results), media_type="application/json", headers={"server-timing": _timing(accepted)})


async def _body(results: Sequence[Any]) -> str:
    """The results in JSON; other requests are heard between them, since a result may have megabytes."""
    parts = []
    for result in results:
        parts.append(json.dumps(result, default=np.ndarray.tolist, allow_nan=False, separators=(",", ":")))
        await asyncio.sleep(0)
    return f'{{"results":[{",".join(parts)}]}}'


async def _wait(service: Service, request: HttpRequest, accepted: Accepted) -> list[Any]:
    gone = asyncio.ensure_future(_disconnected(request))
    waited = {accepted.answers, gone}
    try:
        await asyncio.wait(waited, timeout=service.limits.request_seconds, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:  # the time to end is over
        why = "the server ended before this was computed"
        raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "ended", why) from None
    finally:
        gone.cancel()
    if accepted.answers.done():
        if (error := accepted.answers.exception()) is not None:
            raise _failure(service, error)
        return accepted.answers.result()
    if gone.done():
        service.batcher.drop(accepted, "client gone")
        raise Refused(HTTPStatus.BAD_REQUEST, "client gone", "the client went away")  # nobody reads this
    service.batcher.drop(accepted, "deadline")
    raise _failure(service, Late())


def _failure(service: Service, error: BaseException) -> Refused:
    """What a caller is told; where it is our mistake, the log is told the rest."""
    if isinstance(error, Late | Abandoned):
        why = f"no answer within {service.limits.request_seconds:g} seconds"
        return Refused(HTTPStatus.GATEWAY_TIMEOUT, "deadline", why)
    if lacks_memory(error):
        logger.error("not enough memory: %s", str(error).partition("\n")[0])
        why = "the server has not enough memory for this; send fewer or shorter texts, or try again later"
        return Refused(HTTPStatus.SERVICE_UNAVAILABLE, "memory", why, retry_after="2")
    if isinstance(error, UsageError):
        return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "usage", str(error))
    if isinstance(error, NotFinite):
        why = "the model gave a number that is not finite for this text"
        return Refused(HTTPStatus.INTERNAL_SERVER_ERROR, "not finite", why)
    logger.error("a text could not be computed", exc_info=error)
    return Refused(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "this text could not be computed")


async def _disconnected(request: HttpRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue


def refuse_too_much(limits: Limits, inputs: Sequence[Input]) -> None:
    """Nothing where a request keeps to the limits.

    Raises:
        Refused: too many texts, or too long a one.
    """
    texts = sum(each.counted for each in inputs)
    if texts > limits.texts:
        why = f"{texts} texts in a request, the most are {limits.texts}"
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "texts", why)
    longest = max((each.longest for each in inputs), default=0)
    if longest > limits.text_characters:
        why = f"a text of {longest} characters, the most are {limits.text_characters}"
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "characters", why)


def refuse_too_many_candidates(limits: Limits, masks: int, top_k: int) -> None:
    """Nothing where fill-mask is asked for no more pieces than a reply may hold.

    Raises:
        Refused: it is.
    """
    if masks * top_k > limits.candidates:
        why = (
            f"{masks} masks with top_k {top_k} are {masks * top_k} candidates in a request, the most are "
            f"{limits.candidates}; send fewer texts or masks, or a smaller top_k"
        )
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "candidates", why)


def _timing(accepted: Accepted) -> str:
    assert accepted.started is not None and accepted.ended is not None
    queued, computed = accepted.started - accepted.arrived, accepted.ended - accepted.started
    return f"queue;dur={1000 * queued:.2f}, model;dur={1000 * computed:.2f}"
