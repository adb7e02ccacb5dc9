"""`albert serve` under several times the load that it can serve: throughput compared with the predictor, refusals,
memory.

    python dev/benchmarks/server_load.py --seconds 60 --rounds 3 --threads 1

Each request has unique texts. The replies are compared with those of the predictor in this process for the same texts,
between the rounds, which also measures its throughput. Requests are sent at a fixed rate, whether the server replies or
not, or as fast as the client can if that is slower. Recovery is the time from the last request until single texts take
as long as before. The server is ended by SIGTERM. Client and server share the machine, so give the model fewer threads
than there are cores; on a shared machine read the share of processor time, which includes the server's refusals.
"""

import asyncio
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import harness
import numpy as np
import torch
from http_client import Connection, Texts, random_classifier

from albert.inference.predictor import Predictor

COLUMNS = (
    "model", "precision", "round", "seconds", "bare_texts_s", "offered_texts_s", "served_texts_s", "served_share",
    "served_share_cpu", "accepted_texts", "refused_requests", "other_replies", "mismatches", "worst_difference",
    "unloaded_p50_ms", "accepted_p99_ms", "refused_p99_ms", "rss_growth_mb", "recovered_s", "exit_code",
)  # fmt: skip
TOLERANCE = 1e-5
CONNECTIONS = 200


@dataclass(frozen=True, kw_only=True)
class Load:
    """Overload a server."""

    model: Path | None = None
    """A classifier's directory; None: random weights of the preset, with a vocabulary of the sample."""
    preset: str = "albert-base"
    seconds: float = 60.0
    rounds: int = 3
    times: float = 10.0
    """The offered load as a multiple of the predictor's throughput."""
    texts: int = 4
    """Texts of a request."""
    threads: int = 1
    """Threads of the model, in the predictor and the server."""
    precision: Literal["fp32", "bf16", "int8"] = "fp32"
    output: Path = Path("results/benchmark-server-load.csv")


@dataclass
class Round:
    """The measurements of one round."""

    texts: list[str] = field(default_factory=list)
    """Accepted texts, with their labels."""
    labels: list[dict[str, float]] = field(default_factory=list)
    accepted_seconds: list[float] = field(default_factory=list)
    refused_seconds: list[float] = field(default_factory=list)
    others: int = 0
    elapsed: float = 0.0  # seconds from the first request to the last answer
    offered: int = 0  # texts
    processor_seconds: float = 0.0  # of the server
    growth: int = 0
    recovered: float = 0.0


def measure(args: Load) -> Iterator[dict[str, object]]:
    """A row for each round."""
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        model, texts = args.model or random_classifier(Path(folder), args.preset), Texts()
        predictor = Predictor.open(model, "cpu", precision=args.precision)
        with harness.serving(model, args.threads, args.precision) as (server, port):
            rows = asyncio.run(_rounds(args, server.pid, port, predictor, texts))
            server.send_signal(signal.SIGTERM)
            rows[-1]["exit_code"] = server.wait(60)
    yield from rows


async def _rounds(args: Load, pid: int, port: int, predictor: Predictor, texts: Texts) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    bare = _classify(predictor, texts.some(64))[1]  # warms up
    bare = _classify(predictor, texts.some(max(64, int(3 * bare))))[1]
    for number in range(1, args.rounds + 1):
        unloaded = await _latencies(port, texts, 50)
        result = await _overload(args, pid, port, texts, args.times * bare, statistics.median(unloaded))
        processor_started = time.process_time()
        offline, bare = _classify(predictor, result.texts)
        processor_share = (time.process_time() - processor_started) / result.processor_seconds
        worst = [
            max(abs(row["score"] - served[row["label"]]) for row in labels)
            for labels, served in zip(offline, result.labels, strict=True)
        ]
        served = len(result.texts) / result.elapsed
        rows.append({
            "model": "/".join(args.model.parts[-2:]) if args.model else f"{args.preset}, random",
            "precision": args.precision, "round": number, "seconds": f"{result.elapsed:.1f}",
            "bare_texts_s": f"{bare:.1f}",
            "offered_texts_s": f"{result.offered / args.seconds:.0f}", "served_texts_s": f"{served:.1f}",
            "served_share": f"{served / bare:.3f}", "served_share_cpu": f"{processor_share:.3f}",
            "accepted_texts": len(result.texts),
            "refused_requests": len(result.refused_seconds), "other_replies": result.others,
            "mismatches": sum(difference > TOLERANCE for difference in worst),
            "worst_difference": f"{max(worst, default=0):.2g}",
            "unloaded_p50_ms": _milliseconds(unloaded, 50),
            "accepted_p99_ms": _milliseconds(result.accepted_seconds, 99),
            "refused_p99_ms": _milliseconds(result.refused_seconds, 99),
            "rss_growth_mb": f"{result.growth / 1e6:.1f}", "recovered_s": f"{result.recovered:.2f}",
        })  # fmt: skip
    return rows


def _classify(predictor: Predictor, texts: list[str]) -> tuple[Any, float]:
    """The predictor's labels, and texts per second."""
    started = time.perf_counter()
    return predictor.classify_batch(texts), len(texts) / (time.perf_counter() - started)


async def _overload(args: Load, pid: int, port: int, texts: Texts, rate: float, normal: float) -> Round:
    """Send requests at a fixed rate of texts per second on free connections; then wait until single texts take the
    normal time."""
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        free.put_nowait(Connection(port))
    result = Round()

    async def send(connection: Connection, batch: list[str]) -> None:
        reply = await connection.post("/classify", {"texts": batch})
        free.put_nowait(connection)
        if reply.status == 200:
            result.texts += batch
            result.labels += [{row["label"]: row["score"] for row in labels} for labels in reply.body["results"]]
            result.accepted_seconds.append(reply.seconds)
            result.elapsed = time.perf_counter() - started
        elif reply.status == 429:
            result.refused_seconds.append(reply.seconds)
        else:
            result.others += 1

    requests: set[asyncio.Task[None]] = set()
    processor_started = _processor_seconds(pid)
    started, sent = time.perf_counter(), 0
    early: int | None = None
    while (now := time.perf_counter() - started) < args.seconds:
        if early is None and now > 0.2 * args.seconds:
            early = _resident_bytes(pid)
        while sent * args.texts < now * rate and not free.empty():
            requests.add(task := asyncio.create_task(send(free.get_nowait(), texts.some(args.texts))))
            task.add_done_callback(requests.discard)
            sent += 1
        await asyncio.sleep(0.002)
    result.offered, result.growth = sent * args.texts, _resident_bytes(pid) - (early or 0)
    ended = time.perf_counter()
    while statistics.median(await _latencies(port, texts, 5)) > 1.1 * normal and time.perf_counter() - ended < 60:
        pass
    result.recovered = time.perf_counter() - ended
    await asyncio.gather(*requests)
    result.processor_seconds = _processor_seconds(pid) - processor_started
    while not free.empty():
        free.get_nowait().close()
    return result


async def _latencies(port: int, texts: Texts, count: int) -> list[float]:
    """Seconds of requests with single texts, one after the other; refused ones are repeated."""
    connection = Connection(port)
    seconds: list[float] = []
    while len(seconds) < count:
        reply = await connection.post("/classify", {"texts": texts.some(1)})
        if reply.status == 200:
            seconds.append(reply.seconds)
        else:
            await asyncio.sleep(0.05)
    connection.close()
    return seconds


def _resident_bytes(pid: int) -> int:
    return os.sysconf("SC_PAGE_SIZE") * int(Path(f"/proc/{pid}/statm").read_text().split()[1])


def _milliseconds(seconds: Sequence[float], share: int) -> str:
    return f"{1000 * np.percentile(seconds, share):.1f}" if seconds else ""


def _processor_seconds(pid: int) -> float:
    """Processor time of a process with all its threads, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


main = harness.script(Load, COLUMNS, measure)

if __name__ == "__main__":
    main()
