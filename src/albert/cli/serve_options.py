"""What `albert serve` is asked for."""

from dataclasses import dataclass, field
from typing import Literal

from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.cli.main import load_command
from albert.inference.server.limits import Limits


@dataclass(frozen=True)
class Serve:
    """Answer over HTTP what a model can be asked, and show a page to try it in the browser.

    Requests of all callers are computed together. Memory, queue and time are bounded: what does not fit is refused
    with a status that says why. SIGTERM ends the server when it has answered what it accepted. Addresses: / the page,
    /docs the API, /healthz, /readyz, /metrics.

    Example: albert serve run/model --port 8000
    """

    model: Positional[str]
    """A model directory, a run directory, or a Hugging Face Hub id."""
    host: str = "127.0.0.1"
    """The address to listen at; 0.0.0.0 lets other machines in, and there is no password: put a proxy before it."""
    port: int = 8000
    """0 takes one that is free, and says which."""
    allowed_host: tuple[str, ...] = ()
    """Names that requests may have in their Host header, beside localhost, 127.0.0.1, [::1] and the address of --host
    (with --host 0.0.0.0: any IP address); * allows all."""
    precision: Literal["auto", "fp32", "bf16", "int8"] = "auto"
    """Of the encoder's matrix products; auto is the fastest that leaves scores as they are."""
    depth: int | None = None
    """Layers to apply, where they share their parameters more of them than trained, too."""
    patience: int | None = None
    """Decide a text as soon as so many layers in a row agree on its label."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    revision: str | None = None
    """A branch, tag or commit of a Hub repository."""
    threads: int | None = None
    """Threads of the model; all cores by default."""
    drain_timeout: float = 30.0
    """Seconds that accepted requests may take after SIGTERM."""
    limits: Limits = field(default_factory=Limits)


def main(arguments: list[str]) -> int:
    """Read the options, and run `albert serve`."""
    asked = parse(Serve, arguments, "albert serve")
    return load_command("albert.cli.serve").run(asked)
