"""A process that was forked after its parent has computed: a pool of workers, a preforking server, a data loader."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import multiprocessing
import os
import sys

import torch
from tests.savings import in_forked_processes

import albert

in_forked_processes()
model = albert.load("tiny", device="cpu")
TEXTS = ["The cat sat on the mat, and looked at the dog."] * 40
ROWS = [{"text": f"{word} film", "label": word} for word in ("good", "bad") * 8]


def work(folder):
    vectors = model.embed(TEXTS)
    one = model.embed(TEXTS[:1])
    options = {"text": "text", "label": "label", "model": "tiny", "epochs": 1, "device": "cpu"}
    albert.finetune(train=ROWS, dev=ROWS, output=f"{folder}/{os.getpid()}", **options)
    return len(vectors), len(one)


class Loaded:
    def __len__(self):
        return 4

    def __getitem__(self, number):
        return float(model.embed(TEXTS[: number + 1]).sum())


def prefork(folder):
    child = os.fork()
    if child == 0:
        os._exit(work(folder)[0] != len(TEXTS))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    folder = sys.argv[1]
    all_threads = torch.get_num_threads()
    for name, threads in (("one thread", 1), ("all threads", all_threads)):
        torch.set_num_threads(threads)
        work(f"{folder}/{name}")
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(name, pool.map(work, [f"{folder}/{name}"] * 2, chunksize=1), flush=True)
    print("prefork", prefork(folder), flush=True)
    from torch.utils.data import DataLoader

    print("loader", len(list(DataLoader(Loaded(), num_workers=2, multiprocessing_context="fork"))), flush=True)
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_predicts_and_trains(tmp_path, checkout):
    """With one thread, before the first thread of another library starts, and with all."""
    script = tmp_path / "forked.py"
    script.write_text(SCRIPT, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment["PYTHONPATH"] = str(checkout)
    command = [sys.executable, str(script), str(tmp_path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    for threads in ("one thread", "all threads"):
        assert f"{threads} [(40, 1), (40, 1)]" in ended.stdout
        assert len(list(Path(tmp_path, threads).glob("*/model"))) >= 2
    assert "prefork 0" in ended.stdout and "loader 4" in ended.stdout
