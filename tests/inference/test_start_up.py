"""What a start need not wait for: libraries that no answer of a model uses."""

import subprocess
import sys

USELESS = ("sklearn", "scipy", "pandas", "transformers", "tensorboard", "sympy", "torch._dynamo")
SCRIPT = f"""
import sys
import albert, albert.cli.predict
model = albert.load(sys.argv[1])
assert model.fill_mask("The sea is [MASK].")[0]["score"] > 0
assert len(model.embed(["one", "two sentences"])) == 2
print(*(name for name in {USELESS} if name in sys.modules))
import albert.cli.convert
print(*(name for name in {USELESS[:5]} if name in sys.modules))
"""


def test_a_model_answers_and_is_converted_without_libraries_of_training_and_scores(checkout):
    """Each of them takes as long to import as a small model to open, or longer."""
    command = [sys.executable, "-c", SCRIPT, str(checkout / "models" / "tiny")]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout.strip(), process.stderr) == (0, "", "")


COMMAND = """
import sys
from albert.cli.main import run
assert run(["predict", sys.argv[1], "--fill-mask", "The sea is [MASK].", "--json"]) == 0
useless = ("albert.pretraining", "albert.finetuning", "albert.api.options", "albert.text.shards", "httpx", "httpx2",
           "huggingface_hub.hf_api", "matplotlib", "torch.distributed.tensor", *sys.argv[2:])
print(*(name for name in useless if name in sys.modules), file=sys.stderr)
"""


def test_predict_does_not_wait_for_modules_of_training_or_of_the_hub(checkout):
    command = [sys.executable, "-c", COMMAND, str(checkout / "models" / "tiny"), *USELESS]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr.splitlines()[1:]) == (0, [""])
    assert '"score"' in process.stdout


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
