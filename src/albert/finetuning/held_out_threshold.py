"""Questions kept back from training, and the threshold chosen on them: from where on a question has no answer.

The reference chooses it on the questions that it then reports; that is possible too, and said wherever scores are.
"""

from collections.abc import Sequence
from typing import Literal

from albert.runtime.errors import InvalidConfiguration
from albert.runtime.randomness import stream
from albert.tasks.answerability import choose_threshold
from albert.tasks.answers import Answers
from albert.tasks.examples import Example
from albert.tasks.null_threshold import NullThreshold, decide

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
