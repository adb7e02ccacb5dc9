"""Latencies under load: 1, 4 and 16 clients, each of which sends one text after the other over HTTP.

    python dev/benchmarks/latency.py --seconds 20 --rounds 3 --threads 1

`albert serve` compared with transformers' pipeline and ONNX Runtime behind FastAPI and uvicorn: the same weights, texts
and threads. Systems alternate; percentiles are over the replies of all rounds. The client shares the machine, so give
the models fewer threads than there are cores.
"""

import asyncio
import multiprocessing
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import harness
import numpy as np
from http_client import Connection, Texts, random_classifier
from pictures import draw

from albert.inference.onnx_export import export_onnx

SYSTEMS = ("albert bf16", "albert fp32", "onnxruntime fp32", "onnxruntime int8", "transformers fp32")
PERCENTILES = (50, 95, 99)
COLUMNS = ("model", "system", "threads", "clients", "answers", "texts_per_second", "p50_ms", "p95_ms", "p99_ms")


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Measure latencies under load."""

    model: Path | None = None
    """A classifier's directory; None: random weights of the preset, with a vocabulary of the sample."""
    preset: str = "albert-base"
    systems: tuple[str, ...] = SYSTEMS
    clients: tuple[int, ...] = (1, 4, 16)
    seconds: float = 20.0
    """Duration of each measurement: per system, number of clients and round."""
    rounds: int = 3
    threads: int = 1
    """Of each model."""
    output: Path = Path("results/benchmark-latency.csv")
    picture: Path = Path("results/benchmark-latency.png")


def measure(args: Latency) -> Iterator[list[object]]:
    """A row for each number of clients and each system, and the picture."""
    harness.select("--systems", args.systems, dict.fromkeys(SYSTEMS))
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # for the processes of the servers
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        model = args.model or random_classifier(Path(folder), args.preset)
        ports = {system: _start(system, model, Path(folder), args.threads, running) for system in args.systems}
        runs = {
            (system, clients): partial(_run, ports[system], clients, args.seconds)
            for clients, system in product(args.clients, args.systems)
        }
        results = harness.alternate(runs, args.rounds)
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    name = "/".join(args.model.parts[-2:]) if args.model else f"{args.preset}, random"
    for (system, clients), rounds in results.items():
        latencies = [seconds for some, _ in rounds for seconds in some]
        percentiles = [1000 * np.percentile(latencies, share) for share in PERCENTILES]
        for share, milliseconds in zip(PERCENTILES, percentiles, strict=True):
            panel = panels.setdefault(f"{share} of 100 answers within", {})
            panel.setdefault(system, []).append((clients, milliseconds))
        rate = len(latencies) / sum(spent for _, spent in rounds)
        yield [name, system, args.threads, clients, len(latencies), f"{rate:.1f}", *(f"{ms:.1f}" for ms in percentiles)]
    draw(args.picture, panels, "clients", "milliseconds", xscale="log", yscale="log", xticks=args.clients,
         xticklabels=[str(clients) for clients in args.clients])  # fmt: skip


def _start(system: str, model: Path, folder: Path, threads: int, running: ExitStack) -> int:
    """Start the server of a system: its port, once it is ready."""
    name, precision = system.split()
    if name == "albert":
        return running.enter_context(harness.serving(model, threads, precision))[1]
    file = folder / f"{precision}.onnx"
    if name == "onnxruntime":
        export_onnx(model, file, precision="int8" if precision == "int8" else "fp32")
    context = multiprocessing.get_context("spawn")
    ports, port = context.Pipe(duplex=False)
    server = context.Process(target=serve_peer, args=(name, model, file, threads, port), daemon=True)
    server.start()
    running.callback(server.kill)
    return ports.recv()


def _run(port: int, clients: int, seconds: float) -> tuple[list[float], float]:
    """The seconds of each request, and in total."""
    began = time.perf_counter()
    return asyncio.run(_send_texts(port, clients, seconds)), time.perf_counter() - began


async def _send_texts(port: int, clients: int, seconds: float) -> list[float]:
    """The seconds of each request, with retries while the queue is full."""
    latencies: list[float] = []
    texts, ends = Texts(), time.perf_counter() + seconds

    async def client() -> None:
        connection = Connection(port)
        while time.perf_counter() < ends:
            started, body = time.perf_counter(), {"texts": texts.some(1)}
            while (reply := await connection.post("/classify", body)).status == 429:
                await asyncio.sleep(0.05)
            if reply.status != 200:
                raise SystemExit(f"port {port}: answered with {reply.status}: {reply.body}")
            latencies.append(time.perf_counter() - started)
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return latencies


# --------------------------------------------------------------------------------------------------------------------
# The peers. They compute one request at a time with all threads: two at once on the same cores would be slower.

Classify = Callable[[list[str]], list[list[float]]]
MAX_LENGTH = 512


def serve_peer(system: str, model: Path, file: Path, threads: int, port: Any) -> None:
    """Serve a classifier until the process is killed; sends its port first."""
    import torch
    import uvicorn
    from fastapi import FastAPI

    torch.set_num_threads(threads)
    classify = _by_transformers(model) if system == "transformers" else _by_onnxruntime(model, file, threads)
    lock, app = threading.Lock(), FastAPI()

    @app.post("/classify")
    def answer(body: dict[str, list[str]]) -> dict[str, list[list[float]]]:
        with lock, torch.inference_mode():
            return {"results": classify(body["texts"])}

    listener = socket.create_server(("127.0.0.1", 0))
    port.send(listener.getsockname()[1])
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


def _by_transformers(model: Path) -> Classify:
    """Probabilities of the labels by transformers' pipeline."""
    import transformers

    pipeline: Any = transformers.pipeline("text-classification", model=str(model), device="cpu", top_k=None)
    return lambda texts: [
        [label["score"] for label in labels] for labels in pipeline(texts, truncation=True, max_length=MAX_LENGTH)
    ]


def _by_onnxruntime(model: Path, file: Path, threads: int) -> Classify:
    """Logits by an ONNX file, with transformers' tokenizer."""
    import onnxruntime
    import transformers

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(model)
    names = [node.name for node in session.get_inputs()]

    def classify(texts: list[str]) -> list[list[float]]:
        encoded = tokenizer(texts, truncation=True, max_length=MAX_LENGTH, padding=True, return_tensors="np")
        logits, *_ = session.run(None, {name: encoded[name].astype(np.int64) for name in names})
        return np.asarray(logits).tolist()

    return classify


main = harness.script(Latency, COLUMNS, measure)

if __name__ == "__main__":
    main()
