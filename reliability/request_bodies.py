"""Bodies of HTTP requests, given to the whole application as a server would, without a socket between."""

import asyncio
import functools
import json
import os
from pathlib import Path
from typing import Any

from albert.inference.predictor import Predictor
from albert.inference.server.batching import Service
from albert.inference.server.limits import Limits
from albert.inference.server.routes import Gate, Message, application
from reliability.confined import Broken

SAMPLES: dict[str, list[dict[str, Any]]] = {
    "/classify": [{"texts": ["It was a day.", "Dull."]}],
    "/answer": [{"questions": [{"question": "Where?", "context": "It came from Lisbon in May."}], "top_k": 2}],
    "/fill-mask": [{"texts": ["It was a [MASK] day."], "top_k": 3}],
    "/order": [{"pairs": [["She opened the letter.", "It was from Lisbon."]]}],
    "/embed": [{"texts": ["A storm at sea."], "pooling": "cls", "normalize": True}],
    "/layers": [{"text": "A storm at sea.", "pair": "It was a day."}],
}
"""Address -> valid bodies."""
MODELS = {"/classify": "classifier", "/answer": "answerer"}
"""Which model of the scene answers there; the pre-trained one otherwise."""


def post(address: str, path: Path) -> str:
    """Send a file's content to the model in its folder; the status and the beginning of the answer.

    Raises:
        Broken: the server's own mistake (500 and more), an answer that is no JSON, or one that tells of this machine.
    """
    status, reply = _server(path.parent, os.getpid()).ask(address, path.read_bytes())
    text = reply.decode("utf-8", "replace")
    if status >= 500:
        raise Broken(f"status {status}: {text[:200]}")
    try:
        json.loads(reply, parse_constant=_refuse_constant)
    except ValueError as error:
        raise Broken(f"status {status} with an answer that is no JSON: {text[:200]}") from error
    if "Traceback" in text or str(path.parent) in text:
        raise Broken(f"status {status} tells of this machine: {text[:200]}")
    return f"{status} {text[:80]}"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


@functools.cache
def _server(model: Path, process: int) -> "_Server":
    """One for each model and process: its worker is a thread, which does not come along with a fork."""
    return _Server(model)


class _Server:
    def __init__(self, model: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._application = self._loop.run_until_complete(self._started(model))

    async def _started(self, model: Path) -> Gate:
        service = Service(Limits())
        service.start(Predictor.open(model, "cpu", precision="fp32"))
        return application(service)

    def ask(self, address: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the reply."""
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        path = address.encode()
        scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http"}
        scope |= {"path": address, "raw_path": path, "query_string": b"", "root_path": "", "headers": headers}
        scope |= {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "state": {}}
        sent: list[Message] = []
        asked = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Message:
            message = next(asked, None)
            if message is None:  # the caller waits for the answer
                await asyncio.Event().wait()
                raise AssertionError("nobody sets it")
            return message

        async def send(message: Message) -> None:
            sent.append(message)

        self._loop.run_until_complete(self._application(scope, receive, send))
        status = next(message["status"] for message in sent if message["type"] == "http.response.start")
        return status, b"".join(message.get("body", b"") for message in sent)
