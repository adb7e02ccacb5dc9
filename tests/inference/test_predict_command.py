"""`albert predict` answers what it is asked, line by line, and leaves no half of an output behind."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from albert.cli import main as table
from albert.cli.predict import main, read_rows
from albert.model.albert import (
    AlbertForMultipleChoice,
    AlbertForPreTraining,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
)
from albert.model.config import AlbertConfig
from albert.runtime.errors import (
    AlbertError,
    CannotCreate,
    DamagedData,
    InvalidConfiguration,
    MissingInput,
    UsageError,
)

Save = Callable[..., Path]


@pytest.fixture
def classifier(saved: Save, config: AlbertConfig) -> str:
    return str(saved(AlbertForSequenceClassification(config, 2), id2label={0: "dull", 1: "[bold]"}))


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
    found = json.loads(capsys.readouterr().out)
    assert found["label"] in ("in order", "swapped")
    main([path, "--order", "He came.", "He saw."])
    assert found["label"] in capsys.readouterr().out


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


def test_a_file_is_classified_line_by_line(classifier: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [f"He came and saw {'it ' * n}" for n in range(600)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(texts)))
    main([classifier, "--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl")])
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == list(range(600))
    assert all(row["text"] == text for row, text in zip(rows, texts, strict=True))
    for row in rows:
        assert row["score"] == max(row["scores"].values())
        assert row["scores"][row["label"]] == row["score"]
        assert sum(row["scores"].values()) == pytest.approx(1)
    cut = sum("tokens_cut" in row for row in rows)
    assert 0 < cut < 600
    assert f"{cut} of 600 texts were cut: the model reads 64 tokens" in capsys.readouterr().err


def test_plain_lines_and_standard_input_give_the_same(
    classifier: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["He came.", "", "Sáw | it\t!"]
    (tmp_path / "in.txt").write_bytes("\r\n".join(lines).encode() + b"\r\n")
    main([classifier, "--input", str(tmp_path / "in.txt")])
    from_file = capsys.readouterr().out
    assert [json.loads(line)["text"] for line in from_file.splitlines()] == lines
    for content in ("\n".join(lines), "\n".join(json.dumps({"text": line}) for line in lines)):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content.encode())))
        main([classifier, "--input", "-"])
        assert capsys.readouterr().out == from_file


def test_pairs_come_from_their_own_key(classifier: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.jsonl").write_text('{"a": "He came.", "b": "He saw."}\n')
    main([classifier, "--input", str(tmp_path / "in.jsonl"), "--text-field", "a", "--pair-field", "b"])
    found = json.loads(capsys.readouterr().out)
    main([classifier, "--classify", "He came.", "--pair", "He saw.", "--json"])
    assert found["score"] == json.loads(capsys.readouterr().out.splitlines()[0])["score"]


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (b"", MissingInput, "holds no text"),
        (b'{"text": "a"}\n{"text": 3}\n', DamagedData, r"in\.jsonl:2: has no text under 'text'"),
        (b'{"text": "a"}\n{"txt": "b"}\n', DamagedData, r"in\.jsonl:2"),
        (b'{"text": "a"}\n[1]\n', DamagedData, r"in\.jsonl:2"),
        (b'{"text": "a"}\nno\n', DamagedData, r"in\.jsonl:2: is not JSON"),
        (b'{"text": "a"}\n{"text": "\xff"}\n', DamagedData, r"in\.jsonl:2: is not UTF-8"),
        (b'{"text": "a"}\n{"text": "b", "text_pair": "c"}\n', DamagedData, r"in\.jsonl:2: 'text_pair'"),
        (b'{"text": "a", "text_pair": 1}\n', DamagedData, r"in\.jsonl:1: 'text_pair' is not a text"),
        (b"[" * 100_000, DamagedData, r"in\.jsonl:1"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_written(
    classifier: str, tmp_path: Path, content: bytes, error: type[AlbertError], message: str
) -> None:
    (tmp_path / "in.jsonl").write_bytes(content)
    with pytest.raises(error, match=message):
        main([classifier, "--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl")])
    assert not (tmp_path / "out.jsonl").exists()


def test_an_input_that_is_not_there_is_said() -> None:
    with pytest.raises(MissingInput, match="No such file"):
        read_rows("/no/such/file.txt", "text", "text_pair")


def test_an_output_is_replaced_only_when_told(classifier: str, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    (tmp_path / "out.jsonl").write_text("precious")
    arguments = [classifier, "--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.jsonl")]
    with pytest.raises(CannotCreate):
        main(arguments)
    assert (tmp_path / "out.jsonl").read_text() == "precious"
    main([*arguments, "--replace"])
    assert json.loads((tmp_path / "out.jsonl").read_text())["text"] == "a"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing is asked"),
        (["--classify", "a", "--fill-mask", "b"], "--fill-mask, --classify together"),
        (["--question", "a"], "give --context"),
        (["--context", "a", "--classify", "b"], "--context: goes with --question or --choose"),
        (["--choose", "a", "b"], "--choose: needs a text to answer from; give --context"),
        (["--choose", "a", "--context", "b"], "one option is no choice"),
        (["--choose", "a", "b", "--tag", "c"], "--tag, --choose together"),
        (["--pair", "a", "--fill-mask", "b"], "--pair: goes with --classify"),
        (["--output", "a", "--classify", "b"], "--output: goes with --input"),
        (["--fill-mask", "[MASK]", "--top-k", "0"], "at least 1"),
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
    assert capsys.readouterr().err == "note: the text holds no words\n"


def test_an_option_is_chosen(saved: Save, config: AlbertConfig, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(saved(AlbertForMultipleChoice(config)))
    main([path, "--context", "He came.", "--question", "Did he?", "--choose", "yes", "no", "--json"])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {entry["option"] for entry in found} == {"yes", "no"}
    main([path, "--context", "He came.", "--choose", "yes", "no"])
    assert "option" in capsys.readouterr().out


def test_what_is_doubtful_is_said_and_settings_can_be_set(
    saved: Save, config: AlbertConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(saved(AlbertForPreTraining(replace(config, hidden_act="gelu")), net_structure_type=0))
    asked = [path, "--fill-mask", "The [MASK] sat.", "--json"]
    main(asked)
    stated = capsys.readouterr()
    assert stated.err.startswith('note: hidden_act "gelu" is the exact form')
    main([*asked, "--hidden-act", "gelu_new", "--num-attention-heads", "2"])
    other = capsys.readouterr()
    assert other.err == ""
    assert other.out != stated.out
    with pytest.raises(InvalidConfiguration, match="5 heads do not divide"):
        main([*asked, "--num-attention-heads", "5"])
