"""A client of HTTP/1.1 that costs little: one request after the other on a connection that is kept."""

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Reply:
    """What came back, and after how long; status 0 says that the connection broke."""

    status: int
    said: Any
    seconds: float


class Connection:
    """A connection that is opened when it is first used, and again when the server has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, address: str, body: Any) -> Reply:
        """Ask, and read the answer to its end."""
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
            said = json.loads(await reader.readexactly(length))
        except (OSError, EOFError):
            self.close()
            return Reply(0, None, time.perf_counter() - started)
        if "connection: close" in header:
            self.close()
        return Reply(int(header.split()[1]), said, time.perf_counter() - started)

    def close(self) -> None:
        """End it."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def get(port: int, address: str) -> Any:
    """What an address tells, from JSON."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(f"GET {address} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
    said = (await reader.read()).partition(b"\r\n\r\n")[2]
    writer.close()
    return json.loads(said)


async def go_away(port: int, address: str, body: Any, seconds: float) -> None:
    """Ask, and break the connection after so many seconds without reading the reply."""
    content = json.dumps(body).encode()
    head = f"POST {address} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return
    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    await asyncio.sleep(seconds)
    writer.transport.abort()


async def slow_connection(port: int, in_body: bool, patience: float = 45.0) -> bool:
    """One byte a second, of a header or of a body; whether the server ended it before the patience did."""
    sent = b"POST /classify HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    started = time.perf_counter()
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(sent if in_body else sent[:9])
        while time.perf_counter() - started < patience:
            writer.write(b" " if in_body else b"a")
            await writer.drain()
            try:
                if not await asyncio.wait_for(reader.read(1000), 1.0):
                    writer.close()
                    return True
            except TimeoutError:
                continue
        writer.close()
    except OSError:
        return True
    return False
