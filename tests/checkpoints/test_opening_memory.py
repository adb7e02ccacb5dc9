"""Opening a model takes the memory of its weights, once, and imports nothing that only compilers need."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from albert.checkpoints.model_directory import write_model
from albert.model.albert import AlbertForPreTraining
from albert.model.config import AlbertConfig

MEASURE = """
import json, sys
from albert.checkpoints.model_directory import open_model
def memory(key):
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(key + ":"))
small, large = sys.argv[1:]
open_model(small, "pretraining")  # code that is used for the first time takes memory too
before = memory("VmRSS")
with open("/proc/self/clear_refs", "w") as file:  # forgets the peak so far
    file.write("5")
model = open_model(large, "pretraining").model
print(json.dumps({"peak": memory("VmHWM") - before, "compiler": "torch._dynamo" in sys.modules}))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux alone tells a peak of memory")
def test_the_weights_are_in_memory_once(config: AlbertConfig, tmp_path: Path) -> None:
    large = AlbertConfig(vocab_size=100_000, num_hidden_layers=2, hidden_size=256, num_attention_heads=4,
                         intermediate_size=1024)  # fmt: skip
    for name, shape in (("small", config), ("large", large)):
        (tmp_path / name).mkdir()
        with torch.device("meta"):
            model = AlbertForPreTraining(shape)
        write_model(tmp_path / name, model.to_empty(device="cpu").apply(_zeros), None)
    size = (tmp_path / "large" / "model.safetensors").stat().st_size
    assert size > 50_000_000
    arguments = [sys.executable, "-c", MEASURE, str(tmp_path / "small"), str(tmp_path / "large")]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert 0.9 * size < found["peak"] < 1.1 * size
    assert not found["compiler"]


def _zeros(module: torch.nn.Module) -> None:
    for parameter in module.parameters(recurse=False):
        torch.nn.init.zeros_(parameter)
