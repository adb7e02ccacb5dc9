"""Questions with options to sequences, one for each option: `[CLS] passage [SEP] question option [SEP]`.

As the reference reads RACE (Lai et al. 2017): an option takes the place of every `_` in the question, or follows it;
question and option keep their last tokens, and the passage is cut at its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.runtime.progress import progress
from albert.tasks.examples import Example
from albert.tasks.features import Sequences, join_sequences
from albert.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class OptionFeatures:
    """Sequences in the order of the examples, `n_options` for each, the right ones' places, and what was cut.

    Counts: `passages_truncated` and `questions_truncated` are questions, one with several such options is one;
    `tokens_cut` adds up all sequences.
    """

    sequences: Sequences
    targets: np.ndarray
    n_options: int
    counts: dict[str, int]


def question_with_option(question: str, option: str) -> str:
    """The option in the place of every blank `_`, or behind the question."""
    return question.replace("_", option) if "_" in question else f"{question} {option}".strip()


def join_option(
    passage: Sequence[int], question: Sequence[int], tokenizer: Tokenizer, max_length: int, question_length: int
) -> tuple[list[int], int, int, int]:
    """One option's sequence.

    Args:
        passage, question: token ids; the question holds the option already.
        tokenizer: for the special tokens.
        max_length: tokens of the sequence.
        question_length: most tokens of question and option.

    Returns:
        its ids; how many of them are up to the first [SEP]; tokens cut from the passage; and from the question.

    Raises:
        InvalidConfiguration: there is no room for a passage.
    """
    room = max_length - question_length - 3
    if room < 1:
        why = f"{max_length} leaves no room for a passage beside {question_length} tokens of question and option"
        raise InvalidConfiguration("max_length", why, "use a larger value, or a smaller question length")
    kept_question = question[-question_length:]
    kept_passage = passage[: max_length - 3 - len(kept_question)]
    ids = [tokenizer.cls_id, *kept_passage, tokenizer.sep_id, *kept_question, tokenizer.sep_id]
    cut = (len(passage) - len(kept_passage), len(question) - len(kept_question))
    return ids, len(kept_passage) + 2, *cut


def option_features(
    examples: Sequence[Example], tokenizer: Tokenizer, max_length: int, question_length: int
) -> OptionFeatures:
    """A sequence for each option of each example.

    Raises:
        DamagedData: an example with another number of options than the first has.
        InvalidConfiguration: `max_length` leaves no room for a passage.
    """
    n_options = len(examples[0].options) if examples else 1
    counts: dict[str, int] = dict.fromkeys(("passages_truncated", "questions_truncated", "tokens_cut"), 0)
    parts: list[tuple[list[int], int]] = []
    last_passage, passage_ids = None, []
    with progress("Encoding", total=len(examples), unit="questions") as bar:
        for example in examples:
            question, passage = example.texts
            if len(example.options) != n_options:
                raise DamagedData(example.where, f"has {len(example.options)} options where {n_options} are expected")
            if passage != last_passage:  # the questions on a passage follow each other
                last_passage, passage_ids = passage, tokenizer.encode(passage)
            cuts = np.zeros((n_options, 2), np.int64)
            for place, option in enumerate(example.options):
                ids = tokenizer.encode(question_with_option(question, option))
                joined = join_option(passage_ids, ids, tokenizer, max_length, question_length)
                parts.append(joined[:2])
                cuts[place] = joined[2:]
            counts["passages_truncated"] += bool(cuts[:, 0].any())
            counts["questions_truncated"] += bool(cuts[:, 1].any())
            counts["tokens_cut"] += int(cuts.sum())
            bar.advance()
    targets = np.array([0 if example.target is None else example.target for example in examples], np.int64)
    return OptionFeatures(join_sequences(parts), targets, n_options, counts)
