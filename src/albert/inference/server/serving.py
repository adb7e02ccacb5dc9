"""The server process: uvicorn, which loads the model in the background and answers accepted requests before it ends."""

import asyncio
import errno
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from albert.inference.predictor import Predictor
from albert.inference.server.app import application
from albert.inference.server.batching import Service
from albert.inference.server.limits import LOOPBACK, Hosts, Limits
from albert.runtime.errors import AlbertError, Unavailable

CONNECTIONS = 512
"""Open connections, below the number of files that a process may usually open; requests of more get 503."""
FORCING = (signal.SIGINT, signal.SIGTERM)
ENDING = [getattr(signal, name) for name in ("SIGHUP", "SIGUSR1", "SIGUSR2") if hasattr(signal, name)]
"""Signals that end the server as SIGTERM does: a closed terminal, and those that Slurm sends before it ends a job."""
SWITCH_SECONDS = 2e-4
"""Switch interval of Python's GIL: torch needs the GIL after every product, and under a load of refused requests
waiting for Python's default of 5 ms would cost more than the products."""


class NotDrained(AlbertError):
    """The server ended before all accepted requests were answered."""

    def __init__(self, number: int, open_requests: int) -> None:
        super().__init__("server", f"ended with {open_requests} requests unanswered", "raise --drain-timeout")
        self.exit_code = 128 + number


class ModelServer(uvicorn.Server):
    """uvicorn's server, which loads the model in the background.

    On the first signal uvicorn accepts no more connections, and waits for the replies to accepted requests.

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
            http="h11",
            ws="none",
            timeout_keep_alive=service.limits.keep_alive_seconds,  # type: ignore[arg-type] (it goes to call_later)
            timeout_graceful_shutdown=drain_seconds,  # type: ignore[arg-type] (it goes to asyncio.wait_for)
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
        super().__init__(config)
        self.service = service
        service.is_crowded = lambda: len(self.server_state.connections) > CONNECTIONS
        self._open = open_predictor
        self._started = started
        self._loading: asyncio.Task[None] | None = None
        self._signal = 0
        self._failure: BaseException | None = None

    @property
    def failure(self) -> BaseException | None:
        """Why the server ended with an error."""
        if self._failure is None and self.service.unanswered:
            return NotDrained(self._signal, self.service.unanswered)
        return self._failure

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
            self._failure = error
            self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Make room for new connections where many are open: close those that were kept alive and are idle."""
        if len(self.server_state.connections) > CONNECTIONS * 3 // 4:
            for connection in list(self.server_state.connections):
                assert isinstance(connection, H11Protocol)
                if connection.timeout_keep_alive_task is not None:
                    connection.timeout_keep_alive_handler()
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn does for SIGINT and SIGTERM; a signal that is ignored (nohup) stays ignored."""
        is_main = threading.current_thread() is threading.main_thread()
        numbers = [number for number in ENDING if is_main and signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            with super().capture_signals():
                yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """First signal: end when the accepted requests are answered. A second SIGINT or SIGTERM: end.

        A closed terminal sends SIGHUP twice, and systemd may send it after SIGTERM. uvicorn would raise the signal
        again at the end, but the command has its own exit codes.
        """
        self._signal = self._signal or sig
        self.force_exit = self.force_exit or (self.should_exit and sig in FORCING)
        self.should_exit = True


def serve(
    limits: Limits,
    open_predictor: Callable[[], Predictor],
    listening: socket.socket,
    drain_seconds: float,
    started: Callable[[Predictor], None],
    hosts: Hosts = LOOPBACK,
) -> None:
    """Serve until a signal, then drain; raises NotDrained if that took too long, while a thread may still compute."""
    server = ModelServer(Service(limits, hosts), open_predictor, drain_seconds, started)
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
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise Unavailable(f"{host}:{port}", "the port is in use", "choose another with --port") from error
        why = getattr(error, "strerror", None) or str(error)
        raise Unavailable(f"{host}:{port}", why, "choose another --port or --host") from error
