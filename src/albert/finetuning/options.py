"""Changes of architecture before fine-tuning, and the no-answer threshold chosen on held-out questions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from albert.model.config import Activation, AlbertConfig, Extension, Sharing
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.json_files import to_json
from albert.runtime.random_streams import stream
from albert.tasks.answers import Answers, NullThreshold, choose_threshold, decide
from albert.tasks.examples import Example


@dataclass(frozen=True, kw_only=True)
class ArchitectureChanges:
    """Fields of the configuration to set anew, and how positions are extended; what is None stays."""

    num_hidden_layers: int | None = None
    """The same as --depth: a shared layer is applied more or less often, others are repeated in place or left out
    evenly."""
    num_hidden_groups: int | None = None
    """Groups that share one layer each."""
    sharing: Sharing | None = None
    """attention, ffn or none: layers that were shared become layers of their own, and begin as copies."""
    num_attention_heads: int | None = None
    """The same weights cut into another number of heads: for files that state a wrong one."""
    hidden_act: Activation | None = None
    """Another activation: gelu_new is the tanh form that Google trained with."""
    max_position_embeddings: int | None = None
    """Positions; more of them allow longer sequences (see --extend-positions and --max-length)."""
    extend_positions: Extension | None = None
    """How positions beyond the trained ones are made; tile where the model has none and nothing is said."""
    attention_window: int | None = None
    """Tokens to either side that a token sees beside [CLS]; one that covers all positions is dense attention again."""

    def asked(self) -> dict[str, Any]:
        """What is to change, as plain values."""
        return {name: value for name, value in to_json(self).items() if value is not None}

    def applied_to(self, config: AlbertConfig) -> AlbertConfig:
        """The architecture wanted. Inner layers and groups of a model that shares no more are layers of their own.

        Raises:
            InvalidConfiguration: sizes that do not fit together.
        """
        fields = {name: value for name, value in self.asked().items() if name != "extend_positions"}
        if self.sharing not in (None, "all") and config.sharing == "all":
            flat = {"num_hidden_layers": config.num_hidden_layers * config.inner_group_num, "num_hidden_groups": 1}
            fields = {**flat, "inner_group_num": 1, **fields}
        return replace(config, **fields)


# --------------------------------------------------------------------------------------------------------------------
# The no-answer threshold: chosen on questions that are held out of training.
#
# The reference chooses it on the questions that it then reports; that is possible too, and said wherever scores
# are.

ThresholdFrom = Literal["train", "dev"]
HELD_OUT_SHARE = 0.05


def hold_out(examples: Sequence[Example], seed: int) -> tuple[list[Example], list[Example]]:
    """Examples to learn from, and a twentieth of them, whole contexts drawn by the seed, to choose the threshold on.

    Raises:
        InvalidConfiguration: there is one context only, or nothing with and nothing without an answer to hold out.
    """
    contexts = list(dict.fromkeys(example.texts[1] for example in examples))
    sizes = dict.fromkeys(contexts, 0)
    for example in examples:
        sizes[example.texts[1]] += 1
    held: set[str] = set()
    questions = 0
    for place in stream("finetuning.held_out", seed).permutation(len(contexts)).tolist():
        held.add(contexts[place])
        questions += sizes[contexts[place]]
        if questions >= HELD_OUT_SHARE * len(examples):
            break
    learnt = [example for example in examples if example.texts[1] not in held]
    if not learnt:
        why = "too few contexts to keep some back from training for it"
        raise InvalidConfiguration("null threshold", why, "give more data, or --null-threshold dev")
    return learnt, [example for example in examples if example.texts[1] in held]


def threshold_for(examples: Sequence[Example], answers: Sequence[Answers], chosen_on: str) -> NullThreshold:
    """The threshold with the best F1 on some questions.

    Args:
        examples: with their gold answers.
        answers: what the model says to them.
        chosen_on: what they are, in words.
    """
    gold = [[answer.text for answer in example.answers] for example in examples]
    return NullThreshold(choose_threshold(gold, decide(answers, NullThreshold())), chosen_on)
