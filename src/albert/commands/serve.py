"""`albert serve`: a model behind HTTP, and a page to try it in the browser.

How a model is opened from Python, `albert.load`, is written at `albert.inference.predictor.Predictor.open`.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from albert.cli.main import imports
from albert.cli.signature import PathLike
from albert.commands.function import command, on_command_line
from albert.inference.server.limits import Limits, allowed_hosts
from albert.runtime.environment import lazy_import
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.words import counted, plain


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How a model is opened; the fields are keywords of `albert.inference.predictor.Predictor.open`."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "fp32", "bf16", "int8"] = "auto"
    """Precision of the encoder's matrix products; auto is fp32 on a CPU, so that every machine gives the same
    answers, and bf16 on a GPU. bf16 and int8 are faster where the processor has instructions for them, and can change
    answers; `albert info` says what they gain."""
    depth: int | None = None
    """Number of layers to apply; a shared layer can be applied any number of times."""
    threshold: float | None = None
    """Several labels per text: the probability from which on a label is predicted; the model's own when not set."""


AS_SAVED = ModelOptions()
LIMITS = Limits()


@command("albert serve")
def serve(
    model: PathLike,
    *,
    opening: ModelOptions = AS_SAVED,
    host: str = "127.0.0.1",
    port: int = 8000,
    allowed_host: str | Sequence[str] = (),
    threads: int | None = None,
    drain_timeout: float = 30.0,
    limits: Limits = LIMITS,
) -> None:
    """Serve a model over HTTP, with a page to try it in the browser.

    Requests of all clients are computed in common batches. Size of requests, queue and time are bounded; requests
    beyond the bounds are refused with a status that explains why. After SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2 the
    server answers what it has accepted, then ends. Addresses: / the page, /docs the API, /healthz, /readyz, /metrics.

    Example: albert serve run/model --port 8000

    Args:
        model: A model directory, a run directory, or a Hugging Face Hub id.
        host: The address to listen at; 0.0.0.0 accepts other machines. There is no password: put a proxy before it.
        port: The port; 0 takes a free one and prints it.
        allowed_host: Allowed names in the Host header of requests, besides localhost, 127.0.0.1, [::1] and the address
            of --host (with --host 0.0.0.0: any IP address); * allows all.
        threads: Threads of the model; all cores by default.
        drain_timeout: Maximum seconds for accepted requests after a signal.
    """
    if not 0 <= port < 65_536:
        raise InvalidConfiguration("--port", f"is {port}, a number from 0 to 65535 is needed", "for example 8000")
    if drain_timeout <= 0:
        raise InvalidConfiguration("--drain-timeout", f"is {plain(drain_timeout)}, a number above 0 is needed")
    if threads is not None and threads < 1:
        raise InvalidConfiguration("--threads", f"is {threads}, at least 1 is needed")
    hosts = allowed_hosts(host, (allowed_host,) if isinstance(allowed_host, str) else allowed_host)
    model = os.fspath(model)

    with imports():
        serving = lazy_import("albert.inference.server.serving", extra="serve")
        from albert.inference.predictor import Predictor
        from albert.runtime.devices import precision_advice, set_threads

    if threads is not None:
        set_threads(threads)
    listener = serving.listen(host, port)
    bound_host, bound_port = listener.getsockname()[:2]
    address = f"http://{f'[{bound_host}]' if ':' in bound_host else bound_host}:{bound_port}"
    say(f"loading {model}")

    def open_predictor() -> Predictor:
        predictor = Predictor.open(model, **vars(opening))
        predictor.embed(["Work that the first request would wait for is done now."])
        return predictor

    def started(predictor: Predictor) -> None:
        for note in predictor.loading_report.notes:
            say(f"note: {note}")
        advice = precision_advice(predictor.device)
        if predictor.precision == "fp32" and advice is not None:
            say(f"note: faster: {advice}")
        abilities = " and ".join(predictor.abilities) or "embed texts"
        computed = f"{predictor.precision}, {counted(predictor.depth, 'layers')}, {predictor.device}"
        say(f"listening at {address}, ready: this model can {abilities}; {computed}")

    try:
        serving.serve(limits, open_predictor, listener, drain_timeout, started, hosts)
    except serving.NotDrained as error:
        say(f"error: {error}")
        os._exit(error.exit_code)  # without waiting for a batch that is still computed
    say("stopped: every accepted request was answered")


def say(text: str) -> None:
    """Print a line of the server's log."""
    with suppress(OSError):  # the terminal was closed
        print(f"albert: {text}", file=sys.stderr, flush=True)


serve_main = on_command_line(serve)
