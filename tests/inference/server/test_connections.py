"""Connections cannot be held for nothing: slow ones are closed in time, and make room while they last."""

import socket
import struct
import time

import pytest
from tests.inference.server.running_servers import read_all, wait_until

TEXT = {"texts": ["the ship"]}
HEADER = b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"


@pytest.mark.parametrize(("sent", "what"), [(b"", "header"), (b"GET /mo", "header"), (HEADER + b"{", "body")])
def test_who_sends_too_slowly_is_told_and_closed(sent, what, classifier, serve):
    server = serve(classifier, header_seconds=0.4, body_seconds=0.4)
    with server.connected() as connection:
        connection.sendall(sent)
        started = time.monotonic()
        received = read_all(connection)
        assert 0.2 < time.monotonic() - started < 10
    assert received.startswith(b"HTTP/1.1 408 ") and f"the request's {what} did not arrive within".encode() in received
    assert server.metric("albert_refused_total", reason="slow") == 1


def test_a_byte_now_and_then_does_not_move_the_deadline(classifier, serve):
    server = serve(classifier, header_seconds=0.5)
    with server.connected() as connection:
        received = b""
        try:
            for letter in b"GET /model HTTP/1.1 and more" * 100:
                connection.sendall(bytes([letter]))
                time.sleep(0.05)
        except (BrokenPipeError, ConnectionResetError):
            received = b"closed"
        assert received == b"closed"


def test_slow_connections_make_room_for_others(classifier, serve):
    server = serve(classifier, connections=8, header_seconds=20)
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(24)]
    try:
        for connection in slow[:16]:
            try:
                connection.sendall(b"GET /mod")
            except (BrokenPipeError, ConnectionResetError):
                continue  # it has made room already
        for _ in range(4):
            assert server.post("/classify", TEXT).status == 200
        wait_until(lambda: server.metric("albert_connections") <= 8, seconds=10)  # before any header is too late
        assert server.metric("albert_refused_total", reason="room") >= 16
    finally:
        for connection in slow:
            connection.close()


def test_when_all_connections_wait_for_answers_a_new_one_is_refused(classifier, blocked, serve):
    server = serve(classifier, connections=2)
    body = b'{"texts": ["the ship"]}'
    header = HEADER.replace(b"100", str(len(body)).encode())
    with server.connected() as one, server.connected() as other:
        for connection in (one, other):
            connection.sendall(header + body)
        wait_until(lambda: server.service.in_progress == 2)
        with server.connected() as third:
            assert read_all(third).startswith(b"HTTP/1.1 503 ")
        blocked.released.set()
        assert one.recv(100).startswith(b"HTTP/1.1 200 ") and other.recv(100).startswith(b"HTTP/1.1 200 ")


def test_who_does_not_read_is_cut_off(predictors, serve):
    predictor = predictors("pretrain")
    server = serve(predictor, body_seconds=0.5)
    request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(request * 300)
        wait_until(lambda: server.metric("albert_refused_total", reason="reader") == 1)
    assert server.request("GET", "/model").status == 200


def test_a_broken_connection_is_no_matter(classifier, serve):
    server = serve(classifier)
    with server.connected() as connection:
        connection.sendall(HEADER + b"{")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: server.metric("albert_connections") == 0)
    assert server.post("/classify", TEXT).status == 200
