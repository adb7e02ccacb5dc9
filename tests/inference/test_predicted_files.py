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

import albert
from albert.cli.main import run

EXACT = ("--precision", "fp32")
TEXTS = ['He came, saw\nand "won".', "", " ", "Sáw | it\t!", "猫 🐈\u2028", "\r", "a,b;c", "it " * 90]


def predict_file(model, source, output, *flags):
    """The exit code of `albert predict` with a file."""
    return run(["predict", str(model), "--input", str(source), "--output", str(output), *flags])


@pytest.fixture
def predicted(tmp_path):
    """Predict a file of some content and return the rows of the JSON lines; the file stays as `in.jsonl`."""

    def predict(model, content, *flags, name="in.jsonl"):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        output = tmp_path / "out.jsonl"
        assert predict_file(model, tmp_path / name, output, *EXACT, "--replace", *flags) == 0
        return [json.loads(line) for line in output.read_text(encoding="utf-8").split("\n")[:-1]]

    return predict


def lines(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_file_is_classified_row_by_row(classifier, predicted, tmp_path, capsys):
    texts = [f"He came and saw {'it ' * (n % 90)}" for n in range(600)]
    rows = predicted(classifier, lines(*({"id": i, "text": text} for i, text in enumerate(texts))))
    assert [row["id"] for row in rows] == list(range(600))
    assert [row["text"] for row in rows] == texts
    predictor = albert.load(classifier, precision="fp32")
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
            assert predict_file(classifier, tmp_path / name, output, *EXACT) == 0
        assert pyarrow.parquet.read_table(as_parquet).to_pylist() == expected
        with open(as_csv, newline="", encoding="utf-8") as file:
            read = list(csv.DictReader(file))
        assert [row["text"] for row in read] == TEXTS
        scores = [json.loads(row["predicted_scores"]) for row in read]
        assert scores == [row["predicted_scores"] for row in expected]
        again = predicted(classifier, as_csv.read_bytes(), "--prefix", "second_", name="again.csv")
        assert [row["second_label"] for row in again] == [row["predicted_label"] for row in expected]


def test_null_is_an_empty_text_and_a_number_its_digits(classifier, predicted, capsys):
    rows = [{"text": "a", "text_pair": "b"}, {"text": None, "text_pair": "c"}, {"text": 3, "text_pair": None}]
    rows.append({"text": None, "text_pair": None})
    as_json = predicted(classifier, lines(*rows))
    errors = capsys.readouterr().err
    assert "1 of 4 texts is empty" in errors
    assert "1 of 4 rows has an empty 'text'\n" in errors and "1 of 4 rows has an empty 'text_pair'" in errors
    as_csv = predicted(classifier, "text,text_pair\na,b\n,c\n3,\n,\n", name="in.csv")
    assert [row["predicted_scores"] for row in as_json] == [row["predicted_scores"] for row in as_csv]
    assert [row["text"] for row in as_json] == ["a", None, 3, None]


def test_a_key_that_one_row_lacks_is_an_empty_text(classifier, predicted, tmp_path, capsys):
    """As in training; a key that all rows lack is refused."""
    rows = predicted(classifier, lines({"text": "a", "n": 1}, {"n": 2}, {"text": " ", "n": 3}))
    assert "2 of 3 texts are empty" in capsys.readouterr().err
    assert [row.get("text") for row in rows] == ["a", None, " "]
    assert rows[1]["predicted_scores"] == rows[2]["predicted_scores"]
    (tmp_path / "none.jsonl").write_text(lines({"n": 1}, {"n": 2}))
    assert predict_file(classifier, tmp_path / "none.jsonl", tmp_path / "none.out.jsonl") == 65
    assert "has no field 'text'" in capsys.readouterr().err


def test_null_is_an_empty_question_or_option(model_paths, predicted):
    rows = [
        {"context": "a", "question": None, "options": "b", "c": "d", "e": None},
        {"context": None, "question": "a", "options": None, "c": "d", "e": "f"},
    ]
    flags = ("--options", "options", "c", "e")
    as_json = predicted(model_paths("choose"), lines(*rows), *flags)
    as_csv = predicted(model_paths("choose"), "context,question,options,c,e\na,,b,d,\n,a,,d,f\n", *flags, name="in.csv")
    assert [row["predicted_scores"] for row in as_json] == [row["predicted_scores"] for row in as_csv]
    (row,) = predicted(model_paths("tag"), lines({"text": None}))
    assert row["predicted_tags"] == []


def test_tagged_text_is_written_with_the_predicted_tags(model_paths, predicted, tmp_path, classifier, refused):
    content = "He\tPRP\tO\ncame\tVBD\tO\n\nSáw\tNN\tB-X\n\n"
    rows = predicted(model_paths("tag"), content, name="in.conll")
    output = tmp_path / "out.conll"
    assert predict_file(model_paths("tag"), tmp_path / "in.conll", output, *EXACT) == 0
    tags = [entry["entity"] for row in rows for entry in row["predicted_tags"]]
    expected = iter(tags)
    written = [f"{line}\t{next(expected)}" if line else "" for line in content.split("\n")]
    assert output.read_text(encoding="utf-8").split("\n") == written
    assert predict_file(model_paths("tag"), output, tmp_path / "again.conll", *EXACT) == 0
    (tmp_path / "in.txt").write_text("He came.\n")
    assert predict_file(model_paths("tag"), tmp_path / "in.txt", output, *EXACT, "--replace") == 0
    assert [line.split("\t")[0] for line in output.read_text().splitlines()] == ["He", "came", ".", ""]
    refused(["predict", classifier, "--input", tmp_path / "in.txt", "--output", output, "--replace"], 2, output)


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
        assert run(["predict", classifier, "--input", source, *EXACT]) == 0
        captured = capsys.readouterr()
        assert "note: 1 of 4 texts was cut" in captured.err
        outputs.add(captured.out)
    (output,) = outputs
    assert [json.loads(line)["text"] for line in output.splitlines()] == texts


def test_columns_of_only_some_rows_are_kept(classifier, predicted, tmp_path):
    rows = [{"text": "a", "n": 1}, {"text": "b", "text_pair": "c", "list": [1, None]}, {"n": 2.5, "text": "d"}]
    results = predicted(classifier, lines(*rows))
    assert [{key: result[key] for key in row} for result, row in zip(results, rows, strict=True)] == rows
    for ending in ("parquet", "csv"):
        assert predict_file(classifier, tmp_path / "in.jsonl", tmp_path / f"o.{ending}", *EXACT) == 0
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
    assert predict_file(classifier, tmp_path / "in.parquet", tmp_path / "o.csv", *EXACT) == 0
    with open(tmp_path / "o.csv", newline="") as file:
        (cells,) = csv.DictReader(file)
    assert [{name: each[name] for name in expected} for each in (row, cells)] == [expected] * 2
    assert row["height"] is None and cells["height"] == ""


def test_pairs_are_scored(saved, predicted, tmp_path, refused):
    model = saved("classification", 1, id2label={0: "x"}, problem_type="regression")
    (row,) = predicted(model, lines({"a": "He came.", "b": "He saw."}), "--text", "a", "--pair", "b")
    expected = albert.load(model, precision="fp32").score("He came.", "He saw.")
    assert row["predicted_score"] == pytest.approx(expected, rel=1e-4)
    fields = ["--text", "a", "--pair", "bb"]
    refused(["predict", model, "--input", tmp_path / "in.jsonl", *fields], 65, "in.jsonl:1", "'bb'")


def test_several_numbers_are_given_by_their_names(saved, predicted):
    model = saved("classification", 2, id2label={0: "height", 1: "width"}, problem_type="regression")
    expected = {entry["label"]: entry["score"] for entry in albert.load(model, precision="fp32").classify("a")}
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
    (row,) = predicted(model, columns, "--options", "A", "B", name="in.csv")
    assert row["predicted_option"] in ("Ada", "nobody")


def test_words_are_tagged(saved, predicted):
    model = saved("token_classification", 2, id2label={0: "O", 1: "X"})

    def words(*args, **settings):
        return [[tag["word"] for tag in row["predicted_tags"]] for row in predicted(model, *args, **settings)]

    assert words("He came.\n\n", name="in.txt") == [["He", "came", "."], []]
    assert words("He  came, .\n\n", "--words", name="in.txt") == [["He", "came,", "."], []]
    rows = lines({"text": ["He", "came."]}, {"text": "He came."}, {"text": []})
    assert words(rows) == [["He", "came."], ["He", "came", "."], []]


def test_a_tagger_reads_sentences_of_words_on_lines(saved, predicted, tmp_path, capsys, monkeypatch):
    model = saved("token_classification", 2, id2label={0: "O", 1: "X"})

    def words(content, *flags, name):
        return [[tag["word"] for tag in row["predicted_tags"]] for row in predicted(model, content, *flags, name=name)]

    sentences = [["He", "came", "."], ["#ok"], ["She", "saw"]]
    one_word = "\n\n".join("\n".join(sentence) for sentence in sentences) + "\n"
    tagged = re.sub(r"(?m)(\S+)$", r"\1 O", one_word)
    for content in (one_word, tagged):
        assert words(content, name="in.txt") == sentences
        assert "blank lines divide the lines into sentences" in capsys.readouterr().err
    assert words(one_word, name="in.conll") == sentences
    assert words(tagged, "--task", "tag", name="in.testa") == sentences
    assert words(tagged, name="in.testa") == sentences  # the model itself says that it tags
    evaluated = albert.evaluate(model=model, dev=tmp_path / "in.testa")
    assert evaluated.scores
    rows = lines(*({"words": each, "tags": ["O"] * len(each)} for each in sentences))
    assert words(rows, name="in.jsonl") == sentences
    assert words(tagged, "--task", "tag", "--text", "words", name="in.testa") == sentences
    assert words(tagged, "--task", "tag", "--text", "column 1", name="in.testa") == sentences
    assert len(words(one_word, "reading.format=text", name="in.txt")) == len(one_word.splitlines())
    capsys.readouterr()
    assert len(words("word\n" * 30, name="in.txt")) == 30
    assert "every line has one word" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["in.txt", "in.csv"])
def test_empty_texts_are_counted(name, classifier, saved, predicted, capsys):
    content = "a\n\nb\n \n" if name == "in.txt" else 'text,n\na,1\n"",2\nb,3\n" ",4\n'
    assert len(predicted(classifier, content, name=name)) == 4
    said = "2 of 4 texts are empty; an answer to an empty text means nothing (predicted_empty)"
    assert said in capsys.readouterr().err
    assert len(predicted(str(saved("encoder")), content, "--task", "embed", name=name)) == 4
    assert "2 of 4 texts are empty; the vector of an empty text means nothing" in capsys.readouterr().err


def test_vectors_alone_have_no_mark_that_a_note_could_name(saved, tmp_path, capsys):
    (tmp_path / "in.jsonl").write_text(lines({"text": "He came."}, {"text": ""}))
    output = tmp_path / "out.npy"
    assert predict_file(saved("encoder"), tmp_path / "in.jsonl", output, *EXACT, "--task", "embed") == 0
    assert "1 of 2 texts is empty; the vector of an empty text means nothing\n" in capsys.readouterr().err


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet"])
@pytest.mark.parametrize(
    ("kind", "flags"),
    [
        ("classification", ()),
        ("regression", ()),
        ("multi-label", ()),
        ("pretraining", ("--task", "embed")),
        ("pretraining", ("--task", "order")),
    ],
)
def test_a_row_without_a_text_is_marked(kind, flags, ending, saved, tmp_path):
    """As `empty` in the replies of the server and of Python."""
    heads = {
        "classification": ("classification", 2),
        "regression": ("classification", 1),
        "multi-label": ("classification", 3),
        "pretraining": ("pretraining",),
    }
    extra = {"problem_type": "multi_label_classification"} if kind == "multi-label" else {}
    model = saved(*heads[kind], **extra)
    (tmp_path / "in.jsonl").write_text(
        lines(
            {"text": "He came.", "text_pair": "He saw."},
            {"text": "", "text_pair": " "},
            {"text": None, "text_pair": None},
            {"text": " \n", "text_pair": "He saw."},
        )
    )
    output = tmp_path / f"out{ending}"
    assert predict_file(model, tmp_path / "in.jsonl", output, *EXACT, *flags) == 0
    if ending == ".parquet":
        marks = pyarrow.parquet.read_table(output)["predicted_empty"].to_pylist()
    elif ending == ".csv":
        with open(output, newline="") as file:
            marks = [json.loads(row["predicted_empty"]) for row in csv.DictReader(file)]
    else:
        marks = [json.loads(line)["predicted_empty"] for line in output.read_text().splitlines()]
    reads_second = "embed" not in flags
    assert marks == [False, True, True, not reads_second]


@pytest.mark.parametrize(("separator", "written"), [(",", ","), (";", ";"), ("|", ",")])
def test_csv_is_written_with_the_semicolons_of_the_input(separator, written, classifier, tmp_path):
    (tmp_path / "in.csv").write_text(separator.join(("text", "n")) + f'\n"a, b; c"{separator}1\nd{separator}2\n')
    assert run(["predict", classifier, "--input", str(tmp_path / "in.csv"), "--output", str(tmp_path / "out.csv")]) == 0
    with open(tmp_path / "out.csv", newline="") as file:
        names, *rows = csv.reader(file, delimiter=written)
    assert names[:3] == ["text", "n", "predicted_label"] and [row[0] for row in rows] == ["a, b; c", "d"]


def test_pretrained_model_fills_masks_and_predicts_orders(saved, predicted, tmp_path, refused, capsys):
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
    command = ["predict", model, "--input", tmp_path / "in.jsonl"]
    refused(command, 2, "fill-mask", "order")
    refused([*command, "--task", "tag"], 78, model, "tag words")


def test_vectors_are_written_as_lists_columns_and_arrays(saved, classifier, predicted, tmp_path, refused):
    model = str(saved("encoder"))
    expected = albert.load(model, precision="fp32").embed(TEXTS, "cls", normalize=True)
    flags = ("--pooling", "cls", "--normalize")
    rows = predicted(model, lines(*({"text": text} for text in TEXTS)), *flags)
    np.testing.assert_allclose([row["predicted_embedding"] for row in rows], expected, atol=1e-6)
    for ending in ("npy", "parquet"):
        output = tmp_path / f"vectors.{ending}"
        assert predict_file(model, tmp_path / "in.jsonl", output, *EXACT, *flags) == 0
    vectors = np.load(tmp_path / "vectors.npy")
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    column = pyarrow.parquet.read_table(tmp_path / "vectors.parquet")["predicted_embedding"]
    np.testing.assert_array_equal(np.array(column.to_pylist(), np.float32), vectors)
    output = tmp_path / "no.npy"
    refused(["predict", classifier, "--input", tmp_path / "in.jsonl", "--output", output], 2, output)


@pytest.mark.parametrize(
    ("content", "flags", "code", "subject"),
    [
        ('[\n"a"]', "", 65, "object"),
        ("", "", 66, "standard input: has no rows"),
        ("text b\na c\n", "--text text --pair b", 2, "--text"),
    ],
)
def test_standard_input_of_another_format_is_refused(content, flags, code, subject, classifier, refused, monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content.encode())))
    refused(["predict", classifier, "--input", "-", *flags.split()], code, subject)


@pytest.mark.parametrize(
    ("content", "flags", "texts"),
    [
        ('id,text\n1,"a, b"\n2,"c, d, e"\n', (), ["a, b", "c, d, e"]),
        ("id;text\n1;a, b\n2;c\n", (), ["a, b", "c"]),
        ("id\ttext\n1\ta, b\n", (), ["a, b"]),
        ("text\na\nb c\n", (), ["a", "b c"]),
        ('id,review\n1,"a, b"\n2,c\n', ("--text", "review"), ["a, b", "c"]),
        ("1,a\n2,c\n", ("reading.no_header=true", "--text", "2"), ["a", "c"]),
        ("__label__x a b\n__label__y c\n", (), ["a b", "c"]),
        ("Good, cheap\nBad, broke\n", (), ["Good, cheap", "Bad, broke"]),
    ],
)
def test_standard_input_is_recognised_like_a_file(content, flags, texts, classifier, tmp_path, capsys, monkeypatch):
    (tmp_path / "in.txt").write_text(content)
    outputs = []
    packed = gzip.compress(content.encode())
    for source, stdin in (("-", content.encode()), ("-", packed), (str(tmp_path / "in.txt"), b"")):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
        assert run(["predict", classifier, "--input", source, *flags, *EXACT]) == 0
        captured = capsys.readouterr()
        outputs.append(captured.out)
        assert ("read as one text per line" in captured.err) == ("Good" in content)
    assert len(set(outputs)) == 1
    rows = [json.loads(line) for line in outputs[0].splitlines()]
    column = {(): "text", ("--text", "review"): "review"}.get(flags, "column 2")
    assert [row[column] for row in rows] == texts


def test_parquet_is_read_from_standard_input(classifier, tmp_path, capsys, monkeypatch):
    content = io.BytesIO()
    pyarrow.parquet.write_table(pa.Table.from_pylist([{"text": "a"}]), content)
    content.seek(0)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=content))
    assert run(["predict", classifier, "--input", "-", *EXACT]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == "a"


@pytest.mark.parametrize("flags", [(), ("--text", "txt")])
def test_a_table_with_other_columns_is_refused(flags, classifier, refused, monkeypatch):
    content = b'id,review\n1,"a, b"\n2,c\n'
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    refused(
        ["predict", classifier, "--input", "-", *flags], 65 if flags else 2, "txt" if flags else "reading.format=text"
    )


def test_evaluate_says_that_it_reads_no_standard_input(classifier, refused):
    refused(["evaluate", "--model", classifier, "--dev", "-"], 2, "--dev", "file")


@pytest.mark.parametrize(
    ("name", "content", "code", "place", "subject"),
    [
        ("in.jsonl", b"", 66, "in.jsonl", "rows"),
        ("in.jsonl", b'{"text": "a"}\n{"text": {"a": "b"}}\n', 65, "in.jsonl:2", "'text'"),
        ("in.jsonl", b'{"txt": "a"}\n{"text": "b"}\n', 65, "in.jsonl:1", "'txt'"),
        ("in.jsonl", b'{"text": "a"}\nno\n', 65, "in.jsonl:2", "JSON"),
        ("in.jsonl", b'{"text": "a", "text_pair": ["b"]}\n', 65, "in.jsonl:1", "'text_pair'"),
        ("in.jsonl", b'{"text": "a", "predicted_label": 1}\n', 65, "in.jsonl", "'predicted_label'"),
        ("in.csv", b"text,b\r\na\r\n", 65, "in.csv:2", "fields"),
        ("in.parquet", b"PAR1", 65, "in.parquet", "Parquet"),
        ("in.doc", b"no", 2, "in.doc", ".txt"),
        ("absent.txt", None, 66, "absent.txt", ""),
    ],
)
def test_invalid_input_is_named_and_nothing_written(classifier, tmp_path, refused, name, content, code, place, subject):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    command = ["predict", classifier, "--input", tmp_path / name, "--output", tmp_path / "out.jsonl"]
    refused(command, code, place, subject)
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize(
    ("name", "value", "place"), [("id", "two", "in.jsonl:2"), ("id", 2**64, "in.jsonl:2"), ("other", {"e": {}}, "")]
)
def test_value_that_does_not_fit_its_parquet_column_is_named(name, value, place, classifier, refused, tmp_path):
    (tmp_path / "in.jsonl").write_text(lines({"text": "a", "id": 1}, {"text": "b", name: value}))
    command = ["predict", classifier, "--input", tmp_path / "in.jsonl", "--output", tmp_path / "out.parquet"]
    refused(command, 65, place, f"'{name}'")


def test_existing_output_is_replaced_only_with_replace(classifier, refused, tmp_path):
    (tmp_path / "in.txt").write_text("a\n")
    output = tmp_path / "out.jsonl"
    output.write_text("precious")
    arguments = ["predict", classifier, "--input", str(tmp_path / "in.txt"), "--output", str(output)]
    refused(arguments, 73, output)
    assert output.read_text() == "precious"
    assert run([*arguments, "--replace"]) == 0
    assert json.loads(output.read_text())["text"] == "a"


ONE_WORD_A_ROW = "Sentence #,Word,Note\nSentence: 1,He,a\n,came,b\n,.,c\nSentence: 2,He,d\n,saw,e\n"


@pytest.fixture
def grouping(saved):
    """A tagger whose task has one word in each row."""
    path = saved("token_classification", 3, id2label={0: "O", 1: "B-X", 2: "I-X"})
    task = {"kind": "token-classification", "words": "Word", "tags": "Tag", "group": "Sentence #"}
    (path.parent / "task.json").write_text(json.dumps(task))
    return path


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_rows_of_one_word_are_grouped_as_in_training(ending, grouping, tmp_path, capsys):
    (tmp_path / "words.csv").write_text(ONE_WORD_A_ROW)
    output = tmp_path / f"tagged.{ending}"
    assert run(["predict", str(grouping), "--input", str(tmp_path / "words.csv"), "--output", str(output)]) == 0
    assert "Sentence #" in capsys.readouterr().err
    if ending == "parquet":
        rows = pyarrow.parquet.read_table(output).to_pylist()
    elif ending == "csv":
        with open(output, newline="") as file:
            rows = [{**row, "Word": json.loads(row["Word"])} for row in csv.DictReader(file)]
    else:
        rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(row["Sentence #"], row["Word"]) for row in rows] == [
        ("Sentence: 1", ["He", "came", "."]),
        ("Sentence: 2", ["He", "saw"]),
    ]
    if ending == "jsonl":
        expected = albert.load(grouping).tag_sentences([["He", "came", "."], ["He", "saw"]])
        assert [[word["entity"] for word in row["predicted_tags"]] for row in rows] == [
            [word["entity"] for word in sentence] for sentence in expected
        ]
        assert rows[0]["Note"] == ["a", "b", "c"]


def test_a_table_of_words_without_its_column_of_sentences(grouping, tmp_path, refused, capsys):
    file = tmp_path / "words.csv"
    file.write_text(ONE_WORD_A_ROW.replace("Sentence #", "sent"))
    refused(["predict", str(grouping), "--input", str(file)], 65, "Sentence #", "--group")
    assert run(["predict", str(grouping), "--input", str(file), "--group", "sent"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    file.write_text(ONE_WORD_A_ROW.replace("saw", "saw her"))
    refused(["predict", str(grouping), "--input", str(file), "--group", "Sentence #"], 2, "--group")
    file.write_text("Word\nHe came.\n")  # whole sentences
    assert run(["predict", str(grouping), "--input", str(file)]) == 0
