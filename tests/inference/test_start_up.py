"""Opening a model does not import libraries that its predictions do not use."""

import subprocess
import sys

import pytest

UNUSED = ("sklearn", "scipy", "pandas", "transformers", "tensorboard", "sympy", "torch._dynamo")
PREDICTOR = """
import albert, albert.cli.predict
model = albert.load(sys.argv[1])
assert model.fill_mask("The sea is [MASK].")[0]["score"] > 0
assert len(model.embed(["one", "two sentences"])) == 2
"""
COMMAND = """
from albert.cli.main import run
assert run(["predict", sys.argv[1], "--fill-mask", "The sea is [MASK].", "--json"]) == 0
"""
UNUSED_BY_THE_COMMAND = (
    *("albert.pretraining", "albert.finetuning", "albert.api.options", "albert.text.shards"),
    *("httpx", "httpx2", "huggingface_hub.hf_api", "matplotlib", "torch.distributed.tensor"),
)


@pytest.mark.parametrize(
    ("code", "unused"),
    [
        (PREDICTOR, UNUSED),
        (PREDICTOR + "import albert.cli.convert", UNUSED[:5]),
        (COMMAND, UNUSED + UNUSED_BY_THE_COMMAND),
    ],
    ids=["predictor", "convert", "command"],
)
def test_unused_libraries_are_not_imported(code, unused, checkout):
    """Each of them takes at least as long to import as a small model to open."""
    code = f"import sys\n{code}\nprint('imported:', *(name for name in {unused} if name in sys.modules))"
    command = [sys.executable, "-c", code, str(checkout / "models" / "tiny")]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout.splitlines()[-1].strip()) == (0, "imported:"), process.stderr
    assert code.count(COMMAND) or process.stderr == ""


def test_garbage_is_collected_again_once_a_command_is_imported():
    code = """
import gc
from albert.cli.main import load_command
load_command("albert.cli.predict")
assert gc.isenabled() and gc.get_freeze_count() > 10_000
try:
    load_command("albert.cli.absent")
except ModuleNotFoundError:
    assert gc.isenabled()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
