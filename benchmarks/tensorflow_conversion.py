"""`albert convert` of a TensorFlow checkpoint with random weights: seconds, megabytes a second, and memory.

The checkpoint is written by the small writer of the tests. Every measurement has a process of its own, which has done
the same with a checkpoint of a few kilobytes before. Memory is the peak of the resident set above what it was then, in
units of the checkpoint's size: 1 is one copy of the weights. Reading is every tensor with its checksum; converting is
reading, writing, flushing, hashing, and opening what was written.

    python benchmarks/tensorflow_conversion.py --presets albert-base albert-xxlarge
"""

import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from harness import append_rows

from albert.cli.options import parse
from albert.model.config import PRESETS, AlbertConfig

CHECKPOINTS = Path(__file__).resolve().parents[1] / "tests" / "checkpoints" / "tensorflow"
TINY = CHECKPOINTS / "shared"
WORKS = ("read", "whole")
# Writing 5 to clear_refs makes the kernel forget the peak so far.
PROCESS = """
import json, time
from pathlib import Path
from albert.checkpoints.convert import TokenizerOptions, convert
from albert.checkpoints.convert import ConversionOptions
from albert.checkpoints.tensorflow import read_tensorflow_checkpoint
def memory(key):
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(key + ":"))
def read(source, output):
    return read_tensorflow_checkpoint(Path(source)).size
def whole(source, output):
    return convert(source, Path(output), ConversionOptions(), TokenizerOptions(without=True)).source.size
{work}({tiny!r}, {output!r} + "-tiny")
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before, started, cpu = memory("VmRSS"), time.perf_counter(), time.process_time()
size = {work}({source!r}, {output!r})
seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
print(json.dumps(dict(size=size, seconds=seconds, cpu_seconds=cpu, copies=(memory("VmHWM") - before) / size)))
"""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Convert TensorFlow checkpoints with random weights. Linux alone tells a process its peak of memory.

    Example: python benchmarks/tensorflow_conversion.py --presets albert-base
    """

    presets: tuple[str, ...] = ("albert-base", "albert-xxlarge")
    rounds: int = 3
    output: Path = Path("results/benchmark-tensorflow-conversion.csv")


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "tensorflow_conversion.py")
    for preset in asked.presets:
        with tempfile.TemporaryDirectory() as folder:
            write_checkpoint(Path(folder) / "source", PRESETS[preset])
            seen = [
                {work: _measure(work, Path(folder), number) for work in WORKS} for number in range(asked.rounds + 1)
            ][1:]  # the first round warms up the cache of files
        megabytes = seen[0]["read"]["size"] / 1e6
        row: list[object] = [preset, megabytes]
        for work in WORKS:
            seconds, cpu, copies = (
                statistics.median(run[work][figure] for run in seen) for figure in ("seconds", "cpu_seconds", "copies")
            )
            row += [round(seconds, 2), round(cpu, 2), round(megabytes / seconds, 1), round(copies, 2)]
            told = f"{seconds:.2f} s, {cpu:.2f} s of CPU, {megabytes / seconds:,.0f} MB/s, peak {copies:.2f} copies"
            print(f"{preset}, {work}: {told}")
        names = ("seconds", "cpu_seconds", "megabytes_per_second", "copies")
        append_rows(
            asked.output, ["preset", "megabytes", *(f"{work}_{name}" for work in WORKS for name in names)], [row]
        )


def write_checkpoint(directory: Path, config: AlbertConfig) -> None:
    """A checkpoint as google-research/albert would write it, of standard normal numbers."""
    spec = importlib.util.spec_from_file_location("tensorflow_writer", CHECKPOINTS / "writer.py")
    assert spec is not None and spec.loader is not None
    writer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)
    directory.mkdir()
    tensors = {
        name: torch.randn(shape, generator=torch.Generator().manual_seed(0)) for name, shape in variables(config)
    }
    writer.write_bundle(directory / "model.ckpt-best", tensors)
    said = {"num_hidden_layers": config.num_hidden_layers, "num_attention_heads": config.num_attention_heads}
    (directory / "albert_config.json").write_text(json.dumps({**said, "hidden_act": "gelu"}))


def variables(config: AlbertConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the variables of a model whose layers are all one, with both pre-training heads."""
    V, E, H, F = config.vocab_size, config.embedding_size, config.hidden_size, config.intermediate_size
    layer = "bert/encoder/transformer/group_0/inner_group_0"
    dense = {
        "bert/encoder/embedding_hidden_mapping_in": (E, H),
        **{f"{layer}/attention_1/self/{part}": (H, H) for part in ("query", "key", "value")},
        f"{layer}/attention_1/output/dense": (H, H),
        f"{layer}/ffn_1/intermediate/dense": (H, F),
        f"{layer}/ffn_1/intermediate/output/dense": (F, H),
        "bert/pooler/dense": (H, H),
        "cls/predictions/transform/dense": (H, E),
    }
    for name, (into, out) in dense.items():
        yield f"{name}/kernel", (into, out)
        yield f"{name}/bias", (out,)
    norms = {"bert/embeddings/LayerNorm": E, f"{layer}/LayerNorm": H, f"{layer}/LayerNorm_1": H}
    for name, width in {**norms, "cls/predictions/transform/LayerNorm": E}.items():
        yield f"{name}/gamma", (width,)
        yield f"{name}/beta", (width,)
    yield "bert/embeddings/word_embeddings", (V, E)
    yield "bert/embeddings/position_embeddings", (config.max_position_embeddings, E)
    yield "bert/embeddings/token_type_embeddings", (config.type_vocab_size, E)
    yield "cls/predictions/output_bias", (V,)
    yield "cls/seq_relationship/output_weights", (2, H)
    yield "cls/seq_relationship/output_bias", (2,)


def _measure(work: str, folder: Path, number: int) -> dict[str, float]:
    output = folder / f"{work}-{number}"
    code = PROCESS.format(work=work, tiny=str(TINY), source=str(folder / "source"), output=str(output))
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    shutil.rmtree(output, ignore_errors=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
