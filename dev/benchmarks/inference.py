"""Inference on a CPU compared with transformers, ONNX Runtime and OpenVINO: same weights, alternating systems.

    python dev/benchmarks/inference.py --rounds 7
    python dev/benchmarks/inference.py --rounds 7 --busy --memory=false
    python dev/benchmarks/inference.py --model runs/sst-2 --systems "albert bf16" "openvino bf16"

All read one model directory in transformers' layout and give the last layer's states. Ours packs sequences; the others
pad a batch to its longest sequence, with a mask. ONNX Runtime and OpenVINO run the torch.onnx export of transformers'
model. Their int8 follows their documentation: ONNX Runtime's transformer optimiser and dynamic quantisation per
channel; NNCF for OpenVINO (`pip install nncf`), calibrated on sequences like the measured ones.

Loads: 32 sentences of mixed lengths; the same sorted into four batches of similar length; 32 × 128 tokens without
padding; one sentence of 32, and of 128 tokens. `times_ours` is the ratio to ours of the same precision, within a round.
Rates count real tokens; `matmul_share` is the share of the measured rate of matrix products. The error is that of the
states relative to ours in fp32. `peak_mb` is the memory of a process with only that system, libraries included;
`start_seconds` the time from the start of a process to its first output.
"""

import statistics
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import harness
import numpy as np
import torch
from harness import ModelSize

from albert.checkpoints.config_json import read_config
from albert.checkpoints.model_directory import open_model, save_model_directory
from albert.inference.engine import PackedModel
from albert.model.albert import AlbertModel
from albert.model.cost import count_flops
from albert.recipes.architecture import EncoderConfig
from albert.runtime.devices import measured_matmul_rate

Batch = Sequence[np.ndarray]
"""Token ids of each sequence."""
Run = Callable[[Batch], list[np.ndarray]]
"""Maps a batch to the last layer's states of each sequence, [length, H]."""
CPU = torch.device("cpu")
INITIALIZER_RANGE = 0.05  # large enough that attention is not uniform
OURS = ("albert fp32", "albert bf16", "albert int8")
TRANSFORMERS = tuple(f"transformers {kind} {precision}" for kind in ("eager", "sdpa") for precision in ("fp32", "bf16"))
COMPILED = ("transformers compiled fp32", "transformers compiled bf16")
RUNTIMES = ("onnxruntime fp32", "onnxruntime int8", "openvino fp32", "openvino bf16", "openvino int8")
COLUMNS = (
    "model", "load", "system", "busy", "clock", "rounds", "milliseconds", "least", "most", "sequences_per_second",
    "tokens_per_second", "times_ours", "matmul_share", "relative_error", "peak_mb", "start_seconds",
)  # fmt: skip
START_OURS = """
import albert, sys, numpy, torch
from albert.checkpoints.model_directory import open_model
from albert.inference.engine import PackedModel
model = PackedModel(open_model(sys.argv[1], "encoder").model, torch.device("cpu"), precision=sys.argv[2])
print(model.rows([numpy.arange(5, 37)], [numpy.zeros(32, numpy.int64)])[0][0, 0])
"""
START_THEIRS = """
import sys, torch
from transformers import AlbertModel
dtype = torch.bfloat16 if sys.argv[2] == "bf16" else torch.float32
model = AlbertModel.from_pretrained(sys.argv[1], dtype=dtype).eval()
with torch.inference_mode():
    print(model(torch.arange(5, 37)[None]).last_hidden_state[0, 0, 0])
"""
Load = Literal["mixed", "sorted", "fixed", "single-32", "single-128"]


@dataclass(frozen=True, kw_only=True)
class Benchmark(ModelSize):
    """Compare encoders on a CPU."""

    model: Path | None = None
    """A model directory; None: random weights of the sizes below."""
    hidden_size: int = 768
    layers: int = 12
    loads: tuple[Load, ...] = ("mixed", "sorted", "fixed", "single-32", "single-128")
    systems: tuple[str, ...] = (*OURS, *TRANSFORMERS, *RUNTIMES)
    compiled: bool = False
    """Also transformers compiled by torch for each load's shapes; needs a C++ compiler and minutes."""
    rounds: int = 5
    """Measured rounds, after one that warms up."""
    busy: bool = False
    """Measure while another process uses one of the cores."""
    memory: bool = True
    """Measure peak memory and start-up, too."""
    output: Path = Path("results/benchmark-inference.csv")


def measure(args: Benchmark) -> Iterator[dict[str, object]]:
    """A row for each load and system."""
    names = (*args.systems, *(COMPILED if args.compiled else ()))
    harness.select("--systems", names, dict.fromkeys((*OURS, *TRANSFORMERS, *COMPILED, *RUNTIMES)))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        directory = args.model or folder / "model"
        if args.model is None:
            torch.manual_seed(0)
            save_model_directory(directory, AlbertModel(args.config(initializer_range=INITIALIZER_RANGE)), None)
        config, _ = read_config(directory)
        make_files(names, directory, folder, batches_of("mixed", config.vocab_size, seed=1)[0])
        in_processes: dict[str, dict[str, str]] = {}
        if args.memory:
            peaks = harness.in_new_processes(partial(peak, directory, folder, config.vocab_size), names)
            in_processes = {name: {"peak_mb": f"{size / 1e6:.0f}"} for name, size in zip(names, peaks, strict=True)}
            for name, seconds in harness.interleave(_starts(names, directory), 3).items():
                in_processes[name]["start_seconds"] = f"{statistics.median(seconds):.2f}"
        systems = {name: build(name, directory, folder) for name in names}
        for load in args.loads:
            batches = batches_of(load, config.vocab_size)
            errors = _errors(systems, batches)
            runs = {name: partial(_run_all, run, batches) for name, run in systems.items()}
            with harness.spinning_process() if args.busy else nullcontext():
                seconds = harness.interleave(runs, args.rounds)
            for row in _rows(config, batches, seconds):
                name = row["system"]
                yield {
                    "model": args.model.name if args.model else f"H{args.hidden_size} L{args.layers} random",
                    "load": load, "busy": "one core taken" if args.busy else "", "clock": "wall",
                    "rounds": args.rounds, **row, **errors.get(name, {}), **in_processes.get(name, {}),
                }  # fmt: skip


def batches_of(load: Load, vocab_size: int, seed: int = 0) -> list[Batch]:
    """The batches of a load. Mixed lengths are log-normal, as those of sentences: median 36 tokens, at most 128."""
    draws = np.random.default_rng(seed)
    if load in ("mixed", "sorted"):
        lengths = np.clip(np.exp(draws.normal(np.log(36), 0.6, 32)).astype(int), 6, 128)
        lengths = np.sort(lengths) if load == "sorted" else lengths
    else:
        lengths = {"fixed": np.full(32, 128), "single-32": np.array([32]), "single-128": np.array([128])}[load]
    sequences = [draws.integers(5, vocab_size, length) for length in lengths]
    size = 8 if load == "sorted" else len(sequences)
    return [sequences[first : first + size] for first in range(0, len(sequences), size)]


def peak(model: Path, folder: Path, vocab_size: int, name: str) -> int:
    """Peak memory of this process in bytes when it opens the system and runs 32 × 128 tokens twice."""
    run = build(name, model, folder)
    for _ in range(2):
        _run_all(run, batches_of("fixed", vocab_size))
    return harness.peak_bytes()


def _run_all(run: Run, batches: Sequence[Batch]) -> None:
    for batch in batches:
        run(batch)


def _starts(names: Sequence[str], model: Path) -> dict[str, Callable[[], object]]:
    """Processes of ours and of transformers that end after their first output."""
    codes = {**dict.fromkeys(OURS, START_OURS), **dict.fromkeys(TRANSFORMERS[2:], START_THEIRS)}
    return {
        name: partial(subprocess.run, [sys.executable, "-c", code, str(model), name.split()[-1]], check=True,
                      capture_output=True)
        for name, code in codes.items() if name in names
    }  # fmt: skip


def _errors(systems: Mapping[str, Run], batches: Sequence[Batch]) -> dict[str, dict[str, str]]:
    """The relative error of each system against ours in fp32."""
    states = {name: np.concatenate([row for batch in batches for row in run(batch)]) for name, run in systems.items()}
    exact = states.get(OURS[0])
    if exact is None:
        return {}
    errors = {name: np.linalg.norm(rows - exact) / np.linalg.norm(exact) for name, rows in states.items()}
    return {name: {"relative_error": f"{error:.1e}"} for name, error in errors.items()}


def _rows(
    config: EncoderConfig, batches: Sequence[Batch], times: Mapping[str, list[float]]
) -> Iterator[dict[str, str]]:
    lengths = [len(ids) for batch in batches for ids in batch]
    flops = sum(n * length * count_flops(config, length).forward for length, n in Counter(lengths).items())
    for name, seconds in times.items():
        precision, took = name.split()[-1], statistics.median(seconds)
        row = {"system": name, "sequences_per_second": f"{len(lengths) / took:.1f}",
               "tokens_per_second": f"{sum(lengths) / took:.0f}"}  # fmt: skip
        row |= zip(
            ("milliseconds", "least", "most"), harness.spread([1000 * value for value in seconds], ".1f"), strict=True
        )
        if f"albert {precision}" in times:
            row["times_ours"] = f"{harness.ratio(seconds, times[f'albert {precision}']):.2f}"
        if precision != "int8":
            row["matmul_share"] = f"{flops / took / measured_matmul_rate(CPU, precision):.2f}"
        yield row


# --------------------------------------------------------------------------------------------------------------------
# The systems.


def build(name: str, model: Path, folder: Path) -> Run:
    """Open a system by its name: system, variant if it has several, and precision; `folder` has the exported files."""
    system, *variant, precision = name.split()
    if system == "albert":
        return _ours(model, precision)
    if system == "transformers":
        return _transformers(model, variant[0], precision)
    run = (_onnxruntime if system == "onnxruntime" else _openvino)(folder, precision)
    return lambda batch: _cut(run(padded(batch)), batch)


def _ours(model: Path, precision: Any) -> Run:
    packed = PackedModel(open_model(model, "encoder").model, CPU, precision=precision)
    return lambda batch: packed.rows(batch, [np.zeros_like(ids) for ids in batch])


def _transformers(directory: Path, variant: str, precision: str) -> Run:
    from transformers import AlbertModel

    attention = "eager" if variant == "eager" else "sdpa"
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    model = AlbertModel.from_pretrained(directory, attn_implementation=attention, dtype=dtype).eval()
    called = torch.compile(model) if variant == "compiled" else model

    def run(batch: Batch) -> list[np.ndarray]:
        with torch.inference_mode():
            rows = {name: torch.from_numpy(column) for name, column in padded(batch).items()}
            return _cut(called(**rows).last_hidden_state.float().numpy(), batch)

    return run


def _onnxruntime(folder: Path, precision: str) -> Callable[[dict[str, np.ndarray]], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    file = folder / ("dynamic-int8.onnx" if precision == "int8" else "plain.onnx")
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs()]
    return lambda columns: session.run(None, {name: columns[name] for name in names})[0]


def _openvino(folder: Path, precision: str) -> Callable[[dict[str, np.ndarray]], Any]:
    import openvino

    core = openvino.Core()
    file = folder / ("nncf-int8.xml" if precision == "int8" else "plain.onnx")
    hints = {
        "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
    }
    compiled = core.compile_model(core.read_model(file), "CPU", hints)
    names = [node.get_any_name() for node in compiled.inputs]
    request = compiled.create_infer_request()
    return lambda columns: request.infer(
        {name: columns[name] for name in names}, share_inputs=True, share_outputs=True
    )[0]


def padded(batch: Batch) -> dict[str, np.ndarray]:
    """Rows of one length, padded with zeros, as inputs of transformers."""
    shape = (len(batch), max(map(len, batch)))
    columns = {name: np.zeros(shape, np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}
    for row, ids in enumerate(batch):
        columns["input_ids"][row, : len(ids)] = ids
        columns["attention_mask"][row, : len(ids)] = 1
    return columns


def _cut(states: np.ndarray, batch: Batch) -> list[np.ndarray]:
    return [row[: len(ids)].copy() for row, ids in zip(states, batch, strict=True)]


# --------------------------------------------------------------------------------------------------------------------
# The files of ONNX Runtime and OpenVINO.


def make_files(names: Sequence[str], model: Path, folder: Path, examples: Batch) -> None:
    """Write the files that these systems open, once for all processes; `examples` are for calibration."""
    if "openvino int8" in names and find_spec("nncf") is None:
        raise SystemExit("openvino int8: NNCF quantises for OpenVINO; pip install nncf, or leave the system out")
    if set(names) & set(RUNTIMES):
        _export(model, folder / "plain.onnx")
    if "onnxruntime int8" in names:
        _quantize_dynamically(model, folder)
    if "openvino int8" in names:
        _quantize_with_nncf(folder, examples)


def _export(model: Path, file: Path) -> None:
    from transformers import AlbertModel

    class States(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.albert = AlbertModel.from_pretrained(model, attn_implementation="eager").eval()

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            return self.albert(input_ids, attention_mask, token_type_ids).last_hidden_state

    examples = padded([np.arange(5, 21), np.arange(5, 14)])
    axes = {0: torch.export.Dim("batch", min=1, max=4096), 1: torch.export.Dim("length", min=2, max=512)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of the exporter about itself
        torch.onnx.export(
            States(), tuple(map(torch.from_numpy, examples.values())), str(file), input_names=list(examples),
            output_names=["states"], dynamic_shapes=dict.fromkeys(examples, axes), opset_version=18,
            external_data=False, dynamo=True, verbose=False,
        )  # fmt: skip


def _quantize_dynamically(model: Path, folder: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers.optimizer import optimize_model

    config, _ = read_config(model)
    heads, width = config.num_attention_heads, config.hidden_size
    optimised = optimize_model(str(folder / "plain.onnx"), "bert", num_heads=heads, hidden_size=width, opt_level=1)
    optimised.save_model_to_file(str(folder / "optimised.onnx"))
    target = str(folder / "dynamic-int8.onnx")
    quantize_dynamic(str(folder / "optimised.onnx"), target, per_channel=True, weight_type=QuantType.QInt8)


def _quantize_with_nncf(folder: Path, examples: Batch) -> None:
    import nncf
    import openvino

    batches = [padded(examples[first : first + 8]) for first in range(0, len(examples), 8)]
    source = openvino.Core().read_model(folder / "plain.onnx")
    quantized = nncf.quantize(source, nncf.Dataset(batches), model_type=nncf.ModelType.TRANSFORMER,
                         subset_size=len(batches))  # fmt: skip
    openvino.save_model(quantized, folder / "nncf-int8.xml", compress_to_fp16=False)


main = harness.script(Benchmark, COLUMNS, measure)

if __name__ == "__main__":
    main()
