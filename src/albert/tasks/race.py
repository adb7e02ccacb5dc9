"""RACE (Lai et al. 2017), declared in `race.toml`: its files, and token ids of questions with options.

Files are `RACE/{train,dev,test}/{middle,high}/*.txt`, each with one JSON object, or `all.txt` with one object per line
if the files of a folder were merged as in the reference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, did_you_mean
from albert.runtime.progress import progress
from albert.tasks.examples import Example, Features, join_sequences
from albert.tasks.metrics import accuracy
from albert.tasks.task import Option, QuestionInContext, Row, Rows, load_tasks
from albert.text.readers import input_file, read_records
from albert.text.tokenizer import Tokenizer

_OPTIONS = ("A", "B", "C", "D")
_SPLITS = ("train", "dev", "test")
_LEVELS = ("middle", "high")


@dataclass(frozen=True)
class PassageFolders:
    """Folders of passages, one for each split and level, in `DATA/<folder>/` or in DATA itself.

    `files` replaces the folders of a split by a file with one JSON object per line.
    """

    folder: str
    levels: tuple[str, ...]
    files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def splits(self) -> tuple[str, ...]:
        return _SPLITS

    def with_files(self, files: Mapping[str, Path]) -> "PassageFolders":
        return replace(self, files={**self.files, **files})

    def read(self, data: Path, split: str) -> Rows:
        """Every question of a split, level by level, passages by name."""
        if split not in _SPLITS:
            raise InvalidConfiguration(f"split {split}", "unknown", did_you_mean(split, _SPLITS))
        if split in self.files:
            return read_passages([self.files[split]])
        return read_passages([file for level in self.levels for file in self._passages(data, split, level)])

    def _passages(self, data: Path, split: str, level: str) -> list[Path]:
        for folder in (data / self.folder / split / level, data / split / level):
            merged = folder / "all.txt"
            if files := [merged] if merged.is_file() else sorted(folder.glob("*.txt")):
                return files
        expected = f"{data / self.folder / split / level}/*.txt or {data / split / level}/*.txt"
        raise MissingInput(data, f"has no passages in {split}/{level}", f"expected {expected}")


def read_passages(paths: list[Path]) -> Rows:
    """Every question of every passage, identified by its passage and number."""
    rows: list[Row] = []
    passages: dict[str, str] = {}
    for path in paths:
        for record in read_records(input_file(path, "JSON lines")):  # skips blank lines at the end
            name, questions = _questions(record.fields, record.where)
            if name in passages:
                remedy = f"the first is at {passages[name]}"
                raise DamagedData(record.where, f"a second passage is called {name!r}", remedy)
            passages[name] = record.where
            rows += questions
    if not rows:
        raise MissingInput(paths[0], "holds no question")
    return Rows(rows, {"rows": len(rows), "passages": len(passages)})


def _questions(passage: dict[str, Any], where: str) -> tuple[str, list[Row]]:
    name, article = _text(passage.get("id"), "id", where), _text(passage.get("article"), "article", where)
    questions, options, answers = (_list(passage, key, where) for key in ("questions", "options", "answers"))
    if not len(questions) == len(options) == len(answers):
        why = f"has {len(questions)} questions, {len(options)} lists of options and {len(answers)} answers"
        raise DamagedData(where, why)
    level = next((level for level in _LEVELS if name.startswith(level)), str(passage.get("level") or ""))
    rows = []
    for number, (question, own_options, answer) in enumerate(zip(questions, options, answers, strict=True)):
        subject = f"{where}: question {number}"
        if not isinstance(own_options, list) or len(own_options) != len(_OPTIONS):
            raise DamagedData(subject, f"does not have {len(_OPTIONS)} options")
        texts = (_text(option, "option", subject) for option in own_options)
        fields = {"article": article, "question": _text(question, "question", subject)}
        fields |= dict(zip(_OPTIONS, texts, strict=True)) | {"answer": _text(answer, "answer", subject)}
        rows.append(Row(f"{name}-{number}", subject, fields, group=level))
    return name, rows


def _list(passage: dict[str, Any], key: str, where: str) -> list[Any]:
    if not isinstance(passage.get(key), list):
        raise DamagedData(where, f"has no list {key!r}", "expected RACE's layout")
    return passage[key]


def _text(value: Any, what: str, where: str) -> str:
    if not isinstance(value, str):
        raise DamagedData(where, f"{what} is not a text", "expected RACE's layout")
    return value


TASKS = RACE, RACE_MIDDLE, RACE_HIGH = load_tasks(
    "race.toml",
    (accuracy,),
    lambda entry: (
        PassageFolders("RACE", tuple(entry["levels"])),
        QuestionInContext("question", "article"),
        Option(_OPTIONS, "answer"),
    ),
)


# --------------------------------------------------------------------------------------------------------------------
# Questions with options to sequences, one for each option: `[CLS] passage [SEP] question option [SEP]`.
#
# As in the reference (Lai et al. 2017), an option replaces every `_` in the question, or follows it; question and
# option are cut at the start, the passage at its end.


def question_with_option(question: str, option: str) -> str:
    """The question with every blank `_` replaced by the option, or followed by it."""
    return question.replace("_", option) if "_" in question else f"{question} {option}".strip()


def join_option(
    passage: Sequence[int], question: Sequence[int], tokenizer: Tokenizer, max_length: int, question_length: int
) -> tuple[list[int], int, int, int]:
    """One option's sequence.

    Args:
        passage, question: token ids; the question includes the option.

    Returns:
        ids, their number up to the first [SEP], tokens cut from the passage, tokens cut from the question.
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
) -> Features:
    """A sequence for each option of each example; targets are the indices of the right ones.

    `passages_truncated` and `questions_truncated` count questions, `tokens_cut` tokens over all sequences.
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
            if passage != last_passage:  # questions on the same passage are consecutive
                last_passage, passage_ids = passage, tokenizer.encode(passage)
            cuts = []
            for option in example.options:
                ids = tokenizer.encode(question_with_option(question, option))
                ids, first, *cut = join_option(passage_ids, ids, tokenizer, max_length, question_length)
                parts.append((ids, first))
                cuts.append(cut)
            counts["passages_truncated"] += any(passage_cut for passage_cut, _ in cuts)
            counts["questions_truncated"] += any(question_cut for _, question_cut in cuts)
            counts["tokens_cut"] += sum(map(sum, cuts))
            bar.advance()
    targets = np.array([0 if example.target is None else example.target for example in examples], np.int64)
    return Features(join_sequences(parts), targets, counts, n_options)
