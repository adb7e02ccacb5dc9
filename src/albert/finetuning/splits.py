"""A split of a task as a model sees it: read, checked, encoded, and everything counted."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from albert.runtime.randomness import stream
from albert.tasks.entities import continues_nothing, tag_scheme
from albert.tasks.examples import Example, is_labelled, to_examples
from albert.tasks.features import TextFeatures, text_features
from albert.tasks.options import OptionFeatures, option_features
from albert.tasks.task import Labels, Option, Span, Tags, Task, TaskRecipe
from albert.tasks.windows import SpanFeatures, span_features
from albert.tasks.words import TagFeatures, tag_features
from albert.text.tokenizer import Tokenizer

UNLABELLED = "unlabelled"


@dataclass(frozen=True)
class PreparedSplit:
    """A split as the model sees it. `counts` tells what was read, cut, relocated, or without a label."""

    split: str
    examples: list[Example]
    features: TextFeatures | OptionFeatures | SpanFeatures | TagFeatures
    counts: Mapping[str, int]

    @property
    def labelled(self) -> bool:
        """Whether the right answers are known."""
        return not self.counts.get(UNLABELLED)


@dataclass(frozen=True)
class Subset:
    """Some rows of a training split: so many, drawn without replacement, a pure function of the seed."""

    examples: int
    seed: int

    def members(self, n_rows: int) -> list[int]:
        """Indices of the rows, in file order; all of them when there are not more."""
        drawn = stream("finetuning.subset", self.seed).permutation(n_rows)[: self.examples]
        return sorted(drawn.tolist())


def prepare_split(
    task: Task,
    data: Path,
    split: str,
    tokenizer: Tokenizer,
    recipe: TaskRecipe,
    subset: Subset | None = None,
) -> PreparedSplit:
    """Read and encode a split, or a subset of it for training. Rows left out are counted.

    Raises:
        MissingInput, DamagedData, InvalidConfiguration: see the task's source, `to_examples` and the
            features.
    """
    examples, counts = read_examples(task, data, split, subset)
    return encode_split(task, split, examples, counts, tokenizer, recipe)


def read_examples(
    task: Task, data: Path, split: str, subset: Subset | None = None, needs_labels: bool = True
) -> tuple[list[Example], dict[str, int]]:
    """The examples of a split, or of a subset of it, and what was counted; raises what `prepare_split` does.

    Where labels are not needed, a file without any is counted as that, and not refused.
    """
    rows = task.source.read(data, split)
    chosen = rows.rows if subset is None else [rows.rows[i] for i in subset.members(len(rows.rows))]
    counts = {**rows.counts, "left_out_by_choice": len(rows.rows) - len(chosen)}
    if needs_labels or is_labelled(task, rows.rows):
        return to_examples(task, chosen), counts
    return to_examples(task, chosen, labelled=False), {**counts, UNLABELLED: len(rows.rows)}


def encode_split(
    task: Task,
    split: str,
    examples: list[Example],
    counts: Mapping[str, int],
    tokenizer: Tokenizer,
    recipe: TaskRecipe,
) -> PreparedSplit:
    """Examples as the model sees them, with what was counted before and what was cut now."""
    lengths = (recipe.max_length, recipe.question_length)
    if isinstance(task.target, Span):
        features = span_features(examples, tokenizer, *lengths, recipe.stride)
        cut = features.counts
    elif isinstance(task.target, Option):
        features = option_features(examples, tokenizer, *lengths)
        cut = features.counts
    elif isinstance(task.target, Tags):
        features = tag_features(examples, tokenizer, recipe.max_length)
        cut = features.words.counts | _contradicting(examples, task.target)
    else:
        n_labels = len(task.target.labels) if isinstance(task.target, Labels) else None
        features = text_features(examples, tokenizer, recipe.max_length, n_labels)
        cut = {"truncated": features.truncated, "tokens_cut": features.tokens_cut}
    return PreparedSplit(split, examples, features, {**counts, **cut})


def _contradicting(examples: list[Example], target: Tags) -> dict[str, int]:
    """How many tags go on with an entity that none began, where tags write entities so."""
    if tag_scheme(target.labels) == "plain":
        return {}
    tags = (example.target for example in examples if isinstance(example.target, tuple))
    return {"tags_that_continue_nothing": sum(continues_nothing([target.labels[t] for t in each]) for each in tags)}
