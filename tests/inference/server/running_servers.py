"""Servers in threads, on ports of their own, with clients: HTTP and bare sockets."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from albert.inference.predictor import Predictor
from albert.inference.server.batching import Service
from albert.inference.server.limits import LOOPBACK, Hosts, Limits
from albert.inference.server.serving import ModelServer, listen


@dataclass
class Reply:
    """The reply to a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Running:
    """A server that runs in a thread."""

    server: ModelServer
    port: int
    thread: threading.Thread

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

    def metric(self, name: str, **labels: str) -> float:
        return self.service.metrics.registry.get_sample_value(name, labels) or 0.0


def read_all(connection: socket.socket) -> bytes:
    """Everything the server sends until it closes or resets the connection."""
    received = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            received += part
    return received


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for a condition that another thread makes true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.01)


@contextmanager
def running(
    open_predictor: Callable[[], Predictor], drain_seconds: float = 5.0, hosts: Hosts = LOOPBACK, **limits: Any
) -> Iterator[Running]:
    server = ModelServer(Service(Limits(**limits), hosts), open_predictor, drain_seconds, lambda predictor: None)
    listening = listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield Running(server, listening.getsockname()[1], thread)
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()
        if not server.service.in_progress:
            server.service.close()


@contextmanager
def in_background(*requests: Callable[[], Reply]) -> Iterator[list[Reply]]:
    """Send requests during the block, each in a thread; their replies are set afterwards."""
    replies: list[Reply] = []
    with ThreadPoolExecutor(len(requests)) as threads:
        futures = [threads.submit(request) for request in requests]
        yield replies
        replies += [future.result(30) for future in futures]


class BlockedCall:
    """A computation that waits until it is released, and records its batches."""

    def __init__(self, compute: Callable[..., Any]) -> None:
        self.compute, self.released, self.batches = compute, threading.Event(), []

    def __call__(self, predictor: Predictor, pipeline: Any, examples: Any) -> Any:
        self.batches.append([example.texts[0] for example in examples])
        assert self.released.wait(60)
        return self.compute(predictor, pipeline, examples)


@contextmanager
def proxy(port: int, prefix: str) -> Iterator[int]:
    """A reverse proxy that forwards what is below a path, such as `/models/`, without that path; gives its port."""

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if not self.path.startswith(prefix):
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {"Host": "localhost", "Content-Type": self.headers.get("content-type", "")}
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request(self.command, self.path[len(prefix) - 1 :], body or None, headers)
            reply = connection.getresponse()
            content = reply.read()
            connection.close()
            self.send_response(reply.status)
            for name, value in reply.getheaders():
                if name.lower() not in ("date", "connection"):
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815 (http.server's name)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
