"""`albert serve`: a model behind HTTP, with a page to try it."""

import os
import sys
from dataclasses import dataclass, field
from typing import Literal

import torch
from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.inference.predictor import Predictor
from albert.inference.server.limits import Limits, allowed_hosts
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.late_modules import load_by_name


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
    """Run `albert serve`."""
    options = parse(Serve, arguments, "albert serve")
    if not 0 <= options.port < 65_536:
        raise InvalidConfiguration(f"port {options.port}", "ports are numbers up to 65535", "8000, say")
    if options.drain_timeout <= 0 or (options.threads or 1) < 1:
        raise InvalidConfiguration("drain-timeout, threads", "are numbers above zero")
    hosts = allowed_hosts(options.host, options.allowed_host)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    draining_server = load_by_name("albert.inference.server.draining_server", extra="serve")
    listening = draining_server.listen(options.host, options.port)
    host, port = listening.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    _say(f"listening at {address}, loading {options.model}")

    def open_predictor() -> Predictor:
        predictor = Predictor.open(
            options.model,
            options.device,
            revision=options.revision,
            precision=options.precision,
            depth=options.depth,
            patience=options.patience,
        )
        predictor.embed(["What a first request would wait for is made now."])
        return predictor

    def started(predictor: Predictor) -> None:
        for note in predictor.loading_report.notes:
            _say(f"note: {note}")
        can = " and ".join(predictor.abilities) or "embed texts"
        _say(f"ready: this model can {can}; {predictor.precision}, {predictor.depth} layers, {predictor.device}")

    try:
        draining_server.serve(options.limits, open_predictor, listening, options.drain_timeout, started, hosts)
    except draining_server.NotDrained as error:
        _say(str(error))
        os._exit(error.exit_code)  # a batch may still be computed, and nobody waits for it
    _say("ended: all that was accepted is answered")
    return 0


def _say(text: str) -> None:
    print(f"albert serve: {text}", file=sys.stderr, flush=True)
