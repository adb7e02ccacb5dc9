"""What `albert info` is asked for."""

from dataclasses import dataclass
from typing import Literal

from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.cli.main import load_command

DESCRIPTION = """Say what something is: a preset, a model directory or Hub id, a prepared corpus; alone, this machine.

Parameters and bytes are exact. FLOPs count a multiplication with its addition as 2.

Examples:
  albert info albert-base
  albert info albert-base --compare bert-base
  albert info albert-large --sequence-length 128 --measure
  albert info albert-xxlarge --memory --memory-limit 80GB --device cuda
  albert info albert/albert-xlarge-v2 --self-check"""


@dataclass(frozen=True)
class Info:
    """What to tell about."""

    what: Positional[str | None] = None
    """A preset (albert-base, ...), a directory, or a Hub id (albert/albert-base-v2); nothing: machine and presets."""
    compare: str | None = None
    """Another one to set beside it, with what is said of the two and whether it holds."""
    sequence_length: int | None = None
    """Tokens in a sequence, for work and memory; the longest one by default."""
    measure: bool = False
    """Measure tokens per second on this machine: inference and pre-training steps, with random weights."""
    memory: bool = False
    """Plan a training step: its memory by parts, and the largest micro-batch that fits, with and without activation
    checkpointing."""
    memory_limit: str | None = None
    """What the plan may use, 24GB say; what is free on the device by default."""
    optimizer: Literal["lamb", "adamw"] = "lamb"
    """Of the plan."""
    batch_size: int | None = None
    """Sequences of a measured or planned batch; by default as many as make 512 tokens, in a plan 32."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to measure and to ask; a plan can be made for a GPU that is elsewhere."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Of what is measured or planned; auto takes the one in which the device is faster."""
    self_check: bool = False
    """Ask a model for masked words under every plausible activation and number of heads."""
    revision: str | None = None
    """A branch, tag or commit of a Hub repository."""
    json: bool = False
    """One JSON object in place of tables."""


def main(arguments: list[str]) -> int:
    """Read the options, and run `albert info`."""
    asked = parse(Info, arguments, "albert info", DESCRIPTION)
    return load_command("albert.cli.info").run(asked)
