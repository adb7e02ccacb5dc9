"""`albert predict --input` predicts every row of a file, keeps its fields, and names rows that it cannot read."""

import csv
import datetime
import gzip
import io
import json
import re
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from albert.cli.commands import predict_main as main
from albert.inference.predictor import Predictor
from albert.runtime.errors import CannotCreate, DamagedData, InvalidConfiguration, MissingInput, UsageError

EXACT = ("--precision", "fp32")
TEXTS = ['He came, saw\nand "won".', "", " ", "Sáw | it\t!", "猫 🐈\u2028", "\r", "a,b;c", "it " * 90]


@pytest.fixture
def predicted(tmp_path):
    """Predict a file of some content and return the rows of the JSON lines; the file stays as `in.jsonl`."""

    def predict(model, content, *flags, name="in.jsonl"):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        output = tmp_path / "out.jsonl"
        main([str(model), "--input", str(tmp_path / name), "--output", str(output), *EXACT, "--replace", *flags])
        return [json.loads(line) for line in output.read_text(encoding="utf-8").split("\n")[:-1]]

    return predict


def lines(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_file_is_classified_row_by_row(classifier, predicted, tmp_path, capsys):
    texts = [f"He came and saw {'it ' * (n % 90)}" for n in range(600)]
    rows = predicted(classifier, lines(*({"id": i, "text": text} for i, text in enumerate(texts))))
    assert [row["id"] for row in rows] == list(range(600))
    assert [row["text"] for row in rows] == texts
    predictor = Predictor.open(classifier, precision="fp32")
    for row in rows[::97]:
        best, second = predictor.classify(row["text"])
        assert row["predicted_label"] == best["label"]
        assert row["predicted_scores"] == pytest.approx({entry["label"]: entry["score"] for entry in (best, second)})
        assert row["predicted_score"] == row["predicted_scores"][best["label"]]
        assert row["predicted_tokens_cut"] == best.get("tokens_cut", 0)
    cut = sum(row["predicted_tokens_cut"] > 0 for row in rows)
    errors = capsys.readouterr().err
    assert 0 < cut < 600 and f"{cut} of 600 texts were cut: the model reads 64 tokens" in errors
    assert f"{classifier}: fp32 on cpu, 2 layers" in errors
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "model-0") == ["in.jsonl", "out.jsonl"]


def test_all_formats_give_the_same_predictions(classifier, predicted, tmp_path):
    rows = [{"text": text, "id": str(i), "gold": "dull"} for i, text in enumerate(TEXTS)]
    expected = predicted(classifier, lines(*rows))
    content = io.StringIO(newline="")
    writer = csv.DictWriter(content, ["text", "id", "gold"])
    writer.writeheader()
    writer.writerows(rows)
    (tmp_path / "in.csv").write_bytes(content.getvalue().encode())
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    for name in ("in.csv", "in.parquet"):
        assert predicted(classifier, (tmp_path / name).read_bytes(), name=name) == expected
        as_csv, as_parquet = (tmp_path / f"{name}.out.{ending}" for ending in ("csv", "parquet"))
        for output in (as_csv, as_parquet):
            main([classifier, "--input", str(tmp_path / name), "--output", str(output), *EXACT])
        assert pyarrow.parquet.read_table(as_parquet).to_pylist() == expected
        with open(as_csv, newline="", encoding="utf-8") as file:
            read = list(csv.DictReader(file))
        assert [row["text"] for row in read] == TEXTS
        scores = [json.loads(row["predicted_scores"]) for row in read]
        assert scores == [row["predicted_scores"] for row in expected]
        again = predicted(classifier, as_csv.read_bytes(), "--prefix", "second_", name="again.csv")
        assert [row["second_label"] for row in again] == [row["predicted_label"] for row in expected]


def test_plain_packed_and_standard_input_give_the_same(classifier, tmp_path, capsys, monkeypatch):
    texts = ["[MASK] came.", "", "Sáw | it\t!", "it " * 90]
    content = "\r\n".join(texts).encode() + b"\r\n"
    (tmp_path / "in.txt").write_bytes(b"\xef\xbb\xbf" + content)
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress(content))
    inputs = [(str(tmp_path / name), b"") for name in ("in.txt", "in.txt.gz")]
    inputs += [("-", content), ("-", lines(*({"text": text} for text in texts)).encode())]
    outputs = set()
    for source, stdin in inputs:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
        main([classifier, "--input", source, *EXACT])
        captured = capsys.readouterr()
        assert "note: 1 of 4 texts were cut" in captured.err
        outputs.add(captured.out)
    (output,) = outputs
    assert [json.loads(line)["text"] for line in output.splitlines()] == texts


def test_columns_of_only_some_rows_are_kept(classifier, predicted, tmp_path):
    rows = [{"text": "a", "n": 1}, {"text": "b", "text_pair": "c", "list": [1, None]}, {"n": 2.5, "text": "d"}]
    results = predicted(classifier, lines(*rows))
    assert [{key: result[key] for key in row} for result, row in zip(results, rows, strict=True)] == rows
    for ending in ("parquet", "csv"):
        main([classifier, "--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / f"o.{ending}"), *EXACT])
    table = pyarrow.parquet.read_table(tmp_path / "o.parquet").to_pylist()
    assert [row["n"] for row in table] == [1, None, 2.5]
    assert [row["list"] for row in table] == [None, [1, None], None]
    with open(tmp_path / "o.csv", newline="") as file:
        assert [row["n"] for row in csv.DictReader(file)] == ["1", "", "2.5"]


def test_dates_decimal_numbers_and_nan_are_written(classifier, predicted, tmp_path):
    values = {"day": datetime.date(2020, 1, 2), "time": datetime.datetime(2020, 1, 2, 3), "price": Decimal("1.50")}
    values["height"] = float("nan")
    pyarrow.parquet.write_table(pa.Table.from_pylist([{"text": "a", **values}]), tmp_path / "typed.parquet")
    expected = {"day": "2020-01-02", "time": "2020-01-02T03:00:00", "price": "1.50"}
    (row,) = predicted(classifier, (tmp_path / "typed.parquet").read_bytes(), name="in.parquet")
    main([classifier, "--input", str(tmp_path / "in.parquet"), "--output", str(tmp_path / "o.csv"), *EXACT])
    with open(tmp_path / "o.csv", newline="") as file:
        (cells,) = csv.DictReader(file)
    assert [{name: each[name] for name in expected} for each in (row, cells)] == [expected] * 2
    assert row["height"] is None and cells["height"] == ""


def test_pairs_are_scored(saved, predicted):
    model = saved("classification", 1, id2label={0: "x"}, problem_type="regression")
    (row,) = predicted(model, lines({"a": "He came.", "b": "He saw."}), "--text-field", "a", "--pair-field", "b")
    expected = Predictor.open(model, precision="fp32").score("He came.", "He saw.")
    assert row["predicted_score"] == pytest.approx(expected, rel=1e-4)
    with pytest.raises(DamagedData, match=r"has no field 'bb'; did you mean 'b'\? \(--pair names another\)"):
        predicted(model, lines({"a": "He came.", "b": "He saw."}), "--text-field", "a", "--pair-field", "bb")


def test_several_numbers_are_given_by_their_names(saved, predicted):
    model = saved("classification", 2, id2label={0: "height", 1: "width"}, problem_type="regression")
    expected = {entry["label"]: entry["score"] for entry in Predictor.open(model, precision="fp32").classify("a")}
    (row,) = predicted(model, lines({"text": "a"}))
    assert row["predicted_scores"] == pytest.approx(expected, rel=1e-4)
    assert sum(expected.values()) != pytest.approx(1)


def test_questions_are_answered(saved, predicted):
    model = saved("question_answering")
    context = "The letter was written by Ada."
    rows = predicted(model, lines(*({"question": "Who?", "context": text} for text in (context, " "))))
    assert rows[0]["predicted_answer"] == context[rows[0]["predicted_start"] : rows[0]["predicted_end"]]
    assert rows[1]["predicted_answer"] is None
    (row,) = predicted(model, lines({"question": "Who?", "context": context}), "--top-k", "3")
    assert len(row["predicted_others"]) == 2


def test_options_are_chosen(saved, predicted):
    model = saved("multiple_choice")
    (row,) = predicted(model, lines({"context": "He came.", "options": ["yes", "no"]}))
    assert row["predicted_option"] == row["options"][row["predicted_index"]]
    assert sum(row["predicted_scores"]) == pytest.approx(1)
    columns = "context,question,A,B\r\nHe came.,Who?,Ada,nobody\r\n"
    (row,) = predicted(model, columns, "--options-field", "A", "B", name="in.csv")
    assert row["predicted_option"] in ("Ada", "nobody")


def test_words_are_tagged(saved, predicted):
    model = saved("token_classification", 2, id2label={0: "O", 1: "X"})

    def words(*args, **settings):
        return [[tag["word"] for tag in row["predicted_tags"]] for row in predicted(model, *args, **settings)]

    assert words("He came.\n\n", name="in.txt") == [["He", "came", "."], []]
    assert words("He  came, .\n\n", "--words", name="in.txt") == [["He", "came,", "."], []]
    rows = lines({"text": ["He", "came."]}, {"text": "He came."}, {"text": []})
    assert words(rows) == [["He", "came."], ["He", "came", "."], []]


def test_pretrained_model_fills_masks_and_predicts_orders(saved, predicted, capsys):
    model = saved("pretraining", sentence_objective="sop")
    text = "The [MASK] saw [MASK].\nNo mask.\nA [MASK]\n" + "[MASK] it" * 60 + "\n"
    rows = predicted(model, text, "--task", "fill-mask", "--top-k", "2", name="in.txt")
    assert [len(mask) for mask in rows[0]["predicted_masks"]] == [2, 2]
    assert [row["predicted_error"] for row in rows[:3]] == [None, "has no [MASK] to fill", None]
    assert [row["predicted_masks"] is None for row in rows] == [False, True, False, True]
    errors = capsys.readouterr().err
    assert re.search(r"2 of 4 rows have no answer; \S+in\.txt:2: has no \[MASK\] to fill; \S+in\.txt:4: has", errors)
    pair = lines({"text": "He came.", "text_pair": "He saw."})
    (row,) = predicted(model, pair, "--task", "order")
    assert row["predicted_label"] in ("in order", "swapped")
    with pytest.raises(UsageError, match="supports several tasks; choose fill-mask or order"):
        predicted(model, pair)
    with pytest.raises(InvalidConfiguration, match="no trained head to tag words; this model can fill masks"):
        predicted(model, pair, "--task", "tag")


def test_vectors_are_written_as_lists_columns_and_arrays(saved, classifier, predicted, tmp_path):
    model = str(saved("encoder"))
    expected = Predictor.open(model, precision="fp32").embed(TEXTS, "cls", normalize=True)
    flags = ("--pooling", "cls", "--normalize")
    rows = predicted(model, lines(*({"text": text} for text in TEXTS)), *flags)
    np.testing.assert_allclose([row["predicted_embedding"] for row in rows], expected, atol=1e-6)
    for ending in ("npy", "parquet"):
        output = tmp_path / f"vectors.{ending}"
        main([model, "--input", str(tmp_path / "in.jsonl"), "--output", str(output), *EXACT, *flags])
    vectors = np.load(tmp_path / "vectors.npy")
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    column = pyarrow.parquet.read_table(tmp_path / "vectors.parquet")["predicted_embedding"]
    np.testing.assert_array_equal(np.array(column.to_pylist(), np.float32), vectors)
    with pytest.raises(UsageError, match=r"no\.npy: holds only vectors; use --task embed"):
        main([classifier, "--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "no.npy")])


@pytest.mark.parametrize(
    ("content", "flags", "error", "message"),
    [
        ('[\n"a"]', "", DamagedData, "is str, an object is expected"),
        ("text b\na c\n", "--text-field text --pair-field b", UsageError, "--text: - is one text per line"),
    ],
)
def test_standard_input_of_another_format_is_refused(content, flags, error, message, classifier, monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content.encode())))
    with pytest.raises(error, match=message):
        main([classifier, "--input", "-", *flags.split()])


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("in.jsonl", b"", MissingInput, "has no rows"),
        ("in.jsonl", b'{"text": "a"}\n{"text": 3}\n', DamagedData, r"in\.jsonl:2: field 'text' is int"),
        ("in.jsonl", b'{"text": null}\n', DamagedData, r"in\.jsonl:1: field 'text' is null, a text is expected"),
        ("in.jsonl", b'{"text": "a"}\n{"txt": "b"}\n', DamagedData, r"in\.jsonl:2: has no field 'text'; did you mean"),
        ("in.jsonl", b'{"text": "a"}\nno\n', DamagedData, r"in\.jsonl:2: is not JSON"),
        ("in.jsonl", b'{"text": "a", "text_pair": 1}\n', DamagedData, r"in\.jsonl:1: field 'text_pair' is int"),
        ("in.jsonl", b'{"text": "a", "predicted_label": 1}\n', DamagedData, r"has a field 'predicted_label' already"),
        ("in.csv", b"text,b\r\na\r\n", DamagedData, r"in\.csv:2: has 1 fields where the header has 2"),
        ("in.parquet", b"PAR1", DamagedData, "damaged Parquet file"),
        ("in.doc", b"no", UsageError, r"\.doc files are not read; write \.txt"),
        ("absent.txt", None, MissingInput, "No such file"),
    ],
)
def test_invalid_input_is_named_and_nothing_written(classifier, tmp_path, name, content, error, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=message):
        main([classifier, "--input", str(tmp_path / name), "--output", str(tmp_path / "out.jsonl")])
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("two", r"in\.jsonl:2: field 'id' does not fit a Parquet column with the rows before \(.*string"),
        (2**64, r"in\.jsonl:2: field 'id' does not fit a Parquet column .*too large"),
        ({"e": {}}, r"field 'other': does not fit a Parquet column \(Cannot write struct type 'e'.*; write \.jsonl"),
    ],
)
def test_value_that_does_not_fit_its_parquet_column_is_named(value, message, classifier, tmp_path):
    name = "other" if isinstance(value, dict) else "id"
    (tmp_path / "in.jsonl").write_text(lines({"text": "a", "id": 1}, {"text": "b", name: value}))
    with pytest.raises(DamagedData, match=message):
        main([classifier, "--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.parquet")])


def test_existing_output_is_replaced_only_with_replace(classifier, tmp_path):
    (tmp_path / "in.txt").write_text("a\n")
    output = tmp_path / "out.jsonl"
    output.write_text("precious")
    arguments = [classifier, "--input", str(tmp_path / "in.txt"), "--output", str(output)]
    with pytest.raises(CannotCreate, match="exists already"):
        main(arguments)
    assert output.read_text() == "precious"
    main([*arguments, "--replace"])
    assert json.loads(output.read_text())["text"] == "a"
