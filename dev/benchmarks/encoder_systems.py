"""The systems that `encoders.py` compares, each in a process of its own, run by the Python that has it installed.

    python encoder_systems.py SYSTEM PRECISION MODEL THREADS    # answers requests until its input ends
    python encoder_systems.py file SYSTEM PRECISION MODEL THREADS INPUT OUTPUT    # lines to vectors in .npy
    python encoder_systems.py prepare MODEL KIND                # writes the files of the peers below the model

A request is a line of JSON on standard input, `{"texts": [...], "one_at_a_time": false, "vectors": false}`. The
answer is a line of JSON on standard output: the seconds of the call, or of every text, and the vectors where they are
asked for.
This file imports nothing of the project but albert itself, so the peers may live in another environment.
"""

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Embed = Callable[[Sequence[str]], Any]
"""Texts to vectors of length 1, float32 [texts, H], in their order."""
BATCH = 32
LENGTH = 256
"""Tokens of a text at most, as all-MiniLM-L6-v2 says."""


def albert(model: Path, precision: str, threads: int) -> Embed:
    """`albert.load(model).embed`."""
    import albert

    predictor = albert.load(model, device="cpu", precision=precision)
    return lambda texts: predictor.embed(texts, normalize=True)


def sentence_transformers(model: Path, precision: str, threads: int, backend: str) -> Embed:
    """`SentenceTransformer(model).encode` with one of its backends, which sorts texts by length into batches of 32."""
    import torch
    from sentence_transformers import SentenceTransformer  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(threads)
    if backend == "torch":
        settings: dict[str, Any] = {"dtype": torch.bfloat16 if precision == "bf16" else torch.float32}
    elif backend == "onnx":
        name = "model_quantized.onnx" if precision == "int8" else "model.onnx"
        settings = {"provider": "CPUExecutionProvider", "file_name": f"onnx/{name}", "export": False}
        settings["session_options"] = _session_options(threads)
    else:
        settings = {"file_name": "openvino/openvino_model.xml", "export": False}
        settings["ov_config"] = _openvino_settings(precision, threads)
    opened = SentenceTransformer(
        str(model), backend=backend, device="cpu", model_kwargs=settings, local_files_only=True
    )
    return lambda texts: opened.encode(
        texts, batch_size=BATCH, normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True
    ).astype("float32", copy=False)


def fastembed(model: Path, precision: str, threads: int) -> Embed:
    """`TextEmbedding.embed` with the model registered as one of its own; it sorts nothing."""
    import numpy as np
    from fastembed import TextEmbedding  # pyright: ignore[reportMissingImports]
    from fastembed.common.model_description import (  # pyright: ignore[reportMissingImports]
        ModelSource,
        PoolingType,
    )

    width = json.loads((model / "config.json").read_text())["hidden_size"]
    name = "local/encoder"
    TextEmbedding.add_custom_model(
        name, PoolingType.MEAN, True, ModelSource(url="file"), dim=width, model_file="onnx/model.onnx"
    )
    opened = TextEmbedding(name, threads=threads, specific_model_path=str(model), providers=["CPUExecutionProvider"])
    opened.model.tokenizer.enable_truncation(LENGTH)  # tokenizer_config.json says 128 after it was saved again
    return lambda texts: np.array(list(opened.embed(list(texts), batch_size=BATCH)), np.float32)


def onnxruntime(model: Path, precision: str, threads: int) -> Embed:
    """ONNX Runtime alone, with `tokenizers`, on batches of texts sorted by length."""
    import onnxruntime

    file = model / "onnx" / ("model_quantized.onnx" if precision == "int8" else "model.onnx")
    session = onnxruntime.InferenceSession(str(file), _session_options(threads), providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs()]
    return _by_sorted_batches(model, lambda columns: session.run(None, {name: columns[name] for name in names})[0])


def openvino(model: Path, precision: str, threads: int) -> Embed:
    """OpenVINO alone, with `tokenizers`, on batches of texts sorted by length."""
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(
        core.read_model(model / "openvino" / "openvino_model.xml"), "CPU", _openvino_settings(precision, threads)
    )
    names = [node.get_any_name() for node in compiled.inputs]
    request = compiled.create_infer_request()

    def run(columns: dict[str, Any]) -> Any:
        return request.infer({name: columns[name] for name in names}, share_inputs=True, share_outputs=True)[0]

    return _by_sorted_batches(model, run)


def _session_options(threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return options


def _openvino_settings(precision: str, threads: int) -> dict[str, Any]:
    return {
        "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",  # else bf16 wherever the processor has it
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
    }


def _by_sorted_batches(model: Path, run: Callable[[dict[str, Any]], Any]) -> Embed:
    """Tokens, batches of similar lengths, the mean over real tokens, and length 1."""
    import numpy as np
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.enable_truncation(LENGTH)
    tokenizer.no_padding()

    def embed(texts: Sequence[str]) -> Any:
        encoded = [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts))]
        order = sorted(range(len(encoded)), key=lambda index: len(encoded[index]))
        vectors: Any = None
        for first in range(0, len(order), BATCH):
            members = order[first : first + BATCH]
            shape = (len(members), max(len(encoded[member]) for member in members))
            columns = {name: np.zeros(shape, np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}
            for row, member in enumerate(members):
                columns["input_ids"][row, : len(encoded[member])] = encoded[member]
                columns["attention_mask"][row, : len(encoded[member])] = 1
            states = run(columns)
            mask = columns["attention_mask"][:, :, None].astype(np.float32)
            means = (states * mask).sum(axis=1) / mask.sum(axis=1)
            if vectors is None:
                vectors = np.zeros((len(order), means.shape[1]), np.float32)
            vectors[members] = means / np.linalg.norm(means, axis=1, keepdims=True)
        return vectors

    return embed


SYSTEMS: dict[str, Callable[[Path, str, int], Embed]] = {
    "albert": albert,
    "sentence-transformers-torch": lambda *how: sentence_transformers(*how, backend="torch"),
    "sentence-transformers-onnx": lambda *how: sentence_transformers(*how, backend="onnx"),
    "sentence-transformers-openvino": lambda *how: sentence_transformers(*how, backend="openvino"),
    "fastembed": fastembed,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
}


def answer(embed: Embed, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request."""
    texts = request["texts"]
    seconds = []
    processor_seconds = []
    vectors: Any = []
    for part in [[text] for text in texts] if request["one_at_a_time"] else [texts]:
        began = time.perf_counter()
        computing_since = time.process_time()
        vectors = embed(part)
        seconds.append(time.perf_counter() - began)
        processor_seconds.append(time.process_time() - computing_since)
    found = vectors.tolist() if request["vectors"] else []
    return {"seconds": seconds, "processor_seconds": processor_seconds, "vectors": found}


def serve(system: str, precision: str, model: Path, threads: int) -> None:
    """Answer requests until the input ends; the first line says that the system is open."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints belongs to the errors
    embed = SYSTEMS[system](model, precision, threads)
    print("open", file=replies)
    for line in sys.stdin:
        print(json.dumps(answer(embed, json.loads(line))), file=replies)


def write_vectors(system: str, precision: str, model: Path, threads: int, texts: Path, output: Path) -> None:
    """The vectors of the lines of a file to .npy, in one call, as the documentation of these tools does it.

    The last line of standard error is the peak memory of the process in kB.
    """
    import numpy as np

    embed = SYSTEMS[system](model, precision, threads)
    np.save(output, embed(texts.read_text(encoding="utf-8").splitlines()))
    status = Path("/proc/self/status").read_text()
    print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")), file=sys.stderr)


# --------------------------------------------------------------------------------------------------------------------
# Files of the peers.

SHAPES = {
    "bert-base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    "albert-base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
}
INITIALIZER_RANGE = 0.05  # large enough that attention is not uniform


def prepare(model: Path, kind: str, int8: str) -> None:
    """Write random weights of a shape, if it is one, and the exports that sentence-transformers makes.

    Args:
        int8: its name for the processor's instructions, such as "avx2" or "avx512_vnni".
    """
    import torch
    import transformers

    if kind in SHAPES:
        torch.manual_seed(0)
        family: Any = transformers.BertModel if kind.startswith("bert") else transformers.AlbertModel
        vocabulary = len(json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"])
        config = family.config_class(
            vocab_size=vocabulary,
            initializer_range=INITIALIZER_RANGE,
            pad_token_id=0,
            hidden_act="gelu",
            **SHAPES[kind],
        )
        family(config).save_pretrained(model)
        pooling = json.loads((model / "1_Pooling" / "config.json").read_text())
        pooling["word_embedding_dimension"] = config.hidden_size
        (model / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    if importlib.util.find_spec("optimum") is None:
        _export_with_torch(model)
        return
    import sentence_transformers as peers  # pyright: ignore[reportMissingImports]

    onnx = peers.SentenceTransformer(
        str(model), backend="onnx", model_kwargs={"provider": "CPUExecutionProvider", "export": True},
        local_files_only=True,
    )  # fmt: skip
    onnx.save_pretrained(str(model))
    peers.export_dynamic_quantized_onnx_model(onnx, int8, str(model), file_suffix="quantized")
    if importlib.util.find_spec("optimum.intel") is None:
        return
    openvino = peers.SentenceTransformer(
        str(model), backend="openvino", model_kwargs={"export": True}, local_files_only=True
    )
    openvino.save_pretrained(str(model))


def _export_with_torch(model: Path) -> None:
    """The files of ONNX Runtime alone, where optimum is not installed: torch's export, optimised, and in 8 bits."""
    import torch
    import transformers
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers.optimizer import optimize_model

    encoder = transformers.AutoModel.from_pretrained(model, attn_implementation="eager").eval()

    class States(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            return self.encoder(input_ids, attention_mask, token_type_ids).last_hidden_state

    names = ("input_ids", "attention_mask", "token_type_ids")
    axes = {0: torch.export.Dim("batch", min=1, max=4096), 1: torch.export.Dim("length", min=2, max=512)}
    folder = model / "onnx"
    folder.mkdir(exist_ok=True)
    torch.onnx.export(
        States(), tuple(torch.ones(2, 16, dtype=torch.int64) for _ in names), str(folder / "plain.onnx"),
        input_names=list(names), output_names=["states"], dynamic_shapes=dict.fromkeys(names, axes), opset_version=18,
        external_data=False, dynamo=True, verbose=False,
    )  # fmt: skip
    config = encoder.config
    optimised = optimize_model(
        str(folder / "plain.onnx"), "bert", num_heads=config.num_attention_heads, hidden_size=config.hidden_size
    )
    optimised.save_model_to_file(str(folder / "model.onnx"))
    quantize_dynamic(
        str(folder / "model.onnx"), str(folder / "model_quantized.onnx"), per_channel=True, weight_type=QuantType.QInt8
    )


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
    elif sys.argv[1] == "prepare":
        prepare(Path(sys.argv[2]), sys.argv[3], sys.argv[4])
    elif sys.argv[1] == "file":
        _, _, name, precision, model, threads, texts, output = sys.argv
        write_vectors(name, precision, Path(model), int(threads), Path(texts), Path(output))
    else:
        serve(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
