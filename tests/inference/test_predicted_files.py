"""`albert predict --input` answers every row of a file, keeps its fields, and names what it cannot read."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from albert.cli.commands import predict_main as main
from albert.inference.predictor import Predictor
from albert.model.albert import (
    AlbertForMultipleChoice,
    AlbertForPreTraining,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
    AlbertModel,
)
from albert.model.config import AlbertConfig
from albert.runtime.errors import AlbertError, CannotCreate, DamagedData, InvalidConfiguration, MissingInput, UsageError

Save = Callable[..., Path]
Captured = pytest.CaptureFixture[str]
EXACT = ("--precision", "fp32")
TEXTS = ['He came, saw\nand "won".', "", " ", "Sáw | it\t!", "猫 🐈\u2028", "\r", "a,b;c", "it " * 90]


def predicted(model: str, content: str | bytes, tmp_path: Path, name: str = "in.jsonl", *flags: str) -> list[Any]:
    """The JSON lines that come of an input."""
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    main([model, "--input", str(tmp_path / name), "--output", str(tmp_path / "out.jsonl"), *EXACT, "--replace", *flags])
    return [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]


def lines(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_a_file_is_classified_row_by_row(classifier: str, tmp_path: Path, capsys: Captured) -> None:
    texts = [f"He came and saw {'it ' * (n % 90)}" for n in range(600)]
    rows = predicted(classifier, lines(*({"id": i, "text": text} for i, text in enumerate(texts))), tmp_path)
    assert [row["id"] for row in rows] == list(range(600))
    assert [row["text"] for row in rows] == texts
    alone = Predictor.open(classifier, precision="fp32")
    for row in rows[::97]:
        (best, other) = alone.classify(row["text"])
        assert row["predicted_label"] == best["label"]
        assert row["predicted_scores"] == pytest.approx({entry["label"]: entry["score"] for entry in (best, other)})
        assert row["predicted_score"] == row["predicted_scores"][best["label"]]
        assert row["predicted_tokens_cut"] == best.get("tokens_cut", 0)
    cut = sum(row["predicted_tokens_cut"] > 0 for row in rows)
    errors = capsys.readouterr().err
    assert 0 < cut < 600
    assert f"{cut} of 600 texts were cut: the model reads 64 tokens" in errors
    assert f"{classifier}: fp32 on cpu, 2 layers" in errors
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "model-0") == ["in.jsonl", "out.jsonl"]


def test_every_format_says_the_same(classifier: str, tmp_path: Path) -> None:
    rows = [{"text": text, "id": str(i), "gold": "dull"} for i, text in enumerate(TEXTS)]
    expected = predicted(classifier, lines(*rows), tmp_path)
    as_csv = io.StringIO(newline="")
    writer = csv.DictWriter(as_csv, ["text", "id", "gold"])
    writer.writeheader()
    writer.writerows(rows)
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    contents = {"in.csv": as_csv.getvalue().encode(), "in.parquet": (tmp_path / "in.parquet").read_bytes()}
    for name, content in contents.items():
        assert predicted(classifier, content, tmp_path, name) == expected
        for ending in ("csv", "parquet"):
            output = tmp_path / f"{name}.out.{ending}"
            main([classifier, "--input", str(tmp_path / name), "--output", str(output), *EXACT])
            if ending == "parquet":
                assert pyarrow.parquet.read_table(output).to_pylist() == expected
                continue
            with open(output, newline="", encoding="utf-8") as file:
                read = list(csv.DictReader(file))
            assert [row["text"] for row in read] == TEXTS
            assert [json.loads(row["predicted_scores"]) for row in read] == [
                row["predicted_scores"] for row in expected
            ]
            again = predicted(classifier, output.read_bytes(), tmp_path, "again.csv", "--prefix", "second_")
            assert [row["second_label"] for row in again] == [row["predicted_label"] for row in expected]


def test_plain_packed_and_standard_input_give_the_same(
    classifier: str, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gzip

    texts = ["He came.", "", "Sáw | it\t!"]
    content = "\r\n".join(texts).encode() + b"\r\n"
    (tmp_path / "in.txt").write_bytes(b"\xef\xbb\xbf" + content)
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress(content))
    main([classifier, "--input", str(tmp_path / "in.txt"), *EXACT])
    from_file = capsys.readouterr().out
    assert [json.loads(line)["text"] for line in from_file.splitlines()] == texts
    main([classifier, "--input", str(tmp_path / "in.txt.gz"), *EXACT])
    assert capsys.readouterr().out == from_file
    for stdin in (content, lines(*({"text": text} for text in texts)).encode()):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
        main([classifier, "--input", "-", *EXACT])
        assert capsys.readouterr().out == from_file


def test_cut_texts_are_counted_on_standard_output_too(classifier: str, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "in.txt").write_text("He came.\n" + "it " * 90 + "\n")
    main([classifier, "--input", str(tmp_path / "in.txt"), *EXACT])
    assert "note: 1 of 2 texts were cut" in capsys.readouterr().err


def test_columns_that_only_some_rows_have_are_kept(classifier: str, tmp_path: Path) -> None:
    rows = [{"text": "a", "n": 1}, {"text": "b", "text_pair": "c", "list": [1, None]}, {"n": 2.5, "text": "d"}]
    results = predicted(classifier, lines(*rows), tmp_path)
    assert [{key: result[key] for key in row} for result, row in zip(results, rows, strict=True)] == rows
    for ending in ("parquet", "csv"):
        main([classifier, "--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / f"o.{ending}"), *EXACT])
    table = pyarrow.parquet.read_table(tmp_path / "o.parquet").to_pylist()
    assert [row["n"] for row in table] == [1, None, 2.5]
    assert [row["list"] for row in table] == [None, [1, None], None]
    with open(tmp_path / "o.csv", newline="") as file:
        assert [row["n"] for row in csv.DictReader(file)] == ["1", "", "2.5"]


def test_every_head_answers_a_file(saved: Save, config: AlbertConfig, tmp_path: Path) -> None:
    scorer = saved(AlbertForSequenceClassification(config, 1), id2label={0: "x"}, problem_type="regression")
    (row,) = predicted(
        str(scorer),
        lines({"a": "He came.", "b": "He saw."}),
        tmp_path,
        "in.jsonl",
        "--text-field",
        "a",
        "--pair-field",
        "b",
    )
    assert row["predicted_score"] == pytest.approx(
        Predictor.open(scorer, precision="fp32").score("He came.", "He saw."), rel=1e-4
    )
    answerer = str(saved(AlbertForQuestionAnswering(config)))
    context = "The letter was written by Ada."
    content = lines({"question": "Who?", "context": context})
    (row,) = predicted(answerer, content, tmp_path)
    assert row["predicted_answer"] == context[row["predicted_start"] : row["predicted_end"]]
    (row,) = predicted(answerer, content, tmp_path, "in.jsonl", "--top-k", "3")
    assert len(row["predicted_others"]) == 2
    chooser = str(saved(AlbertForMultipleChoice(config)))
    (row,) = predicted(chooser, lines({"context": context, "options": ["yes", "no"]}), tmp_path)
    assert row["predicted_option"] == row["options"][row["predicted_index"]]
    assert sum(row["predicted_scores"]) == pytest.approx(1)
    columns = f"context,question,A,B\r\n{context},Who?,Ada,nobody\r\n"
    (row,) = predicted(chooser, columns, tmp_path, "in.csv", "--options-field", "A", "B")
    assert row["predicted_option"] in ("Ada", "nobody")
    tagger = str(saved(AlbertForTokenClassification(config, 2), id2label={0: "O", 1: "X"}))
    words, nothing = predicted(tagger, "He came.\n\n", tmp_path, "in.txt")
    assert [tag["word"] for tag in words["predicted_tags"]] == ["He", "came", "."]
    assert nothing["predicted_tags"] == []
    content = lines({"text": ["He", "came."]}, {"text": "He came."}, {"text": []})
    tags = [row["predicted_tags"] for row in predicted(tagger, content, tmp_path)]
    assert [[tag["word"] for tag in each] for each in tags] == [["He", "came."], ["He", "came", "."], []]
    pretrained = str(saved(AlbertForPreTraining(config), sentence_objective="sop"))
    (row,) = predicted(
        pretrained, "The [MASK] saw [MASK].\n", tmp_path, "in.txt", "--task", "fill-mask", "--top-k", "2"
    )
    assert [len(mask) for mask in row["predicted_masks"]] == [2, 2]
    pair = lines({"text": "He came.", "text_pair": "He saw."})
    (row,) = predicted(pretrained, pair, tmp_path, "in.jsonl", "--task", "order")
    assert row["predicted_label"] in ("in order", "swapped")
    with pytest.raises(UsageError, match="supports several tasks; choose fill-mask or order"):
        predicted(pretrained, pair, tmp_path)
    with pytest.raises(InvalidConfiguration, match="no trained head to tag words; this model can fill masks"):
        predicted(pretrained, pair, tmp_path, "in.jsonl", "--task", "tag")


def test_vectors_come_as_lists_columns_and_arrays(saved: Save, config: AlbertConfig, tmp_path: Path) -> None:
    model = str(saved(AlbertModel(config)))
    expected = Predictor.open(model, precision="fp32").embed(TEXTS, "cls", normalize=True)
    flags = ("--pooling", "cls", "--normalize")
    rows = predicted(model, lines(*({"text": text} for text in TEXTS)), tmp_path, "in.jsonl", *flags)
    np.testing.assert_allclose([row["predicted_embedding"] for row in rows], expected, atol=1e-6)
    for ending in ("npy", "parquet"):
        output = tmp_path / f"vectors.{ending}"
        main([model, "--input", str(tmp_path / "in.jsonl"), "--output", str(output), *EXACT, *flags])
    vectors = np.load(tmp_path / "vectors.npy")
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    column = pyarrow.parquet.read_table(tmp_path / "vectors.parquet")["predicted_embedding"]
    np.testing.assert_array_equal(np.array(column.to_pylist(), np.float32), vectors)
    classifier = str(saved(AlbertForSequenceClassification(config, 2)))
    with pytest.raises(UsageError, match=r"no\.npy: holds only vectors; use --task embed"):
        main([classifier, "--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "no.npy")])


def test_rows_without_an_answer_are_counted_and_named(
    saved: Save, config: AlbertConfig, tmp_path: Path, capsys: Captured
) -> None:
    pretrained = str(saved(AlbertForPreTraining(config)))
    content = "The [MASK] sat.\nNo mask.\nA [MASK]\n" + "[MASK] it" * 60 + "\n"
    rows = predicted(pretrained, content, tmp_path, "in.txt", "--task", "fill-mask")
    assert [row["predicted_error"] for row in rows[:3]] == [None, "has no [MASK] to fill", None]
    assert [row["predicted_masks"] is None for row in rows] == [False, True, False, True]
    errors = capsys.readouterr().err
    assert re.search(r"2 of 4 rows have no answer; \S+in\.txt:2: has no \[MASK\] to fill; \S+in\.txt:4: has", errors)
    answerer = str(saved(AlbertForQuestionAnswering(config)))
    empty = lines({"question": "Who?", "context": " "}, {"question": "Who?", "context": "Ada."})
    rows = predicted(answerer, empty, tmp_path)
    assert [row["predicted_answer"] is None for row in rows] == [True, False]


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("in.jsonl", b"", MissingInput, "holds no rows"),
        ("in.csv", b"text\r\n", MissingInput, "holds no rows"),
        ("in.jsonl", b'{"text": "a"}\n{"text": 3}\n', DamagedData, r"in\.jsonl:2: field 'text' is int"),
        ("in.jsonl", b'{"text": null}\n', DamagedData, r"in\.jsonl:1: field 'text' is null, a text is expected"),
        ("in.jsonl", b'{"text": "a"}\n{"txt": "b"}\n', DamagedData, r"in\.jsonl:2: has no field 'text'; did you mean"),
        ("in.jsonl", b'{"text": "a"}\n[1]\n', DamagedData, r"in\.jsonl:2: is list"),
        ("in.jsonl", b'{"text": "a"}\nno\n', DamagedData, r"in\.jsonl:2: is not JSON"),
        ("in.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', DamagedData, r"in\.jsonl:2: is not UTF-8"),
        ("in.jsonl", b'{"text": "a", "text_pair": 1}\n', DamagedData, r"in\.jsonl:1: field 'text_pair' is int"),
        ("in.jsonl", b'{"text": "\\ud800"}\n', DamagedData, r"in\.jsonl:1: 'text' holds half of a surrogate pair"),
        ("in.jsonl", b'{"text": "a", "predicted_label": 1}\n', DamagedData, r"has a field 'predicted_label' already"),
        ("in.jsonl", b"[" * 100_000, DamagedData, r"in\.jsonl:1"),
        ("in.csv", b"text,b\r\na\r\n", DamagedData, r"in\.csv:2: has 1 fields where the header has 2"),
        ("in.csv", b'text\r\n"a\r\n', DamagedData, r"in\.csv:2: broken CSV"),
        ("in.csv", b"text,text\r\na,b\r\n", DamagedData, r"in\.csv:1: two columns have the same name"),
        ("in.parquet", b"PAR1", DamagedData, "damaged Parquet file"),
        ("in.txt.gz", b"no", DamagedData, "damaged gzip file"),
        ("in.doc", b"no", UsageError, r"unknown kind of file; use \.txt"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_written(
    classifier: str, tmp_path: Path, name: str, content: bytes, error: type[AlbertError], message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=message):
        main([classifier, "--input", str(tmp_path / name), "--output", str(tmp_path / "out.jsonl")])
    assert not list(tmp_path.glob("out*"))


def test_an_input_that_is_not_there_is_said(classifier: str) -> None:
    with pytest.raises(MissingInput, match="No such file"):
        main([classifier, "--input", "/no/such/file.txt"])


def test_what_fits_no_column_is_named(classifier: str, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(lines({"text": "a", "id": 1}, {"text": "b", "id": "two"}))
    with pytest.raises(DamagedData, match=r"in\.jsonl:2: does not fit the columns"):
        main([classifier, "--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.parquet")])


def test_an_output_is_replaced_only_when_told(classifier: str, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    (tmp_path / "out.jsonl").write_text("precious")
    arguments = [classifier, "--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.jsonl")]
    with pytest.raises(CannotCreate, match="exists already"):
        main(arguments)
    assert (tmp_path / "out.jsonl").read_text() == "precious"
    main([*arguments, "--replace"])
    assert json.loads((tmp_path / "out.jsonl").read_text())["text"] == "a"
