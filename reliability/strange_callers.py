"""Callers who come from elsewhere, ask for too much or for all there is, or go away; a part of `strangers`."""

import http.client
import json
import random
import re
import signal
import threading
import time

from reliability.killable_runs import ForkServer
from reliability.report import CHECKOUT
from reliability.trial import Checks

MODEL = str(CHECKOUT / "models" / "tiny")
SMALL = {"texts": ["It was a [MASK] day."], "top_k": 3}
LARGEST = {"texts": ["[MASK] " * 120] * 32, "top_k": 1}
"""As many candidates as a request may ask for; with `top_k` 100 they are too many."""
LONGEST_WAIT = 10.0
"""Seconds that another caller may wait for its answer meanwhile, on a machine that is busy with other work, too."""
WAIT = "longest wait beside the largest request, seconds"
CANCELLATIONS = 10


def callers(forks: ForkServer, draws: random.Random, details: dict) -> Checks:
    """A server that is asked by pages from elsewhere, for too much, for as much as it gives, and in vain."""
    server = forks.start(["serve", MODEL, "--port", "0", "--device", "cpu", "--threads", "1"])
    server.wait_until(lambda: "ready:" in server.printed)
    try:
        port = int(re.search(r"listening at \S+:(\d+)", server.printed)[1])  # type: ignore[index]
        yield from _headers(port)
        too_much = {**LARGEST, "top_k": 100}
        yield "fill-mask of too many candidates", _unlike(413, _ask(port, "POST", "/fill-mask", too_much)[0])
        yield "callers beside the largest request", _beside_the_largest(port, details)
        yield f"{CANCELLATIONS} callers who go away", _after_cancellations(port, draws)
    finally:
        server.signal(signal.SIGTERM)
        code = server.finish()
    told = f"exit code {code}: {server.printed[-300:]!r}" if "Traceback" in server.printed or code else ""
    yield "the end of the server", "" if code == 128 + signal.SIGTERM and "Traceback" not in told else told


def _headers(port: int) -> Checks:
    for host, status in (("localhost", 200), ("evil.example", 421), ("127.0.0.1.evil.example", 421)):
        for method, address, body in (("GET", "/model", None), ("POST", "/fill-mask", SMALL)):
            yield f"{method} as {host}", _unlike(status, _ask(port, method, address, body, Host=host)[0])
    for address in ("/", "/docs", "/model", "/healthz", "/readyz"):
        status, _, content = _ask(port, "HEAD", address)
        yield f"HEAD {address}", _unlike(200, status) or ("it has a body" if content else "")
    status, headers, _ = _ask(port, "DELETE", "/fill-mask")
    yield "DELETE", _unlike(405, status) or ("" if headers.get("allow") == "POST" else f"Allow: {headers.get('allow')}")


def _unlike(expected: int, status: int) -> str:
    return "" if status == expected else f"status {status}, {expected} is expected"


def _ask(port: int, method: str, address: str, body: object = None, **headers: str) -> tuple[int, dict, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        content = None if body is None else json.dumps(body).encode()
        connection.request(method, address, content, {"Content-Type": "application/json", **headers})
        reply = connection.getresponse()
        return reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
    finally:
        connection.close()


def _beside_the_largest(port: int, details: dict) -> str:
    statuses: list[int] = []
    large = threading.Thread(target=lambda: statuses.append(_ask(port, "POST", "/fill-mask", LARGEST)[0]))
    began = time.monotonic()
    large.start()
    waits: list[float] = []
    while large.is_alive():
        asked = time.monotonic()
        status = _ask(port, "POST", "/fill-mask", SMALL)[0]
        if status not in (200, 429):  # a slow machine may say that it has too much to do
            return f"another caller was answered with status {status}"
        if large.is_alive():
            waits.append(time.monotonic() - asked)
    took, longest = time.monotonic() - began, max(waits, default=0.0)
    details[WAIT] = max(round(longest, 2), details.get(WAIT, 0.0))
    details["callers answered meanwhile"] = details.get("callers answered meanwhile", 0) + len(waits)
    if statuses != [200]:
        return f"the largest request ended with {statuses}"
    if longest > LONGEST_WAIT or (took > LONGEST_WAIT and not waits):
        return f"{len(waits)} others were answered in {took:.1f} s, the longest wait was {longest:.1f} s"
    return ""


def _after_cancellations(port: int, draws: random.Random) -> str:
    for _ in range(CANCELLATIONS):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/fill-mask", json.dumps(LARGEST), {"Content-Type": "application/json"})
        time.sleep(draws.uniform(0, 0.1))
        connection.close()
    ends = time.monotonic() + 60
    while b"\nalbert_queue_texts 0.0\n" not in _ask(port, "GET", "/metrics")[2]:
        if time.monotonic() > ends:
            return "their texts are still in the queue after 60 s"
        time.sleep(0.05)
    return _unlike(200, _ask(port, "POST", "/fill-mask", SMALL)[0])
