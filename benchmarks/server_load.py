"""`albert serve` under many times the load that it can bear, beside the bare predictor: throughput, refusals, memory.

    python benchmarks/server_load.py --seconds 60 --rounds 3 --threads 1

Each request holds unique texts. What was accepted is compared with what the predictor, opened here, says of the same
texts between the rounds, which measures the bare throughput, too. Requests come at a fixed rate, whether the server
answers or not, or as fast as the client can where that is less. Recovery is from the last request until single texts
take as long as before. SIGTERM comes last. Client and server share the machine, so leave the model fewer threads than
there are cores; where others use it too, read the share of processor time, in which the server's counts whole, refusals
included.
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
CLOSE = 1e-5
AT_ONCE = 200  # connections of the client


@dataclass(frozen=True, kw_only=True)
class Load:
    """Overload a server."""

    model: Path | None = None
    """A classifier's directory; without one, random weights of the preset with a vocabulary of the sample."""
    preset: str = "albert-base"
    seconds: float = 60.0
    rounds: int = 3
    times: float = 10.0
    """How many times the bare predictor's throughput is offered."""
    texts: int = 4
    """In a request."""
    threads: int = 1
    """Of the model, bare and served."""
    precision: Literal["fp32", "bf16", "int8"] = "fp32"
    output: Path = Path("results/benchmark-server-load.csv")


@dataclass
class Round:
    """What one round of overload found."""

    texts: list[str] = field(default_factory=list)
    """That were accepted, with their labels."""
    labels: list[dict[str, float]] = field(default_factory=list)
    accepted_seconds: list[float] = field(default_factory=list)
    refused_seconds: list[float] = field(default_factory=list)
    others: int = 0
    elapsed: float = 0.0  # seconds from the first request to the last answer
    offered: int = 0  # texts
    processor_seconds: float = 0.0  # of the server
    growth: int = 0
    recovered: float = 0.0


def measure(asked: Load) -> Iterator[dict[str, object]]:
    """A row for each round."""
    torch.set_num_threads(asked.threads)
    with tempfile.TemporaryDirectory() as folder:
        model, texts = asked.model or random_classifier(Path(folder), asked.preset), Texts()
        predictor = Predictor.open(model, "cpu", precision=asked.precision)
        with harness.serving(model, asked.threads, asked.precision) as (server, port):
            rows = asyncio.run(_rounds(asked, server.pid, port, predictor, texts))
            server.send_signal(signal.SIGTERM)
            rows[-1]["exit_code"] = server.wait(60)
    yield from rows


async def _rounds(asked: Load, pid: int, port: int, predictor: Predictor, texts: Texts) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    bare = _answers(predictor, texts.some(64))[1]  # which warms up
    bare = _answers(predictor, texts.some(max(64, int(3 * bare))))[1]
    for number in range(1, asked.rounds + 1):
        unloaded = await _latencies(port, texts, 50)
        found = await _overload(asked, pid, port, texts, asked.times * bare, statistics.median(unloaded))
        processor_started = time.process_time()
        offline, bare = _answers(predictor, found.texts)
        processor_share = (time.process_time() - processor_started) / found.processor_seconds
        worst = [
            max(abs(each["score"] - served[each["label"]]) for each in labels)
            for labels, served in zip(offline, found.labels, strict=True)
        ]
        served = len(found.texts) / found.elapsed
        rows.append({
            "model": "/".join(asked.model.parts[-2:]) if asked.model else f"{asked.preset}, random",
            "precision": asked.precision, "round": number, "seconds": f"{found.elapsed:.1f}",
            "bare_texts_s": f"{bare:.1f}",
            "offered_texts_s": f"{found.offered / asked.seconds:.0f}", "served_texts_s": f"{served:.1f}",
            "served_share": f"{served / bare:.3f}", "served_share_cpu": f"{processor_share:.3f}",
            "accepted_texts": len(found.texts),
            "refused_requests": len(found.refused_seconds), "other_replies": found.others,
            "mismatches": sum(difference > CLOSE for difference in worst),
            "worst_difference": f"{max(worst, default=0):.2g}",
            "unloaded_p50_ms": _milliseconds(unloaded, 50),
            "accepted_p99_ms": _milliseconds(found.accepted_seconds, 99),
            "refused_p99_ms": _milliseconds(found.refused_seconds, 99),
            "rss_growth_mb": f"{found.growth / 1e6:.1f}", "recovered_s": f"{found.recovered:.2f}",
        })  # fmt: skip
    return rows


def _answers(predictor: Predictor, texts: list[str]) -> tuple[Any, float]:
    """The predictor's answers, and how many it gives a second."""
    started = time.perf_counter()
    return predictor.classify_batch(texts), len(texts) / (time.perf_counter() - started)


async def _overload(asked: Load, pid: int, port: int, texts: Texts, rate: float, normal: float) -> Round:
    """Requests at a fixed rate of texts a second, each on a connection that is free at its time; then recovery to the
    normal seconds of a text."""
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(AT_ONCE):
        free.put_nowait(Connection(port))
    found = Round()

    async def one(connection: Connection, some: list[str]) -> None:
        reply = await connection.post("/classify", {"texts": some})
        free.put_nowait(connection)
        if reply.status == 200:
            found.texts += some
            found.labels += [{each["label"]: each["score"] for each in labels} for labels in reply.said["results"]]
            found.accepted_seconds.append(reply.seconds)
            found.elapsed = time.perf_counter() - started
        elif reply.status == 429:
            found.refused_seconds.append(reply.seconds)
        else:
            found.others += 1

    requests: set[asyncio.Task[None]] = set()
    processor_started = _processor_seconds(pid)
    started, sent = time.perf_counter(), 0
    early: int | None = None
    while (now := time.perf_counter() - started) < asked.seconds:
        if early is None and now > 0.2 * asked.seconds:
            early = _resident_bytes(pid)
        while sent * asked.texts < now * rate and not free.empty():
            requests.add(task := asyncio.create_task(one(free.get_nowait(), texts.some(asked.texts))))
            task.add_done_callback(requests.discard)
            sent += 1
        await asyncio.sleep(0.002)
    found.offered, found.growth = sent * asked.texts, _resident_bytes(pid) - (early or 0)
    ended = time.perf_counter()
    while statistics.median(await _latencies(port, texts, 5)) > 1.1 * normal and time.perf_counter() - ended < 60:
        pass
    found.recovered = time.perf_counter() - ended
    await asyncio.gather(*requests)
    found.processor_seconds = _processor_seconds(pid) - processor_started
    while not free.empty():
        free.get_nowait().close()
    return found


async def _latencies(port: int, texts: Texts, count: int) -> list[float]:
    """Seconds of answers to single texts, one after the other; who is refused comes again."""
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
    """Seconds that a process has computed, its threads and the system's work for it together."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


main = harness.script(Load, COLUMNS, measure)

if __name__ == "__main__":
    main()
