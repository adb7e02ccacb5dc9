"""Everything is bounded: each limit has its status and one clear sentence; no path or traceback is told."""

import json
import socket

import pytest
from tests.inference.server.running_servers import in_background, read_all, running, wait_until

from albert.inference.server.batching import as_input
from albert.inference.server.limits import allowed_hosts
from albert.runtime.errors import InvalidConfiguration

TEXT = {"texts": ["the ship"]}


@pytest.fixture
def server(classifier, serve):
    return serve(classifier, body_bytes=10_000, text_characters=500, texts=4, queue_texts=4)


REFUSED = {
    "a text too many": ({"texts": ["a"] * 5}, 413, "5 texts in a request, at most 4 are allowed"),
    "a text too long": ({"texts": ["a" * 501]}, 413, "501 characters"),
    "no JSON": (b"{", 400, "not JSON"),
    "half a letter": (b'{"texts": ["\xff"]}', 400, "JSON"),
    "too deep": (b"[" * 5_000, 400, "JSON"),
    "no object": ([], 422, "body"),
    "no text": ({"texts": []}, 422, "texts"),
    "a number for a text": ({"texts": [1]}, 422, "texts.0"),
    "half a character": (b'{"texts": ["\\ud800"]}', 422, "texts.0"),
    "a key that is not known": (TEXT | {"text": "a"}, 422, "text: "),
    "not as many pairs": (TEXT | {"pairs": ["a", "b"]}, 422, "2 for 1 texts"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_request_that_cannot_be_answered_is_told_why(case, server):
    body, status, why = REFUSED[case]
    reply = server.post("/classify", body)
    assert (reply.status, list(reply.json)) == (status, ["error"])
    assert why in reply.json["error"] and "\n" not in reply.json["error"] and "/" not in reply.json["error"]
    assert server.post("/classify", TEXT).status == 200


def test_what_a_model_has_no_head_for_it_says(server):
    reply = server.post("/answer", {"questions": [{"question": "who?", "context": "the ship"}]})
    assert (reply.status, reply.json["error"]) == (422, "this model cannot answer questions; it can classify texts")


def test_unknown_addresses_methods_and_types(server):
    assert server.request("GET", "/nothing").status == 404
    assert server.request("GET", "/page/../limits.py").status == 404
    assert server.request("GET", "/classify").status == 405
    assert server.request("POST", "/classify", b"{}", Content_Type="text/plain").status == 415
    assert server.request("POST", "/classify", b"{}", Content_Type="application/json; charset=latin-1").status == 415
    assert server.request("POST", "/classify", b"{}", Content_Encoding="gzip").status == 415


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("/classify", {"POST"}),
        ("/model", {"GET", "HEAD"}),
        ("/", {"GET", "HEAD"}),
        ("/page/script.js", {"GET", "HEAD"}),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(address, allowed, server):
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
    named, nothing_more = head.split(b"\r\n\r\n")
    assert nothing_more == b"" and b"content-length: " in named
    if address != "/metrics":  # figures change from one to the next
        length = int(named.split(b"content-length: ")[1].split(b"\r\n")[0])
        assert length == len(get.split(b"\r\n\r\n", 1)[1])


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST.:8000", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8000", 200),
        ("evil.example", 421),
        ("evil.example:8000", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("192.168.1.5", 421),
        ("", 421),
    ],
)
def test_a_foreign_host_is_refused(host, status, server):
    for reply in (server.request("GET", "/model", Host=host), server.post("/classify", TEXT, Host=host)):
        assert reply.status == status
        if status == 421:
            assert "Host" in reply.json["error"] and "--allowed-host" in reply.json["error"]
    assert server.metric("albert_refused_total", reason="host") == (2 if status == 421 else 0)


def test_other_hosts_may_be_allowed():
    everywhere = allowed_hosts("0.0.0.0", ["models.example.org"])
    for host in (
        "192.168.1.5:8000",
        "[fe80::1]:80",
        "127.0.0.1",
        "localhost",
        "Models.Example.org",
        socket.gethostname(),
    ):
        assert everywhere.allow(host), host
    assert not everywhere.allow("evil.example") and not everywhere.allow("192.168.1.5.evil.example:80")
    here = allowed_hosts("192.168.1.5")
    assert here.allow("192.168.1.5:8000") and here.allow("localhost") and not here.allow("192.168.1.6")
    assert allowed_hosts("server.local").allow("server.local:80")
    assert allowed_hosts("127.0.0.1", ["*"]).allow("evil.example")
    for wrong in ("http://a.example", "a.example:80", "a.example/x", ""):
        with pytest.raises(InvalidConfiguration, match="without a port"):
            allowed_hosts("127.0.0.1", [wrong])


def test_masks_times_candidates_are_bounded(predictors, serve):
    server = serve(predictors("pretrain"), candidates=60)
    texts = ["[MASK] [MASK] [MASK]"] * 4
    reply = server.post("/fill-mask", {"texts": texts, "top_k": 6})
    why = "12 masks with top_k 6 are 72 candidates, at most 60 are allowed"
    assert (reply.status, reply.json["error"]) == (413, f"{why}; send fewer texts or masks, or a smaller top_k")
    (*_, last) = server.post("/fill-mask", {"texts": texts, "top_k": 5}).json["results"]
    assert [len(mask) for mask in last] == [5, 5, 5]
    default = serve(predictors("pretrain")).post("/fill-mask", {"texts": ["[MASK] " * 120] * 32, "top_k": 100})
    assert default.status == 413 and "384000 candidates" in default.json["error"]


def test_options_and_windows_count_by_what_is_read(predictors):
    predictor = predictors("choose")
    one = as_input(predictor, ("the ship " * 15, ("a",), ""))
    many = as_input(predictor, ("the ship " * 15, ("a",) * 8, ""))
    assert many.tokens == 8 * one.tokens and many.text_count == 8
    longer = as_input(predictor, ("the ship " * 999, ("a",) * 8, ""))
    assert longer.tokens == 8 * predictor.max_length
    assert as_input(predictor, ("the ship " * 999,), windowed=True).tokens > 2 * 999 * 9 / 3
    assert as_input(predictor, ("1234567890",)).tokens > 10 and as_input(predictor, ("海" * 20,)).tokens > 20


def test_a_lack_of_memory_is_told(classifier, serve, monkeypatch):
    calls = []

    def lacking(texts, pairs=None):
        calls.append(len(texts))
        raise MemoryError

    monkeypatch.setattr(classifier, "classify_batch", lacking)
    reply = serve(classifier).post("/classify", {"texts": ["a"] * 32})
    assert (reply.status, reply.headers["retry-after"]) == (503, "2") and "memory" in reply.json["error"]
    assert calls == [32, 8, 8, 8, 8]


def test_no_mask_and_a_mask_too_many_tokens_away(predictors, serve):
    server = serve(predictors("pretrain"))
    assert server.post("/fill-mask", {"texts": ["a [MASK]", "a"]}).status == 422
    reply = server.post("/fill-mask", {"texts": ["the ship " * 100 + "[MASK]"]})
    assert reply.status == 422 and "tokens" in reply.json["error"]


def test_a_large_body_is_refused_by_its_length_and_while_it_comes(server):
    with server.connected() as connection:
        connection.sendall(b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        connection.sendall(b"Content-Length: 3000000\r\n\r\n")
        assert connection.recv(1_000).startswith(b"HTTP/1.1 413 ")
    with server.connected() as connection:
        connection.sendall(b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        connection.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        sent = 0
        try:
            for _ in range(1_000):  # more than the system would keep for a reader that has stopped
                connection.sendall(b"10000\r\n" + b" " * 65_536 + b"\r\n")
                sent += 65_536
        except (BrokenPipeError, ConnectionResetError):
            assert sent < 60_000_000
        else:
            pytest.fail("all of it was read")
    assert server.metric("albert_refused_total", reason="body") == 2
    assert server.post("/classify", TEXT).status == 200


def test_three_megabytes_in_small_chunks_do_no_harm(server):
    with server.connected() as connection:
        connection.sendall(b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        connection.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            connection.sendall(b"6\r\naaaaaa\r\n" * 500_000)
        except (BrokenPipeError, ConnectionResetError):
            received = read_all(connection)
        else:
            received = read_all(connection)
    assert received[:13] in (b"HTTP/1.1 413 ", b"")
    assert server.post("/classify", TEXT).status == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /model HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", 431),
        (b"GET /model HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 400_000, 431),
        (
            b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            400,
        ),
    ],
    ids=["no HTTP", "long header", "endless header", "two lengths", "bad chunk"],
)
def test_what_is_no_request_gets_a_status_and_an_end(sent, status, server):
    with server.connected() as connection:
        connection.sendall(sent)
        received = read_all(connection)
    assert received.startswith(f"HTTP/1.1 {status} ".encode()) and b'{"error":' in received


def test_requests_in_one_go_are_answered_in_their_order(server):
    one, other = (json.dumps({"texts": [text]}).encode() for text in ("the ship", "a storm at sea"))
    with server.connected() as connection:
        for body, end in ((one, b""), (other, b"Connection: close\r\n")):
            header = b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + end
            connection.sendall(header + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        received = read_all(connection)
    results = [json.loads(part.split(b"\r\n\r\n")[1])["results"] for part in received.split(b"HTTP/1.1 200 OK")[1:]]
    assert results == [server.post("/classify", json.loads(body)).json["results"] for body in (one, other)]


def test_a_full_queue_refuses_as_a_whole_and_says_when_to_come_back(classifier, blocked, serve):
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


def test_a_request_that_takes_too_long_is_told_so_and_dropped(classifier, blocked, serve):
    server = serve(classifier, request_seconds=0.3)
    with in_background(lambda: server.post("/classify", TEXT)):
        wait_until(lambda: blocked.batches)
        reply = server.post("/classify", {"texts": ["a", "b"]})
        assert (reply.status, reply.json["error"]) == (504, "no answer within 0.3 seconds")
        assert server.metric("albert_dropped_texts_total", reason="deadline") == 2
        blocked.released.set()


def test_what_a_client_does_not_wait_for_is_not_computed(classifier, blocked, serve):
    server = serve(classifier)
    body = json.dumps({"texts": ["nobody", "waits"]}).encode()
    with in_background(lambda: server.post("/classify", TEXT)):
        wait_until(lambda: blocked.batches)
        with server.connected() as connection:
            header = b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(header + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            wait_until(lambda: server.metric("albert_queue_texts") == 2)
        wait_until(lambda: server.metric("albert_dropped_texts_total", reason="client gone") == 2)
        blocked.released.set()
    wait_until(lambda: server.service.in_progress == 0)
    assert blocked.batches == [["the ship"]]


class Panic(BaseException):
    """As libraries in Rust raise it."""


@pytest.mark.parametrize("poison", ["not finite", "error", "panic"])
def test_a_poisoned_text_fails_alone(poison, classifier, serve, monkeypatch, caplog):
    compute = classifier.classify_batch

    def poisoned(texts, pairs=None):
        if "poison" in texts and poison != "not finite":
            raise Panic("at /root/secret.rs") if poison == "panic" else RuntimeError("in /root/secret.py")
        results = compute(texts, pairs)
        return [[{"label": "calm", "score": float("nan")}] if text == "poison" else each
                for text, each in zip(texts, results, strict=True)]  # fmt: skip

    monkeypatch.setattr(classifier, "classify_batch", poisoned)
    server = serve(classifier)
    texts = ["the ship", "poison", "a storm", "the sea"]
    with in_background(*(lambda text=text: server.post("/classify", {"texts": [text]}) for text in texts)) as replies:
        pass
    assert [each.status for each in replies] == [200, 500, 200, 200]
    assert "secret" not in replies[1].body.decode() and server.service.state == "ready"


def test_a_bug_is_told_in_one_sentence(classifier, serve, monkeypatch):
    server = serve(classifier)
    monkeypatch.setattr("albert.inference.server.routes.model_facts", lambda *_: 1 / 0)
    reply = server.request("GET", "/model")
    assert (reply.status, reply.json) == (500, {"error": "internal error"})


def test_until_the_model_is_there_requests_are_told_to_come_back(classifier):
    def slowly():
        wait_until(lambda: may_load)
        return classifier

    may_load: list[bool] = []
    with running(slowly) as server:
        assert server.request("GET", "/healthz").status == 200
        assert server.request("GET", "/readyz").status == 503
        reply = server.post("/classify", TEXT)
        assert (reply.status, reply.headers["retry-after"]) == (503, "2")
        assert server.request("GET", "/").status == 200
        may_load.append(True)
        wait_until(lambda: server.request("GET", "/readyz").status == 200)
        assert server.post("/classify", TEXT).status == 200


def test_figures_are_told_to_prometheus(server):
    server.post("/classify", {"texts": ["a", "b"]})
    server.post("/classify", {"texts": [1]})
    reply = server.request("GET", "/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    metrics = reply.body.decode()
    for line in (
        'albert_texts_total{ability="classify"} 2.0',
        'albert_refused_total{reason="fields"} 1.0',
        'albert_request_seconds_count{address="/classify",status="200"} 1.0',
        "albert_batch_texts_sum 2.0",
        "albert_queue_texts 0.0",
    ):
        assert line in metrics
