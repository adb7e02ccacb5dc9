"""Questions on random contexts: every answer is a slice of the text, and every token is in a window."""

import functools
import random
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from dev.reliability.confined import Broken, Limits, confined
from dev.reliability.fuzzing import WORDPIECE
from dev.reliability.material import Material
from dev.reliability.report import ANSWERS_ARE_SLICES
from dev.reliability.trials import Tries, trial

from albert.tables.table import Answer
from albert.tasks.examples import Example
from albert.tasks.span_answers import best_answers
from albert.tasks.span_windows import SpanFeatures, span_features, token_span
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer

AT_A_TIME = 200
QUESTION = "Where was it?"
MAX_LENGTH, QUESTION_LENGTH, STRIDE, ANSWER_TOKENS = 24, 6, 7, 5


@trial(
    ANSWERS_ARE_SLICES, "random Unicode contexts, read by 3 tokenizers and cut into windows", 600, 1_000_000, 10_000_000
)
def offsets(tries: Tries) -> None:
    """Check batches of contexts, with each tokenizer in turn."""
    tokenizers = tokenizers_of(Material(tries.folder / "material"), tries.folder)
    sizes = [min(AT_A_TIME, tries.count - begin) for begin in range(0, tries.count, AT_A_TIME)]

    def work(batch: int) -> str:
        numbers = random.Random(f"{tries.seed}/offsets/{batch}")
        return check_batch([random_context(numbers) for _ in range(sizes[batch])], tokenizers[batch % 3], numbers)

    for verdict in confined(work, len(sizes), Limits(tries.folder, seconds=120.0)):
        failure = [f"batch {verdict.number}: {verdict.failure}"] if verdict.failure else []
        tries.record(failure, tries=sizes[verdict.number])
        for name, n in (pair.split("=") for pair in verdict.kind.split()):
            tries.add(name, int(n))


def tokenizers_of(material: Material, folder: Path) -> list[Tokenizer]:
    """ALBERT's SentencePiece, the same with case and accents kept, and WordPiece."""
    (folder / "vocab.txt").write_text(WORDPIECE, encoding="utf-8")
    plain = material.tokenizer / "spiece.model"
    cased = load_tokenizer(plain, lower_case=False, keep_accents=True)
    return [load_tokenizer(plain), cased, load_tokenizer(folder / "vocab.txt")]


def check_batch(contexts: list[str], tokenizer: Tokenizer, numbers: random.Random) -> str:
    """Check one question per context; returns counts as "name=number" words."""
    examples = [_question(context, numbers) for context in contexts]
    features = span_features(examples, tokenizer, MAX_LENGTH, QUESTION_LENGTH, STRIDE)
    for example, spans in zip(examples, features.character_spans, strict=True):
        _check_places(example.texts[1], spans)
        _check_left_out(example.texts[1], spans, tokenizer)
        _check_gold(example, spans)
    _check_windows(examples, features)
    answers = _check_answers(examples, features, numbers)
    tokens = sum(map(len, features.character_spans))
    return f"tokens={tokens} windows={len(features.windows)} answers={answers}"


FRAGMENTS = (
    *("the ", "ship ", "Lisbon", "It was, ", "1,234", "2010,", "a ", "I", ". ", "'s ", "—", "e\u0301"),
    *("é", "ñ", "Å", "İ", "ß", "ς", "Σ", "ŉ", "ǆ", "½", "\u338f", "\ufdfa", "\ufb01", "\ufb04"),
    *("\uff11\uff12", "Ⅷ", "™", "…", "……", "℡", "\uff0c", "\x00", "\x10", "\x7f", "\x85", "\xad"),
    *("\u200b", "\u200d", "\u200e", "\u202e", "\ufeff", "\ufffd", "\x1c", "\ue000", "\u0378", "\ud800"),
    *("\udfff", "\xa0", "\u2003", "\u3000", "\u2028", "\u1680", "\t", "\n", "\r", "  "),
    *("\U0001f469\u200d\U0001f467", "\U0001f469\U0001f3fd", "\U0001f1e8\U0001f1ed", "\u2764\ufe0f"),
    "z" + "\u0300\u0315\u0489" * 8,
    *("\u05e9\u05b8\u05c1", "\u0645\u064e", "\ufdfd", "\u0939\u093f\u0902", "\u0e17\u0e35\u0e48"),
    *("\u4e2d\u6587", "\uf900", "\u304c", "\u304b\u3099", "\uff76\uff9e", "\uac00", "각", "``", "''"),
    *("“", "▁", "▁a", "##s", "[MASK]", "[SEP]", "<unk>", "<pad>", "[CLS]", "[UNK]", "²", "\u0345"),
    *("\U0001d15e",),
)
"""Words, characters whose normalisation has another length, and tokens of tokenizers."""
_ENDS = (0x80, 0x800, 0x3000, 0x10000, sys.maxunicode + 1)
"""Upper ends of ranges of code points, drawn equally often."""


def random_context(numbers: random.Random) -> str:
    """0 to about 60 characters; one in a thousand is 100 times as long."""
    pieces = numbers.choices(FRAGMENTS, k=numbers.randrange(16))
    for _ in range(numbers.randrange(6)):
        pieces.insert(numbers.randrange(len(pieces) + 1), chr(numbers.randrange(numbers.choice(_ENDS))))
    text = "".join(pieces)
    return text if numbers.random() > 0.001 else text * 100


def _question(context: str, numbers: random.Random) -> Example:
    start = numbers.randrange(len(context) + 1)
    gold = context[start : start + numbers.randrange(1, 12)]
    return Example("q", "here", (QUESTION, context), None, (Answer(gold, start),))


def _check_places(context: str, spans: np.ndarray) -> None:
    """Tokens are slices of the context, in order."""
    starts, ends = spans[:, 0], spans[:, 1]
    if len(spans) and not (starts.min() >= 0 and ends.max() <= len(context) and (starts <= ends).all()):
        raise Broken(f"{context!r}: a token is outside of it")
    if (np.diff(starts) < 0).any() or (np.diff(ends) < 0).any():
        raise Broken(f"{context!r}: tokens are not in order")


def _check_left_out(context: str, spans: np.ndarray, tokenizer: Tokenizer) -> None:
    """Characters in no token are those that the tokenizer drops everywhere."""
    covered = np.zeros(len(context) + 1, bool)
    for start, end in spans.tolist():
        covered[start:end] = True
    for i in np.flatnonzero(~covered[:-1]).tolist():
        mark = unicodedata.category(context[i])[0] == "M"
        if not mark and not _is_dropped(tokenizer, context[i]):
            raise Broken(f"{context!r}: character {i}, {context[i]!r}, is in no token")


@functools.cache
def _is_dropped(tokenizer: Tokenizer, character: str) -> bool:
    return tokenizer.encode(f"x{character}y") in (tokenizer.encode("xy"), tokenizer.encode("x y"))


def _check_gold(example: Example, spans: np.ndarray) -> None:
    """The tokens of a gold answer cover all of it that is covered by tokens."""
    context, gold = example.texts[1], example.answers[0]
    assert gold.start is not None
    end = gold.start + len(gold.text)
    touched = spans[(spans[:, 0] < end) & (spans[:, 1] > gold.start)]
    found = token_span(spans, gold)
    if (found is None) != (len(touched) == 0):
        raise Broken(f"{context!r}: the answer at {gold.start} has tokens, but none are found")
    if found is not None:
        first, last = found
        if spans[first, 0] > touched[:, 0].min() or spans[last, 1] < touched[:, 1].max():
            raise Broken(f"{context!r}: the answer at {gold.start} is cut")


def _check_windows(examples: Sequence[Example], features: SpanFeatures) -> None:
    """Every token is in a window, and judged in exactly one."""
    judged = [np.zeros(len(spans), int) for spans in features.character_spans]
    for number, window in enumerate(features.windows):
        judged[window.example][window.first_token : window.first_token + window.n_tokens] += window.best
        if features.sequences.lengths[number] > MAX_LENGTH:
            raise Broken(f"{examples[window.example].texts[1]!r}: a window is longer than {MAX_LENGTH}")
    for example, counts in zip(examples, judged, strict=True):
        if (counts != 1).any():
            raise Broken(f"{example.texts[1]!r}: a token is outside every window, or judged twice")


def _check_answers(examples: Sequence[Example], features: SpanFeatures, numbers: random.Random) -> int:
    """Answers from random logits are slices of the contexts; returns their number."""
    draws = np.random.default_rng(numbers.getrandbits(32))
    rows = [draws.standard_normal((int(length), 2)) for length in features.sequences.lengths]
    found = best_answers(features, rows, ANSWER_TOKENS, n_best=3, may_be_absent=numbers.random() < 0.5)
    for example, spans, answers in zip(examples, features.character_spans, found, strict=True):
        context = example.texts[1]
        if bool(answers.candidates) != bool(len(spans)):
            raise Broken(f"{context!r}: {len(spans)} tokens and {len(answers.candidates)} answers")
        for candidate in answers.candidates:
            if candidate.text != context[candidate.start : candidate.end]:
                raise Broken(f"{context!r}: {candidate.text!r} is not the text at {candidate.start}")
    return sum(len(answers.candidates) for answers in found)
