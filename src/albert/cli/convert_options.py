"""What `albert convert` is asked for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.cli.main import load_command
from albert.model.config import Activation


@dataclass(frozen=True, kw_only=True)
class Convert:
    """Make a model directory from a TensorFlow checkpoint of google-research/albert, or from a Hugging Face model.

    SOURCE is what there is: the directory of a release or a training run, a TF-Hub module, one file or the prefix of
    a checkpoint, a .tar.gz, .tgz, .tar or .zip of these, a Hugging Face directory, or a Hub id. TensorFlow need not
    be installed, every checksum is verified, and every variable is accounted for.

    There is no --to tensorflow: what is written is a Hugging Face model directory, which transformers, ONNX and
    whatever reads safetensors open; nothing current asks for TensorFlow 1 checkpoints.

    Example: albert convert albert_base_v2.tar.gz --output models/albert-base-v2
    """

    source: Positional[str]
    """A directory, a checkpoint's file or prefix, an archive, or a Hub id."""
    output: Path
    """The model directory to write."""
    config: Path | None = None
    """The albert_config.json, when it does not lie beside the checkpoint."""
    tokenizer: Path | None = None
    """A SentencePiece model, a WordPiece vocabulary, or a directory with one, when it does not lie beside SOURCE."""
    without_tokenizer: tyro.conf.FlagCreatePairsOff[bool] = False
    """Write the model alone."""
    lower_case: bool = True
    """What a vocabulary alone does not say: whether its model was trained on lower-cased text."""
    keep_accents: bool = False
    """And whether accents were kept."""
    hidden_act: Activation | None = None
    """The activation, in place of what SOURCE says: gelu_new is the tanh form, gelu the exact one."""
    num_attention_heads: int | None = None
    """In place of what SOURCE says; the shapes of the weights do not show it."""
    num_hidden_layers: int | None = None
    """In place of what SOURCE says; where layers are shared the weights do not show it."""
    one_output: Literal["regression", "multiple_choice"] | None = None
    """What a TensorFlow classifier with one output is: STS-B's score, or the score of an option, as for RACE."""
    labels: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME...", help_behavior_hint="")] = ()
    """The names of a classifier's outputs, in order."""
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """Of the weights; those of SOURCE by default."""
    revision: str | None = None
    """A branch, tag or commit of a Hub repository."""
    replace: bool = False
    """Replace an existing output."""


def main(arguments: list[str]) -> int:
    """Read the options, and run `albert convert`."""
    asked = parse(Convert, arguments, "albert convert")
    return load_command("albert.cli.convert").run(asked)
