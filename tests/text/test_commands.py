"""`albert tokenizer train` and `albert prepare`, from text to a corpus that opens."""

import json

import pytest

from albert.cli import tokenizer
from albert.cli.data import prepare_main
from albert.runtime.errors import CannotCreate, InvalidConfiguration, UsageError
from albert.text.shards import TokenCorpus
from albert.text.tokenizer_loading import load_tokenizer


@pytest.fixture
def corpus(documents, tmp_path):
    folder = tmp_path / "my corpus"
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    (folder / "b.txt").write_text("")
    return folder


def test_text_becomes_a_vocabulary_and_a_corpus(corpus, tmp_path, capsys):
    words, data = tmp_path / "words", tmp_path / "data [1]"
    assert tokenizer.main(["train", str(corpus), "--output", str(words), "--vocab-size", "300"]) == 0
    said = capsys.readouterr().out
    assert "read 151 documents" in said
    assert "1 documents dropped: empty" in said
    assert f"next: albert prepare '{corpus}' --tokenizer {words}" in said
    options = ["--tokenizer", str(words), "--output", str(data), "--held-out", "0.2", "--workers", "1"]
    assert prepare_main([str(corpus), *options]) == 0
    said = capsys.readouterr().out
    assert "151" in said
    assert "1 documents dropped: empty" in said
    assert "data [1] is ready" in said
    opened = TokenCorpus.open(data, "held_out")
    assert opened.tokenizer_fingerprint == load_tokenizer(words).fingerprint


def test_an_existing_output_is_refused_before_any_work(corpus, tmp_path):
    with pytest.raises(CannotCreate):
        tokenizer.main(["train", str(corpus), "--output", str(tmp_path)])


def test_a_refused_vocabulary_leaves_nothing_behind(corpus, tmp_path):
    with pytest.raises(InvalidConfiguration, match="at most"):
        tokenizer.main(["train", str(corpus), "--output", str(tmp_path / "words")])
    assert [path.name for path in tmp_path.iterdir()] == ["my corpus"]


@pytest.mark.parametrize("arguments", [["trian"], ["train", "--vocab-szie", "3"], ["train", "x"]])
def test_what_is_not_understood_is_said_in_one_line(arguments):
    with pytest.raises(UsageError) as error:
        tokenizer.main(arguments)
    assert "\n" not in str(error.value)


def test_help_ends_with_an_example(capsys):
    assert tokenizer.main(["--help"]) == 0
    assert "albert tokenizer train corpus" in capsys.readouterr().out
    for main, arguments in ((tokenizer.main, ["train", "--help"]), (prepare_main, ["--help"])):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 0
        assert "Example:\n  albert" in capsys.readouterr().out
