"""Connections that send or read nothing do not stop the server from answering others, and kept ones stay a while."""

import http.client
import socket
import struct
from contextlib import ExitStack

from tests.inference.server.running_servers import Running, wait_until

from albert.inference.server.limits import Limits

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
        reply = server.post("/classify", TEXT)
        assert (reply.status, reply.json["error"]) == (503, "too many connections, try again")
        assert (reply.headers["retry-after"], reply.headers["connection"]) == ("2", "close")
        large = server.post("/classify", b" " * 8_000_000)
        assert large.status == 503 and large.json == reply.json
    wait_until(lambda: server.post("/classify", TEXT).status == 200)


def kept(server: Running) -> http.client.HTTPConnection:
    """A connection that is kept alive after its first reply."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", "/healthz")
    connection.getresponse().read()
    return connection


def test_kept_connection_outlives_that_of_a_proxy_by_default(predictors, serve):
    server = serve(predictors("classify"))
    assert Limits().keep_alive_seconds == server.server.config.timeout_keep_alive == 75  # nginx keeps its own for 60
    assert server.request("GET", "/model").json["limits"]["keep_alive_seconds"] == 75
    connections = server.server.server_state.connections
    wait_until(lambda: not connections)
    connection = kept(server)
    (held,) = connections
    wait_until(lambda: held.timeout_keep_alive_task)
    assert 60 < held.timeout_keep_alive_task.when() - held.loop.time() <= 75
    connection.close()


def test_kept_connection_closes_after_its_time(predictors, serve):
    server = serve(predictors("classify"), keep_alive_seconds=0.2)
    connection = kept(server)
    assert connection.sock.recv(1) == b""
    connection.close()


def test_idle_connections_make_room_where_many_are_open(predictors, serve, monkeypatch):
    monkeypatch.setattr("albert.inference.server.serving.CONNECTIONS", 8)
    server = serve(predictors("classify"))
    with ExitStack() as stack:
        sending = stack.enter_context(server.connected())
        sending.sendall(HEADER + b"{")
        idle = [kept(server) for _ in range(6)]
        assert server.post("/classify", TEXT).status == 200
        for connection in idle:
            assert connection.sock.recv(1) == b""
            connection.close()
        sending.sendall(b" " * 98 + b"}")
        assert sending.recv(1_000).startswith(b"HTTP/1.1 422 ")
