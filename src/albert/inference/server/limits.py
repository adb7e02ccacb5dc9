"""Limits of the server; every limit is on by default."""

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass, fields

from albert.runtime.errors import InvalidConfiguration


@dataclass(frozen=True)
class Limits:
    """Sizes, counts and seconds.

    Raises:
        InvalidConfiguration: one of them is not above zero, or a request could ask for more than the queue holds.
    """

    body_bytes: int = 1_000_000
    """Bytes of a request's body (413)."""
    texts: int = 32
    """Texts in a request; of a question with options, each option is one (413)."""
    text_characters: int = 100_000
    """Characters of a text (413)."""
    candidates: int = 4096
    """Pieces that fill-mask returns for a request, all masks times top_k: each comes with its whole text (413)."""
    header_bytes: int = 16_384
    """Bytes of a request's header (431)."""
    connections: int = 256
    """Connections at a time; a further one closes an idle one, or is refused (503)."""
    header_seconds: float = 10.0
    """Until a header must have come (408)."""
    body_seconds: float = 30.0
    """Until a body must have come, and until a reply must have been read (408)."""
    queue_texts: int = 256
    """Texts that may wait; a request is taken as a whole or not at all (429)."""
    queue_seconds: float = 4.0
    """Seconds that a text may have to wait, at the recent speed; where nothing waits, any request is taken (429)."""
    request_seconds: float = 30.0
    """Until a request is answered, the time in the queue included (504); what is left of it is not computed."""
    batch_tokens: int = 8192
    """Tokens, as estimated from the characters, that are computed together for all callers; fewer where they would take
    more than a second."""
    layer_tokens: int = 64
    """Tokens of a text whose layers are shown, the rest being cut; the reply grows with their square."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not value > 0:
                raise InvalidConfiguration(f"limits.{limit.name} {value}", "a limit is a number above zero")
        if self.texts > self.queue_texts:
            why = f"a request of {self.texts} texts would never find room in a queue of {self.queue_texts}"
            raise InvalidConfiguration("limits.queue_texts", why, "raise it, or lower limits.texts")


@dataclass(frozen=True)
class Hosts:
    """What the `Host` header of a request may say, in lower case and without a port.

    A page from elsewhere can make its own name resolve to this machine (DNS rebinding), and a browser then lets it read
    the replies; its requests still carry that name.

    Attributes:
        names: names and addresses that are allowed.
        any_address: whether every IP address is; it takes a name to rebind.
        any_host: whether everything is.
    """

    names: frozenset[str]
    any_address: bool = False
    any_host: bool = False

    def allow(self, header: str) -> bool:
        name = _without_port(header.strip())
        return self.any_host or name in self.names or (self.any_address and _address(name) is not None)


LOOPBACK = Hosts(frozenset({"localhost", "127.0.0.1", "::1"}))


def allowed_hosts(host: str, also: Iterable[str] = ()) -> Hosts:
    """Loopback, the address that is listened at, and what else was named; `*` allows everything.

    Where all addresses are listened at (0.0.0.0 or ::), people come by any of them, through a port that a container
    publishes, say: then every IP address is allowed, and this machine's own name.

    Raises:
        InvalidConfiguration: a name with a scheme, a path or a port.
    """
    names = {*LOOPBACK.names, host.lower()}
    for name in also:
        plain = _without_port(name)
        if not plain or "/" in name or plain != name.lower().strip("[]").removesuffix("."):
            remedy = "--allowed-host models.example.org"
            raise InvalidConfiguration(f"allowed-host {name!r}", "is not a name or an address, without a port", remedy)
        names.add(plain)
    address = _address(host)
    everywhere = not host or (address is not None and address.is_unspecified)
    if everywhere:
        names.add(socket.gethostname().lower())
    return Hosts(frozenset(names), everywhere, "*" in names)


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
