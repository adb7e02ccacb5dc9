"""Every limit has its status and an error of one sentence, without a path or a traceback."""

import json
import socket
from contextlib import suppress

import pytest
from tests.inference.server.running_servers import in_background, read_all, running, wait_until
from tests.refusals import refusal

from albert.inference.predictor import Predictor
from albert.inference.server.batching import SizedExample
from albert.inference.server.limits import allowed_hosts
from albert.inference.server.serving import listen
from albert.runtime.errors import InvalidConfiguration
from albert.tasks.examples import asked

TEXT = {"texts": ["the ship"]}
POST = b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


def request_bytes(body, header=b""):
    content = json.dumps(body).encode()
    return POST + header + b"Content-Length: %d\r\n\r\n" % len(content) + content


@pytest.fixture
def server(classifier, serve):
    return serve(classifier, body_bytes=10_000, text_characters=500, texts=4, queue_texts=4)


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        ({"texts": ["a"] * 5}, 413, "5 texts in a request, at most 4 are allowed"),
        ({"texts": ["a" * 501]}, 413, "501 characters"),
        (b"{", 400, "not JSON"),
        (b'{"texts": ["\xff"]}', 400, "not UTF-8"),
        (b"[" * 5_000, 400, "JSON"),
        ([], 422, "body: is a list, a JSON object is expected"),
        (b"", 422, "body: is empty, a JSON object is expected"),
        ({}, 422, "texts: is missing"),
        ({"texts": []}, 422, "texts: is an empty list; give at least 1"),
        ({"texts": "a"}, 422, "texts: is a text, a list is expected"),
        ({"texts": None}, 422, "texts: is null, a list is expected"),
        ({"texts": [1]}, 422, "texts.0: is a number, a text is expected"),
        ({"texts": [["a"]]}, 422, "texts.0: is a list, a text is expected"),
        (b'{"texts": ["\\ud800"]}', 422, "texts.0"),
        (TEXT | {"text": "a"}, 422, "text: is not a field of this request"),
        (TEXT | {"pairs": ["a", "b"]}, 422, "2 for 1 text;"),
    ],
)
def test_invalid_request_gets_its_reason(body, status, why, server):
    reply = server.post("/classify", body)
    assert (reply.status, list(reply.json)) == (status, ["error"])
    assert why in reply.json["error"] and "\n" not in reply.json["error"] and "/" not in reply.json["error"]
    assert server.post("/classify", TEXT).status == 200


def test_task_without_a_head_is_refused(server):
    reply = server.post("/answer", {"questions": [{"question": "who?", "context": "the ship"}]})
    assert (reply.status, reply.json["error"]) == (422, "this model cannot answer questions; it can classify texts")


@pytest.mark.parametrize(
    ("method", "address", "headers", "status"),
    [
        ("GET", "/nothing", {}, 404),
        ("GET", "/page/../limits.py", {}, 404),
        ("GET", "/classify", {}, 405),
        ("POST", "/classify", {"Content_Type": "text/plain"}, 415),
        ("POST", "/classify", {"Content_Type": "application/json; charset=latin-1"}, 415),
        ("POST", "/classify", {"Content_Encoding": "gzip"}, 415),
    ],
)
def test_unknown_address_method_or_type(method, address, headers, status, server):
    assert server.request(method, address, b"{}" if method == "POST" else None, **headers).status == status


@pytest.mark.parametrize("address", ["/classify", "/model", "/", "/page/script.js"])
def test_wrong_method_gets_the_allowed_ones(address, server):
    allowed = {"POST"} if address == "/classify" else {"GET", "HEAD"}
    for method in ("DELETE", "OPTIONS", *({"GET", "HEAD", "POST"} - allowed)):
        reply = server.request(method, address)
        assert (reply.status, set(reply.headers["allow"].split(", "))) == (405, allowed)


@pytest.mark.parametrize("address", ["/", "/docs", "/model", "/healthz", "/readyz", "/metrics", "/openapi.json"])
def test_head_gives_the_header_of_get(address, server):
    with server.connected() as connection:
        for method in ("HEAD", "GET"):
            connection.sendall(f"{method} {address} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        connection.sendall(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        head, get, nothing = read_all(connection).split(b"HTTP/1.1 ")[1:]
    assert head.startswith(b"200 ") and get.startswith(b"200 ") and nothing.startswith(b"404 ")
    header, body = head.split(b"\r\n\r\n")
    assert body == b"" and b"content-length: " in header
    if address != "/metrics":  # figures change from one to the next
        length = int(header.split(b"content-length: ")[1].split(b"\r\n")[0])
        assert length == len(get.split(b"\r\n\r\n", 1)[1])


LOCAL = ["localhost", "LOCALHOST.:8000", "127.0.0.1:1", "[::1]:8000"]
FOREIGN = ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "192.168.1.5", ""]


def test_foreign_host_is_refused(server):
    for host in (*LOCAL, *FOREIGN):
        for reply in (server.request("GET", "/model", Host=host), server.post("/classify", TEXT, Host=host)):
            assert reply.status == (200 if host in LOCAL else 421), host
            if host in FOREIGN:
                assert "Host" in reply.json["error"] and "--allowed-host" in reply.json["error"]
    assert server.metric("albert_refused_total", reason="host") == 2 * len(FOREIGN)


@pytest.mark.parametrize(
    ("arguments", "allowed", "refused"),
    [
        (
            ("0.0.0.0", ["models.example.org"]),
            [*LOCAL, "192.168.1.5:8000", "[fe80::1]:80", "Models.Example.org", socket.gethostname()],
            ["evil.example", "192.168.1.5.evil.example:80"],
        ),
        (("192.168.1.5",), ["192.168.1.5:8000", "localhost"], ["192.168.1.6"]),
        (("server.local",), ["server.local:80"], ["192.168.1.6"]),
        (("127.0.0.1", ["*"]), ["evil.example"], []),
    ],
)
def test_allowed_hosts(arguments, allowed, refused):
    hosts = allowed_hosts(*arguments)
    assert [host for host in (*allowed, *refused) if hosts.allow(host)] == allowed


@pytest.mark.parametrize("name", ["http://a.example", "a.example:80", "a.example/x", ""])
def test_allowed_host_is_a_name_without_a_port(name):
    with refusal(InvalidConfiguration, "port"):
        allowed_hosts("127.0.0.1", [name])


def test_port_in_use_is_refused_in_plain_words(server, refused):
    subject = f"127.0.0.1:{server.port}: the port is in use; choose another with --port"
    refused(lambda: listen("127.0.0.1", server.port), 69, subject)


def test_masks_times_top_k_is_limited(predictors, serve):
    server = serve(predictors("pretrain"))
    texts = ["[MASK] [MASK] [MASK]"] * 20
    reply = server.post("/fill-mask", {"texts": texts, "top_k": 69})
    why = "60 masks with top_k 69 are 4140 candidates, at most 4096 are allowed"
    assert (reply.status, reply.json["error"]) == (413, f"{why}; send fewer texts or masks, or a smaller top_k")
    (*_, last) = server.post("/fill-mask", {"texts": texts[:4], "top_k": 5}).json["results"]
    assert [len(mask) for mask in last] == [5, 5, 5]
    for top_k, why in (
        (0, "is 0, at least 1 is"),
        (101, "is 101, at most 100 is"),
        (1.5, "is a number, a whole number"),
    ):
        reply = server.post("/fill-mask", {"texts": texts, "top_k": top_k})
        assert reply.status == 422 and reply.json["error"].startswith(f"top_k: {why}")
    reply = server.post("/fill-mask", {"texts": ["a [MASK]", "a"]})
    assert reply.status == 422 and reply.json["error"].startswith("texts.1: has no [MASK]")
    reply = server.post("/fill-mask", {"texts": ["the ship " * 100 + "[MASK]"]})
    assert reply.status == 422 and "tokens" in reply.json["error"]


def test_size_of_an_input_counts_options_and_windows(predictors):
    longest = predictors("choose").max_length
    one, eight, long = (
        SizedExample.of(asked("", "the ship " * words, options=("a",) * options), longest)
        for words, options in ((15, 1), (15, 8), (999, 8))
    )
    assert eight.tokens == 8 * one.tokens and eight.text_count == 8
    assert long.tokens == 8 * longest
    assert SizedExample.of(asked("the ship " * 999), longest, is_windowed=True).tokens > 2 * 999 * 9 / 3
    assert SizedExample.of(asked("1234567890"), longest).tokens > 10
    assert SizedExample.of(asked("海" * 20), longest).tokens > 20


def test_lack_of_memory_gets_503(classifier, serve, monkeypatch):
    calls = []

    def fail(predictor, pipeline, examples):
        calls.append(len(examples))
        raise MemoryError

    monkeypatch.setattr(Predictor, "replies", fail)
    reply = serve(classifier).post("/classify", {"texts": ["a"] * 32})
    assert (reply.status, reply.headers["retry-after"]) == (503, "2") and "memory" in reply.json["error"]
    assert calls == [32, 8, 8, 8, 8]


def test_large_body_is_refused_by_its_length_and_while_it_arrives(server):
    with server.connected() as connection:
        connection.sendall(POST + b"Content-Length: 3000000\r\n\r\n")
        assert connection.recv(1_000).startswith(b"HTTP/1.1 413 ")
    with server.connected() as connection:
        connection.sendall(POST + CHUNKED)
        sent = 0
        try:
            for _ in range(1_000):  # more than the system buffers for a reader that has stopped
                connection.sendall(b"10000\r\n" + b" " * 65_536 + b"\r\n")
                sent += 65_536
        except (BrokenPipeError, ConnectionResetError):
            assert sent < 60_000_000
        else:
            pytest.fail("the whole body was read")
    assert server.metric("albert_refused_total", reason="body") == 2
    with server.connected() as connection:
        connection.sendall(POST + CHUNKED)
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(b"6\r\naaaaaa\r\n" * 500_000)
        received = read_all(connection)
    assert received[:13] in (b"HTTP/1.1 413 ", b"")
    assert server.post("/classify", TEXT).status == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET /model HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 400_000,
        POST + b"Content-Length: 5\r\n" + CHUNKED + b"0\r\n\r\n",
        POST + CHUNKED + b"zz\r\n",
    ],
    ids=["no HTTP", "endless header", "two lengths", "bad chunk"],
)
def test_malformed_request_gets_400_and_is_closed(sent, server):
    with server.connected() as connection:
        connection.sendall(sent)
        received = read_all(connection)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert server.post("/classify", TEXT).status == 200


def test_full_queue_refuses_a_request_with_retry_after(classifier, blocked, serve):
    server = serve(classifier, queue_texts=4, texts=4)
    with in_background(lambda: server.post("/classify", TEXT)) as first:
        wait_until(lambda: blocked.batches)
        with in_background(lambda: server.post("/classify", {"texts": ["a", "b", "c"]})) as second:
            wait_until(lambda: server.metric("albert_queue_texts") == 3)
            for texts, status in ((["a", "b"], 429), (["a"] * 5, 413)):
                reply = server.post("/classify", {"texts": texts})
                assert (reply.status, reply.headers.get("retry-after", "0").isdigit()) == (status, True)
            assert "the queue is full" in server.post("/classify", {"texts": ["a", "b"]}).json["error"]
            blocked.released.set()
    assert first[0].status == second[0].status == 200
    assert server.metric("albert_refused_total", reason="queue") == 2


def test_request_past_its_deadline_gets_504_and_is_dropped(classifier, blocked, serve):
    server = serve(classifier, request_seconds=0.3)
    with in_background(lambda: server.post("/classify", TEXT)):
        wait_until(lambda: blocked.batches)
        reply = server.post("/classify", {"texts": ["a", "b"]})
        assert (reply.status, reply.json["error"]) == (504, "no answer within 0.3 seconds")
        assert server.metric("albert_dropped_texts_total", reason="deadline") == 2
        blocked.released.set()


def test_request_of_a_disconnected_client_is_not_computed(classifier, blocked, serve):
    server = serve(classifier)
    with in_background(lambda: server.post("/classify", TEXT)):
        wait_until(lambda: blocked.batches)
        with server.connected() as connection:
            connection.sendall(request_bytes({"texts": ["a", "b"]}))
            wait_until(lambda: server.metric("albert_queue_texts") == 2)
        wait_until(lambda: server.metric("albert_dropped_texts_total", reason="client gone") == 2)
        blocked.released.set()
    wait_until(lambda: server.service.in_progress == 0)
    assert blocked.batches == [["the ship"]]


class Panic(BaseException):
    """As libraries in Rust raise it."""


@pytest.mark.parametrize("error", [None, RuntimeError("in /root/secret.py"), Panic("at /root/secret.rs")])
def test_failing_text_does_not_affect_other_requests(error, classifier, serve, monkeypatch):
    """It raises, or its score is not finite."""
    compute = Predictor.replies

    def fail(predictor, pipeline, examples):
        if error is not None and any(example.texts == ("bad",) for example in examples):
            raise error
        nan = [{"label": "calm", "score": float("nan")}]
        replies = compute(predictor, pipeline, examples)
        rows = zip(examples, replies, strict=True)
        return [nan if example.texts == ("bad",) else reply for example, reply in rows]

    monkeypatch.setattr(Predictor, "replies", fail)
    server = serve(classifier)
    texts = ["the ship", "bad", "a storm", "the sea"]
    with in_background(*(lambda text=text: server.post("/classify", {"texts": [text]}) for text in texts)) as replies:
        pass
    assert [reply.status for reply in replies] == [200, 500, 200, 200]
    assert "secret" not in replies[1].body.decode() and server.service.state == "ready"


def test_internal_error_is_one_sentence(classifier, serve, monkeypatch):
    server = serve(classifier)
    monkeypatch.setattr("albert.inference.server.status.model_facts", lambda *_: 1 / 0)
    reply = server.request("GET", "/model")
    assert (reply.status, reply.json) == (500, {"error": "internal error"})


def test_requests_get_503_until_the_model_is_loaded(classifier):
    may_load = []
    with running(lambda: wait_until(lambda: may_load) or classifier) as server:
        assert server.request("GET", "/healthz").status == server.request("GET", "/").status == 200
        assert server.request("GET", "/readyz").status == 503
        reply = server.post("/classify", TEXT)
        assert (reply.status, reply.headers["retry-after"]) == (503, "2")
        may_load.append(True)
        wait_until(lambda: server.request("GET", "/readyz").status == 200)
        assert server.post("/classify", TEXT).status == 200


def test_metrics_for_prometheus(server):
    server.post("/classify", {"texts": ["a", "b"]})
    server.post("/classify", {"texts": [1]})
    reply = server.request("GET", "/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    lines = reply.body.decode().splitlines()
    assert {
        'albert_texts_total{ability="classify"} 2.0',
        'albert_refused_total{reason="fields"} 1.0',
        'albert_request_seconds_count{address="/classify",status="200"} 1.0',
        "albert_batch_texts_sum 2.0",
        "albert_queue_texts 0.0",
    } <= set(lines)
