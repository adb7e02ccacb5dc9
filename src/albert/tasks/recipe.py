"""The settings of fine-tuning."""

from dataclasses import dataclass
from typing import Any

from albert.optim.recipe import refuse_implausible_rate
from albert.runtime.errors import InvalidConfiguration, require_range
from albert.runtime.json_files import to_json


@dataclass(frozen=True, kw_only=True)
class TaskRecipe:
    """Settings of fine-tuning. Lengths are in tokens, special tokens included; dropouts are probabilities.

    Exactly one of `steps` and `epochs` is set. `examples` is the training set size that `steps` was chosen for: with
    another number of examples the number of epochs stays the same, not the number of steps.
    """

    learning_rate: float
    batch_size: int
    steps: int | None = None
    examples: int | None = None
    epochs: float | None = None
    warmup_share: float = 0.1
    weight_decay: float = 0.01
    max_length: int = 512
    encoder_dropout: float | None = None
    head_dropout: float = 0.1
    question_length: int = 64
    stride: int = 128

    def total_steps(self, training_examples: int) -> int:
        """Optimiser updates for this number of examples; InvalidConfiguration unless one of steps and epochs is set."""
        if (self.steps is None) == (self.epochs is None):
            why = "exactly one of steps and epochs must be set"
            raise InvalidConfiguration("recipe", why, "give steps or epochs")
        if self.epochs is not None:
            return max(1, round(self.epochs * training_examples / self.batch_size))
        assert self.steps is not None
        if self.examples is not None and training_examples != self.examples:
            return max(1, round(self.steps * training_examples / self.examples))
        return self.steps

    def check(self) -> None:
        """Raise InvalidConfiguration, naming the field, if a value is out of range."""
        above_0 = "learning_rate", "batch_size", "steps", "epochs", "max_length", "question_length", "stride"
        require_range(self, "a number above 0", *above_0)
        refuse_implausible_rate(self.learning_rate)
        require_range(self, "a share from 0 to below 1", "warmup_share", "encoder_dropout", "head_dropout")
        if self.max_length < 8:
            raise InvalidConfiguration("max_length", f"must be at least 8 tokens, is {self.max_length}")
        self.total_steps(1)


def recipe_of_vectors(recipe: TaskRecipe) -> dict[str, Any]:
    """The values of a recipe that have a part in learning vectors: a run has no head, question or window then."""
    unused = ("head_dropout", "question_length", "stride")
    return {name: value for name, value in to_json(recipe).items() if name not in unused}
