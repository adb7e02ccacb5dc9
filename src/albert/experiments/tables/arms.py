"""An arm of an experiment: one pre-training run as a value, under a name and a key.

Every arm of every table is made by `arm`, a variant of its scale's ALBERT. So arms of two tables that ask for the same
run are equal, and have equal keys: the run is made once.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from albert.experiments.tables.scales import Scale, Size
from albert.model.config import AlbertConfig, Sharing
from albert.model.presets import bert_control
from albert.pretraining.recipes import PretrainingRecipe
from albert.pretraining.run_recipe import recipe_fingerprint
from albert.pretraining.sentence_order import SentenceObjective
from albert.runtime.strict_json import to_json

KEY_LENGTH = 12


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A pre-training run.

    Args:
        name: what sets it apart, in the paper's letters.
        recipe: the whole run, with its seed; the vocabulary is settled when it begins.
        start: the arm whose model it begins as (warm start in depth); None: random weights.
        additional_text: whether it reads all corpora that the user gives, and not the first alone (Table 7).
    """

    name: str
    recipe: PretrainingRecipe
    start: "Arm | None" = None
    additional_text: bool = False

    def seeded(self, seed: int) -> "Arm":
        """The same run, and what it begins as, with another seed."""
        start = None if self.start is None else self.start.seeded(seed)
        return replace(self, recipe=replace(self.recipe, seed=seed), start=start)

    def chain(self) -> Iterator["Arm"]:
        """The arms that must be there before this one, the first of them first, and this one."""
        if self.start is not None:
            yield from self.start.chain()
        yield self


def arm(
    scale: Scale,
    size: Size = "base",
    *,
    bert: bool = False,
    embedding_size: int | None = None,
    sharing: Sharing = "all",
    layers: int | None = None,
    width: int | None = None,
    objective: SentenceObjective = "sop",
    steps: int | None = None,
    dropout: float | None = None,
    dropout_off_at: int | None = None,
    start: Arm | None = None,
    additional_text: bool = False,
) -> Arm:
    """A variant of a scale's ALBERT. What is not said is as in the scale's recipe.

    Args:
        scale: its shapes and its recipe.
        size: which of its four shapes.
        bert: E = H and nothing shared (Table 1).
        embedding_size: E.
        sharing: what layers share.
        layers: L.
        width: H; F and the number of heads go with it.
        objective: of the sentence head.
        steps: updates, with as many of warm-up as the recipe has.
        dropout: in place of the scale's.
        dropout_off_at: the update from which there is none.
        start: what it begins as.
        additional_text: read all corpora.
    """
    model = _shaped(scale.sizes[size], layers, width)
    if embedding_size is not None:
        model = replace(model, embedding_size=embedding_size)
    model = bert_control(model) if bert else replace(model, sharing=sharing)
    if dropout is not None:
        model = replace(model, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    recipe = replace(
        scale.recipe,
        model=model,
        sequences=replace(scale.recipe.sequences, objective=objective),
        optimizer=replace(scale.recipe.optimizer, learning_rate=scale.learning_rate(model.hidden_size)),
        schedule=scale.recipe.schedule if steps is None else replace(scale.recipe.schedule, total_steps=steps),
        dropout_changes=() if dropout_off_at is None else ((dropout_off_at, 0.0),),
    )
    made = Arm(name="", recipe=recipe, start=start, additional_text=additional_text)
    return replace(made, name=_name(made, scale, size))


def arm_key(asked: Arm, corpora: Sequence[str]) -> str:
    """What a run is known by: its recipe, what it begins as, and what it reads.

    How it is checkpointed, and on how many processes and with how many workers it runs, is no part of it.

    Args:
        asked: with its seed.
        corpora: fingerprints of the prepared corpora that the user gives, the first one first.
    """
    recipe = asked.recipe
    read = list(corpora) if asked.additional_text else list(corpora[:1])
    identity = {
        "recipe": recipe_fingerprint(recipe),
        "limits": [recipe.max_tokens, recipe.max_minutes],
        "dropout_changes": to_json(recipe.dropout_changes),
        "start": None if asked.start is None else arm_key(asked.start, corpora),
        "corpora": read,
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:KEY_LENGTH]


def _shaped(model: AlbertConfig, layers: int | None, width: int | None) -> AlbertConfig:
    if width is not None:
        head = model.hidden_size // model.num_attention_heads
        model = replace(model, hidden_size=width, num_attention_heads=width // head, intermediate_size=4 * width)
    return model if layers is None else replace(model, num_hidden_layers=layers)


def _name(made: Arm, scale: Scale, size: Size) -> str:
    """The size, then what differs from it: `albert-base-E32-not-shared`, `albert-large-L16`, `albert-base-nsp`."""
    usual, recipe = scale.sizes[size], made.recipe
    model = recipe.model
    is_bert = model.embedding_size == model.hidden_size and model.sharing == "none"
    words = [f"{'bert' if is_bert else 'albert'}-{size}"]
    if model.num_hidden_layers != usual.num_hidden_layers:
        words.append(f"L{model.num_hidden_layers}")
    if model.hidden_size != usual.hidden_size:
        words.append(f"H{model.hidden_size}")
    if not is_bert and model.embedding_size != usual.embedding_size:
        words.append(f"E{model.embedding_size}")
    if not is_bert and model.sharing != "all":
        words.append("not-shared" if model.sharing == "none" else f"shared-{model.sharing}")
    if recipe.sequences.objective != "sop":
        words.append(recipe.sequences.objective)
    if recipe.schedule.total_steps != scale.recipe.schedule.total_steps:
        words.append(f"{recipe.schedule.total_steps}-steps")
    if model.hidden_dropout_prob != usual.hidden_dropout_prob:
        words.append(f"dropout-{model.hidden_dropout_prob:g}")
    if recipe.dropout_changes:
        words.append(f"dropout-off-at-{recipe.dropout_changes[0][0]}")
    if made.additional_text:
        words.append("additional-text")
    if made.start is not None:
        words.append(f"from-L{made.start.recipe.model.num_hidden_layers}")
    return "-".join(words)
