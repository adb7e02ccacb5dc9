"""Slow connections are closed in time, and earlier if others wait for a connection."""

import socket
import struct
import time
from contextlib import ExitStack, suppress

import pytest
from tests.inference.server.running_servers import read_all, wait_until

TEXT = {"texts": ["the ship"]}
HEADER = b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
CLOSED = (BrokenPipeError, ConnectionResetError)


@pytest.mark.parametrize(("sent", "part"), [(b"", "header"), (b"GET /mo", "header"), (HEADER + b"{", "body")])
def test_slow_request_gets_408_and_is_closed(sent, part, classifier, serve):
    server = serve(classifier, header_seconds=0.4, body_seconds=0.4)
    with server.connected() as connection:
        connection.sendall(sent)
        started = time.monotonic()
        received = read_all(connection)
        assert 0.2 < time.monotonic() - started < 10
    assert received.startswith(b"HTTP/1.1 408 ") and f"the request's {part} did not arrive within".encode() in received
    assert server.metric("albert_refused_total", reason="slow") == 1


def test_single_bytes_do_not_extend_the_timeout(classifier, serve):
    server = serve(classifier, header_seconds=0.5)
    with server.connected() as connection, pytest.raises(CLOSED):
        for letter in b"GET /model HTTP/1.1 and more" * 100:
            connection.sendall(bytes([letter]))
            time.sleep(0.05)


def test_slow_connections_are_closed_for_new_ones(classifier, serve):
    server = serve(classifier, connections=8, header_seconds=20)
    with ExitStack() as stack:
        slow = [stack.enter_context(server.connected()) for _ in range(24)]
        for connection in slow[:16]:
            with suppress(*CLOSED):
                connection.sendall(b"GET /mod")
        for _ in range(4):
            assert server.post("/classify", TEXT).status == 200
        wait_until(lambda: server.metric("albert_connections") <= 8, seconds=10)  # before any header is too late
        assert server.metric("albert_refused_total", reason="room") >= 16


def test_connection_is_refused_when_all_others_wait_for_results(classifier, blocked, serve):
    server = serve(classifier, connections=2)
    body = b'{"texts": ["the ship"]}'
    with server.connected() as first, server.connected() as second:
        for connection in (first, second):
            connection.sendall(HEADER.replace(b"100", b"%d" % len(body)) + body)
        wait_until(lambda: server.service.in_progress == 2)
        with server.connected() as third:
            assert read_all(third).startswith(b"HTTP/1.1 503 ")
        blocked.released.set()
        assert first.recv(100).startswith(b"HTTP/1.1 200 ") and second.recv(100).startswith(b"HTTP/1.1 200 ")


def test_client_that_does_not_read_is_disconnected(predictors, serve):
    server = serve(predictors("pretrain"), body_seconds=0.5)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300)
        wait_until(lambda: server.metric("albert_refused_total", reason="reader") == 1)
    with server.connected() as connection:
        connection.sendall(HEADER + b"{")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset when closed
    wait_until(lambda: server.metric("albert_connections") == 0)
    assert server.request("GET", "/model").status == 200
