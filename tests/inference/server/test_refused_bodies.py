"""A refusal reaches clients that still send a body of 8 MB, and names what is wrong with a body that was read."""

import http.client
import importlib
import importlib.util
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.inference.server.running_servers import Running, read_all, wait_until

PART = b" " * 65_536
PARTS = 128  # 8 MB
NODE = """
const body = new Blob([Buffer.alloc(8388608, " ")]);
const headers = { "content-type": process.argv[3] };
const options = { method: process.argv[1], headers, duplex: "half", body: body.stream() };
const reply = await fetch(process.argv[2], options);
console.log(await reply.text() + " " + reply.status);
"""
Client = Callable[[int, str, str, str], tuple[int, str]]


def http_client(port: int, method: str, address: str, kind: str, is_chunked: bool = False) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    length = {"Transfer-Encoding": "chunked"} if is_chunked else {"Content-Length": str(PARTS * len(PART))}
    body: Iterator[bytes] = iter([PART] * PARTS)
    connection.request(method, address, body, {"Content-Type": kind, **length}, encode_chunked=is_chunked)
    reply = connection.getresponse()
    try:
        return reply.status, json.loads(reply.read())["error"]
    finally:
        connection.close()


def http_client_chunked(port: int, method: str, address: str, kind: str) -> tuple[int, str]:
    return http_client(port, method, address, kind, is_chunked=True)


def command(*arguments: str) -> tuple[int, str]:
    program = shutil.which(arguments[0])
    if program is None:
        pytest.skip(f"needs {arguments[0]}")
    done = subprocess.run([program, *arguments[1:]], input=PART * PARTS, capture_output=True, check=True)
    content, status = done.stdout.decode().rsplit(maxsplit=1)
    return int(status), json.loads(content)["error"]


def curl_chunked(port: int, method: str, address: str, kind: str) -> tuple[int, str]:
    headers = ["-H", f"Content-Type: {kind}", "-H", "Transfer-Encoding: chunked", "-H", "Expect:"]
    url = f"http://127.0.0.1:{port}{address}"
    return command("curl", "-sS", "-w", " %{http_code}", "-X", method, *headers, "--data-binary", "@-", url)


def node_fetch(port: int, method: str, address: str, kind: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{port}{address}"
    return command("node", "--input-type=module", "-e", NODE, method, url, kind)


def httpx_client(port: int, method: str, address: str, kind: str) -> tuple[int, str]:
    name = next(name for name in ("httpx", "httpx2") if importlib.util.find_spec(name))  # of huggingface_hub
    send: Any = importlib.import_module(name).request
    url = f"http://127.0.0.1:{port}{address}"
    reply = send(method, url, content=PART * PARTS, headers={"Content-Type": kind}, timeout=60)
    return reply.status_code, reply.json()["error"]


@pytest.mark.parametrize("client", [http_client, http_client_chunked, curl_chunked, node_fetch, httpx_client])
def test_refusal_reaches_a_client_that_still_sends(client: Client, classifier, serve):
    server: Running = serve(classifier)
    for method, address, kind, status, why in (
        ("POST", "/classify", "application/json", 413, "the body is longer than 1000000 bytes"),
        ("POST", "/classify", "text/plain", 415, "requests must be JSON"),
        ("POST", "/nothing", "application/json", 404, "no such address"),
        ("PUT", "/classify", "application/json", 405, "does not support this method"),
    ):
        if client in (http_client, httpx_client):  # the length is known before everything else
            status, why = 413, "the body is longer"
        reply = client(server.port, method, address, kind)
        assert reply[0] == status and why in reply[1], (method, address, reply)
    assert server.post("/classify", {"texts": ["the ship"]}).status == 200


def test_refusal_comes_before_the_body_and_then_the_connection_closes(classifier, serve, monkeypatch):
    monkeypatch.setattr("albert.inference.server.app.DISCARD_SECONDS", 0.2)
    server = serve(classifier)
    with server.connected() as connection:
        connection.sendall(b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n\r\n")
        received = read_all(connection)
    assert received.startswith(b"HTTP/1.1 413 ") and b"\r\nconnection: close\r\n" in received
    assert received.endswith(b'{"error":"the body is longer than 1000000 bytes"}')


def test_server_does_not_read_a_refused_body_for_ever(classifier, serve, monkeypatch):
    monkeypatch.setattr("albert.inference.server.app.DISCARDED_BYTES", 1_000_000)
    server = serve(classifier)
    with server.connected() as connection:
        connection.sendall(b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for _ in range(1_000):
                connection.sendall(b"10000\r\n" + PART + b"\r\n")
    wait_until(lambda: not server.server.server_state.connections)


def test_connection_stays_after_the_refusal_of_a_short_body(classifier, serve):
    server = serve(classifier)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    for address, status in (("/nothing", 404), ("/classify", 415), ("/model", 405)):
        connection.request("POST", address, PART * 10, {"Content-Type": "text/plain"})
        reply = connection.getresponse()
        assert reply.status == status
        reply.read()
    socket = connection.sock
    connection.request("GET", "/model")
    assert connection.getresponse().status == 200 and connection.sock is socket
    connection.close()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"texts": ["a", ]}', "not JSON: Expecting value: line 1 column 17 (char 16)"),
        (b'{"texts":\n ["a"] "b"}', "not JSON: Expecting ',' delimiter: line 2 column 8 (char 17)"),
        (b"{'texts': []}", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (b'{"texts": ["a"]}}', "not JSON: Extra data: line 1 column 17 (char 16)"),
        ('{"texts": ["café"]}'.encode("latin-1"), "not UTF-8: byte 0xe9 at position 15"),
        ('{"texts": ["naïve", "café"]}'.encode()[:-4], "not UTF-8: byte 0xc3 at position 25"),
        (b"[" * 5_000, "not JSON that can be read: it is nested too deeply"),
        (b'{"top_k": 1' + b"0" * 5_000 + b"}", "not JSON that can be read"),
    ],
)
def test_unreadable_body_is_refused_with_the_position(body, why, classifier, serve):
    reply = serve(classifier).post("/classify", body)
    assert (reply.status, reply.json["error"]) == (400, f"the body is {why}")
