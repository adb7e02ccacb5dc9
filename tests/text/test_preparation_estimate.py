"""A plan tells what preparation will find, and writes nothing."""

import json

import pytest

from albert.cli.main import run
from albert.runtime.errors import MissingInput
from albert.text import prepare as preparation_estimate
from albert.text.corpus import find_corpus_files
from albert.text.executors import PreparationSettings
from albert.text.prepare import estimate_preparation, prepare


@pytest.fixture
def folder(documents, tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number in range(6):
        lines = (json.dumps({"text": text}) + "\n" for text in documents[number::6])
        (folder / f"{number}.jsonl").write_text("".join(lines))
    return folder


def test_a_corpus_within_the_sample_is_told_exactly(folder, tokenizer, tmp_path):
    estimate = estimate_preparation(find_corpus_files([folder])[0], tokenizer, PreparationSettings(), 1)
    report = prepare([folder], tokenizer, tmp_path / "data", workers=1)
    assert estimate.files == 6
    assert round(estimate.documents) == report.documents_in
    assert round(estimate.text_bytes) == report.bytes_in
    assert round(estimate.tokens) == sum(counts.tokens for counts in report.splits.values())
    assert round(estimate.sentences) == sum(counts.sentences for counts in report.splits.values())
    written = sum(p.stat().st_size for split in ("train", "held_out") for p in (tmp_path / "data" / split).iterdir())
    assert estimate.output_bytes == pytest.approx(written, rel=0.05)  # the headers of the arrays


def test_a_larger_corpus_is_told_from_its_files_beginnings(folder, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(preparation_estimate, "SAMPLE_BYTES", 60_000)
    estimate = estimate_preparation(find_corpus_files([folder])[0], tokenizer, PreparationSettings(), 1)
    report = prepare([folder], tokenizer, tmp_path / "data", workers=1)
    assert estimate.sample_bytes < report.bytes_in
    assert estimate.tokens == pytest.approx(sum(c.tokens for c in report.splits.values()), rel=0.5)


def test_the_plan_is_a_flag_and_writes_nothing(folder, tokenizer, tmp_path, capsys):
    (tmp_path / "tokenizer").mkdir()
    tokenizer.save(tmp_path / "tokenizer")
    words = [str(folder), "--tokenizer", str(tmp_path / "tokenizer"), "--output", str(tmp_path / "data"), "--plan"]
    assert run(["prepare", *words]) == 0
    printed = capsys.readouterr().out
    assert "nothing is written" in printed
    assert "epochs" in printed
    assert {p.name for p in tmp_path.iterdir()} == {"corpus", "tokenizer"}


def test_a_sample_without_text_is_refused(tokenizer, tmp_path):
    (tmp_path / "a.txt").write_text(" \n")
    with pytest.raises(MissingInput, match="no text"):
        estimate_preparation(find_corpus_files([tmp_path])[0], tokenizer, PreparationSettings(), 1)
