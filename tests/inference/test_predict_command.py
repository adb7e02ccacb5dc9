"""`albert predict` answers what it is asked, line by line, and leaves no half of an output behind."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from albert.cli import main as table
from albert.cli.commands import predict_main as main
from albert.inference.predictor import Predictor
from albert.model.albert import (
    AlbertForMultipleChoice,
    AlbertForPreTraining,
    AlbertForQuestionAnswering,
    AlbertForTokenClassification,
)
from albert.model.config import AlbertConfig
from albert.runtime.errors import InvalidConfiguration, UsageError

Save = Callable[..., Path]


def test_a_mask_is_filled(saved: Save, config: AlbertConfig, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(saved(AlbertForPreTraining(config)))
    assert main([path, "--fill-mask", "The [MASK] sat.", "--top-k", "3"]) == 0
    shown = capsys.readouterr().out
    assert "sequence" in shown and shown.count("sat.") == 3
    main([path, "--fill-mask", "The [MASK] sat on [MASK].", "--top-k", "2", "--json"])
    masks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(mask) for mask in masks] == [2, 2]
    assert masks[0][0].keys() == {"score", "token", "token_str", "sequence"}


def test_an_order_is_judged(saved: Save, config: AlbertConfig, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(saved(AlbertForPreTraining(config)))
    main([path, "--order", "He came.", "He saw.", "--json"])
    prediction = json.loads(capsys.readouterr().out)
    assert prediction["label"] in ("in order", "swapped")
    main([path, "--order", "He came.", "He saw."])
    assert prediction["label"] in capsys.readouterr().out


def test_a_text_is_classified_and_labels_are_shown_as_they_are(
    classifier: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main([classifier, "--classify", "He came.", "--pair", "He saw."])
    shown = capsys.readouterr().out
    assert "dull" in shown and "[bold]" in shown


def test_a_question_is_answered(saved: Save, config: AlbertConfig, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(saved(AlbertForQuestionAnswering(config)))
    context = "The letter was written by Ada."
    main([path, "--question", "Who wrote it?", "--context", context, "--top-k", "2", "--json"])
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(answers) == 2
    for answer in answers:
        assert answer["answer"] == context[answer["start"] : answer["end"]]
    main([path, "--question", "Who wrote it?", "--context", context, "--top-k", "1"])
    assert answers[0]["answer"] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing is asked"),
        (["--classify", "a", "--fill-mask", "b"], "--fill-mask, --classify together"),
        (["--question", "a"], "give --context"),
        (["--context", "a", "--classify", "b"], "--context: goes with --question or --choose"),
        (["--choose", "a", "b"], "--choose: needs a text to answer from; give --context"),
        (["--choose", "a", "--context", "b"], "needs at least two options"),
        (["--choose", "a", "b", "--tag", "c"], "--tag, --choose together"),
        (["--pair", "a", "--fill-mask", "b"], "--pair: goes with --classify"),
        (["--output", "a", "--classify", "b"], "--output: goes with --input"),
        (["--fill-mask", "[MASK]", "--top-k", "0"], "at least 1"),
        (["--input", "a.jsonl", "--output", "b.tsv"], "b.tsv: unknown kind of output; use .jsonl, .csv"),
        (["--classify", "a", "--task", "tag"], "--task: goes with --input"),
        (["--input", "a.jsonl", "--options-field"], "names no field"),
    ],
)
def test_contradictions_are_refused_before_the_model_is_read(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        main(["/no/such/model", *arguments])


def test_a_failure_is_one_line_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert table.run(["predict", "./absent", "--classify", "a"]) == 66
    assert capsys.readouterr().err == "albert: error: absent: no such directory\n"


def test_words_are_tagged(saved: Save, config: AlbertConfig, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(saved(AlbertForTokenClassification(config, 2), id2label={0: "O", 1: "[X]"}))
    main([path, "--tag", "He came.", "--json"])
    words = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [word["word"] for word in words] == ["He", "came", "."]
    main([path, "--tag", "He came."])
    assert "came" in capsys.readouterr().out
    main([path, "--tag", " "])
    assert "note: the text holds no words\n" in capsys.readouterr().err


def test_words_between_blanks_are_tagged_as_in_an_evaluation(
    saved: Save, config: AlbertConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tagger = str(saved(AlbertForTokenClassification(config, 3), id2label={0: "O", 1: "B-X", 2: "I-X"}))
    assert main([tagger, "--tag", "He  came, .", "--words", "--json"]) == 0
    words = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert words == Predictor.open(tagger, "cpu").tag_sentences([["He", "came,", "."]])[0]
    assert [word["word"] for word in words] == ["He", "came,", "."]
    (tmp_path / "in.txt").write_text("He  came, .\n\n")
    assert main([tagger, "--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.jsonl"), "--words"]) == 0
    some, none = (json.loads(line)["predicted_tags"] for line in (tmp_path / "out.jsonl").read_text().splitlines())
    assert [word["word"] for word in some] == ["He", "came,", "."] and none == []
    for wrong in (["--classify", "a"], ["--input", "x.txt", "--task", "embed"]):
        with pytest.raises(UsageError, match="--words: goes with --tag, or with --input where words are tagged"):
            main([tagger, *wrong, "--words"])


def test_an_option_is_chosen(saved: Save, config: AlbertConfig, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(saved(AlbertForMultipleChoice(config)))
    main([path, "--context", "He came.", "--question", "Did he?", "--choose", "yes", "no", "--json"])
    entries = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {entry["option"] for entry in entries} == {"yes", "no"}
    main([path, "--context", "He came.", "--choose", "yes", "no"])
    assert "option" in capsys.readouterr().out


def test_what_is_doubtful_is_said_and_settings_can_be_set(
    saved: Save, config: AlbertConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(saved(AlbertForPreTraining(replace(config, hidden_act="gelu")), net_structure_type=0))
    arguments = [path, "--fill-mask", "The [MASK] sat.", "--json"]
    main(arguments)
    first = capsys.readouterr()
    assert first.err.startswith('note: hidden_act "gelu" is the exact form')
    main([*arguments, "--hidden-act", "gelu_new", "--num-attention-heads", "2", "--precision", "fp32", "--depth", "3"])
    other = capsys.readouterr()
    assert other.err == f"{path}: fp32 on cpu, 3 layers\n"
    assert other.out != first.out
    with pytest.raises(InvalidConfiguration, match="5 heads do not divide"):
        main([*arguments, "--num-attention-heads", "5"])
