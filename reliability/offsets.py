"""Questions on random contexts: every answer is a slice of the text, every token in a window, nothing is lost."""

import random
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from albert.tasks.answers import best_answers
from albert.tasks.examples import Example, SpanFeatures, span_features, token_span
from albert.tasks.task import Answer
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer
from reliability.confined import Broken, Limits, confined
from reliability.contexts import random_context
from reliability.promises import ANSWERS_ARE_SLICES
from reliability.scene import Scene
from reliability.trial import FAILURES_TOLD, Asked, Outcome, Trial
from reliability.valid_samples import WORDPIECE

AT_A_TIME = 200
QUESTION = "Where was it?"
MAX_LENGTH, QUESTION_LENGTH, STRIDE, ANSWER_TOKENS = 24, 6, 7, 5


def run(asked: Asked) -> Outcome:
    """Ask about contexts, some hundreds at a time, of each tokenizer in turn."""
    tries = _Tries(tokenizers_of(Scene(asked.folder / "scene"), asked.folder), asked.seed, asked.count)
    counts: Counter[str] = Counter()
    failures: list[str] = []
    for verdict in confined(tries.work, tries.batches, Limits(asked.folder, seconds=120.0)):
        asked.report(tries.size(verdict.number))
        if verdict.failure:
            failures.append(f"batch {verdict.number}: {verdict.failure}")
        else:
            counts.update({name: int(n) for name, n in (pair.split("=") for pair in verdict.kind.split())})
    return Outcome(
        tried=asked.count,
        failed=len(failures),
        what=f"random Unicode contexts, read by {len(tries.tokenizers)} tokenizers and cut into windows",
        details=dict(counts),
        failures=tuple(failures[:FAILURES_TOLD]),
    )


def tokenizers_of(scene: Scene, folder: Path) -> list[Tokenizer]:
    """SentencePiece as ALBERT has it, the same with case and accents kept, and WordPiece."""
    (folder / "vocab.txt").write_text(WORDPIECE, encoding="utf-8")
    plain = scene.tokenizer / "spiece.model"
    kept = load_tokenizer(plain, lower_case=False, keep_accents=True)
    return [load_tokenizer(plain), kept, load_tokenizer(folder / "vocab.txt")]


class _Tries:
    """Batches of contexts, each asked about once."""

    def __init__(self, tokenizers: Sequence[Tokenizer], seed: int, count: int) -> None:
        self.tokenizers, self._seed, self._count = tokenizers, seed, count
        self._dropped: list[dict[str, bool]] = [{} for _ in tokenizers]

    @property
    def batches(self) -> int:
        """How many there are."""
        return -(-self._count // AT_A_TIME)

    def size(self, batch: int) -> int:
        """Contexts of a batch."""
        return min(AT_A_TIME, self._count - batch * AT_A_TIME)

    def work(self, batch: int) -> str:
        """One batch; what was counted in it, as words."""
        numbers = random.Random(f"{self._seed}/offsets/{batch}")
        which = batch % len(self.tokenizers)
        tokenizer = self.tokenizers[which]
        examples = [_question(random_context(numbers), numbers) for _ in range(self.size(batch))]
        features = span_features(examples, tokenizer, MAX_LENGTH, QUESTION_LENGTH, STRIDE)
        for number, example in enumerate(examples):
            _check_places(example.texts[1], features.character_spans[number])
            self._check_left_out(example.texts[1], features.character_spans[number], which)
            _check_gold(example, features.character_spans[number])
        _check_windows(examples, features)
        answers = _check_answers(examples, features, numbers)
        tokens = sum(map(len, features.character_spans))
        return f"tokens={tokens} windows={len(features.windows)} answers={answers}"

    def _check_left_out(self, context: str, spans: np.ndarray, which: int) -> None:
        """What no token covers is what the tokenizer drops wherever it stands."""
        covered = np.zeros(len(context) + 1, bool)
        for start, end in spans.tolist():
            covered[start:end] = True
        for place in np.flatnonzero(~covered[:-1]).tolist():
            mark = unicodedata.category(context[place])[0] == "M"
            if not mark and not self._is_dropped(context[place], which):
                raise Broken(f"{context!r}: character {place}, {context[place]!r}, is in no token")

    def _is_dropped(self, character: str, which: int) -> bool:
        known = self._dropped[which]
        if character not in known:
            encode = self.tokenizers[which].encode
            known[character] = encode(f"x{character}y") in (encode("xy"), encode("x y"))
        return known[character]


def _question(context: str, numbers: random.Random) -> Example:
    """A question whose answer is a part of the context."""
    start = numbers.randrange(len(context) + 1)
    gold = context[start : start + numbers.randrange(1, 12)]
    return Example("q", "here", (QUESTION, context), None, (Answer(gold, start),))


def _check_places(context: str, spans: np.ndarray) -> None:
    """Tokens are slices, in their order."""
    starts, ends = spans[:, 0], spans[:, 1]
    if len(spans) and not (starts.min() >= 0 and ends.max() <= len(context) and (starts <= ends).all()):
        raise Broken(f"{context!r}: a token lies outside of it")
    if (np.diff(starts) < 0).any() or (np.diff(ends) < 0).any():
        raise Broken(f"{context!r}: tokens are not in order")


def _check_gold(example: Example, spans: np.ndarray) -> None:
    """From a gold answer to its tokens and back: nothing of it that any token covers is lost."""
    context, gold = example.texts[1], example.answers[0]
    assert gold.start is not None
    end = gold.start + len(gold.text)
    touched = spans[(spans[:, 0] < end) & (spans[:, 1] > gold.start)]
    place = token_span(spans, gold)
    if (place is None) != (len(touched) == 0):
        raise Broken(f"{context!r}: the answer at {gold.start} has tokens, and none are found")
    if place is not None:
        first, last = place
        if spans[first, 0] > touched[:, 0].min() or spans[last, 1] < touched[:, 1].max():
            raise Broken(f"{context!r}: the answer at {gold.start} is cut")


def _check_windows(examples: Sequence[Example], features: SpanFeatures) -> None:
    """Every token stands in a window with its own id, and is judged in exactly one."""
    judged = [np.zeros(len(spans), int) for spans in features.character_spans]
    for number, window in enumerate(features.windows):
        judged[window.example][window.first_token : window.first_token + window.n_tokens] += window.best
        if features.sequences.lengths[number] > MAX_LENGTH:
            raise Broken(f"{examples[window.example].texts[1]!r}: a window is longer than {MAX_LENGTH}")
    for example, counts in zip(examples, judged, strict=True):
        if (counts != 1).any():
            raise Broken(f"{example.texts[1]!r}: a token is outside every window, or judged twice")


def _check_answers(examples: Sequence[Example], features: SpanFeatures, numbers: random.Random) -> int:
    """Whatever a model says, its answers are slices of the contexts; how many there were."""
    draws = np.random.default_rng(numbers.getrandbits(32))
    rows = [draws.standard_normal((int(length), 2)) for length in features.sequences.lengths]
    found = best_answers(examples, features, rows, ANSWER_TOKENS, n_best=3, may_be_absent=numbers.random() < 0.5)
    for example, spans, answers in zip(examples, features.character_spans, found, strict=True):
        context = example.texts[1]
        if bool(answers.candidates) != bool(len(spans)):
            raise Broken(f"{context!r}: {len(spans)} tokens and {len(answers.candidates)} answers")
        for candidate in answers.candidates:
            if candidate.text != context[candidate.start : candidate.end]:
                raise Broken(f"{context!r}: {candidate.text!r} is not what stands at {candidate.start}")
    return sum(len(answers.candidates) for answers in found)


TRIAL = Trial("offsets", ANSWERS_ARE_SLICES, {"quick": 600, "full": 1_000_000, "soak": 10_000_000}, run)
