"""RACE (Lai et al. 2017), declared in `race.toml`: its files, and token ids of questions with options.

Files are `RACE/{train,dev,test}/{middle,high}/*.txt`, each with one JSON object, or `all.txt` with one object per line
if the files of a folder were merged as in the reference."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput
from albert.runtime.progress import progress
from albert.tasks.examples import Example, Features, SplitFiles, join_sequences, json_entry
from albert.tasks.metrics import accuracy
from albert.tasks.task import Option, QuestionInContext, Row, Rows, load_tasks
from albert.text.readers import input_file, read_records
from albert.text.tokenizer import Tokenizer

_OPTIONS = ("A", "B", "C", "D")
_LEVELS = ("middle", "high")


def read_passages(path: Path, split: str, levels: Sequence[str]) -> Rows:
    """Every question of a split, level by level, passages by name; identified by its passage and number. Of a file,
    questions of another level are left out and counted.

    Args:
        path: the folder of the split, or a file with one JSON object per line.
    """
    files = [path] if path.is_file() else [file for level in levels for file in _files_of_level(path / level)]
    rows: list[Row] = []
    passages: dict[str, str] = {}
    left_out: Counter[str] = Counter()
    for file in files:
        for record in read_records(input_file(file, "JSON lines")):  # skips blank lines at the end
            name, questions = _questions(record.fields, record.where)
            if name in passages:
                remedy = f"the first is at {passages[name]}"
                raise DamagedData(record.where, f"a second passage is called {name!r}", remedy)
            passages[name] = record.where
            wanted = [row for row in questions if row.group in levels or row.group not in _LEVELS]
            rows += wanted
            left_out["questions_of_another_level"] += len(questions) - len(wanted)
    if not rows:
        raise MissingInput(path, f"holds no question of level {' or '.join(levels)}")
    return Rows(rows, {"rows": len(rows), "passages": len(passages), **+left_out})


def _files_of_level(folder: Path) -> list[Path]:
    merged = folder / "all.txt"
    files = [merged] if merged.is_file() else sorted(folder.glob("*.txt"))
    if not files:
        raise MissingInput(folder, "has no passages", "expected a file *.txt for each")
    return files


def _questions(passage: dict[str, Any], where: str) -> tuple[str, list[Row]]:
    def get(key: str, kind: type) -> Any:
        return json_entry(passage, key, kind, where, "RACE")

    name = get("id", str)
    article = get("article", str)
    lists = [get(key, list) for key in ("questions", "options", "answers")]
    if len({len(each) for each in lists}) > 1:
        raise DamagedData(where, "has {} questions, {} lists of options and {} answers".format(*map(len, lists)))
    level = next((level for level in _LEVELS if name.startswith(level)), str(passage.get("level") or ""))
    rows = []
    for number, (question, options, answer) in enumerate(zip(*lists, strict=True)):
        subject = f"{where}: question {number}"
        if not isinstance(options, list) or len(options) != len(_OPTIONS):
            raise DamagedData(subject, f"does not have {len(_OPTIONS)} options")
        fields = {"article": article, "question": question, "answer": answer}
        fields |= zip(_OPTIONS, options, strict=True)
        if wrong := [key for key, value in fields.items() if not isinstance(value, str)]:
            raise DamagedData(subject, f"{wrong[0]} is not a text", "expected RACE's JSON layout")
        rows.append(Row(f"{name}-{number}", subject, fields, group=level))
    return name, rows


TASKS = RACE, RACE_MIDDLE, RACE_HIGH = load_tasks(
    "race.toml",
    (accuracy,),
    lambda entry: (
        SplitFiles(
            "RACE", {split: split for split in ("train", "dev", "test")}, partial(read_passages, levels=entry["levels"])
        ),
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
        ids, their number up to the second text, tokens cut from the passage, tokens cut from the question.
    """
    special = 2 + tokenizer.separators
    room = max_length - question_length - special
    if room < 1:
        why = f"{max_length} leaves no room for a passage beside {question_length} tokens of question and option"
        raise InvalidConfiguration("max_length", why, "use a larger value, or a smaller question length")
    kept_question = question[-question_length:]
    kept_passage = passage[: max_length - special - len(kept_question)]
    between = [tokenizer.sep_id] * tokenizer.separators
    ids = [tokenizer.cls_id, *kept_passage, *between, *kept_question, tokenizer.sep_id]
    cut = (len(passage) - len(kept_passage), len(question) - len(kept_question))
    return ids, len(kept_passage) + 1 + len(between), *cut


def option_features(
    examples: Sequence[Example], tokenizer: Tokenizer, max_length: int, question_length: int
) -> Features:
    """A sequence for each option of each example; targets are the indices of the right ones. Empty options are absent.

    `passages_truncated` and `questions_truncated` count questions, `tokens_cut` tokens over all sequences.
    """
    n_options = max((len(example.options) for example in examples), default=1)
    present = np.zeros((len(examples), n_options), np.bool_)
    counts: dict[str, int] = dict.fromkeys(("passages_truncated", "questions_truncated", "tokens_cut"), 0)
    parts: list[tuple[list[int], int]] = []
    encode = lru_cache(maxsize=1)(tokenizer.encode)  # questions on the same passage are consecutive
    with progress("Encoding", total=len(examples), unit="questions") as bar:
        for number, example in enumerate(examples):
            question, passage = example.texts
            texts = [option for option in example.options if option]
            present[number, : len(example.options)] = [bool(option) for option in example.options]
            options = [tokenizer.encode(question_with_option(question, option)) for option in texts]
            joined = [join_option(encode(passage), ids, tokenizer, max_length, question_length) for ids in options]
            parts += [(ids, first) for ids, first, _, _ in joined]
            counts["passages_truncated"] += any(cut for _, _, cut, _ in joined)
            counts["questions_truncated"] += any(cut for _, _, _, cut in joined)
            counts["tokens_cut"] += sum(sum(cuts) for _, _, *cuts in joined)
            bar.advance()
    targets = np.array([0 if example.target is None else example.target for example in examples], np.int64)
    if present.all():
        return Features(join_sequences(parts), targets, counts, n_options)
    return Features(join_sequences(parts), targets, counts, options=present)
