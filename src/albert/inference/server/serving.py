"""The server process: connection timeouts, serving while the model loads, and draining on shutdown."""

import asyncio
import json
import socket
import sys
import time
from collections.abc import Callable
from enum import Enum
from functools import partial
from http import HTTPStatus
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from albert.inference.predictor import Predictor
from albert.inference.server.batching import Service
from albert.inference.server.limits import LOOPBACK, Hosts, Limits
from albert.inference.server.routes import application
from albert.runtime.errors import AlbertError, Unavailable

# --------------------------------------------------------------------------------------------------------------------
# Connection timeouts: for a header, a body, and the reading of a reply.
#
# uvicorn has a timeout for idle connections alone. The server asks each connection what it waits for, with a timeout
# for each state, and closes the longest waiting connection for a new one when the limit is reached.

DRAINED_BYTES = 65_536
"""Bytes of a body that are read after its reply, so that the client gets the reply rather than a reset connection."""
LINGER_SECONDS = 0.5  # Time for the last reply of a connection to be sent before it is aborted


class Waiting(Enum):
    """What a connection waits for."""

    REQUEST = "the next request"
    HEADER = "the request's header"
    BODY = "the request's body"
    ANSWER = "its answer"
    READER = "the reply to be read"


class BoundedConnection(H11Protocol):
    """A connection with timeouts."""

    def __init__(self, service: Service, **settings: Any) -> None:
        super().__init__(**settings)
        self._limits, self._metrics = service.limits, service.metrics
        self.waiting_for, self.since = Waiting.HEADER, self.loop.time()
        self._seen: Any = None  # The request and reply that `waiting_for` and `since` are about
        self._drained = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a header; over the limit of connections, close an idle one, or refuse this one."""
        super().connection_made(transport)
        self._metrics.connections.set(len(self.connections))
        connections = [connection for connection in self.connections if isinstance(connection, BoundedConnection)]
        active = [connection for connection in connections if not connection.transport.is_closing()]
        if len(active) > self._limits.connections:
            for connection in active:
                connection.update()
            states = (Waiting.REQUEST, Waiting.HEADER, Waiting.BODY)
            idle = [connection for connection in active if connection.waiting_for in states and connection is not self]
            if idle:
                min(idle, key=lambda connection: connection.since).close_idle()
            else:
                why = "all connections are taken, try again later"
                self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "connections", why)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._metrics.connections.set(len(self.connections))

    def data_received(self, data: bytes) -> None:
        """Read data; abort when too much of a body comes after its reply."""
        late = self.cycle is not None and self.cycle.response_complete and self.conn.their_state is h11.SEND_BODY
        self._drained = self._drained + len(data) if late else 0
        if self._drained > DRAINED_BYTES:
            self.transport.abort()
            return
        super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Reply to a malformed request, and close; called by uvicorn on errors of h11."""
        error = sys.exc_info()[1]
        status = HTTPStatus(getattr(error, "error_status_hint", HTTPStatus.BAD_REQUEST))
        if status is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            self._refuse(status, "header", f"the header is longer than {self._limits.header_bytes} bytes")
        else:
            self._refuse(status, "protocol", "this is not an HTTP/1.1 request")

    def close_idle(self) -> None:
        if self.waiting_for is Waiting.REQUEST:
            self.transport.close()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "room", "the request was too slow while other clients wait")

    def update(self) -> None:
        """Find out what the connection waits for, and close it if that takes too long; called ten times a second."""
        seconds, cycle = None, self.cycle
        if self.transport.is_closing() or self.flow.write_paused:
            state, seconds = Waiting.READER, self._limits.body_seconds
        elif self.conn.their_state is h11.SEND_BODY:
            state, seconds = Waiting.BODY, self._limits.body_seconds
        elif cycle is not None and not cycle.response_complete:
            state = Waiting.ANSWER
        elif cycle is None or self.conn.trailing_data[0]:
            state, seconds = Waiting.HEADER, self._limits.header_seconds
        else:
            state = Waiting.REQUEST
        if (state, cycle) != (self.waiting_for, self._seen):
            self.waiting_for, self._seen, self.since = state, cycle, self.loop.time()
        elif seconds is None or self.loop.time() < self.since + seconds:
            return
        elif state is Waiting.READER:
            self._metrics.refused.labels("reader").inc()
            self.transport.abort()
        else:
            why = f"{state.value} did not arrive within {seconds:g} seconds"
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "slow", why)

    def _refuse(self, status: HTTPStatus, reason: str, why: str) -> None:
        """Send an error if no reply was begun, and close the connection."""
        self._metrics.refused.labels(reason).inc()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE, h11.ERROR):
            body = json.dumps({"error": why}).encode()
            header = (
                f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n"
            )
            retry = "retry-after: 1\r\n" if status is HTTPStatus.SERVICE_UNAVAILABLE else ""
            self.transport.write(f"{header}{retry}\r\n".encode() + body)
        self.transport.close()
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)


SWITCH_SECONDS = 2e-4
"""Switch interval of Python's GIL: torch needs the GIL after every product, and under a load of refused requests
waiting for Python's default of 5 ms would cost more than the products."""


class NotDrained(AlbertError):
    """The server ended before all accepted requests were answered."""

    def __init__(self, number: int, open_requests: int) -> None:
        super().__init__("server", f"ended with {open_requests} requests unanswered", "raise --drain-timeout")
        self.exit_code = 128 + number


class DrainingServer(uvicorn.Server):
    """uvicorn's server, which loads the model in the background and drains requests on shutdown.

    Args:
        open_predictor: loads the model, in a thread.
        drain_seconds: time for accepted requests after the first signal.
        started: called when the model is loaded.
    """

    def __init__(
        self,
        service: Service,
        open_predictor: Callable[[], Predictor],
        drain_seconds: float,
        started: Callable[[Predictor], None],
    ) -> None:
        config = uvicorn.Config(
            application(service),
            http=partial(BoundedConnection, service),  # type: ignore[arg-type]
            ws="none",
            h11_max_incomplete_event_size=service.limits.header_bytes,
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
        super().__init__(config)
        self.service, self._open, self._drain_seconds, self._started = service, open_predictor, drain_seconds, started
        self._loading: asyncio.Task[None] | None = None
        self._end = float("inf")
        self._signal = 0
        self.failure: BaseException | None = None  # Why the server ended with an error

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loading = asyncio.create_task(self._load())

    async def _load(self) -> None:
        try:
            predictor = await asyncio.to_thread(self._open)
            self.service.start(predictor)
            self._started(predictor)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):  # by a signal
                raise
            self.failure, self.should_exit = error, True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """First signal: refuse new requests, and end when the accepted ones are answered. Second signal: end."""
        self._end = 0.0 if self.service.draining else time.monotonic() + self._drain_seconds
        self._signal = self._signal or sig
        self.service.draining = True

    async def on_tick(self, counter: int) -> bool:
        """Whether to end now; called ten times a second."""
        for connection in list(self.server_state.connections):
            connection.update()  # type: ignore[union-attr]
        over = await super().on_tick(counter)
        if self.service.draining and not over:
            late = time.monotonic() >= self._end
            if late and self.service.in_progress:
                self.failure = NotDrained(self._signal, self.service.in_progress)
            over = late or not self.service.in_progress
        if over:
            self.config.timeout_graceful_shutdown = 1  # replies are sent; do not wait for clients to close
        return over


def serve(
    limits: Limits,
    open_predictor: Callable[[], Predictor],
    listening: socket.socket,
    drain_seconds: float,
    started: Callable[[Predictor], None],
    hosts: Hosts = LOOPBACK,
) -> None:
    """Serve until a signal, then drain; raises NotDrained if that took too long, while a thread may still compute."""
    server = DrainingServer(Service(limits, hosts), open_predictor, drain_seconds, started)
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        server.run([listening])
    finally:
        sys.setswitchinterval(before)
        listening.close()
    if server.failure is not None:
        raise server.failure
    server.service.close()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises Unavailable if the address is in use, invalid, or not of this machine."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except (OSError, OverflowError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise Unavailable(f"{host}:{port}", why, "choose another --port or --host") from error
