"""`albert serve`: a model behind HTTP, with a page to try it."""

import os
import sys

import torch

from albert.cli.serve_options import Serve
from albert.inference.predictor import Predictor
from albert.inference.server.limits import allowed_hosts
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.late_modules import load_by_name


def run(options: Serve) -> int:
    """Run `albert serve`."""
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
