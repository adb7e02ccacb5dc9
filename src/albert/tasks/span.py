"""Question answering: the answer to a question is a part of its context, or absent.

Long contexts are cut into overlapping windows, `[CLS] question [SEP] context piece [SEP]`. A span starts in the window
where its first token has most context (Devlin et al. 2019), ends in the same window and has a maximal number of tokens.
With independent logits its score is the sum of both, unnormalised, so that windows can be compared, and "no answer" is
start and end at [CLS]. With a joint head (`JointSpanHead` in `albert.model.albert`) the score is the logarithm of
p(start) p(end | start), and "no answer" has a separate logit."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, ClassVar, Literal

import numpy as np

from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.runtime.progress import progress
from albert.runtime.random_streams import stream
from albert.tables.table import Answer, Row
from albert.tasks.answers import (
    NullThreshold,
    OpenAnswer,
    choose_threshold,
    never_answered,
    normalize_answer,
    saved_threshold,
)
from albert.tasks.error_analysis import calibration, most_confident, text_of
from albert.tasks.examples import Example, Features, Sequences, best_windows, cut_windows, join_sequences
from albert.tasks.inputs import Inputs, PairEncoding
from albert.tasks.recipe import TaskRecipe
from albert.tasks.task import Predictions, Task, object_file
from albert.text.tokenizer import Tokenizer

COUNTED = (
    "windows",
    "windows_without_answer",
    "questions_truncated",
    "contexts_in_several_windows",
    "answers_not_aligned",
)


NO_CANDIDATE_SCORE = 1e30
"""The no-answer score of a context without tokens."""
SHOWN_ANSWERS = 5
OWN_THRESHOLDS = NullThreshold(0.0, "nothing: each model's own was subtracted before the mean")

HELD_OUT_SHARE = 0.05
"""Of the questions, to choose the threshold on; the reference chooses it on the questions that it then reports."""

SpanHeadKind = Literal["joint", "independent"]
"""joint: the end given the start, and a separate no-answer logit (the paper's SQuAD 2.0 models); independent: start and
end logits, both at [CLS] for no answer (question answering in transformers)."""


@dataclass(frozen=True)
class Span(Task):
    """A part of the context; `may_be_absent` if a question may have no answer."""

    may_be_absent: bool = False
    max_answer_tokens: int = 30
    head: SpanHeadKind = "independent"

    kind: ClassVar[str] = "question-answering"
    loss_name: ClassVar[str] = "span"
    per_sequence: ClassVar[bool] = False
    may_be_unlabelled: ClassVar[bool] = True
    is_linear: ClassVar[bool] = False

    # ---- From a row to an example -----------------------------------------------------------------------------------

    @property
    def gold_column(self) -> None:
        """Gold answers are `Row.answers`."""
        return None

    def is_labelled(self, rows: Iterable[Row]) -> bool:
        return any(row.answers is not None for row in rows)

    def gold(self, row: Row, texts: Sequence[str]) -> None:
        """Gold answers are those of the example."""
        return None

    def example(self, row: Row, inputs: Inputs, labelled: bool = True) -> Example:
        """Question, context and gold answers."""
        texts = inputs.texts(row)
        if labelled and row.answers is None:
            remedy = "expected the SQuAD JSON layout, or the column --answer of your own table"
            raise DamagedData(row.where, "has no 'answers'", remedy)
        return Example(row.identifier, row.where, texts, answers=row.answers or (), group=row.group)

    def refuse_empty(self, row: Row) -> None:
        """A question without an answer is not an error here."""

    # ---- From examples to token ids ---------------------------------------------------------------------------------

    def features(self, examples: Sequence[Example], tokenizer: Tokenizer, recipe: TaskRecipe) -> "SpanFeatures":
        """The windows of every example."""
        return span_features(examples, tokenizer, recipe.max_length, recipe.question_length, recipe.stride)

    def training_part(
        self, examples: Sequence[Example], features: Features, title: str
    ) -> tuple[Sequences, np.ndarray]:
        """The windows to train on.

        If every question has an answer: the windows that contain it. If answers may be absent: all windows, with [CLS]
        as the target of those without an answer, except windows of a question whose answer is in none of them.
        """
        assert isinstance(features, SpanFeatures)
        has_answer = features.targets[:, 0] >= 0
        if not has_answer.any():
            raise InvalidConfiguration(title, "no window of the training set holds an answer")
        if self.may_be_absent:
            of_example = np.array([window.example for window in features.windows])
            usable = np.array([not example.answers for example in examples])
            usable[of_example[has_answer]] = True
            windows = np.flatnonzero(usable[of_example])
        else:
            windows = np.flatnonzero(has_answer)
        return features.sequences.select(windows), np.maximum(features.targets[windows], 0)

    # ---- The head and its loss --------------------------------------------------------------------------------------

    def model_kind(self, pairs: PairEncoding = "together") -> Any:
        return "joint_question_answering" if self.head == "joint" else "question_answering"

    def model_kind_of(self, saved: str) -> Any:
        """Either head, as the model has it."""
        return saved if saved in ("question_answering", "joint_question_answering") else self.model_kind()

    @property
    def term(self) -> str:
        return "joint_span" if self.head == "joint" else self.loss_name

    def head_inputs(self, batch: Any) -> tuple[Any, ...]:
        """A joint head needs the start of the answer while training."""
        return (batch.packed.first_positions + batch.targets[:, 0],) if self.head == "joint" else ()

    def loss(self, output: Any, batch: Any) -> tuple[Any, Any]:
        """The mean of the cross entropies of start and end over the tokens of their own sequence.

        A window without an answer points at its [CLS]. A joint head adds half the cross entropy of "no answer", as the
        reference does.

        Args:
            output: start and end logits, Tensors [tokens]; or a `SpanFromStart` of a joint head.
        """
        import torch
        from torch.nn import functional

        joint = self.head == "joint"
        starts, ends = (output.starts, output.ends) if joint else (output[0].float(), output[1].float())
        lengths = batch.packed.lengths
        loss = torch.zeros((), device=starts.device)
        right = torch.ones(len(lengths), dtype=torch.bool, device=starts.device)
        for logits, positions in zip((starts, ends), batch.targets.T, strict=True):
            gold = logits[batch.packed.first_positions + positions]
            pieces = logits.split(lengths)
            loss = loss + (torch.stack([piece.logsumexp(0) for piece in pieces]) - gold).sum()
            right &= gold.detach() >= torch.stack([piece.detach().max() for piece in pieces])
        loss = loss / 2
        if joint:
            absent = batch.targets[:, 0] == 0
            logits = output.unanswerable
            decision = functional.binary_cross_entropy_with_logits(logits.float(), absent.float(), reduction="sum")
            right &= (logits > 0) == absent
            loss = loss + decision / 2
        return loss, right.sum()

    # ---- From outputs to predictions and scores ---------------------------------------------------------------------

    def decode(
        self, outputs: Sequence[Any], examples: Sequence[Example], features: Features, columns: Sequence[int] | None
    ) -> "list[Answers]":
        """The best answers of every example."""
        assert isinstance(features, SpanFeatures)
        return best_answers(examples, features, outputs, self.max_answer_tokens, may_be_absent=self.may_be_absent)

    def saved_threshold(self, config: Mapping[str, Any], model: str, value: float | None = None) -> NullThreshold:
        return saved_threshold(config, model)

    def predictions(
        self, examples: Sequence[Example], features: Features, decoded: "list[Answers]", threshold: Any
    ) -> tuple[Predictions, NullThreshold | None]:
        """The best spans; no answer by the threshold, if a question may have none.

        Without a threshold it is chosen on these questions.
        """
        open_answers = None
        if not self.may_be_absent:
            threshold = None
        else:
            if not isinstance(threshold, NullThreshold):
                threshold = best_null_threshold(examples, decoded, "the very questions that are scored")
            open_answers = decide(decoded, threshold)
        texts = []
        entries = []
        for index, (example, answer) in enumerate(zip(examples, decoded, strict=True)):
            best = answer.candidates[0] if answer.candidates else None
            texts.append("" if best is None else best.text)
            entry: dict[str, Any] = {"id": example.identifier, "prediction": texts[-1]}
            entry["gold"] = [gold.text for gold in example.answers]
            if best is not None:
                entry |= {"start": best.start, "end": best.end, "score": best.score}
            if open_answers is not None:
                entry["prediction"] = texts[-1] if open_answers[index].answered else ""
                entry["no_answer"] = answer.no_answer
                entry["no_answer_probability"] = answer.no_answer_probability
            entry["best"] = [
                {"answer": span.text, "start": span.start, "end": span.end, "probability": span.probability}
                for span in answer.candidates[:SHOWN_ANSWERS]
            ]
            entries.append(entry)
        gold = [tuple(answer.text for answer in example.answers) for example in examples]
        return Predictions(gold, texts if open_answers is None else open_answers, entries), threshold

    def hold_out(self, examples: Sequence[Example], seed: int) -> tuple[list[Example], list[Example]]:
        return hold_out_questions(examples, seed)

    def best_threshold(
        self, examples: Sequence[Example], features: Features, decoded: "list[Answers]"
    ) -> NullThreshold:
        about = f"{len(examples):,} questions held out of the training set"
        return best_null_threshold(examples, decoded, about)

    def average(self, models: Sequence[tuple[Any, Any]]) -> "tuple[list[Answers], NullThreshold]":
        return average_answers(models), OWN_THRESHOLDS

    def constants(self, gold: Any) -> Iterator[Any]:
        """No answer; where every question has one, the answer that is right for most, the first of equals."""
        counts = Counter(normal for answers in gold for normal in dict.fromkeys(map(normalize_answer, answers)))
        most_frequent = max(counts, key=lambda normal: counts[normal], default="")
        yield never_answered(gold) if self.may_be_absent else [most_frequent] * len(gold)

    def analysis(self, examples: Sequence[Example], predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """An answer is right if it equals a gold one, as SQuAD compares; there are no classes."""
        confidence = []
        right = []
        errors = []
        for example, entry in zip(examples, predictions, strict=True):
            gold = {normalize_answer(answer) for answer in entry["gold"]} or {normalize_answer("")}
            right.append(normalize_answer(entry["prediction"]) in gold)
            if not entry["prediction"] and "no_answer_probability" in entry:
                confidence.append(entry["no_answer_probability"])
            else:
                confidence.append(entry["best"][0]["probability"] if entry["best"] else 0.0)
            if right[-1]:
                continue
            error = {
                "id": example.identifier,
                "text": text_of(example),
                "gold": list(dict.fromkeys(entry["gold"])),
                "predicted": entry["prediction"],
                "probability": float(confidence[-1]),
            }
            errors.append(error)
        return {
            "per_class": None,
            "confusion": None,
            "errors": most_confident(errors),
            "calibration": calibration(np.array(confidence), np.array(right, np.bool_)),
        }

    def submission_files(self, name: str, entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """An object of question to text, "" for no answer; if there may be none, also its probability.

        The official script takes the probabilities as `--na-prob-file`; they are never above its threshold of 1, so
        they change no decision.
        """
        files = {f"{name}.json": object_file(entries, "prediction")}
        if self.may_be_absent:
            files[f"{name}-null-odds.json"] = object_file(entries, "no_answer_probability")
        return files


def hold_out_questions(examples: Sequence[Example], seed: int) -> tuple[list[Example], list[Example]]:
    """Split off a twentieth of the examples, by whole contexts, to choose the threshold on.

    More are held out until there are questions with and without an answer.
    """
    by_context: dict[str, list[Example]] = {}
    for example in examples:
        by_context.setdefault(example.texts[1], []).append(example)
    contexts = list(by_context)
    held: set[str] = set()
    kinds: set[bool] = set()
    questions = 0
    for index in stream("finetuning.held_out", seed).permutation(len(contexts)).tolist():
        held.add(contexts[index])
        questions += len(by_context[contexts[index]])
        kinds |= {bool(example.answers) for example in by_context[contexts[index]]}
        if questions >= HELD_OUT_SHARE * len(examples) and len(kinds) == 2:
            break
    train = [example for example in examples if example.texts[1] not in held]
    remedy = "give more data, or --null-threshold dev"
    if len(kinds) < 2:
        why = f"{'every question has an answer' if True in kinds else 'no question has an answer'} in the training set"
        raise InvalidConfiguration("null threshold", why, remedy)
    if not train:
        raise InvalidConfiguration("null threshold", "too few contexts to hold some out of training for it", remedy)
    return train, [example for example in examples if example.texts[1] in held]


# --------------------------------------------------------------------------------------------------------------------
# Questions and contexts to windows: long contexts are cut into overlapping pieces of at most `max_length` tokens. A
# token in several windows is predicted from the one with the most context around it.


@dataclass(frozen=True)
class Window:
    """The part of a context in one sequence.

    Attributes:
        example: index of the example.
        offset: position in the sequence of the context token `first_token`, the first of `n_tokens`.
        best: bool [n_tokens], the tokens that have their most context in this window.
    """

    example: int
    offset: int
    first_token: int
    n_tokens: int
    best: np.ndarray


@dataclass(frozen=True, kw_only=True)
class SpanFeatures(Features):
    """Windows of all examples in order.

    `character_spans[example]` (int [context tokens, 2]) are start and end of the tokens in the context. `targets`
    (int64 [windows, 2]) are first and last position of the answer in the sequence, -1 if it is not in the window.
    """

    windows: list[Window]
    character_spans: list[np.ndarray]


def span_features(
    examples: Sequence[Example], tokenizer: Tokenizer, max_length: int, question_length: int, stride: int
) -> SpanFeatures:
    """The windows of every example; the target is the first gold answer."""
    special = 2 + tokenizer.separators
    room = max_length - question_length - special
    if room < stride:
        raise InvalidConfiguration(
            "stride",
            f"{stride} exceeds the {room} context tokens that fit beside a question of {question_length}",
            "use a smaller stride or question length, or a larger maximum length",
        )
    counts: dict[str, int] = dict.fromkeys(COUNTED, 0)
    encode = lru_cache(maxsize=1)(tokenizer.encode_with_offsets)  # questions on the same context are consecutive
    parts = []
    windows = []
    spans = []
    targets = []
    with progress("Encoding", total=len(examples), unit="questions") as bar:
        for index, example in enumerate(examples):
            question, context = example.texts
            question_ids = tokenizer.encode(question)
            counts["questions_truncated"] += len(question_ids) > question_length
            question_ids = question_ids[:question_length]
            context_ids, offsets = encode(context)
            context_spans = np.asarray(offsets, np.int64).reshape(-1, 2)
            answer = token_span(context_spans, example.answers[0]) if example.answers else None
            counts["answers_not_aligned"] += bool(example.answers) and answer is None
            pieces = cut_windows(len(context_ids), max_length - len(question_ids) - special, stride)
            counts["contexts_in_several_windows"] += len(pieces) > 1
            offset = len(question_ids) + 1 + tokenizer.separators
            for (start, stop), best in zip(pieces, best_windows(pieces, len(context_ids)), strict=True):
                first = [tokenizer.cls_id, *question_ids, *[tokenizer.sep_id] * tokenizer.separators]
                parts.append(([*first, *context_ids[start:stop], tokenizer.sep_id], offset))
                windows.append(Window(index, offset, start, stop - start, best))
                inside = answer is not None and start <= answer[0] and answer[1] < stop
                target = (answer[0] - start + offset, answer[1] - start + offset) if answer and inside else (-1, -1)
                counts["windows_without_answer"] += not inside
                targets.append(target)
            spans.append(context_spans)
            bar.advance()
    counts["windows"] = len(windows)
    positions = np.asarray(targets, np.int64).reshape(-1, 2)
    return SpanFeatures(join_sequences(parts), positions, counts, windows=windows, character_spans=spans)


def token_span(character_spans: np.ndarray, answer: Answer) -> tuple[int, int] | None:
    """First and last token that overlap the answer; None if its position is unknown or has no token."""
    if answer.start is None:
        return None
    end = answer.start + len(answer.text)
    tokens = np.flatnonzero((character_spans[:, 0] < end) & (character_spans[:, 1] > answer.start))
    return (int(tokens[0]), int(tokens[-1])) if len(tokens) else None


# --------------------------------------------------------------------------------------------------------------------
# From the outputs for the windows to answers.


@dataclass(frozen=True)
class Candidate:
    """A possible answer: characters `start`..`end` of the context, with score and probability."""

    text: str
    start: int
    end: int
    score: float
    probability: float


@dataclass(frozen=True)
class Answers:
    """The possible answers to one question.

    Attributes:
        candidates: best first; empty only for a context without tokens.
        no_answer: the no-answer score, larger is less answerable; None if every question has an answer.
        no_answer_probability: sums to 1 with the probabilities of all spans, not only the candidates.
    """

    candidates: list[Candidate]
    no_answer: float | None
    no_answer_probability: float


def best_answers(
    examples: Sequence[Example],
    features: SpanFeatures,
    rows: Sequence[Any],
    max_answer_tokens: int = 30,
    n_best: int = 20,
    may_be_absent: bool = False,
) -> list[Answers]:
    """The best answers of every example.

    Args:
        rows: output of the model for each window: [length, 2] logits of start and end, or a `SpanBeamRow` of a joint
            head (`albert.model.albert`).
    """
    windows: list[list[tuple[Window, Any]]] = [[] for _ in examples]
    for window, row in zip(features.windows, rows, strict=True):
        windows[window.example].append((window, row))
    answers = []
    for example, character_spans, own in zip(examples, features.character_spans, windows, strict=True):
        spans = zip(*(_spans_of(window, row, max_answer_tokens) for window, row in own), strict=True)
        first, last, score, best = map(np.concatenate, spans)
        if best.any():  # otherwise the beam of a joint head has no token with most context, and all spans count
            first = first[best]
            last = last[best]
            score = score[best]
        log_total = float(np.logaddexp.reduce(score)) if len(score) else -np.inf
        highest = float(score.max(initial=-np.inf))
        no_answer: float | None = None
        log_none = -np.inf
        if may_be_absent:
            no_answer, log_none = _no_answer([row for _, row in own], highest, log_total)
        log_all = float(np.logaddexp(log_total, log_none))
        spans = np.stack([character_spans[first, 0], character_spans[last, 1]], axis=1)
        candidates = _candidates(spans, score, example.texts[1], log_all, n_best)
        none = float(np.exp(log_none - log_all)) if candidates else 1.0
        answers.append(Answers(candidates, no_answer, none))
    return answers


def _spans_of(window: Window, row: Any, max_tokens: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Spans of a window: first token, last token, score, and whether the first token has its most context there."""
    context = slice(window.offset, window.offset + window.n_tokens)
    if isinstance(row, np.ndarray):
        first = np.arange(window.n_tokens)
        starts, ends = row[context].astype(np.float64).T
        end_scores = _end_windows(ends[None], max_tokens)[0]
    else:
        positions, columns = np.unique(row.beam, return_index=True)
        beam = positions - window.offset
        inside = (beam >= 0) & (beam < window.n_tokens)
        first = beam[inside]
        starts = _log_softmax(row.starts)[context][first]
        ends = np.stack([_log_softmax(column)[context] for column in row.ends.T], axis=0)[columns[inside]]
        end_scores = np.take_along_axis(_end_windows(ends, max_tokens), first[:, None, None], axis=1)[:, 0]
    score = starts[:, None] + end_scores
    last = first[:, None] + np.arange(max_tokens)
    finite = np.isfinite(score)
    first, best = (np.broadcast_to(values[:, None], score.shape)[finite] for values in (first, window.best[first]))
    return first + window.first_token, last[finite] + window.first_token, score[finite], best


def _end_windows(ends: np.ndarray, max_tokens: int) -> np.ndarray:
    """[n, tokens] to [n, tokens, max_tokens]: the ends from each token on, minus infinity after the last."""
    padded = np.concatenate([ends, np.full((len(ends), max_tokens), -np.inf)], axis=1)
    return np.lib.stride_tricks.sliding_window_view(padded, max_tokens, axis=1)[:, : ends.shape[1]]


def _no_answer(rows: Sequence[Any], best: float, log_total: float) -> tuple[float, float]:
    """The no-answer score and the logarithm of its weight relative to the spans, from the window with the smallest."""
    if isinstance(rows[0], np.ndarray):
        at_cls = min(float(row[0, 0]) + float(row[0, 1]) for row in rows)
        return at_cls - best if np.isfinite(best) else NO_CANDIDATE_SCORE, at_cls
    logit = min(float(row.unanswerable) for row in rows)
    return logit, logit + log_total  # the logit of no answer against all spans together


def _candidates(spans: np.ndarray, scores: np.ndarray, context: str, log_all: float, n_best: int) -> list[Candidate]:
    """The best candidates, each span of characters once; a blank piece alone has none."""
    candidates: dict[tuple[int, int], Candidate] = {}
    for index in np.argsort(-scores, kind="stable"):
        start = int(spans[index, 0])
        end = int(spans[index, 1])
        score = float(scores[index])
        if start == end:
            continue
        probability = float(np.exp(score - log_all))
        candidates.setdefault((start, end), Candidate(context[start:end], start, end, score, probability))
        if len(candidates) == n_best:
            break
    return list(candidates.values())


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    return logits - np.logaddexp.reduce(logits)


def decide(answers: Sequence[Answers], threshold: NullThreshold) -> list[OpenAnswer]:
    """The best answers, and by a threshold whether they are given."""
    decided = []
    for answer in answers:
        assert answer.no_answer is not None, "decoded as if every question had an answer"
        text = answer.candidates[0].text if answer.candidates else ""
        decided.append(OpenAnswer(text, answer.no_answer, answered=answer.no_answer <= threshold.value))
    return decided


def best_null_threshold(examples: Sequence[Example], answers: Sequence[Answers], chosen_on: str) -> NullThreshold:
    """The threshold with the best F1 on these questions."""
    gold = [[answer.text for answer in example.answers] for example in examples]
    return NullThreshold(choose_threshold(gold, decide(answers, NullThreshold())), chosen_on)


# --------------------------------------------------------------------------------------------------------------------
# The answers of several models, averaged as in the paper (section 4.9): the mean over the models that proposed a span,
# so that a span of a single confident model may win; and the mean no-answer score over all models.


def average_answers(models: Sequence[tuple[Sequence[Answers], NullThreshold]]) -> list[Answers]:
    """The averaged answers of several models to the same questions, for the threshold `OWN_THRESHOLDS`.

    Each model's threshold is subtracted from its no-answer scores. Probabilities are means over models, scaled so that
    they sum to 1 with the mean no-answer probability.
    """
    averaged = []
    for answers in zip(*(own for own, _ in models), strict=True):
        proposed: dict[tuple[int, int], list[Candidate]] = {}
        for candidate in chain.from_iterable(each.candidates for each in answers):
            proposed.setdefault((candidate.start, candidate.end), []).append(candidate)
        means = {span: float(np.mean([candidate.probability for candidate in own])) for span, own in proposed.items()}
        none = float(np.mean([each.no_answer_probability for each in answers]))
        scale = (1 - none) / (sum(means.values()) or 1.0)
        ranked = sorted(proposed, key=lambda span: (-means[span], -len(proposed[span]), span))
        candidates = [Candidate(proposed[s][0].text, *s, score=means[s], probability=means[s] * scale) for s in ranked]
        scores = [
            each.no_answer - threshold.value
            for each, (_, threshold) in zip(answers, models, strict=True)
            if each.no_answer is not None
        ]
        averaged.append(Answers(candidates, float(np.mean(scores)) if scores else None, none))
    return averaged
