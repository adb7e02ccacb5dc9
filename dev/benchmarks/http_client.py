"""A cheap HTTP/1.1 client and texts to send, shared by latency.py and server_load.py."""

import asyncio
import json
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from albert.checkpoints.model_directory import save_model_directory
from albert.commands.sample import load_chapters
from albert.model.albert import AlbertForSequenceClassification
from albert.recipes.architecture import PRESETS
from albert.text.sentencepiece import train_tokenizer
from albert.text.sentences import split_sentences

HOST = "127.0.0.1"


class Reply(NamedTuple):
    """A reply and the seconds it took; status 0: the connection broke."""

    status: int
    body: Any
    seconds: float


class Connection:
    """A connection, opened at its first use and reopened if the server has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, address: str, body: Any) -> Reply:
        """Send a request and read the reply."""
        content = json.dumps(body).encode()
        head = f"POST {address} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
        started = time.perf_counter()
        try:
            if self._streams is None or self._streams[0].at_eof():  # closed while it was idle
                self.close()
                self._streams = await asyncio.open_connection(HOST, self._port)
            reader, writer = self._streams
            writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
            header = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(header.split("content-length:")[1].split("\r\n")[0])
            reply = json.loads(await reader.readexactly(length))
        except (OSError, EOFError):
            self.close()
            return Reply(0, None, time.perf_counter() - started)
        if "connection: close" in header:
            self.close()
        return Reply(int(header.split()[1]), reply, time.perf_counter() - started)

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Texts:
    """An endless source of distinct texts: one to four sentences of the sample."""

    def __init__(self) -> None:
        self._sentences = [sentence for chapter in load_chapters() for sentence in split_sentences(chapter.text, "en")]
        self._random, self._number = random.Random(0), 0

    def some(self, count: int) -> list[str]:
        """The next `count` texts."""
        return [self._next() for _ in range(count)]

    def _next(self) -> str:
        self._number += 1
        first, count = self._random.randrange(len(self._sentences) - 4), self._random.choice((1, 1, 2, 3, 4))
        return f"{self._number}. " + " ".join(self._sentences[first : first + count])


def random_classifier(folder: Path, preset: str) -> Path:
    """Save a classifier with random weights and a vocabulary of the sample."""
    torch.manual_seed(0)
    tokenizer = train_tokenizer([chapter.text for chapter in load_chapters()], vocab_size=8_000)
    tokenizer.save(folder / "tokenizer")
    config = replace(PRESETS[preset], vocab_size=tokenizer.vocab_size)
    save_model_directory(folder / "model", AlbertForSequenceClassification(config, 3), folder / "tokenizer")
    return folder / "model"
