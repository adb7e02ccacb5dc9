"""A classifier of transformers or ONNX Runtime behind FastAPI and uvicorn, a peer in `latency.py`.

One request at a time is computed, by all threads: two at once on the same cores would be slower for both. Prints the
port that it listens at.

    python benchmarks/peer_server.py onnxruntime MODEL FILE.onnx --threads 1
"""

import argparse
import socket
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import torch
import transformers
import uvicorn
from fastapi import FastAPI

LONGEST = 512

Classify = Callable[[list[str]], list[list[float]]]


def by_transformers(model: str, _: str, threads: int) -> Classify:
    """Probabilities of the labels by transformers' pipeline."""
    torch.set_num_threads(threads)
    pipeline: Any = transformers.pipeline("text-classification", model=model, device="cpu", top_k=None)
    return lambda texts: [
        [label["score"] for label in labels] for labels in pipeline(texts, truncation=True, max_length=LONGEST)
    ]


def by_onnxruntime(model: str, file: str, threads: int) -> Classify:
    """Logits by an ONNX file, with transformers' tokenizer."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file, settings, providers=["CPUExecutionProvider"])
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(model)
    names = [each.name for each in session.get_inputs()]

    def classify(texts: list[str]) -> list[list[float]]:
        encoded = tokenizer(texts, truncation=True, max_length=LONGEST, padding=True, return_tensors="np")
        logits, *_ = session.run(None, {name: encoded[name].astype(np.int64) for name in names})
        return np.asarray(logits).tolist()

    return classify


def main() -> None:
    """Serve until it is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("system", choices=("transformers", "onnxruntime"))
    parser.add_argument("model")
    parser.add_argument("file", nargs="?", default="")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    make = by_transformers if asked.system == "transformers" else by_onnxruntime
    classify, alone, app = make(asked.model, asked.file, asked.threads), threading.Lock(), FastAPI()

    @app.post("/classify")
    def answer(body: dict[str, list[str]]) -> dict[str, list[list[float]]]:
        with alone, torch.inference_mode():
            return {"results": classify(body["texts"])}

    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    main()
