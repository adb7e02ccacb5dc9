"""RACE: its files, and sequences of questions with options."""

import gzip
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal

from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput
from albert.tasks.examples import Example
from albert.tasks.multiple_choice import MultipleChoice, join_option
from albert.tasks.pipeline import Lengths
from albert.tasks.submission import DECLARED

RACE = DECLARED["race"]


def passage(name, **changes):
    return {
        "id": name,
        "article": "Old sailors sang of storms.",
        "questions": ["Who sang?", "They sang of _ ."],
        "options": [["sailors", "captains", "doctors", "letters"], ["ships", "storms", "islands", "windows"]],
        "answers": ["A", "B"],
    } | changes


def write(folder, passages):
    folder.mkdir(parents=True)
    for content in passages:
        (folder / content["id"]).write_text(json.dumps(content) + "\n\n")


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "RACE/dev/middle", [passage("middle2.txt"), passage("middle1.txt")])
    write(tmp_path / "RACE/dev/high", [passage("high7.txt")])
    return tmp_path


@pytest.mark.parametrize("inside", [False, True])
def test_published_folders_are_read(folder, inside):
    rows = RACE.source.read(folder / "RACE" if inside else folder, "dev")
    examples = RACE.examples(rows.rows)
    assert [example.identifier for example in examples][:3] == ["middle1.txt-0", "middle1.txt-1", "middle2.txt-0"]
    assert [example.group for example in examples] == ["middle"] * 4 + ["high"] * 2
    assert examples[1].texts == ("They sang of _ .", "Old sailors sang of storms.")
    assert examples[1].options == ("ships", "storms", "islands", "windows")
    assert [example.target for example in examples] == [0, 1] * 3
    assert rows.counts == {"rows": 6, "passages": 3}
    assert len(DECLARED["race-high"].source.read(folder, "dev").rows) == 2


def test_merged_files_are_read_and_questions_of_another_level_left_out_and_counted(folder, tmp_path):
    (folder / "RACE/dev/high/all.txt").write_text(json.dumps(passage("high7.txt")) + "\n")
    assert len(RACE.source.read(folder, "dev").rows) == 6
    packed = tmp_path / "mine.jsonl.gz"
    lines = "\n".join(json.dumps(passage(name)) for name in ("high9.txt", "middle1.txt", "own.txt"))
    packed.write_bytes(gzip.compress(lines.encode(), mtime=0))
    rows = DECLARED["race-high"].source.with_files({"train": packed}).read(tmp_path, "train")
    assert [row.identifier for row in rows.rows[::2]] == ["high9.txt-0", "own.txt-0"]
    assert rows.counts == {"rows": 4, "passages": 3, "questions_of_another_level": 2}


def test_missing_folders_and_splits_are_refused(folder):
    with refusal(MissingInput, "train", "RACE/train"):
        RACE.source.read(folder, "train")
    with refusal(InvalidConfiguration, "validation"):
        RACE.source.read(folder, "validation")


@pytest.mark.parametrize(
    ("changes", "subjects"),
    [
        ({"answers": ["A"]}, "2 questions 1 answers"),
        ({"options": [["a", "b", "c"], ["a", "b", "c", "d"]]}, "question 0 4"),
        ({"options": [["a", "b", "c", 4], ["a", "b", "c", "d"]]}, "question 0 D"),
        ({"article": None}, "'article'"),
        ({"questions": "Who?"}, "'questions' list"),
        ({"answers": ["A", "E"]}, "'E' 'answer'"),
        ({"article": "\ud800"}, "surrogate"),
    ],
)
def test_damaged_passages_are_refused(tmp_path, changes, subjects):
    write(tmp_path / "dev/high", [passage("high1.txt", **changes)])
    with refusal(DamagedData, *subjects.split()) as error:
        RACE.examples(DECLARED["race-high"].source.read(tmp_path, "dev").rows)
    assert "high1.txt:1" in str(error.value)


def test_duplicate_passages_and_broken_lines_are_refused(tmp_path):
    file, line = tmp_path / "mine.jsonl", json.dumps(passage("high1.txt"))
    for content, subjects in (
        (f"{line}\n{line}", "mine.jsonl:2 'high1.txt'"),
        ("[]", "object"),
        ("{", "JSON"),
        ("\n", "question"),
        ('{"id": "a", "id": "b"}', "'id' twice"),
    ):
        file.write_text(content)
        with refusal((DamagedData, MissingInput), *subjects.split()):
            RACE.source.with_files({"dev": file}).read(tmp_path, "dev")


def encoded(examples, tokenizer, max_length, question_length):
    return MultipleChoice((), "").encode(examples, tokenizer, Lengths(max_length, question_length, 0))


def test_sequence_is_passage_and_question_with_option(tokenizer):
    question = Example("q", "file:1", ("who sang", "old sailors sang"), 1, options=("sailors", "storms"))
    features = encoded([question], tokenizer, 64, 16)
    assert (features.n_options, features.targets.tolist(), set(features.counts.values())) == ([2], [1], {0})
    assert (features.example_of.tolist(), features.slot_of.tolist()) == ([0, 0], [0, 1])
    ids, first = tokenizer.encode("old sailors sang"), tokenizer.encode("who sang storms")
    assert features.sequences.token_ids(1).tolist() == [
        tokenizer.cls_id, *ids, tokenizer.sep_id, *first, tokenizer.sep_id
    ]  # fmt: skip


@given(n_passage=st.integers(0, 60), n_question=st.integers(0, 30), room=st.integers(1, 20), kept=st.integers(1, 12))
def test_passage_is_cut_at_its_end_and_question_at_its_start(n_passage, n_question, room, kept, tokenizer):
    passage_ids, question_ids = list(range(100, 100 + n_passage)), list(range(200, 200 + n_question))
    length = room + kept + 3
    ids, first, passage_cut, question_cut = join_option(passage_ids, question_ids, tokenizer, length, kept)
    assert len(ids) <= length
    assert ids[1 : first - 1] == passage_ids[: n_passage - passage_cut]
    assert ids[first:-1] == question_ids[question_cut:]
    assert question_cut == max(0, n_question - kept)
    assert passage_cut == 0 or len(ids) == length


def test_truncation_is_counted_by_question(tokenizer):
    long = "old sailors sang of storms " * 9
    examples = [
        Example("a", "file:1", ("who sang", long), 0, options=("sailors", "storms")),
        Example("b", "file:1", ("who sang", "old sailors"), 0, options=(long, "storms")),
    ]
    counts = encoded(examples, tokenizer, 40, 12).counts
    assert (counts["passages_truncated"], counts["questions_truncated"]) == (1, 1)
    assert counts["tokens_cut"] > 0
    with refusal(InvalidConfiguration):
        encoded(examples, tokenizer, 15, 12)
    fewer = [examples[0], replace(examples[1], options=("one",))]
    assert len(encoded(fewer, tokenizer, 40, 12).sequences) == 3
