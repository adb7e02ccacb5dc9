"""Latencies under load: 1, 4 and 16 clients, each of which asks for one text after the other over HTTP.

`albert serve` beside transformers' pipeline and ONNX Runtime behind FastAPI (`peer_server.py`): the same weights, the
same texts, the same threads. Systems take turns, in an order that is drawn anew each round; percentiles are over the
answers of all rounds. The client shares the machine, so leave the models fewer threads than there are cores.

    python benchmarks/latency.py --seconds 20 --rounds 3 --threads 1
"""

import albert  # noqa: F401 (before torch, which reads how its threads wait when it is loaded)

# isort: split
import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import append_rows
from http_client import Connection
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from server_load import Texts, random_classifier, unique_texts

from albert.cli.options import parse
from albert.experiments.curves import COLORS, MARKERS, bare, save_figure
from albert.inference.onnx_export import ExportSettings, export_onnx
from albert.runtime.progress import progress

SYSTEMS = ("albert bf16", "albert fp32", "onnxruntime fp32", "onnxruntime int8", "transformers fp32")
PERCENTILES = (50, 95, 99)
COLUMNS = ("model", "system", "threads", "clients", "answers", "texts_per_second", "p50_ms", "p95_ms", "p99_ms")
HERE = Path(__file__).parent
Found = tuple[dict[tuple[str, int], list[float]], dict[tuple[str, int], float]]


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Measure latencies under load.

    Example: python benchmarks/latency.py --seconds 20 --rounds 3 --threads 1
    """

    model: Path | None = None
    """A classifier's directory; without one, random weights of the preset with a vocabulary of the sample."""
    preset: str = "albert-base"
    systems: tuple[str, ...] = SYSTEMS
    clients: tuple[int, ...] = (1, 4, 16)
    seconds: float = 20.0
    """Of each system with each number of clients, in each round."""
    rounds: int = 3
    threads: int = 1
    """Of each model."""
    output: Path = Path("results/benchmark-latency.csv")
    picture: Path = Path("results/benchmark-latency.png")


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Latency, arguments, "latency.py")
    if unknown := set(asked.systems) - set(SYSTEMS):
        raise SystemExit(f"--systems {sorted(unknown)[0]}: unknown; there are {', '.join(SYSTEMS)}")
    with tempfile.TemporaryDirectory() as place, ExitStack() as running:
        model = asked.model or random_classifier(Path(place), asked.preset)
        ports = {system: _start(system, model, Path(place), asked.threads, running) for system in asked.systems}
        found, spent = asyncio.run(_measure(asked, ports))
    name = "/".join(asked.model.parts[-2:]) if asked.model else f"{asked.preset}, random"
    rows = [
        [name, system, asked.threads, clients, len(seconds),
         f"{len(seconds) / spent[system, clients]:.1f}",
         *(f"{1000 * np.percentile(seconds, share):.1f}" for share in PERCENTILES)]
        for clients in asked.clients for system in asked.systems for seconds in [found[system, clients]]
    ]  # fmt: skip
    append_rows(asked.output, COLUMNS, rows)
    table = Table(*COLUMNS[1:], box=None)
    for row in rows:
        table.add_row(*map(str, row[1:]))
    Console(width=120).print(table)
    _draw(found, asked)


def _start(system: str, model: Path, folder: Path, threads: int, running: ExitStack) -> int:
    """A server of a system, and the port it listens at once it is ready."""
    name, precision = system.split()
    if name == "albert":
        command = [sys.executable, "-m", "albert", "serve", str(model), "--port", "0", "--device", "cpu"]
        command += ["--threads", str(threads), "--precision", precision]
    else:
        command = [sys.executable, str(HERE / "peer_server.py"), "--threads", str(threads), name, str(model)]
    if name == "onnxruntime":
        file = folder / f"{precision}.onnx"
        export_onnx(model, file, ExportSettings(precision="int8" if precision == "int8" else "fp32"))
        command.append(str(file))
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    is_ours = name == "albert"
    server = running.enter_context(
        subprocess.Popen(
            command,
            env=environment,
            text=True,
            stdout=None if is_ours else subprocess.PIPE,
            stderr=subprocess.PIPE if is_ours else None,
        )
    )
    running.callback(server.kill)
    if not is_ours:
        assert server.stdout is not None
        return int(server.stdout.readline())
    assert server.stderr is not None
    port = int(server.stderr.readline().split("listening at ")[1].split(",")[0].rsplit(":", 1)[1])
    while "ready:" not in (line := server.stderr.readline()):
        if not line:
            raise SystemExit(f"{system}: the server ended")
    return port


async def _measure(asked: Latency, ports: dict[str, int]) -> Found:
    """The seconds of every answer, and of all turns, by system and number of clients."""
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    spent: dict[tuple[str, int], float] = defaultdict(float)
    turns = [(system, clients) for system in ports for clients in asked.clients]
    with progress("Asking", asked.rounds * len(turns), "turns") as bar:
        for system, clients in turns:  # warms up
            await _ask(ports[system], clients, min(2.0, asked.seconds), unique_texts())
        for number in range(asked.rounds):
            for system, clients in random.Random(number).sample(turns, len(turns)):
                began = time.perf_counter()
                found[system, clients] += await _ask(ports[system], clients, asked.seconds, unique_texts())
                spent[system, clients] += time.perf_counter() - began
                bar.advance()
    return found, spent


async def _ask(port: int, clients: int, seconds: float, texts: Texts) -> list[float]:
    """The seconds of each answer; who is refused, as the queue is full, asks again and goes on waiting."""
    taken: list[float] = []
    ends = time.perf_counter() + seconds

    async def client() -> None:
        connection = Connection(port)
        while time.perf_counter() < ends:
            started, body = time.perf_counter(), {"texts": [next(texts)]}
            while (reply := await connection.post("/classify", body)).status == 429:
                await asyncio.sleep(0.05)
            if reply.status != 200:
                raise SystemExit(f"port {port}: answered with {reply.status}: {reply.said}")
            taken.append(time.perf_counter() - started)
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return taken


def _draw(found: Mapping[tuple[str, int], Sequence[float]], asked: Latency) -> None:
    """Percentiles by number of clients, one panel for each percentile."""
    figure = Figure(figsize=(4 * len(PERCENTILES), 3.4), layout="constrained")
    panels = figure.subplots(1, len(PERCENTILES), squeeze=False)[0]
    for panel, share in zip(panels, PERCENTILES, strict=True):
        for system in asked.systems:
            number = SYSTEMS.index(system)
            points = [1000 * np.percentile(found[system, clients], share) for clients in asked.clients]
            panel.plot(asked.clients, points, "-", marker=MARKERS[number], color=COLORS[number], label=system)
        panel.set(title=f"{share} of 100 answers within", xlabel="clients", xscale="log", yscale="log",
                  xticks=asked.clients, xticklabels=[str(clients) for clients in asked.clients])  # fmt: skip
        panel.minorticks_off()
        bare(panel)
    panels[0].set_ylabel("milliseconds")
    panels[0].legend(fontsize=7)
    save_figure(figure, asked.picture)


if __name__ == "__main__":
    main(sys.argv[1:])
