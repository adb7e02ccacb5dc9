"""Connections that send or read nothing do not stop the server from answering others."""

import socket
import struct
from contextlib import ExitStack

from tests.inference.server.running_servers import wait_until

TEXT = {"texts": ["the ship"]}
HEADER = b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"


def test_slow_clients_do_not_delay_others(predictors, serve):
    server = serve(predictors("classify"))
    with ExitStack() as stack:
        for sent in (b"", b"GET /mo", HEADER + b"{") * 8:
            stack.enter_context(server.connected()).sendall(sent)
        reader = stack.enter_context(socket.socket())
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        reader.connect(("127.0.0.1", server.port))
        reader.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300)
        for _ in range(4):
            assert server.post("/classify", TEXT).status == 200
    with server.connected() as connection:
        connection.sendall(HEADER + b"{")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset when closed
    wait_until(lambda: server.service.in_progress == 0)
    assert server.request("GET", "/model").status == 200


def test_connections_over_the_limit_get_503(predictors, serve, monkeypatch):
    monkeypatch.setattr("albert.inference.server.serving.CONNECTIONS", 4)
    server = serve(predictors("classify"))
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(server.connected())
        assert server.post("/classify", TEXT).status == 503
    wait_until(lambda: server.post("/classify", TEXT).status == 200)
