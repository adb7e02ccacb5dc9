"""The server's life: listening at once, loading, serving, and ending only when what it accepted is answered."""

import asyncio
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType

import uvicorn

from albert.inference.predictor import Predictor
from albert.inference.server.application import application
from albert.inference.server.connections import BoundedConfig
from albert.inference.server.limits import LOOPBACK, Hosts, Limits
from albert.inference.server.service import Service
from albert.runtime.errors import AlbertError, Unavailable

SWITCH_SECONDS = 2e-4
"""How long the event loop may keep Python's lock while the model's thread waits for it; torch asks for it after every
product, and under a load of refused requests Python's own 5 ms would cost more than the products."""


class NotDrained(AlbertError):
    """The server ended before everything that it had accepted was answered."""

    def __init__(self, number: int, open_requests: int) -> None:
        super().__init__("server", f"ended with {open_requests} requests unanswered", "allow more --drain-timeout")
        self.exit_code = 128 + number


class DrainingServer(uvicorn.Server):
    """uvicorn, with another way to begin and to end.

    Args:
        service: what is served.
        open_predictor: loads the model; it runs in a thread while the server says that it is starting.
        drain_seconds: how long accepted requests may take after the first signal.
        started: told when the model is loaded.
    """

    def __init__(
        self,
        service: Service,
        open_predictor: Callable[[], Predictor],
        drain_seconds: float = 30.0,
        started: Callable[[Predictor], None] = lambda predictor: None,
    ) -> None:
        config = BoundedConfig(
            application(service),
            service.limits,
            service.measurements,
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
        self.failure: BaseException | None = None
        """Why the server ended, when it should not have."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and begin to load."""
        await super().startup(sockets)
        self._loading = asyncio.create_task(self._load())

    async def _load(self) -> None:
        try:
            predictor = await asyncio.to_thread(self._open)
            self.service.start(predictor)
            self._started(predictor)
        except asyncio.CancelledError:  # a signal came first
            raise
        except BaseException as error:
            self.failure, self.should_exit = error, True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal asks to end well, the second to end."""
        if self.service.draining:
            self._end = 0.0
        else:
            self.drain(sig)

    def drain(self, number: int) -> None:
        """Take nothing new, and end when what was accepted is answered."""
        self._signal, self._end = number, time.monotonic() + self._drain_seconds
        self.service.draining = True

    async def on_tick(self, counter: int) -> bool:
        """Whether to end now; asked ten times a second."""
        over = await super().on_tick(counter)
        if self.service.draining and not over:
            late = time.monotonic() >= self._end
            if late and self.service.in_progress:
                self.failure = NotDrained(self._signal, self.service.in_progress)
            over = late or not self.service.in_progress
        if over:
            self.config.timeout_graceful_shutdown = 1  # replies are out; nobody is waited for to close
        return over


def serve(
    limits: Limits,
    open_predictor: Callable[[], Predictor],
    listening: socket.socket,
    drain_seconds: float,
    started: Callable[[Predictor], None],
    hosts: Hosts = LOOPBACK,
) -> None:
    """Run until a signal comes, and until what was accepted is answered.

    Args:
        limits: what is taken on at most.
        open_predictor, drain_seconds, started: see `DrainingServer`.
        listening: where connections come in (`listen`).
        hosts: what the `Host` header of a request may say.

    Raises:
        NotDrained: answering took too long; the worker may still compute.
        AlbertError: the model could not be loaded.
    """
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
    """A socket that takes connections.

    Raises:
        Unavailable: the address is in use, not this machine's, or none.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except (OSError, OverflowError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise Unavailable(f"{host}:{port}", why, "choose another --port or --host") from error
