"""Opening a model does not import libraries that its predictions do not use."""

import subprocess
import sys

UNUSED = ("sklearn", "scipy", "pandas", "transformers", "tensorboard", "sympy", "torch._dynamo")
UNUSED_BY_THE_COMMAND = (
    *("albert.pretraining", "albert.finetuning", "albert.text.shards"),
    *("httpx", "httpx2", "huggingface_hub.hf_api", "matplotlib", "torch.distributed.tensor"),
)
IN_ONE_PROCESS = f"""
import gc
import sys

from albert.cli.main import load_command, run

def report(stage, names):
    print(stage, *(name for name in names if name in sys.modules))

assert run(["predict", sys.argv[1], "--fill-mask", "The sea is [MASK].", "--json"]) == 0
report("command:", {UNUSED + UNUSED_BY_THE_COMMAND})
assert gc.isenabled() and gc.get_freeze_count() > 10_000
try:
    load_command("albert.cli.absent")
except ModuleNotFoundError:
    assert gc.isenabled()
print("---", file=sys.stderr, flush=True)

import albert, albert.commands.predict

model = albert.load(sys.argv[1])
assert model.fill_mask("The sea is [MASK].")[0]["score"] > 0
assert len(model.embed(["one", "two sentences"])) == 2
report("predictor:", {UNUSED})

import albert.checkpoints.convert, albert.checkpoints.hub

report("convert:", {UNUSED[:5]})
"""


def test_unused_libraries_are_not_imported_and_garbage_is_collected_again(checkout):
    """Each of them takes at least as long to import as a small model to open.

    While a command is imported, no garbage is collected.
    """
    command = [sys.executable, "-c", IN_ONE_PROCESS, str(checkout / "models" / "tiny")]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    reports = [line.strip() for line in process.stdout.splitlines() if line.startswith(("command", "pred", "convert"))]
    assert reports == ["command:", "predictor:", "convert:"]
    assert process.stderr.partition("---\n")[2] == ""
