"""Servers in threads, on ports of their own, and what talks to them: a client, and bare sockets."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from albert.inference.predictor import Predictor
from albert.inference.server.batching import Service
from albert.inference.server.limits import LOOPBACK, Hosts, Limits
from albert.inference.server.serving import DrainingServer, listen


@dataclass
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def said(self) -> Any:
        return json.loads(self.body)


@dataclass
class Running:
    """A server that runs in a thread."""

    server: DrainingServer
    port: int

    @property
    def service(self) -> Service:
        return self.server.service

    def request(self, method: str, address: str, body: Any = None, **headers: str) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        try:
            content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, address, content, {"Content-Type": "application/json", **named})
            reply = connection.getresponse()
            return Reply(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())
        finally:
            connection.close()

    def post(self, address: str, body: Any, **headers: str) -> Reply:
        return self.request("POST", address, body, **headers)

    @contextmanager
    def connected(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            yield connection

    def counted(self, name: str, **labels: str) -> float:
        return self.service.metrics.registry.get_sample_value(name, labels) or 0.0


def read_all(connection: socket.socket) -> bytes:
    """What the server says until it closes; a reset is an end, too."""
    said = b""
    try:
        while part := connection.recv(65_536):
            said += part
    except ConnectionResetError:
        return said
    return said


def until(happened: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for something that another thread does."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@contextmanager
def running(
    open_predictor: Callable[[], Predictor], drain_seconds: float = 5.0, hosts: Hosts = LOOPBACK, **limits: Any
) -> Iterator[Running]:
    server = DrainingServer(Service(Limits(**limits), hosts), open_predictor, drain_seconds)
    listening = listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield Running(server, listening.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()
        if not server.service.in_progress:
            server.service.close()


@contextmanager
def asked(*requests: Callable[[], Reply]) -> Iterator[list[Reply | None]]:
    """Requests that are under way during the block, each in a thread; their replies afterwards."""
    replies: list[Reply | None] = [None] * len(requests)

    def ask(place: int, request: Callable[[], Reply]) -> None:
        replies[place] = request()

    threads = [threading.Thread(target=ask, args=each) for each in enumerate(requests)]
    for thread in threads:
        thread.start()
    yield replies
    for thread in threads:
        thread.join(30)


class Held:
    """A computation that waits until it is let go, and says what it was given."""

    def __init__(self, compute: Callable[..., Any]) -> None:
        self.compute, self.may_go, self.batches = compute, threading.Event(), []

    def __call__(self, texts: Any, *others: Any) -> Any:
        self.batches.append(list(texts))
        assert self.may_go.wait(60)
        return self.compute(texts, *others)
