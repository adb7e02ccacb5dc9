"""Limits of the server on the cost of requests; slow connections are for a reverse proxy (docs/deploying.md)."""

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass, fields

from albert.runtime.errors import InvalidConfiguration
from albert.runtime.words import plain


@dataclass(frozen=True)
class Limits:
    """Sizes, counts and seconds."""

    body_bytes: int = 1_000_000
    """Bytes of a request's body (413)."""
    texts: int = 32
    """Texts in a request; each option of a question counts as one (413)."""
    text_characters: int = 100_000
    """Characters of a text (413)."""
    queue_texts: int = 256
    """Texts in the queue; a request is accepted as a whole or not at all (429)."""
    queue_seconds: float = 4.0
    """Estimated wait in the queue, at the recent speed; an empty queue accepts any request (429)."""
    request_seconds: float = 30.0
    """Timeout of a request, including its time in the queue (504); the rest of it is not computed."""
    keep_alive_seconds: float = 75.0
    """Seconds until a connection without a request is closed; more than a proxy keeps its own (nginx: 60)."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not value > 0:
                raise InvalidConfiguration(limit.name, f"is {plain(value)}, a number above 0 is needed")
        if self.texts > self.queue_texts:
            why = f"a request of {self.texts} texts would never fit in a queue of {self.queue_texts}"
            raise InvalidConfiguration("queue_texts", why, "raise it, or lower texts")


@dataclass(frozen=True)
class Hosts:
    """Allowed `Host` headers, in lower case and without a port.

    Against DNS rebinding: a malicious page can make its own domain resolve to this machine, so that the browser lets it
    read the replies, but its requests still carry that domain.
    """

    names: frozenset[str]
    any_address: bool = False  # allow every IP address; rebinding needs a name
    any_host: bool = False

    def allow(self, header: str) -> bool:
        name = _without_port(header.strip())
        return self.any_host or name in self.names or (self.any_address and _address(name) is not None)


LOOPBACK = Hosts(frozenset({"localhost", "127.0.0.1", "::1"}))


def allowed_hosts(host: str, also: Iterable[str] = ()) -> Hosts:
    """Loopback, the listening address, and further names; `*` allows everything.

    A server that listens on all addresses (0.0.0.0 or ::), as in a container, can be reached by any of them: then every
    IP address is allowed, and this machine's own name.
    """
    names = {*LOOPBACK.names, host.lower()}
    for name in also:
        plain = _without_port(name)
        if not plain or "/" in name or plain != name.lower().strip("[]").removesuffix("."):
            why = "is not a name or an address, without a port"
            raise InvalidConfiguration(f"allowed-host {name!r}", why, "--allowed-host models.example.org")
        names.add(plain)
    address = _address(host)
    any_address = not host or (address is not None and address.is_unspecified)
    if any_address:
        names.add(socket.gethostname().lower())
    return Hosts(frozenset(names), any_address, "*" in names)


def _without_port(header: str) -> str:
    name = header.lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    if name.count(":") <= 1:  # more are an IPv6 address without brackets
        name = name.partition(":")[0]
    return name.removesuffix(".")


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
