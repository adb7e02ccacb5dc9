"""What a start need not wait for: libraries that no answer of a model uses."""

import subprocess
import sys

USELESS = ("sklearn", "scipy", "pandas", "transformers", "tensorboard", "sympy", "torch._dynamo")
ANSWERS = f"""
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
    command = [sys.executable, "-c", ANSWERS, str(checkout / "models" / "tiny")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
