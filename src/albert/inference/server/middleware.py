"""What is checked before a request's body is read, and the headers of every reply.

Under overload nearly all requests are refused here, at the cost of reading their header."""

import asyncio
import time
from contextlib import suppress
from email.message import Message as EmailMessage

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Send

from albert.inference.server import batching
from albert.inference.server.refusals import Refused, queue_is_full, refusal, refuse_unready, too_large

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
